"""Plain JSON values: what a journal can hold and give back unchanged. The same rules as for bodies over HTTP. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 100
LEAST_INTEGER, GREATEST_INTEGER = -(2**63), 2**63 - 1


def check_plain(root: Any) -> None:
    """Raises ValueError, a sentence."""
    level = [root]
    for _ in range(MAX_DEPTH):
        if not level:
            return
        level = [inner for value in level for inner in _inside(value)]
    if level:
        raise ValueError(f"The params are nested deeper than {MAX_DEPTH} levels.")


def _inside(value: Any) -> list[Any]:
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, bool):
        return []
    elif isinstance(value, int) and not LEAST_INTEGER <= value <= GREATEST_INTEGER:
        raise ValueError("An integer in the params does not fit into 64 bits. Send it as a string.")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("A number in the params is larger than a 64-bit float can be. Send it as a string.")
    elif isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    return value if isinstance(value, list) else []


def _check_text(text: str) -> None:
    if "\x00" in text:
        raise ValueError("The params hold a NUL character; text may not contain it.")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("The params hold half of a surrogate pair; that is not text.")
