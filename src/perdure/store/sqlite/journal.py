"""What several of the journal's transactions share. Every function runs inside an open transaction of the writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw

from perdure.errors import LeaseLost, NotFound, PerdureError
from perdure.events import Event, EventKind, end_payload
from perdure.failpoints import failpoint
from perdure.store.base import Notify
from perdure.store.sqlite.queries import Queries
from perdure.store.sqlite.rows import Row, clean, micros, to_json, turn_from
from perdure.turns import Failure, Turn, TurnStatus

QUERIES = Queries(Path(__file__).with_name("queries.sql"))


@dataclass(frozen=True, slots=True)
class Told:
    """What a transaction leaves to be done after its commit: its result to return, or the refusal to raise, and before that
    the events to publish."""

    result: Any
    events: Sequence[Event] = field(default_factory=list)
    refusal: PerdureError | None = None


def publish(notify: Notify, event: Event) -> None:
    """Tells a committed event. After the commit, on the event loop."""
    failpoint("event_publish.before")
    notify.publish(event)
    failpoint("event_publish.after")


def write_event(connection: apsw.Connection, event: Event) -> None:
    write_events(connection, [event])


def write_events(
    connection: apsw.Connection, events: Sequence[Event], items: Mapping[int, int | None] | None = None
) -> None:
    """`items`: by seq, the stored message that a message event names instead of repeating it."""
    if events:
        named = items or {}
        rows = [_event_row(event, named.get(event.seq)) for event in events]
        connection.executemany(QUERIES["event_insert"], rows)


def _event_row(event: Event, item_id: int | None) -> dict[str, Any]:
    return {
        "conversation": event.conversation,
        "seq": event.seq,
        "turn": event.turn,
        "attempt": event.attempt,
        "kind": str(event.kind),
        "at": micros(event.at),
        "item_id": item_id,
        "payload": None if item_id is not None else to_json(event.payload),
    }


def take_seqs(connection: apsw.Connection, conversation: str, count: int) -> int:
    """Reserves seqs; the first of them."""
    row = QUERIES.one(connection, "seqs_take", id=conversation, count=count)
    if row is None:
        raise NotFound("This conversation does not exist any more.", conversation=conversation)
    return int(row["first"])


def turn_of(connection: apsw.Connection, query: str, /, **bindings: Any) -> Turn | None:
    row = QUERIES.one(connection, query, **bindings)
    return None if row is None else turn_from(row)


def touch(connection: apsw.Connection, conversation: str, now: datetime) -> None:
    """Notes activity; before a turn's status changes, for its summary carries the conversation's time."""
    QUERIES.run(connection, "conversation_touch", id=conversation, now=micros(now))


def guarded(connection: apsw.Connection, query: str, /, **bindings: Any) -> None:
    """A statement that must touch its row. Raises LeaseLost when somebody else was faster."""
    if QUERIES.run(connection, query, **bindings) != 1:
        raise LeaseLost()


def promote_waiting(connection: apsw.Connection, conversation: str) -> str | None:
    """The predecessor ended: the first waiting turn becomes queued, and what ended before it can no longer be resumed."""
    waiting = turn_of(connection, "turn_first_waiting", conversation=conversation)
    if waiting is None:
        return None
    row = QUERIES.one(connection, "next_seq", id=conversation)
    assert row is not None
    QUERIES.run(connection, "turns_supersede", conversation=conversation, before=waiting.accept_number)
    guarded(connection, "turn_promote", id=waiting.id, seq=row["next_seq"])
    return waiting.id


def require_conversation(connection: apsw.Connection, scope: str | None, conversation: str) -> Row:
    """Raises NotFound, also for another owner's."""
    row = QUERIES.one(connection, "conversation", id=conversation, scope=scope)
    if row is None:
        raise NotFound("There is no conversation with this id.", conversation=conversation)
    return row


def require_turn(connection: apsw.Connection, scope: str | None, turn_id: str) -> Turn:
    """Raises NotFound, also for another owner's."""
    turn = turn_of(connection, "turn_in_scope", id=turn_id, scope=scope)
    if turn is None:
        raise NotFound("There is no turn with this id.", turn=turn_id)
    return turn


def ending(status: TurnStatus, failure: Failure | None) -> tuple[EventKind, Mapping[str, Any]]:
    """The terminal event of an end."""
    if failure is None:
        return EventKind.END, end_payload(status)
    return EventKind.CHAT_ERROR, {
        "status": str(status),
        "code": str(failure.code),
        "reason": failure.reason,
        "message": clean(failure.message),
    }


def failure_bindings(failure: Failure | None) -> dict[str, str | None]:
    if failure is None:
        return {"code": None, "reason": None, "message": None}
    return {"code": str(failure.code), "reason": failure.reason, "message": clean(failure.message)}
