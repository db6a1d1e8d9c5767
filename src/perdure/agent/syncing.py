"""One agent's journal as a whole, brought over: its rows after the copy's position, and the events that they tell of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from perdure.agent.foreign import Ownership
from perdure.agent.gaps import MAX_EVENTS, Gaps
from perdure.agent.line import Lines
from perdure.agent.lost import Lost
from perdure.agent.telling import Telling
from perdure.events import Event
from perdure.failpoints import failpoint
from perdure.replication import JournalRows
from perdure.store.replica import Replica
from perdure.transport.local import LocalTransport

ABREAST = 8
"""Conversations that are asked for at once: a first copy of thousands would wait for one answer after the other else."""

_log = structlog.get_logger("perdure.agent")


class Syncing:
    """Call it from the one task that follows the agent."""

    def __init__(
        self,
        agent: str,
        replica: Replica,
        transport: LocalTransport,
        gaps: Gaps,
        ownership: Ownership,
        *,
        lost: Lost,
        lines: Lines,
        telling: Telling,
        drain: Callable[[], Awaitable[None]],
        fill: Callable[[str], Awaitable[None]],
    ) -> None:
        """`drain` takes what came live; `fill` brings one conversation up to date."""
        self._agent = agent
        self._replica = replica
        self._transport = transport
        self._gaps = gaps
        self._ownership = ownership
        self._lost = lost
        self._lines = lines
        self._telling = telling
        self._drain = drain
        self._fill = fill
        self.journal = ""
        """Which one the copy is of; empty until it was asked."""

    async def sync(self) -> None:
        """The rows of the journal, and the events that they tell of, up to now."""
        more = True
        while more:
            held = await self._replica.position(self._agent)
            rows = await self._gaps.rows(held)
            await self._drain()  # what these rows tell of was sent before them, and is here by now
            if held.journal and (rows.journal != held.journal or rows.after != held.change):
                await self._start_again(rows.journal)
                continue
            self.journal = rows.journal
            if not await self._take_page(await self._ownership.own(rows)):
                await self._start_again(rows.journal)
                continue
            more = rows.more
        await self._lost.tell()

    async def _take_page(self, rows: JournalRows) -> bool:
        """False when the journal went back behind the copy."""
        lacking: list[tuple[str, int, int]] = []
        for conversation, last in rows.last_seqs.items():
            held = await self._replica.last_seq(conversation) or 0
            if last < held and await self._went_back(conversation, held):
                return False
            if last > held:
                lacking.append((conversation, held, last))
        events = await self._lacking(lacking)
        failpoint("follow.apply.before")
        await self._telling.commit(events, rows)
        failpoint("follow.apply.after")
        return True

    async def _went_back(self, conversation: str, held: int) -> bool:
        """Events may have come by the feed since the rows were read: it is asked once more."""
        rows = await self._gaps.rows_of(conversation, ())
        return rows.journal != self.journal or rows.last_seqs.get(conversation, held) < held

    async def _lacking(self, lacking: Sequence[tuple[str, int, int]]) -> list[Event]:
        """The events of the quiet ones, asked for side by side. Each of the others is brought up to date by itself."""
        events: list[Event] = []
        for first in range(0, len(lacking), ABREAST):
            some = lacking[first : first + ABREAST]
            asked = (self._quiet(*each, room=len(events) < MAX_EVENTS) for each in some)
            found = await asyncio.gather(*asked, return_exceptions=True)
            for (conversation, _, _), own in zip(some, found, strict=True):
                if isinstance(own, BaseException):
                    raise own
                if own is None:
                    await self._fill(conversation)
                else:
                    events += own
        return events

    async def _quiet(self, conversation: str, held: int, last: int, *, room: bool) -> list[Event] | None:
        """The events that rows tell of, of a conversation in which nothing happens now; None when it must be asked for alone."""
        if not room or conversation in self._transport.watched():
            return None
        events: list[Event] = []
        async for page in self._gaps.events(conversation, held, upto=last):
            events += page
            if len(events) > MAX_EVENTS // ABREAST or (events[-1:] and events[-1].seq > last):
                return None
        return events

    async def _start_again(self, journal: str) -> None:
        """The journal is another one, or went back: nothing of the copy holds, and what watchers were told neither."""
        _log.warning("journal_replaced", agent=self._agent, journal=journal)
        failpoint("follow.apply.before")
        await self._lost.remember(self._transport.watched(), self._lines.told_of)
        await self._replica.restart(self._agent, journal)
        failpoint("follow.apply.after")
        self.journal = journal
        self._lines.clear()
