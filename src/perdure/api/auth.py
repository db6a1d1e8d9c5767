"""Who may speak to this server: the tokens, the one-time link, the cookie, and which Host and Origin are ours.

The one place that parses credentials. A credential is a bearer token, or the cookie that a one-time link set. The server's own
token is `admin`; the others are named, made with `perdure tokens create` and known by their hash alone. The cookie is
`expiry.nonce.mac`, its MAC keyed by the server's own token: nothing is stored, it survives a restart, and a new token ends it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from starlette.types import Scope

from perdure.agent.people import ADMIN_NAME, LOCAL_OWNER
from perdure.clock import Clock, SystemClock
from perdure.config import LOOPBACK_HOSTS, Settings
from perdure.errors import ConfigurationError, Forbidden, Unauthorized
from perdure.turns import Person, Role, Token

ADMIN = Person(ADMIN_NAME, LOCAL_OWNER, Role.OPERATOR, admin=True)
"""Who holds the server's own token, or a cookie that it signed."""

SECRET_PREFIX = "pdt_"
SECRET_BYTES = 32
LINK_SECONDS = 600.0
SESSION_SECONDS = 30 * 24 * 3600
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
PUBLIC_PATHS = frozenset({"/api/healthz", "/login"})
OPTIONAL_PATHS = frozenset({"/api/readyz"})
"""Answer without a credential too, but say less."""

_WILDCARDS = frozenset({"", "0.0.0.0", "::", "[::]"})  # noqa: S104  (compared with, never bound)
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


_SECRET = re.compile(SECRET_PREFIX + r"[A-Za-z0-9_-]{43}")

TokenOf = Callable[[str], Awaitable[Token | None]]
"""The valid token with this hash of a secret. Asked at every request: a revoked token is refused at once."""


async def no_tokens(secret_hash: str) -> Token | None:
    """Where there are no named tokens."""
    return None


def new_secret() -> str:
    """Of a named token: 256 random bits, with a prefix that scanners for leaked secrets can know."""
    return SECRET_PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def hash_of(secret: str) -> str:
    """What is stored of a secret. It has 256 random bits, so one round of SHA-256 is enough: there is nothing to guess."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Access:
    """Admits or refuses a request by its head alone, before a byte of its body is read."""

    def __init__(
        self, token: str, settings: Settings, clock: Clock | None = None, *, token_of: TokenOf = no_tokens
    ) -> None:
        """`token`: the server's own. `token_of` looks the named ones up: once a request, and only for what has the form of
        their secrets."""
        self._token = token.encode()
        self._cookie_key = hmac.digest(self._token, b"perdure cookie", "sha256")
        self._clock = clock or SystemClock()
        self._token_of = token_of
        self._links: dict[bytes, float] = {}
        own = () if settings.host in _WILDCARDS else (_bracketed(settings.host),)
        hosts = {name.lower() for name in (*LOOPBACK_HOSTS, *own, *settings.allowed_hosts)}
        self._exact_hosts = frozenset(name for name in hosts if _has_port(name))
        self._names = frozenset(hosts) - self._exact_hosts

    # -- requests -----------------------------------------------------------------------------------------------------

    async def admit(self, scope: Scope) -> Person | None:
        """The sender; None on the few paths that need no credential and got none. Raises Forbidden, Unauthorized."""
        host = self._check_host(scope)
        self._check_origin(scope, host)
        path = scope["path"]
        if path in PUBLIC_PATHS:
            return None
        headers = _values(scope, b"authorization")
        if headers:
            return await self._by_bearer(headers)
        if self._has_session(scope):
            _check_own_page(scope)
            return ADMIN
        if path in OPTIONAL_PATHS:
            return None
        raise Unauthorized

    def _check_host(self, scope: Scope) -> str:
        hosts = _values(scope, b"host")
        if len(hosts) != 1:
            raise Forbidden("Exactly one Host header is needed.")
        host = hosts[0].lower()
        port = (scope.get("server") or ("", None))[1]
        if host in self._exact_hosts or host in self._names or host.removesuffix(f":{port}") in self._names:
            return host
        raise Forbidden("This Host is not served here. Add it to PERDURE_ALLOWED_HOSTS if it is yours.")

    def _check_origin(self, scope: Scope, host: str) -> None:
        """A page of another origin gets nothing. Programs send no Origin; browsers send it with every unsafe method."""
        origins = _values(scope, b"origin")
        sites = _values(scope, b"sec-fetch-site")
        navigation = scope["method"] in SAFE_METHODS and not scope["path"].startswith("/api/")
        if origins and (len(origins) > 1 or not _same_origin(origins[0], host)):
            raise Forbidden("This page is of another origin; it may not use this server.")
        if not navigation and any(site not in {"same-origin", "none"} for site in sites):
            raise Forbidden("This request was made by a page of another origin.")

    async def _by_bearer(self, headers: list[str]) -> Person:
        scheme, _, given = headers[0].partition(" ")
        given = given.strip()
        if len(headers) == 1 and scheme.lower() == "bearer":
            if hmac.compare_digest(given.encode(), self._token):
                return ADMIN
            if _SECRET.fullmatch(given):
                token = await self._token_of(hash_of(given))
                if token is not None and token.revoked_at is None:
                    return Person(token.name, token.name, token.role)
        raise Unauthorized("This token is not one of this server, or it was revoked.")

    def _has_session(self, scope: Scope) -> bool:
        try:
            cookies = SimpleCookie("; ".join(_values(scope, b"cookie")))
        except CookieError:
            return False
        morsel = cookies.get(cookie_name(scope))
        return morsel is not None and self._valid_session(morsel.value)

    # -- one-time links and sessions ----------------------------------------------------------------------------------

    def login_link(self, base_url: str) -> str:
        """A link that signs one browser in, once, within ten minutes. `base_url` is `http://127.0.0.1:8700`."""
        key = secrets.token_urlsafe(32)
        now = self._clock.monotonic()
        self._links = {known: until for known, until in self._links.items() if until > now}
        self._links[_digest(key)] = now + LINK_SECONDS
        return f"{base_url.rstrip('/')}/login?key={key}"

    def redeem(self, key: str) -> str | None:
        """The new session's cookie value; None for a key that is unknown, used or too old."""
        until = self._links.pop(_digest(key), None)
        if until is None or until <= self._clock.monotonic():
            return None
        expiry = int(self._clock.now().timestamp()) + SESSION_SECONDS
        body = f"{expiry}.{secrets.token_urlsafe(18)}"
        return f"{body}.{self._mac(body)}"

    def _valid_session(self, value: str) -> bool:
        body, _, mac = value.rpartition(".")
        if not hmac.compare_digest(mac.encode(), self._mac(body).encode()):
            return False
        expiry = body.partition(".")[0]
        return expiry.isdigit() and int(expiry) > self._clock.now().timestamp()

    def _mac(self, body: str) -> str:
        return hmac.new(self._cookie_key, body.encode(), "sha256").hexdigest()


def cookie_name(scope: Scope) -> str:
    """One per port: cookies do not tell ports apart, and two servers on one machine must not sign each other out."""
    port = (scope.get("server") or ("", None))[1]
    return f"perdure_{port or 0}"


def session_cookie(scope: Scope, value: str) -> str:
    """The Set-Cookie header."""
    secure = "; Secure" if scope["scheme"] == "https" else ""
    return f"{cookie_name(scope)}={value}; Max-Age={SESSION_SECONDS}; Path=/; HttpOnly; SameSite=Strict{secure}"


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for key, value in scope["headers"] if key == name]


def _check_own_page(scope: Scope) -> None:
    """A cookie comes along by itself, so what changes something must show that our own page asked for it."""
    shown = _values(scope, b"origin") or "same-origin" in _values(scope, b"sec-fetch-site")
    if scope["method"] not in SAFE_METHODS and not shown:
        raise Forbidden("With a cookie this method needs the Origin header that browsers send.")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _has_port(name: str) -> bool:
    return name.rpartition("]")[2].count(":") == 1


def _same_origin(origin: str, host: str) -> bool:
    """Compares with the Host exactly. Either scheme: a proxy that ends TLS keeps the Host but speaks plain HTTP to us."""
    scheme, separator, authority = origin.lower().partition("://")
    default = _DEFAULT_PORTS.get(scheme)
    if not separator or default is None:
        return False
    return authority.removesuffix(default) == host.removesuffix(default)


# -- the token's file -------------------------------------------------------------------------------------------------


def load_or_create_token(settings: Settings, database: Path) -> tuple[str, Path | None]:
    """The token and the file it came from (None when it was given as a value). Without one given it is made once and kept
    in `perdure.token` beside the database, mode 0600. Raises ConfigurationError."""
    if settings.token is not None:
        return _checked(settings.token, "PERDURE_TOKEN"), None
    if settings.token_file is not None:
        return _read(settings.token_file, os.O_RDONLY), settings.token_file
    path = database.parent / "perdure.token"
    try:
        _create(path, secrets.token_urlsafe(32))
    except FileExistsError:
        pass
    except OSError as error:
        raise ConfigurationError(f"The token file {path} cannot be written: {error.strerror}.") from error
    return _read(path, os.O_RDONLY | os.O_NOFOLLOW, own=True), path


def _create(path: Path, token: str) -> None:
    """Written aside and linked into place, so that a crash leaves the whole token or none."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(f"{token}\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _read(path: Path, flags: int, *, own: bool = False) -> str:
    try:
        handle = os.open(path, flags)
        with os.fdopen(handle) as file:
            if own and os.fstat(handle).st_mode & 0o077:
                os.fchmod(handle, 0o600)
            return _checked(file.read(4_096).strip(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The token file {path} cannot be read: {error}.") from error


def _checked(token: str, source: str) -> str:
    if token and token.isascii() and all(_visible(token)):
        return token
    raise ConfigurationError(f"The token in {source} must be a non-empty piece of visible ASCII without spaces.")


def _visible(token: str) -> Iterable[bool]:
    return (" " < character < "\x7f" for character in token)
