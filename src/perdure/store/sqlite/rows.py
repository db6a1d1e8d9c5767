"""Rows of the journal as the records of the vocabulary, and back: the only place that knows both shapes."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure.effects import EffectClass
from perdure.errors import BadRequest
from perdure.events import Event, EventKind
from perdure.ledger import CallState, ToolCall
from perdure.store.base import StoredCall, StoredResult
from perdure.turns import (
    AskedCall,
    Attempt,
    AuditEntry,
    Card,
    CardState,
    Change,
    Conversation,
    DecisionKind,
    Failure,
    FailureCode,
    Origin,
    Outcome,
    Role,
    Spent,
    Token,
    Turn,
    TurnStatus,
    Verdict,
)

Row = Mapping[str, Any]

LARGEST = 2**63 - 1
"""The largest integer SQLite holds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(instant: datetime) -> int:
    """An aware instant as the database keeps it: integer microseconds since the epoch."""
    return (instant - _EPOCH) // _MICROSECOND


def instant(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


def instant_or_none(value: int | None) -> datetime | None:
    return None if value is None else instant(value)


def to_json(value: Any) -> str:
    """Compact JSON; what JSON cannot hold is kept as its text, lone surrogates as escapes."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), default=str)
    return text


def from_json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def clean(text: str) -> str:
    """Text that SQLite can hold: lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode()


def turn_from(row: Row) -> Turn:
    return Turn(
        id=row["id"],
        conversation=row["conversation"],
        agent=row["agent"],
        owner=row["owner"],
        status=TurnStatus(row["status"]),
        accept_number=row["accept_number"],
        input=from_json(row["input"]),
        epoch=row["epoch"],
        attempts=row["attempts"],
        attempts_without_progress=row["attempts_without_progress"],
        supersteps=row["supersteps"],
        budget_from=row["budget_from"],
        first_seq=row["first_seq"],
        committed_seq=row["committed_seq"],
        cancel_requested_at=instant_or_none(row["cancel_requested_at"]),
        superseded=bool(row["superseded"]),
        failure=_failure(row),
        usage={name: row[name] for name in ("input_tokens", "output_tokens", "total_tokens")},
        accepted_at=instant(row["accepted_at"]),
        ended_at=instant_or_none(row["ended_at"]),
        not_before=instant_or_none(row["not_before"]),
        lease_expires_at=instant_or_none(row["lease_expires_at"]),
        spent=_spent(row),
        discards_cards=bool(row["discards_cards"]),
    )


def _spent(row: Row) -> Spent:
    return Spent(
        model_calls=row["model_calls"] - row["model_calls_from"],
        tool_calls=row["tool_calls"] - row["tool_calls_from"],
        tokens=row["total_tokens"] - row["tokens_from"],
        seconds=(row["worked"] - row["worked_from"]) / 1_000_000,
    )


def _failure(row: Row) -> Failure | None:
    if row["failure_code"] is None:
        return None
    return Failure(FailureCode(row["failure_code"]), row["failure_reason"], row["failure_message"])


def attempt_from(row: Row) -> Attempt:
    return Attempt(
        turn=row["turn"],
        number=row["number"],
        epoch=row["epoch"],
        owner=row["owner"],
        started_at=instant(row["started_at"]),
        ended_at=instant_or_none(row["ended_at"]),
        outcome=Outcome(row["outcome"]) if row["outcome"] else None,
        progressed=bool(row["progressed"]),
        error=row["error"],
    )


def conversation_from(row: Row) -> Conversation:
    return Conversation(
        id=row["id"],
        owner=row["owner"],
        agent=row["agent"],
        title=row["title"],
        message_count=row["message_count"],
        created_at=instant(row["created_at"]),
        updated_at=instant(row["updated_at"]),
        status=TurnStatus(row["status"]) if row["status"] else None,
        forked_from=_origin(row),
    )


def _origin(row: Row) -> Origin | None:
    if row["forked_from"] is None:
        return None
    return Origin(row["forked_from"], row["forked_turn"], row["forked_checkpoint"])


def card_from(row: Row) -> Card:
    return Card(
        id=row["id"],
        turn=row["turn"],
        conversation=row["conversation"],
        owner=row["owner"],
        interrupt_id=row["interrupt_id"],
        kind=row["kind"],
        request=from_json(row["request"]),
        state=CardState(row["state"]),
        opened_at=instant(row["opened_at"]),
        verdict=_verdict(row),
        call=_asked_call(row),
        expires_at=instant_or_none(row["expires_at"]),
        deciders=tuple(from_json(row["deciders"])),
        why=row["why"],
    )


def _verdict(row: Row) -> Verdict | None:
    if row["decision"] is None:
        return None
    return Verdict(
        DecisionKind(row["decision"]),
        arguments=from_json(row["decided_arguments"]),
        note=row["note"],
        result=from_json(row["result"]),
        value=from_json(row["answer"]),
        by=row["decided_by"] or "",
        at=instant_or_none(row["decided_at"]),
    )


def _asked_call(row: Row) -> AskedCall | None:
    if row["tool"] is None:
        return None
    return AskedCall(
        tool=row["tool"],
        server=row["server"],
        arguments=from_json(row["arguments"]),
        digest=row["digest"],
        effect_class=row["effect_class"],
        call_id=row["call_id"],
        message_id=row["message_id"],
        key=row["call_key"],
    )


def stored_call_from(row: Row) -> StoredCall:
    """A row of the ledger; the result where the query asked for it and the row still has it."""
    result = row.get("result")
    return StoredCall(
        key=row["key"],
        turn=row["turn"],
        conversation=row["conversation"],
        call=ToolCall(
            id=row["call_id"],
            name=row["name"],
            arguments=from_json(row["arguments"]),
            message_id=row["message_id"],
            server=row["server"],
            effect=EffectClass(row["effect_class"]),
        ),
        state=CallState(row["state"]),
        starts=row["starts"],
        attempt=row["attempt"],
        epoch=row["epoch"],
        started_at=instant(row["started_at"]),
        ended_at=instant_or_none(row["ended_at"]),
        status=row["status"],
        result=None if result is None else StoredResult(row["result_kind"], result),
        error=row["error"],
    )


def token_from(row: Row) -> Token:
    return Token(
        name=row["name"],
        role=Role(row["role"]),
        created_at=instant(row["created_at"]),
        created_by=row["created_by"],
        revoked_at=instant_or_none(row["revoked_at"]),
        last_used_at=instant_or_none(row["last_used_at"]),
    )


def audit_entry_from(row: Row) -> AuditEntry:
    return AuditEntry(
        number=row["number"],
        at=instant(row["at"]),
        by=row["by"],
        action=row["action"],
        conversation=row["conversation"],
        turn=row["turn"],
        card=row["card"],
        detail=from_json(row["detail"]),
    )


def change_from(row: Row) -> Change:
    detail = {name: row[name] for name in ("title", "agent") if row[name] is not None}
    return Change(
        number=row["number"],
        kind=row["kind"],
        conversation=row["conversation"],
        turn=row["turn"],
        status=row["status"],
        at=instant(row["at"]),
        detail=detail,
    )


def event_from(row: Row, message: Mapping[str, Any] | None = None) -> Event:
    """`message` is the wire form of the stored message a `message` event refers to."""
    payload = {"message": message} if message is not None else from_json(row["payload"])
    return Event(
        seq=row["seq"],
        conversation=row["conversation"],
        turn=row["turn"],
        attempt=row["attempt"],
        kind=EventKind(row["kind"]),
        at=instant(row["at"]),
        payload=payload or {},
    )


def cursor_of(*parts: int | str) -> str:
    """An opaque page cursor."""
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def cursor_parts(cursor: str, kinds: tuple[type, ...]) -> list[Any]:
    """The parts of a cursor of ours. Raises BadRequest for anything else."""
    try:
        parts = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error) as error:
        raise BadRequest("The cursor is not one of this server. Start again without it.") from error
    if not isinstance(parts, list) or [type(part) for part in parts] != list(kinds) or not _fit(parts):
        raise BadRequest("The cursor is not one of this server. Start again without it.")
    return parts


def _fit(parts: list[Any]) -> bool:
    """Whether SQLite can hold the numbers."""
    return all(not isinstance(part, int) or abs(part) <= LARGEST for part in parts)
