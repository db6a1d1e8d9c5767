"""The store's verbs that only read: each one a short read transaction on a reader's connection.

Look-ups by a key or a small partial index run on the event loop; whatever may touch many rows, or long ones, runs on a
reader's thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import apsw

from perdure.events import Event
from perdure.store.base import Page, Spoken, StoredCall
from perdure.store.sqlite import claims, listing
from perdure.store.sqlite.audit import entries
from perdure.store.sqlite.cards import require_card, waiting
from perdure.store.sqlite.claims import Owner
from perdure.store.sqlite.journal import QUERIES, require_turn
from perdure.store.sqlite.listing import Messages
from perdure.store.sqlite.readers import Readers
from perdure.store.sqlite.rows import instant_or_none, micros, to_json
from perdure.store.sqlite.tokens import all_tokens
from perdure.turns import Attempt, AuditEntry, Card, Change, Conversation, Limits, Token, Turn, TurnStatus

FEW_EVENTS = 8
"""As many are read and rendered on the event loop."""


class Reading:
    """The reading half of `perdure.store.base.Store`."""

    def __init__(self, readers: Readers, messages: Messages, owner: Owner, limits: Limits) -> None:
        self._readers = readers
        self._messages = messages
        self._owner = owner
        self._limits = limits

    # -- people's -----------------------------------------------------------------------------------------------------

    async def conversation(self, scope: str | None, conversation: str) -> Conversation:
        return self._readers.read_here(lambda connection: listing.conversation(connection, scope, conversation))

    async def conversations(
        self,
        scope: str | None,
        *,
        limit: int,
        cursor: str | None = None,
        agent: str | None = None,
        text: str | None = None,
    ) -> Page[Conversation]:
        def read(connection: apsw.Connection) -> Page[Conversation]:
            return listing.conversations(connection, scope, limit=limit, cursor=cursor, agent=agent, text=text)

        return await self._readers.run(read)

    async def turn(self, scope: str | None, turn: str) -> Turn:
        return self._readers.read_here(lambda connection: require_turn(connection, scope, turn))

    async def turns(
        self,
        scope: str | None,
        *,
        limit: int,
        cursor: str | None = None,
        conversation: str | None = None,
        status: TurnStatus | None = None,
        agent: str | None = None,
        attempts_min: int | None = None,
        text: str | None = None,
    ) -> Page[Turn]:
        def read(connection: apsw.Connection) -> Page[Turn]:
            return listing.turns(
                connection,
                scope,
                limit=limit,
                cursor=cursor,
                conversation_id=conversation,
                status=status,
                agent=agent,
                attempts_min=attempts_min,
                text=text,
            )

        return await self._readers.run(read)

    async def turn_counts(self, scope: str | None, *, agent: str | None = None) -> Mapping[TurnStatus, int]:
        return await self._readers.run(lambda connection: listing.counts(connection, scope, agent))

    async def last_turn(self, scope: str | None, conversation: str) -> Turn | None:
        return self._readers.read_here(lambda connection: listing.last_turn(connection, scope, conversation))

    async def attempts(self, scope: str | None, turn: str) -> Sequence[Attempt]:
        return await self._readers.run(lambda connection: listing.attempts(connection, scope, turn))

    async def cards(self, scope: str | None, turn: str) -> Sequence[Card]:
        return await self._readers.run(lambda connection: listing.cards(connection, scope, turn))

    async def changes(self, scope: str | None, after: int, limit: int) -> Sequence[Change]:
        return await self._readers.run(lambda connection: listing.changes(connection, scope, after, limit))

    async def last_change(self, scope: str | None) -> int:
        if scope is None:
            return await self._number("changes_last_everywhere", "number")
        return await self._number("changes_last", "number", scope=scope)

    async def calls(self, scope: str | None, turn: str) -> Sequence[StoredCall]:
        return await self._readers.run(lambda connection: listing.calls(connection, scope, turn))

    async def card(self, scope: str | None, name: str, card: str) -> Card:
        return await self._readers.run(lambda connection: require_card(connection, scope, name, card))

    async def approvals(
        self, scope: str | None, name: str, *, limit: int, cursor: str | None = None, conversation: str | None = None
    ) -> Page[Card]:
        def read(connection: apsw.Connection) -> Page[Card]:
            return waiting(connection, scope, name, limit=limit, cursor=cursor, conversation=conversation)

        return await self._readers.run(read)

    async def audit(self, scope: str | None, *, limit: int, cursor: str | None = None) -> Page[AuditEntry]:
        return await self._readers.run(lambda connection: entries(connection, scope, limit=limit, cursor=cursor))

    async def tokens(self) -> Sequence[Token]:
        return await self._readers.run(all_tokens)

    # -- events -------------------------------------------------------------------------------------------------------

    async def events(
        self, conversation: str, *, after: int = 0, turn: str | None = None, limit: int = 1000
    ) -> Sequence[Event]:
        def read(connection: apsw.Connection) -> list[Event]:
            return listing.events(connection, self._messages, conversation, after=after, turn_id=turn, limit=limit)

        def has_many(connection: apsw.Connection) -> bool:
            return len(listing.event_places(connection, conversation, after=after, limit=FEW_EVENTS + 1)) > FEW_EVENTS

        if limit > FEW_EVENTS and self._readers.look(has_many):
            return await self._readers.run(read)
        return self._readers.read_here(read)

    async def rewound_after(self, turn: str, seq: int) -> Event | None:
        return self._readers.look(lambda connection: listing.rewound_after(connection, turn, seq))

    async def turn_at(self, conversation: str, seq: int) -> Turn | None:
        return self._readers.read_here(lambda connection: listing.turn_at(connection, conversation, seq))

    # -- the engine's -------------------------------------------------------------------------------------------------

    async def next_due(self, agents: Collection[str], *, suspects: bool = False) -> datetime | None:
        least = self._limits.suspect_after if suspects else 0

        def read(connection: apsw.Connection) -> datetime | None:
            row = QUERIES.one(connection, "next_due", agents=to_json(list(agents)), least=least)
            return instant_or_none(row["due"]) if row else None

        return self._readers.look(read)

    async def suspects_due(self, agents: Collection[str], now: datetime) -> int:
        return await self._number(
            "suspects_due",
            "due",
            agents=to_json(list(agents)),
            now=micros(now),
            suspect_after=self._limits.suspect_after,
        )

    async def cancel_requested(self, turns: Collection[str]) -> set[str]:
        def read(connection: apsw.Connection) -> set[str]:
            return {row["id"] for row in QUERIES.all(connection, "cancels_requested", turns=to_json(list(turns)))}

        return self._readers.look(read)

    async def verdicts(self, turn: str) -> Mapping[str, Card]:
        return self._readers.look(lambda connection: listing.verdicts(connection, turn))

    async def spoken(self, turn: str) -> Sequence[Spoken]:
        rows = self._readers.look(lambda connection: QUERIES.all(connection, "spoken", turn=turn))
        return [Spoken(row["message"], row["text"]) for row in rows]

    async def ledger(self, turn: str) -> Sequence[StoredCall]:
        if self._readers.look(lambda connection: QUERIES.one(connection, "calls_exist", turn=turn)) is None:
            return ()
        return await self._readers.run(lambda connection: listing.ledger(connection, turn))

    async def orphans(self, now: datetime, held: Collection[str]) -> Sequence[Turn]:
        return await self._readers.run(lambda connection: claims.orphans(connection, self._owner, now, held))

    async def unclean_boots(self, since: datetime) -> int:
        return await self._number("boots_unclean", "boots", since=micros(since), number=self._owner.boot)

    async def conversations_by_agent(self) -> Mapping[str, tuple[int, int]]:
        """How many conversations each agent has here, and how many of their turns have not ended."""

        def read(connection: apsw.Connection) -> Mapping[str, tuple[int, int]]:
            rows = QUERIES.all(connection, "conversations_by_agent")
            return {row["agent"]: (row["conversations"], row["unended"]) for row in rows}

        return await self._readers.run(read)

    async def _number(self, query: str, column: str, **bindings: Any) -> int:
        def read(connection: apsw.Connection) -> int:
            row = QUERIES.one(connection, query, **bindings)
            return int(row[column]) if row else 0

        return self._readers.look(read)
