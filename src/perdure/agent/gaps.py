"""What a copy lacks, asked of the agent: rows, committed events, text that streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from perdure.agent.codec import Unreadable, from_json
from perdure.agent.directory import Asks
from perdure.agent.foreign import Refused, check_event
from perdure.errors import AgentUnavailable, NotFound, PerdureError
from perdure.events import Event, EventKind
from perdure.replication import JournalRows, Position

T = TypeVar("T")

ASK_SECONDS = 1.0
"""For one question. An agent that is alive answers in milliseconds."""

MOST_SECONDS = 16.0
"""For one that was not answered in time again and again: a megabyte over a slow line, an agent under load. Without it a copy
that cannot have an answer in a second would never be whole."""

EVENTS_PAGE = 500
ROWS_PAGE = 50
MAX_EVENTS = 5_000
"""Of one conversation in one transaction."""

MAX_TURNS = 200
"""Whose rows are asked for at once."""

LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Missing:
    """Of one conversation, rows and events as of the same instant: a turn that reads as ended has its end here or before."""

    rows: JournalRows
    events: Sequence[Event]
    """Tokens among them, in the order of seqs."""


class Gaps:
    """Every verb raises AgentUnavailable when the agent does not answer, or with something that nobody understands."""

    def __init__(self, asks: Asks, agent: str) -> None:
        self._asks = asks
        self._agent = agent
        self._seconds = ASK_SECONDS

    async def rows(self, after: Position) -> JournalRows:
        return await self._rows(
            {"journal": after.journal, "change": after.change, "audit": after.audit, "limit": ROWS_PAGE}
        )

    async def rows_of(self, conversation: str, turns: Collection[str]) -> JournalRows:
        """Of the conversation and of these turns of it, as of now."""
        named = {"conversations": [conversation], "turns": sorted(turns), "limit": MAX_TURNS}
        return await self._rows(named)

    async def _rows(self, params: Mapping[str, Any]) -> JournalRows:
        return self._read(JournalRows, await self._ask("journal/read", params))

    async def missing(self, conversation: str, after: int, turns: Collection[str]) -> AsyncIterator[Missing]:
        """What the conversation has after a seq, with the rows of the turns it is about and of those that are named; in several
        parts when it is much. A conversation that the agent does not know comes without a row of it."""
        text = await self.text(conversation)  # first: what a token follows is then among the events
        more = True
        while more:
            events: list[Event] = []
            more = False
            async for page in self.events(conversation, after):
                events += page
                kept = _of_few_turns(events)
                if len(events) >= MAX_EVENTS or len(kept) < len(events):
                    events, more = kept, True
                    break
            named = {event.turn for event in events} | (set() if more else set(turns))
            rows = await self.rows_of(conversation, named)
            if more:
                yield Missing(rows, events)
                after = events[-1].seq
                continue
            last = rows.last_seqs.get(conversation, 0)
            named |= {row.get("id", "") for row in rows.turns}
            events += await self._since(conversation, events[-1].seq if events else after, last, named)
            yield Missing(rows, sorted([*events, *text], key=lambda event: event.seq))

    async def _since(self, conversation: str, after: int, last: int, turns: Collection[str]) -> list[Event]:
        """What was committed between events and rows: with it both are of the same instant."""
        events: list[Event] = []
        async for page in self.events(conversation, after, upto=last):
            events += page
        dropping = max((event.seq for event in events if event.kind is EventKind.REWIND), default=0)
        found: list[Event] = []
        for event in events:
            if event.turn not in turns or event.seq > max(last, dropping):
                break
            found.append(event)
        return found

    async def events(self, conversation: str, after: int, *, upto: int = LARGEST) -> AsyncIterator[Sequence[Event]]:
        """Pages of retained events; the last one may reach beyond `upto`."""
        more = True
        while more and after < upto:
            params = {"conversation": conversation, "after": after, "limit": EVENTS_PAGE}
            try:
                answer = await self._ask("events/read", params)
            except NotFound:
                return
            page = self._events(answer, conversation, after)
            yield page
            more = bool(answer.get("more")) and bool(page)
            after = page[-1].seq if page else after

    async def text(self, conversation: str) -> Sequence[Event]:
        """All that streams now and is not replaced by a message, in the order of seqs."""
        try:
            answer = await self._ask("tokens/read", {"conversation": conversation, "after": 0})
        except NotFound:
            return []
        tokens = self._events(answer, conversation, 0)
        return [token for token in tokens if token.kind is EventKind.TOKEN]

    def _events(self, answer: Mapping[str, Any], conversation: str, after: int) -> list[Event]:
        events = self._read(list[Event], answer.get("events"))
        last = after
        for event in events:
            try:
                check_event(event)
            except Refused as error:
                raise self._nonsense(str(error)) from error
            if event.conversation != conversation or event.seq <= last:
                raise self._nonsense("events of another conversation, or out of order")
            last = event.seq
        return events

    async def _ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            answer = await self._asks.call(self._agent, method, params, within_seconds=self._seconds)
        except NotFound:
            raise
        except AgentUnavailable:
            self._seconds = min(self._seconds * 2, MOST_SECONDS)
            raise
        except PerdureError as error:
            raise self._nonsense(f"{method}: {error.message}") from error
        self._seconds = ASK_SECONDS
        if not isinstance(answer, Mapping):
            raise self._nonsense(f"{method} with something that is no object")
        return answer

    def _read(self, kind: type[T], document: Any) -> T:
        try:
            return from_json(kind, document)
        except Unreadable as error:
            raise self._nonsense(error.message) from error

    def _nonsense(self, what: str) -> AgentUnavailable:
        return AgentUnavailable(f"The agent {self._agent!r} answered with what cannot be used: {what}")


def _of_few_turns(events: Sequence[Event]) -> list[Event]:
    """The first ones, of no more turns than rows can be asked for at once."""
    turns: set[str] = set()
    for number, event in enumerate(events):
        turns.add(event.turn)
        if len(turns) > MAX_TURNS // 2:
            return list(events[:number])
    return list(events)
