"""Reading the journal: functions of a reader's connection, every one of people's within a scope: an owner's, or all (None)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import apsw

from perdure.events import Event
from perdure.store.base import Page, StoredCall
from perdure.store.sqlite.cards import of_turn
from perdure.store.sqlite.journal import QUERIES, require_conversation, require_turn, turn_of
from perdure.store.sqlite.rows import (
    LARGEST,
    attempt_from,
    change_from,
    conversation_from,
    cursor_of,
    cursor_parts,
    event_from,
    stored_call_from,
    turn_from,
)
from perdure.turns import Attempt, Card, CardState, Change, Conversation, Turn, TurnStatus

Messages = Callable[[apsw.Connection, Sequence[int]], Mapping[int, Mapping[str, Any]]]
"""Wire forms of stored messages by item id."""


def conversation(connection: apsw.Connection, scope: str | None, conversation_id: str) -> Conversation:
    return conversation_from(require_conversation(connection, scope, conversation_id))


def conversations(
    connection: apsw.Connection, scope: str | None, *, limit: int, cursor: str | None, agent: str | None
) -> Page[Conversation]:
    updated_at, last_id = cursor_parts(cursor, (int, str)) if cursor else (LARGEST, "")
    bindings = {"updated_at": updated_at, "id": last_id, "agent": agent, "limit": limit + 1}
    if scope is None:
        rows = QUERIES.all(connection, "conversations_page_everywhere", **bindings)
    else:
        rows = QUERIES.all(connection, "conversations_page", scope=scope, **bindings)
    shown = rows[:limit]
    more = cursor_of(shown[-1]["updated_at"], shown[-1]["id"]) if len(rows) > limit and shown else None
    return Page([conversation_from(row) for row in shown], more)


def turns(
    connection: apsw.Connection,
    scope: str | None,
    *,
    limit: int,
    cursor: str | None,
    conversation_id: str | None,
    status: TurnStatus | None,
    agent: str | None,
) -> Page[Turn]:
    (before,) = cursor_parts(cursor, (int,)) if cursor else (LARGEST,)
    bindings = {"before": before, "agent": agent, "limit": limit + 1}
    bindings["status"] = None if status is None else str(status)
    if conversation_id is not None:
        rows = QUERIES.all(
            connection, "turns_page_of_conversation", conversation=conversation_id, scope=scope, **bindings
        )
    elif scope is None:
        rows = QUERIES.all(connection, "turns_page_everywhere", **bindings)
    else:
        rows = QUERIES.all(connection, "turns_page", scope=scope, **bindings)
    shown = rows[:limit]
    more = cursor_of(shown[-1]["accept_number"]) if len(rows) > limit and shown else None
    return Page([turn_from(row) for row in shown], more)


def last_turn(connection: apsw.Connection, scope: str | None, conversation_id: str) -> Turn | None:
    require_conversation(connection, scope, conversation_id)
    for query in ("turn_active", "turn_first_waiting", "turn_last_started"):
        found = turn_of(connection, query, conversation=conversation_id)
        if found is not None:
            return found
    return None


def attempts(connection: apsw.Connection, scope: str | None, turn_id: str) -> list[Attempt]:
    require_turn(connection, scope, turn_id)
    return [attempt_from(row) for row in QUERIES.all(connection, "attempts_of_turn", turn=turn_id)]


def cards(connection: apsw.Connection, scope: str | None, turn_id: str) -> list[Card]:
    require_turn(connection, scope, turn_id)
    return of_turn(connection, turn_id)


def calls(connection: apsw.Connection, scope: str | None, turn_id: str) -> list[StoredCall]:
    """The turn's tool calls without their results."""
    require_turn(connection, scope, turn_id)
    return [stored_call_from(row) for row in QUERIES.all(connection, "calls_of_turn", turn=turn_id)]


def ledger(connection: apsw.Connection, turn_id: str) -> list[StoredCall]:
    """The turn's tool calls with the results that are not settled."""
    return [stored_call_from(row) for row in QUERIES.all(connection, "calls_with_results", turn=turn_id)]


def verdicts(connection: apsw.Connection, turn_id: str) -> dict[str, Card]:
    """Decided cards of a turn by interrupt id."""
    return {card.interrupt_id: card for card in of_turn(connection, turn_id) if card.state is CardState.DECIDED}


def changes(connection: apsw.Connection, scope: str | None, after: int, limit: int) -> list[Change]:
    bindings = {"after": min(after, LARGEST), "limit": limit}
    if scope is None:
        rows = QUERIES.all(connection, "changes_after_everywhere", **bindings)
    else:
        rows = QUERIES.all(connection, "changes_after", scope=scope, **bindings)
    return [change_from(row) for row in rows]


def events(
    connection: apsw.Connection,
    messages: Messages,
    conversation_id: str,
    *,
    after: int,
    turn_id: str | None,
    limit: int,
) -> list[Event]:
    """Retained events in order, each message rendered from its stored form."""
    bindings = {"conversation": conversation_id, "after": min(after, LARGEST), "limit": limit}
    if turn_id is None:
        rows = QUERIES.all(connection, "events_after", **bindings)
    else:
        rows = QUERIES.all(connection, "events_of_turn_after", turn=turn_id, **bindings)
    items = [row["item_id"] for row in rows if row["item_id"] is not None]
    rendered = messages(connection, items) if items else {}
    return [event_from(row, rendered[row["item_id"]] if row["item_id"] is not None else None) for row in rows]


def event_places(connection: apsw.Connection, conversation_id: str, *, after: int, limit: int) -> list[int]:
    """Seqs of stored events alone, dropped ones included: how much a reader has before it."""
    bindings = {"conversation": conversation_id, "after": min(after, LARGEST), "limit": limit}
    return [row["seq"] for row in QUERIES.all(connection, "event_places", **bindings)]


def rewound_after(connection: apsw.Connection, turn_id: str, seq: int) -> Event | None:
    row = QUERIES.one(connection, "rewind_after", turn=turn_id, after=min(seq, LARGEST))
    return None if row is None else event_from(row)


def turn_at(connection: apsw.Connection, conversation_id: str, seq: int) -> Turn | None:
    """By the stored event, else by the range of seqs (streamed text has no stored event)."""
    if not 0 < seq <= LARGEST:
        return None
    bindings = {"conversation": conversation_id, "seq": seq}
    return turn_of(connection, "turn_of_event", **bindings) or turn_of(connection, "turn_spanning", **bindings)
