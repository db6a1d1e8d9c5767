"""Who did what: rows written in the transaction that does it. They outlive what they are about, and hold none of its content."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import apsw

from perdure.store.base import Page
from perdure.store.sqlite.journal import QUERIES
from perdure.store.sqlite.rows import LARGEST, audit_entry_from, clean, cursor_of, cursor_parts, micros, to_json
from perdure.turns import AuditEntry, Card, Turn


def note(
    connection: apsw.Connection,
    action: str,
    *,
    by: str,
    now: datetime,
    owner: str | None = None,
    conversation: str | None = None,
    turn: str | None = None,
    card: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """`owner`: of the conversation; None for what concerns nobody's. `detail`: names and states, never text of people or
    models."""
    QUERIES.run(
        connection,
        "audit_insert",
        now=micros(now),
        by=clean(by),
        owner=owner,
        action=action,
        conversation=conversation,
        turn=turn,
        card=card,
        detail=to_json(detail or {}),
    )


def note_turn(connection: apsw.Connection, action: str, turn: Turn, *, by: str, now: datetime, **detail: Any) -> None:
    """`by` "": the turn's owner."""
    note(
        connection,
        action,
        by=by or turn.owner,
        now=now,
        owner=turn.owner,
        conversation=turn.conversation,
        turn=turn.id,
        detail=detail,
    )


def note_decision(connection: apsw.Connection, action: str, card: Card, *, now: datetime) -> None:
    verdict = card.verdict
    assert verdict is not None
    detail = {"kind": card.kind, "decision": str(verdict.decision)}
    note(
        connection,
        action,
        by=verdict.by or card.owner,
        now=now,
        owner=card.owner,
        conversation=card.conversation,
        turn=card.turn,
        card=card.id,
        detail=detail | ({"edited": True} if verdict.arguments is not None else {}),
    )


def entries(connection: apsw.Connection, scope: str | None, *, limit: int, cursor: str | None) -> Page[AuditEntry]:
    """Newest first; with an owner, what was done to that owner's conversations."""
    (before,) = cursor_parts(cursor, (int,)) if cursor else (LARGEST,)
    if scope is None:
        rows = QUERIES.all(connection, "audit_page_everywhere", before=before, limit=limit + 1)
    else:
        rows = QUERIES.all(connection, "audit_page", scope=scope, before=before, limit=limit + 1)
    shown = rows[:limit]
    more = cursor_of(shown[-1]["number"]) if len(rows) > limit and shown else None
    return Page([audit_entry_from(row) for row in shown], more)
