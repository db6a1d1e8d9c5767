"""The files of a project that go into an image, and the digest of their content."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from perdure.errors import ConfigurationError

LEFT_OUT = (
    *("__pycache__", "node_modules", "venv", "*.pyc"),
    *(f"*.{ending}{more}" for ending in ("db", "sqlite", "sqlite3") for more in ("", "-*", ".*")),
    "*.log",
    *("*.token", "*.pem", "*.key", "*.creds", "*.nk", "*.p12", "*.pfx", "*.jks", "*.env", "*.env.*"),
    *(
        f"id_{kind}{more}"
        for kind in ("rsa", "dsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk")
        for more in ("", "[.-]*")
    ),
)
"""Names of files and folders beside hidden ones (`.git`, `.env`, `.venv`): what is made again, what is data (with the copies that an
upgrade or a restore makes of it: `perdure.db.schema-2.bak`), what is secret. docs/deploy.md says them."""

PLAN_HEAD = b'{\n  "perdure_plan": '
"""How a file of `perdure plan --out` begins. It is left out, too: to keep a plan changes no image."""

MANY_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ProjectFiles:
    """`files`: (path relative to `folder`, digest of its content and of whether it can be executed), sorted. Of the project file the
    digest is of what it says without the table `[deploy]`, which does not go into an image: none needs to be built anew for another
    port or limit, and none keeps a value that was taken out of it."""

    folder: Path
    files: tuple[tuple[str, str], ...] = ()
    project: str = ""
    """The project file, among them by this path."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for path, _ in self.files)

    def holds(self, path: Path) -> bool:
        """Whether this file, or a file of this folder, is among them."""
        try:
            inner = Path(os.path.normpath(path)).relative_to(self.folder).as_posix()
        except ValueError:
            return False
        return any(each == inner or each.startswith(f"{inner}/") for each in self.paths)


def read_files(
    folder: Path, exclude: Sequence[str] = (), *, without: Sequence[Path] = (), project: Path | None = None
) -> ProjectFiles:
    """`exclude`: globs on names and on paths relative to `folder`; `without`: files and folders that must not be in an image;
    `project`: the project file, in `folder`.
    Blocks. Raises ConfigurationError where a file cannot be read, a link leads out of the folder, or the whole is larger than 1 GB."""
    unwanted = {_end_of(path) for path in without}
    found, size = [], 0
    try:
        for path in _walk(folder, (*LEFT_OUT, *exclude), unwanted):
            if _is_plan(path):
                continue
            size += path.stat().st_size
            if size > MANY_BYTES:
                raise ConfigurationError(
                    f"The project's files in {folder} are more than 1 GB, the last of them {path}: name in `exclude` of "
                    "[deploy] what does not belong into an image."
                )
            digest = _digest_of_project(path) if path == project else _digest(path)
            found.append((path.relative_to(folder).as_posix(), digest))
    except OSError as error:
        place = error.filename or folder
        raise ConfigurationError(f"{place} cannot be read for the image ({error.strerror}).") from error
    return ProjectFiles(folder, tuple(sorted(found)), "" if project is None else project.name)


def _walk(folder: Path, patterns: Sequence[str], unwanted: Set[Path]) -> Iterator[Path]:
    """Plain files, and links to files of the folder."""

    def goes_in(path: Path) -> bool:
        return not _left_out(path, folder, patterns) and _end_of(path) not in unwanted

    for place, folders, names in os.walk(folder, onerror=_raise):
        here = Path(place)
        folders[:] = sorted(name for name in folders if goes_in(here / name))
        for name in folders:
            if (here / name).is_symlink():
                raise ConfigurationError(
                    f"{here / name} is a link to a folder: copy the folder, or name it in `exclude` of [deploy]."
                )
        for path in (here / name for name in sorted(names)):
            if goes_in(path):
                _check(path, folder)
                yield path


def _raise(error: OSError) -> None:
    raise error


def _left_out(path: Path, folder: Path, patterns: Sequence[str]) -> bool:
    inner = path.relative_to(folder).as_posix()
    return path.name.startswith(".") or any(
        fnmatchcase(path.name, pattern) or fnmatchcase(inner, pattern.removesuffix("/")) for pattern in patterns
    )


def _check(path: Path, folder: Path) -> None:
    if path.is_symlink() and not _end_of(path).is_relative_to(_end_of(folder)):
        raise ConfigurationError(
            f"{path} is a link that leads out of the project's folder: copy the file, or name it in `exclude` of [deploy]."
        )
    if not path.is_file():
        raise ConfigurationError(f"{path} is not a file that can be copied: name it in `exclude` of [deploy].")


def _end_of(path: Path) -> Path:
    """Where links lead; `Path.resolve` raises for those that lead in a circle."""
    return Path(os.path.realpath(path))


def _is_plan(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(PLAN_HEAD)) == PLAN_HEAD


def _digest_of_project(path: Path) -> str:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return _digest(path)
    content.pop("deploy", None)
    return hashlib.sha256(json.dumps(content, default=str).encode()).hexdigest()


def without_deploy(text: str) -> str:
    """A project file without its table `[deploy]` and what is in it, comments too; all else is as it was, to the letter. Raises
    ValueError where that is no TOML."""
    kept, table = list[str](), ""
    for statement, said in _statements(text):
        if statement.lstrip().startswith("["):
            table = next(iter(said))
        if (table or next(iter(said), "")) != "deploy":
            kept.append(statement)
    content = tomllib.loads(text)
    content.pop("deploy", None)
    left = "".join(kept)
    if repr(tomllib.loads(left)) != repr(content):  # not the values: `nan` is not equal to itself
        raise ValueError(
            "the table [deploy] cannot be told from the rest: write it as [deploy], apart from other tables"
        )
    return left


_CLOSING = ('"""', "'''", "]", "}")
"""One of them is in the last line of whatever goes over several: a long text is not read anew for each of its lines."""


def _statements(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Headers, assignments, empty lines and comments, each with what it says by itself: as few lines as are TOML."""
    begun = ""
    for line in io.StringIO(text, newline="\n"):
        more, begun = bool(begun), begun + line
        if more and not any(closing in line for closing in _CLOSING):
            continue
        try:
            said = tomllib.loads(begun)
        except ValueError:
            continue
        yield begun, said
        begun = ""


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    return f"{content}{'x' if path.stat().st_mode & 0o100 else ''}"
