"""JSON of a size that a browser takes: what is too long is cut, and says by how much. Pure; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_CHARACTERS = 2_000_000
"""Of all texts and names together, and as many values."""

MOST_IN_A_TEXT = 20_000
MOST_DEPTH = 60


class Bounded:
    """One value. `truncated`: whether something was cut."""

    def __init__(self, most: int = MOST_CHARACTERS, most_in_a_text: int = MOST_IN_A_TEXT) -> None:
        self._left = most
        self._most_in_a_text = most_in_a_text
        self.truncated = False

    def of(self, value: Any, depth: int = 0) -> Any:
        self._left -= 1
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return self._members(value, depth)
        if isinstance(value, list | tuple):
            return self._elements(list(value), depth)
        return value

    def _text(self, text: str) -> str:
        most = max(min(self._most_in_a_text, self._left), 0)
        self._left -= min(len(text), most)
        if len(text) <= most:
            return text
        self.truncated = True
        return f"{text[:most]}… [{len(text) - most} more characters]"

    def _members(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for number, (name, member) in enumerate(value.items()):
            if self._left <= 0 or depth >= MOST_DEPTH:
                self.truncated = True
                return found | {"…": f"[{len(value) - number} more]"}
            self._left -= len(str(name))
            found[str(name)] = self.of(member, depth + 1)
        return found

    def _elements(self, value: list[Any], depth: int) -> list[Any]:
        found: list[Any] = []
        for number, element in enumerate(value):
            if self._left <= 0 or depth >= MOST_DEPTH:
                self.truncated = True
                return [*found, f"… [{len(value) - number} more]"]
            found.append(self.of(element, depth + 1))
        return found
