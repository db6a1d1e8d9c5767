"""Exports page by page: each goes on where the page before it stopped, or counts its way there again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.agent.base import AgentPort
from perdure.errors import BadRequest
from perdure.transport.nats.wire import encode
from perdure.turns import Person

PAGE_BYTES = 500_000
MAX_OPEN = 16
"""Exports that wait for their next page; the longest waiting one is given up, and counts its way when it comes."""

_MOST_DIGITS = 9


@dataclass(slots=True)
class _Opened:
    """An export between two pages."""

    rest: AsyncIterator[Mapping[str, Any]]
    held: Mapping[str, Any]
    """Did not fit on the page before."""


_Place = tuple[Person, str, int]


class Exports:
    def __init__(self, agents: AgentPort) -> None:
        self._agents = agents
        self._open: dict[_Place, _Opened] = {}

    async def page(
        self, person: Person, conversation: str, cursor: str | None
    ) -> tuple[list[Mapping[str, Any]], str | None]:
        """Checkpoints, oldest first, and the cursor of what follows. Raises NotFound, BadRequest."""
        start = _number(cursor)
        opened = self._open.pop((person, conversation, start), None)
        rest = aiter(self._agents.export(person, conversation)) if opened is None else opened.rest
        following = await _skipped(rest, start) if opened is None else opened.held
        found: list[Mapping[str, Any]] = []
        size = 0
        while following is not None:
            size += len(encode(following))
            if found and size > PAGE_BYTES:
                self._keep((person, conversation, start + len(found)), _Opened(rest, following))
                return found, str(start + len(found))
            found.append(following)
            following = await anext(rest, None)
        return found, None

    def _keep(self, place: _Place, opened: _Opened) -> None:
        self._open[place] = opened
        if len(self._open) > MAX_OPEN:
            del self._open[next(iter(self._open))]


async def _skipped(checkpoints: AsyncIterator[Mapping[str, Any]], count: int) -> Mapping[str, Any] | None:
    """The one after so many."""
    for _ in range(count):
        if await anext(checkpoints, None) is None:
            return None
    return await anext(checkpoints, None)


def _number(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _MOST_DIGITS):
        raise BadRequest("The cursor is not one of this agent. Start again without it.")
    return int(cursor)
