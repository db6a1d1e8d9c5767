"""Where NATS is and who we are there: addresses, credentials, certificates, checked before the first connect."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import nkeys  # type: ignore[import-untyped]

from perdure.config import Settings
from perdure.errors import ConfigurationError

_PORT = 4222


@dataclass(frozen=True, slots=True)
class Access:
    """What a connect needs. Files are read again at every connect, so that renewed ones count without a restart."""

    servers: tuple[str, ...]
    """Without user and password: fit for logs."""

    encrypted: bool
    """Whether a server without TLS must not even get our name."""

    _user: str | None = field(default=None, repr=False)
    _password: str | None = field(default=None, repr=False)
    _credentials_file: Path | None = None
    _nkey_file: Path | None = None
    _tls: Callable[[], ssl.SSLContext] | None = field(default=None, repr=False)

    def options(self) -> dict[str, Any]:
        """For the client library. Raises ConfigurationError."""
        options: dict[str, Any] = {"tls": self._tls()} if self._tls else {}
        if self._credentials_file:
            options |= _credentials(self._credentials_file)
        elif self._nkey_file:
            options["nkeys_seed_str"] = _seed_in(self._nkey_file)
        elif self._password is not None:
            options |= {"user": self._user, "password": self._password}
        elif self._user is not None:
            options["token"] = self._user
        return options


def access_of(settings: Settings) -> Access:
    """Raises ConfigurationError with all that is wrong with the addresses, or with the first file that is not usable."""
    parts = _addresses(settings.nats_url)
    named = next((each for each in parts if each.username), None)
    files = (settings.nats_ca_file, settings.nats_certificate_file, settings.nats_key_file)
    own_tls = any(files)
    access = Access(
        servers=tuple(f"{each.scheme}://{_host(each)}:{each.port or _PORT}" for each in parts),
        encrypted=own_tls or any(each.scheme == "tls" for each in parts),
        _user=None if named is None else unquote(named.username or ""),
        _password=None if named is None or named.password is None else unquote(named.password),
        _credentials_file=settings.nats_credentials_file,
        _nkey_file=settings.nats_nkey_file,
        _tls=(lambda: _context(*files)) if own_tls else None,
    )
    access.options()
    return access


def _addresses(text: str | None) -> list[SplitResult]:
    parts = [urlsplit(each.strip()) for each in (text or "").split(",") if each.strip()]
    if not parts or not all(_is_address(each) for each in parts):
        raise ConfigurationError("`nats_url` must look like nats://host:4222 or tls://host:4222 (several with commas).")
    return parts


def _is_address(parts: SplitResult) -> bool:
    try:
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in {"nats", "tls"} and bool(parts.hostname)


def _host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    return f"[{host}]" if ":" in host else host


# -- files ------------------------------------------------------------------------------------------------------------


def _credentials(path: Path) -> dict[str, Any]:
    text = _read(path, "nats_credentials_file")
    token, seed = _between(text, "NATS USER JWT"), _between(text, "USER NKEY SEED")
    if token is None or seed is None or not _is_seed(seed):
        raise ConfigurationError(
            f"{path} is not a credentials file: it must hold a user's JWT and seed, as `nsc generate creds` writes it."
        )

    def signature(nonce: str) -> bytes:
        pair = nkeys.from_seed(bytearray(seed.encode()))
        return base64.b64encode(pair.sign(nonce.encode()))

    return {"user_jwt_cb": lambda: bytearray(token.encode()), "signature_cb": signature}


def _between(text: str, what: str) -> str | None:
    lines = [line.strip() for line in text.splitlines()]
    for index, line in enumerate(lines[:-1]):
        if line.startswith("-") and f"BEGIN {what}" in line:
            return lines[index + 1] or None
    return None


def _seed_in(path: Path) -> str:
    seed = _read(path, "nats_nkey_file").strip()
    if not _is_seed(seed):
        raise ConfigurationError(f"{path} does not hold an nkey seed: one line that begins with SU (`nk -gen user`).")
    return seed


def _is_seed(text: str) -> bool:
    try:
        nkeys.from_seed(bytearray(text.encode()))
    except Exception:  # the library has no common class for what it finds wrong
        return False
    return text.startswith("SU")


def _read(path: Path, setting: str) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigurationError(f"`{setting}`: {path} cannot be read: {reason}.") from error


def _context(authority: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    at = authority
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=authority)
        at = certificate
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"{at} cannot be used for TLS with NATS: {error}. It must be a PEM file, and the key that of the certificate."
        ) from error
    return context
