"""How a raw value (text of a variable or flag, or a typed value of a file) becomes a setting's value.

A reader takes the raw value and the folder relative paths start from; it returns the value or raises ValueError with
the end of the sentence "`port` …".
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from perdure.effects import EffectClass

Reader = Callable[[Any, Path], Any]

MASK = "***"
"""Shown for what must not be seen."""

EFFECT_CLASSES = tuple(map(str, EffectClass))

_HOST_NAME = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?")
_TOOL_PATTERN = re.compile(r"[A-Za-z0-9_.*?\[\]!-]+")
_TOKEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean X?` or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f" Did you mean {close[0]}?" if close else ""


SUBJECT_WORD = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""One word of a NATS subject: no dot, no wildcard, no space."""


def subject_word(raw: Any, base: Path) -> str:
    """See SUBJECT_WORD."""
    if not isinstance(raw, str) or not re.fullmatch(SUBJECT_WORD, raw.strip()):
        raise ValueError(f"must be 1 to 64 letters, digits, `_` and `-`, the first a letter or a digit, not {raw!r}")
    return raw.strip()


def nats_addresses(raw: Any, base: Path) -> str:
    """`nats://host:port` or `tls://…`, several with commas."""
    addresses = [each.strip() for each in raw.split(",")] if isinstance(raw, str) else []
    for each in addresses:
        parts = urlsplit(each)
        if parts.scheme not in {"nats", "tls"} or not parts.hostname:
            raise ValueError("must look like nats://host:4222 (several with commas)")
    if not addresses:
        raise ValueError("must look like nats://host:4222 (several with commas)")
    return ",".join(addresses)


def without_passwords(addresses: str) -> str:
    """URLs (several with commas) as they may be shown."""
    return ",".join(_without_password(each) for each in addresses.split(","))


def _without_password(address: str) -> str:
    parts = urlsplit(address)
    if parts.username is None and parts.password is None:
        return address
    return urlunsplit(parts._replace(netloc=f"{MASK}@{parts.netloc.rpartition('@')[2]}"))


def number_from(minimum: float, maximum: float) -> Reader:
    """A number in a closed range."""

    def read(raw: Any, base: Path) -> float:
        try:
            value = math.nan if isinstance(raw, bool) else float(raw)
        except (TypeError, ValueError, OverflowError):
            value = math.nan
        if not minimum <= value <= maximum:
            raise ValueError(f"must be a number from {minimum:g} to {maximum:g}, not {raw!r}")
        return value

    return read


def whole(minimum: int, maximum: int) -> Reader:
    """A whole number in a closed range."""

    def read(raw: Any, base: Path) -> int:
        try:
            value = int(raw.strip()) if isinstance(raw, str) else raw
        except ValueError:
            value = None
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise ValueError(f"must be a whole number from {minimum} to {maximum}, not {raw!r}")
        return value

    return read


def number(above: float, maximum: float) -> Reader:
    """A number greater than `above`, at most `maximum`."""

    def read(raw: Any, base: Path) -> float:
        try:
            value = math.nan if isinstance(raw, bool) else float(raw)
        except (TypeError, ValueError, OverflowError):
            value = math.nan
        if not above < value <= maximum:
            raise ValueError(f"must be a number above {above:g}, at most {maximum:g}, not {raw!r}")
        return value

    return read


def choice(*allowed: str) -> Reader:
    def read(raw: Any, base: Path) -> str:
        if raw not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}, not {raw!r}{_meant(raw, allowed)}")
        return str(raw)

    return read


def _meant(raw: Any, allowed: Sequence[str]) -> str:
    """`; did you mean X?`, inside a sentence, or nothing."""
    hint = did_you_mean(raw, allowed) if isinstance(raw, str) else ""
    return f"; {hint.strip()[0].lower()}{hint.strip()[1:]}" if hint else ""


def text(raw: Any, base: Path) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError(f"must be a text that is not empty, not {raw!r}")
    return raw.strip()


def secret(raw: Any, base: Path) -> str:
    """Printable ASCII without spaces, so that it fits in a header; the value itself is never repeated in a message."""
    if not isinstance(raw, str) or not raw or not all("!" <= letter <= "~" for letter in raw):
        raise ValueError("must be printable ASCII without spaces")
    return raw


def path(raw: Any, base: Path) -> Path:
    if not isinstance(raw, str) or not raw.strip() or "\0" in raw:
        raise ValueError(f"must be a path, not {raw!r}")
    return (base / Path(raw).expanduser()).absolute()


def existing_file(raw: Any, base: Path) -> Path:
    found = path(raw, base)
    if not found.is_file():
        raise ValueError(f"names {found}, which is not a file")
    return found


def web_address(raw: Any, base: Path) -> str:
    value = text(raw, base)
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise ValueError("must be an address that starts with http:// or https://")
    return value


def names(raw: Any, base: Path) -> tuple[str, ...]:
    """A list in a file; comma-separated text, or several flags, elsewhere."""
    pieces: Sequence[Any] = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(pieces, list | tuple) or not all(isinstance(piece, str) for piece in pieces):
        raise ValueError(f"must be a list of texts, not {raw!r}")
    return tuple(part.strip() for piece in pieces for part in piece.split(",") if part.strip())


def references(raw: Any, base: Path) -> tuple[str, ...]:
    """`module:attribute` or `./file.py:attribute`."""
    found = names(raw, base)
    for name in found:
        place, _, attribute = name.rpartition(":")
        if not place or not all(part.isidentifier() for part in attribute.split(".")):
            raise ValueError(f"needs `module:attribute` or `./file.py:attribute`, not {name!r}")
    return found


def host_names(raw: Any, base: Path) -> tuple[str, ...]:
    """`name` or `name:port`, exactly as the Host header will say it."""
    found = names(raw, base)
    for name in found:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(
                f"needs exact names such as `agents.example.com` or `agents.example.com:8700`, not {name!r}"
            )
    return found


def tool_patterns(raw: Any, base: Path) -> tuple[str, ...]:
    """Tool names, or globs on them (`fs__write_*`)."""
    found = names(raw, base)
    for pattern in found:
        _check_pattern(pattern)
    return found


def _check_pattern(pattern: str) -> None:
    if not _TOOL_PATTERN.fullmatch(pattern):
        raise ValueError(f"needs tool names or globs such as `restart_service` or `fs__write_*`, not {pattern!r}")


def effects(raw: Any, base: Path) -> tuple[str, ...]:
    """`glob=class` in the order they are asked; in a file also a table of glob → class."""
    found = tuple(_assignments(raw)) if isinstance(raw, Mapping) else names(raw, base)
    seen: dict[str, str] = {}
    for entry in found:
        pattern, separator, effect = (part.strip() for part in entry.rpartition("="))
        if not separator:
            raise ValueError(f"needs `glob=class` with a class of {', '.join(EFFECT_CLASSES)}, not {entry!r}")
        _check_pattern(pattern)
        if effect not in EFFECT_CLASSES:
            meant = _meant(effect, EFFECT_CLASSES)
            raise ValueError(f"gives {pattern!r} one of {', '.join(EFFECT_CLASSES)}, not {effect!r}{meant}")
        if pattern in seen:
            raise ValueError(f"names {pattern!r} twice; the first that matches decides")
        seen[pattern] = effect
    return tuple(f"{pattern}={effect}" for pattern, effect in seen.items())


def _assignments(table: Mapping[Any, Any]) -> Iterator[str]:
    for pattern, effect in table.items():
        if not isinstance(effect, str):
            raise ValueError(f"needs a class for {pattern!r} as a text, not {effect!r}")
        yield f"{pattern}={effect}"


def token_names(raw: Any, base: Path) -> tuple[str, ...]:
    """Names of tokens, as `perdure tokens list` shows them."""
    found = names(raw, base)
    for name in found:
        if not _TOKEN_NAME.fullmatch(name):
            raise ValueError(f"needs names of tokens (letters, digits, `.`, `_`, `@`, `-`), not {name!r}")
    return found
