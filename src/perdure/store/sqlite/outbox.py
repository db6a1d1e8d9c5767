"""What a journal tells to others: `perdure.store.outbox.Outbox`. Rows leave as they are stored, all of one page as of one
instant."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import apsw

from perdure.replication import JournalRows, Position
from perdure.store.sqlite.forking import Forking
from perdure.store.sqlite.journal import QUERIES
from perdure.store.sqlite.rows import LARGEST, Row, micros

MOST_ROWS = 1_000
"""Changes, and deeds of the audit, that one answer tells at most."""

MOST_CHARACTERS = 1_000_000
"""Of text in one answer; the conversation or the turn that reaches it is still told whole."""


class Outgoing(Forking):
    """That part of the store on SQLite."""

    @property
    def journal(self) -> str:
        return self._readers.look(journal_id)

    async def unpublished(self, stream: str, since: datetime) -> Mapping[str, int]:
        def read(connection: apsw.Connection) -> Mapping[str, int]:
            rows = QUERIES.all(connection, "outbox_due", stream=stream, since=micros(since))
            return {row["conversation"]: row["seq"] for row in rows}

        return await self._readers.run(read)

    async def published(self, stream: str, seqs: Mapping[str, int]) -> None:
        if not seqs:
            return

        def keep(connection: apsw.Connection) -> None:
            for conversation, seq in seqs.items():
                QUERIES.run(connection, "outbox_set", conversation=conversation, stream=stream, seq=seq)

        await self._writer.submit(keep, patient=True)

    async def journal_rows(
        self,
        after: Position,
        *,
        limit: int = 200,
        turns: Collection[str] = (),
        conversations: Collection[str] = (),
    ) -> JournalRows:
        if turns or conversations:
            return await self._readers.run(lambda connection: rows_named(connection, turns, conversations))
        most = max(1, min(limit, MOST_ROWS))
        return await self._readers.run(lambda connection: rows_after(connection, after, most))


def journal_id(connection: apsw.Connection) -> str:
    row = QUERIES.one(connection, "journal_id")
    assert row is not None
    return str(row["id"])


def rows_after(connection: apsw.Connection, after: Position, limit: int) -> JournalRows:
    """A page of what changed after a position."""
    journal = journal_id(connection)
    after = after if _continues(connection, journal, after) else Position(journal)
    found = QUERIES.all(connection, "changes_named", after=after.change or -LARGEST, limit=limit + 1)
    collected, change, more = _Collected(), after.change, len(found) > limit
    for row in found[:limit]:
        if collected.size > MOST_CHARACTERS:
            more = True
            break
        collected.add(connection, row["conversation"], row["turn"])
        change = row["number"]
    deeds = QUERIES.all(connection, "audit_after", after=after.audit, limit=limit + 1)
    audit = deeds[:limit]
    position = Position(journal, change, audit[-1]["number"] if audit else after.audit)
    return collected.told(connection, position, after.change, more=more or len(deeds) > limit, audit=audit)


def _continues(connection: apsw.Connection, journal: str, after: Position) -> bool:
    """Whether a position is one of this journal's past. Not after a backup was restored that is older than it."""
    if after.journal != journal or after.change > last_change(connection):
        return False
    return QUERIES.one(connection, "changes_numbers_lost", number=after.change) is None


def rows_named(connection: apsw.Connection, turns: Iterable[str], conversations: Iterable[str]) -> JournalRows:
    """These turns with their conversations, and these conversations; as of now. They continue nothing but the present."""
    collected = _Collected()
    for conversation in conversations:
        collected.add(connection, conversation, None)
    for turn in turns:
        row = QUERIES.one(connection, "turn", id=turn)
        if row is not None:
            collected.add(connection, row["conversation"], turn)
    position = Position(journal_id(connection), last_change(connection))
    return collected.told(connection, position, position.change)


def last_change(connection: apsw.Connection) -> int:
    row = QUERIES.one(connection, "changes_last_everywhere")
    return int(row["number"]) if row else 0


@dataclass(slots=True)
class _Collected:
    """Rows by id, each once."""

    conversations: dict[str, Row] = field(default_factory=dict)
    turns: dict[str, Row] = field(default_factory=dict)
    attempts: list[Row] = field(default_factory=list)
    cards: list[Row] = field(default_factory=list)
    calls: list[Row] = field(default_factory=list)
    deleted: dict[str, None] = field(default_factory=dict)
    size: int = 0

    def add(self, connection: apsw.Connection, conversation: str, turn: str | None) -> None:
        self._add_conversation(connection, conversation)
        if turn is not None and turn not in self.turns and conversation in self.conversations:
            self._add_turn(connection, turn)

    def _add_conversation(self, connection: apsw.Connection, conversation: str) -> None:
        if conversation in self.conversations or conversation in self.deleted:
            return
        row = QUERIES.one(connection, "conversation_row", id=conversation)
        if row is None:
            self.deleted[conversation] = None
        else:
            self.conversations[conversation] = row
            self._measure([row])

    def _add_turn(self, connection: apsw.Connection, turn: str) -> None:
        row = QUERIES.one(connection, "turn", id=turn)
        if row is None:
            return
        self.turns[turn] = row
        attempts = QUERIES.all(connection, "attempts_of_turn", turn=turn)
        cards = QUERIES.all(connection, "cards_of_turn", turn=turn)
        calls = QUERIES.all(connection, "calls_of_turn", turn=turn)
        self.attempts += attempts
        self.cards += cards
        self.calls += calls
        self._measure([row, *attempts, *cards, *calls])

    def _measure(self, rows: Iterable[Row]) -> None:
        self.size += sum(len(value) for row in rows for value in row.values() if isinstance(value, str))

    def told(
        self,
        connection: apsw.Connection,
        position: Position,
        after: int,
        *,
        more: bool = False,
        audit: Collection[Mapping[str, Any]] = (),
    ) -> JournalRows:
        return JournalRows(
            journal=position.journal,
            after=after,
            position=position,
            more=more,
            conversations=list(self.conversations.values()),
            turns=sorted(self.turns.values(), key=lambda row: row["accept_number"]),
            attempts=self.attempts,
            cards=self.cards,
            calls=self.calls,
            audit=list(audit),
            deleted=list(self.deleted),
            last_seqs={conversation: _last_seq(connection, conversation) for conversation in self.conversations},
        )


def _last_seq(connection: apsw.Connection, conversation: str) -> int:
    row = QUERIES.one(connection, "last_seq", conversation=conversation)
    return int(row["seq"]) if row else 0
