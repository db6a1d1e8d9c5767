"""A journal brought over: how its many conversations are asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from perdure.agent.syncing import ABREAST, Syncing
from perdure.errors import AgentUnavailable
from perdure.events import Event, EventKind
from perdure.replication import JournalRows, Position

MANY = 3 * ABREAST


class Parts:
    """Everything beside the journal's order: an empty copy, an agent with a conversation of one event for each number."""

    def __init__(self) -> None:
        self.asking = self.most = 0
        self.away: str | None = None
        self.watched_ones: set[str] = set()
        self.filled: list[str] = []
        self.committed: list[Event] = []

    async def position(self, agent: str) -> Position:
        return Position()

    async def last_seq(self, conversation: str) -> int | None:
        return None

    async def rows(self, held: Position) -> JournalRows:
        return JournalRows("journal", 0, Position("journal", 1), last_seqs={f"c{n}": 1 for n in range(MANY)})

    async def own(self, rows: JournalRows) -> JournalRows:
        return rows

    async def events(self, conversation: str, after: int, *, upto: int) -> AsyncIterator[Sequence[Event]]:
        self.asking += 1
        self.most = max(self.most, self.asking)
        await asyncio.sleep(0)
        self.asking -= 1
        if conversation == self.away:
            raise AgentUnavailable
        yield [Event(1, conversation, "t", 1, EventKind.TRACE, datetime.now(UTC), {})]

    def watched(self) -> set[str]:
        return self.watched_ones

    async def fill(self, conversation: str) -> None:
        self.filled.append(conversation)

    async def commit(self, events: Sequence[Event], rows: JournalRows) -> None:
        self.committed += events

    async def drain(self) -> None:
        pass

    async def tell(self) -> None:
        pass

    def syncing(self) -> Syncing:
        part = cast(Any, self)
        return Syncing(
            "shop", part, part, part, part, lost=part, lines=part, telling=part, drain=self.drain, fill=self.fill
        )


async def test_conversations_are_asked_for_side_by_side_and_kept_in_order() -> None:
    parts = Parts()
    parts.watched_ones = {"c3"}
    await parts.syncing().sync()
    assert parts.most == ABREAST
    assert [event.conversation for event in parts.committed] == [f"c{n}" for n in range(MANY) if n != 3]
    assert parts.filled == ["c3"]


async def test_an_agent_that_goes_away_between_them_leaves_the_page_as_it_was() -> None:
    parts = Parts()
    parts.away = f"c{ABREAST + 1}"
    with pytest.raises(AgentUnavailable):
        await parts.syncing().sync()
    assert parts.committed == [] and parts.asking == 0
