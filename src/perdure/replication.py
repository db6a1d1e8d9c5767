"""How a gateway keeps a copy of its agents' journals: whole rows, read after a cursor, applied in one transaction. Pure.

A journal tells what changed by its `changes` (a number that only grows, written by triggers); the copy asks for all rows of
what changed after its cursor. Rows are copied as they are stored (column → text, number or None): both sides have the same
schema. Events are not in them: they are a log of their own, told by `seq` (`perdure.events`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

Row = Mapping[str, Any]

NAMED = -1
"""`JournalRows.after` of rows that were named, or chosen: they continue no position."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a copy holds a journal. `journal`: which one; another database, or none yet, has another id."""

    journal: str = ""
    change: int = 0
    audit: int = 0


@dataclass(frozen=True, slots=True)
class JournalRows:
    """The rows of conversations and turns that changed after a cursor, or were named; each turn with all that belongs to it."""

    journal: str
    after: int
    """The cursor this was read for, or `NAMED`."""

    position: Position
    """The copy holds the journal up to here once it has applied these rows. Rows are as of this instant or later."""

    more: bool = False
    """Whether there is more after `position`."""

    conversations: Sequence[Row] = ()
    turns: Sequence[Row] = ()
    """In the order of acceptance."""

    attempts: Sequence[Row] = ()
    cards: Sequence[Row] = ()
    calls: Sequence[Row] = ()
    """Without their results."""

    audit: Sequence[Row] = ()
    deleted: Sequence[str] = ()
    """Conversations."""

    last_seqs: Mapping[str, int] = field(default_factory=dict)
    """The last committed seq of each conversation that is in here."""


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """How far the stream of events was read. `stream`: its identity (name and the instant it was made): one that was lost
    and made again has another."""

    stream: str
    seq: int


@dataclass(frozen=True, slots=True)
class StoredTranscript:
    """The messages of a conversation as its agent told them last, up to `seq`; events after it go on top."""

    seq: int
    document: Mapping[str, Any]
    """`{messages, state, resumable}`."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A turn that a gateway has given to an agent and whose end it waits for."""

    turn: str
    conversation: str
    agent: str
    dispatched_at: datetime
    parked_seconds: float = 0.0
    """Confirmed by the agent; the deadline does not count it."""


class Reach(StrEnum):
    """Whether an agent can be asked now."""

    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"
    """It does not answer, or left."""

    DISCONNECTED = "disconnected"
    """Nobody can be: this process has lost NATS."""
