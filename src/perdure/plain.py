"""Plain JSON values: what a journal can hold and give back unchanged; keys and titles. One set of rules for bodies over HTTP and for
params over NATS. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 100
LEAST_INTEGER, GREATEST_INTEGER = -(2**63), 2**63 - 1
"""What a state can hold and be read back: 64 bits, signed."""


REQUEST_KEY = r"^[\x20-\x7e]{1,200}$"
"""An idempotency key, as a pattern: what a header can carry."""


def check_plain(root: Any, what: str) -> None:
    """`what` is it: `The body`, `The request`. Raises ValueError, a sentence."""
    level = [root]
    for _ in range(MAX_DEPTH):
        if not level:
            return
        level = [inner for value in level for inner in _inside(value, what)]
    if level:
        raise ValueError(f"{what} is nested deeper than {MAX_DEPTH} levels.")


def _inside(value: Any, what: str) -> list[Any]:
    if isinstance(value, str):
        _check_text(value, what)
    elif isinstance(value, bool):
        return []
    elif isinstance(value, int) and not LEAST_INTEGER <= value <= GREATEST_INTEGER:
        raise ValueError(f"{what} holds an integer that does not fit into 64 bits. Send it as a string.")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{what} holds a number larger than a 64-bit float can be. Send it as a string.")
    elif isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    return value if isinstance(value, list) else []


def _check_text(text: str, what: str) -> None:
    if "\x00" in text:
        raise ValueError(f"{what} holds a NUL character; text may not contain it.")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{what} holds half of a surrogate pair; that is not text.")


def one_line(title: str) -> str:
    """Without the space around it. Raises ValueError."""
    title = title.strip()
    if not title or not title.isprintable():
        raise ValueError("must be one line of visible text")
    return title
