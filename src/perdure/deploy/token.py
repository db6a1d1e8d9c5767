"""The token of a deployment: made once, kept on this machine in a file of mode 0600, and what NATS' passwords follow from."""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from perdure.config import DeploySettings
from perdure.errors import ConfigurationError

FOLDER = ".perdure"
_GITIGNORE = "*\n"


def token_file(deploy: DeploySettings, folder: Path) -> Path:
    """The one that `[deploy.gateway]` names, else `.perdure/PROJECT.token` beside the project file."""
    return deploy.gateway.token_file or folder / FOLDER / f"{deploy.name}.token"


def read_token(path: Path) -> str | None:
    """None: there is none yet. One that others can read is made its owner's alone where it was made here; one that the project names
    stays as it is, see `others_can_read`. Raises ConfigurationError for one that cannot be used."""
    try:
        with path.open(encoding="ascii") as file:
            if _is_own(path) and os.fstat(file.fileno()).st_mode & 0o077:
                os.fchmod(file.fileno(), 0o600)
            token = file.read().strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The token file {path} cannot be read: {error}.") from error
    if not token or not all("!" <= letter <= "~" for letter in token):
        raise ConfigurationError(f"The token file {path} must hold printable ASCII without spaces.")
    return token


def others_can_read(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & 0o077)
    except OSError:
        return False


def _is_own(path: Path) -> bool:
    return path.parent.name == FOLDER


def new_token() -> str:
    """256 random bits."""
    return secrets.token_urlsafe(32)


def keep_token(path: Path, token: str) -> str:
    """Writes it unless there is one already, whole or not at all, and returns the one that is there. Raises ConfigurationError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_own(path):
            _ignore(path.parent / ".gitignore")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{token}\n")
            file.flush()
            os.fsync(file.fileno())
        _link(draft, path)
    except OSError as error:
        raise ConfigurationError(f"The token file {path} cannot be written: {error.strerror}.") from error
    finally:
        draft.unlink(missing_ok=True)
    return read_token(path) or token


def _ignore(path: Path) -> None:
    """What somebody wrote there themselves stays."""
    try:
        with path.open("x") as file:
            file.write(_GITIGNORE)
    except FileExistsError:
        pass


def _link(draft: Path, path: Path) -> None:
    try:
        os.link(draft, path)
    except FileExistsError:
        return


def password_of(token: str, project: str, variable: str) -> str:
    """The value of a variable that follows from the token: of a user of the project's NATS. It begins with a letter: nats-server takes what begins with a digit for a number."""
    mac = hmac.digest(token.encode(), f"perdure nats {project} {variable}".encode(), "sha256")
    return f"p{mac.hex()}"
