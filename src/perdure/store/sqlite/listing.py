"""Reading the journal: functions of a reader's connection, every one of people's within a scope: an owner's, or all (None)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import apsw

from perdure.events import Event
from perdure.forks import WorkerInfo
from perdure.store.base import Page, StoredCall
from perdure.store.sqlite import search
from perdure.store.sqlite.cards import of_turn
from perdure.store.sqlite.journal import QUERIES, require_conversation, require_turn, turn_of
from perdure.store.sqlite.rows import (
    LARGEST,
    attempt_from,
    change_from,
    clean,
    conversation_from,
    cursor_of,
    cursor_parts,
    event_from,
    instant,
    micros,
    stored_call_from,
    turn_from,
)
from perdure.turns import Attempt, Card, CardState, Change, Conversation, Turn, TurnStatus

NOTHING = '{owner} : "-" AND {text} : "-"'
"""A search that finds nothing."""

Messages = Callable[[apsw.Connection, Sequence[int]], Mapping[int, Mapping[str, Any]]]
"""Wire forms of stored messages by item id."""


def conversation(connection: apsw.Connection, scope: str | None, conversation_id: str) -> Conversation:
    return conversation_from(require_conversation(connection, scope, conversation_id))


def conversations(
    connection: apsw.Connection,
    scope: str | None,
    *,
    limit: int,
    cursor: str | None,
    agent: str | None,
    text: str | None = None,
) -> Page[Conversation]:
    updated_at, last_id = cursor_parts(cursor, (int, str)) if cursor else (LARGEST, "")
    bindings = {"updated_at": updated_at, "id": last_id, "agent": agent, "limit": limit + 1}
    if text is not None:
        match = search.match_of(connection, text, scope)
        found = {"scope": scope, "match": match, "most": search.MOST_MATCHES}
        rows = [] if match is None else QUERIES.all(connection, "conversations_found", **found, **bindings)
    elif scope is None:
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
    attempts_min: int | None = None,
    text: str | None = None,
) -> Page[Turn]:
    (before,) = cursor_parts(cursor, (int,)) if cursor else (LARGEST,)
    bindings = {"before": before, "agent": agent, "limit": limit + 1}
    bindings["status"] = None if status is None else str(status)
    if conversation_id is not None:
        rows = QUERIES.all(
            connection, "turns_page_of_conversation", conversation=conversation_id, scope=scope, **bindings
        )
    elif text is not None:
        rows = _turns_found(connection, text, scope=scope, attempts_min=attempts_min or 0, **bindings)
    elif attempts_min is not None and attempts_min > 1:
        rows = QUERIES.all(connection, "turns_retried", scope=scope, attempts_min=attempts_min, **bindings)
    elif attempts_min == 1:
        rows = QUERIES.all(connection, "turns_begun", scope=scope, **bindings)
    elif scope is None:
        rows = QUERIES.all(connection, "turns_page_everywhere", **bindings)
    else:
        rows = QUERIES.all(connection, "turns_page", scope=scope, **bindings)
    shown = rows[:limit]
    more = cursor_of(shown[-1]["accept_number"]) if len(rows) > limit and shown else None
    return Page([turn_from(row) for row in shown], more)


def _turns_found(connection: apsw.Connection, text: str, *, scope: str | None, **bindings: Any) -> list[dict[str, Any]]:
    """By words; where there are none, by an id or a reason alone."""
    match = search.match_of(connection, text, scope) or NOTHING
    text = clean(text.strip())
    return QUERIES.all(
        connection, "turns_found", match=match, most=search.MOST_MATCHES, text=text, scope=scope, **bindings
    )


def counts(connection: apsw.Connection, scope: str | None, agent: str | None) -> dict[TurnStatus, int]:
    """Every state, those without a turn as 0."""
    query = "turns_counted" if scope is None else "turns_counted_of"
    rows = QUERIES.all(connection, query, scope=scope, agent=agent)
    return dict.fromkeys(TurnStatus, 0) | {TurnStatus(row["status"]): row["turns"] for row in rows}


def workers(connection: apsw.Connection, scope: str | None, boot: int, now: datetime) -> list[WorkerInfo]:
    """`scope`: whose turns are counted."""
    rows = QUERIES.all(connection, "workers", scope=scope, number=boot, now=micros(now))
    return [WorkerInfo(row["owner"], row["version"], instant(row["started_at"]), row["running"]) for row in rows]


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
