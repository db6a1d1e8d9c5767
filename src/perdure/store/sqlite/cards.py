"""Cards: the questions that wait for people, as rows, as lists and as events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import apsw

from perdure.effects import INTERRUPT, Gate, GateRequest
from perdure.errors import UnknownCard
from perdure.events import Event, EventKind
from perdure.store.base import Page, Question
from perdure.store.sqlite.journal import QUERIES, guarded, take_seqs, write_events
from perdure.store.sqlite.rows import card_from, clean, cursor_of, cursor_parts, micros, to_json
from perdure.turns import AskedCall, Card, CardState, Turn

PENDING_NAMED = 50
"""Open cards that a refusal lists, at most."""


# -- reading --------------------------------------------------------------------------------------------------------------


def of_turn(connection: apsw.Connection, turn: str) -> list[Card]:
    """All cards of a turn, oldest first."""
    return [card_from(row) for row in QUERIES.all(connection, "cards_of_turn", turn=turn)]


def open_of_turn(connection: apsw.Connection, turn: str) -> list[Card]:
    return [card for card in of_turn(connection, turn) if card.state is CardState.OPENED]


def require_card(connection: apsw.Connection, scope: str | None, name: str, card: str) -> Card:
    """A card in scope, or one that names this person. Raises UnknownCard with the open ones that the person may see."""
    row = QUERIES.one(connection, "card", id=card, scope=scope, name=name)
    if row is None:
        pending = [each.id for each in waiting(connection, scope, name, limit=PENDING_NAMED, cursor=None).items]
        waits = f"These wait for you: {', '.join(pending)}." if pending else "Nothing waits for you."
        raise UnknownCard(f"There is no card with this id. {waits}", details={"pending": pending})
    return card_from(row)


def waiting(
    connection: apsw.Connection,
    scope: str | None,
    name: str,
    *,
    limit: int,
    cursor: str | None,
    conversation: str | None = None,
) -> Page[Card]:
    """A page of the open cards that are in scope or name this person as a decider, oldest first."""
    opened_at, last_id = cursor_parts(cursor, (int, str)) if cursor else (0, "")
    bindings: dict[str, Any] = {"opened_at": opened_at, "id": last_id, "conversation": conversation, "limit": limit + 1}
    if scope is None:
        rows = QUERIES.all(connection, "cards_open_everywhere", **bindings)
    else:
        mine = QUERIES.all(connection, "cards_open_of_owner", scope=scope, **bindings)
        named = QUERIES.all(connection, "cards_open_naming", name=name, **bindings)
        merged = {row["id"]: row for row in [*mine, *named]}
        rows = sorted(merged.values(), key=lambda row: (row["opened_at"], row["id"]))
    shown = rows[:limit]
    more = cursor_of(shown[-1]["opened_at"], shown[-1]["id"]) if len(rows) > limit and shown else None
    return Page([card_from(row) for row in shown], more)


# -- opening and closing --------------------------------------------------------------------------------------------------


def new_cards(connection: apsw.Connection, turn: Turn, questions: Sequence[Question], now: datetime) -> list[Card]:
    """The questions that need a card opened: a new one, or the one that an earlier ending of the turn closed. A known open
    card is kept as it is. Raises ValueError when nothing would wait."""
    known = {card.interrupt_id: card for card in of_turn(connection, turn.id)}
    closed = {interrupt_id: card.id for interrupt_id, card in known.items() if card.state is CardState.CLOSED}
    fresh = [each for each in questions if each.interrupt_id not in known or each.interrupt_id in closed]
    if not fresh and all(known[question.interrupt_id].state is not CardState.OPENED for question in questions):
        raise ValueError("every question of this park was answered before: send the answers instead")
    return [
        _card(turn, question, closed.get(question.interrupt_id) or uuid4().hex, now, place)
        for place, question in enumerate(fresh)
    ]


def _card(turn: Turn, question: Question, card_id: str, now: datetime, place: int) -> Card:
    """`place`: among the cards of its park, which are listed in this order: each is opened a microsecond after the one
    before it."""
    gate = question.gate
    card = Card(
        id=card_id,
        turn=turn.id,
        conversation=turn.conversation,
        owner=turn.owner,
        interrupt_id=question.interrupt_id,
        kind=INTERRUPT if gate is None else str(gate.gate),
        request=question.request,
        state=CardState.OPENED,
        opened_at=now + timedelta(microseconds=place),
    )
    if gate is None:
        return card
    return replace(
        card, call=_asked(gate), expires_at=_expiry(gate, now), deciders=tuple(gate.deciders), why=clean(gate.why)
    )


def _asked(gate: GateRequest) -> AskedCall:
    return AskedCall(
        tool=clean(gate.tool),
        server=None if gate.server is None else clean(gate.server),
        arguments=gate.arguments,
        digest=gate.digest,
        effect_class=str(gate.effect),
        call_id=clean(gate.call_id),
        message_id=clean(gate.message_id),
        key=gate.key,
    )


def _expiry(gate: GateRequest, now: datetime) -> datetime | None:
    """An approval alone ends by itself: what became of a call is nothing that time can tell."""
    if gate.gate is not Gate.APPROVAL or gate.expires_seconds is None:
        return None
    return now + timedelta(seconds=gate.expires_seconds)


def open_card(connection: apsw.Connection, card: Card) -> None:
    call = card.call
    guarded(
        connection,
        "card_open",
        id=card.id,
        turn=card.turn,
        conversation=card.conversation,
        owner=card.owner,
        interrupt_id=card.interrupt_id,
        kind=card.kind,
        request=to_json(card.request),
        now=micros(card.opened_at),
        tool=call.tool if call else None,
        server=call.server if call else None,
        arguments=to_json(call.arguments) if call else None,
        digest=call.digest if call else None,
        effect_class=call.effect_class if call else None,
        call_id=call.call_id if call else None,
        message_id=call.message_id if call else None,
        call_key=call.key if call else None,
        why=card.why,
        expires_at=micros(card.expires_at) if card.expires_at else None,
        deciders=to_json(list(card.deciders)),
    )


def close_cards(connection: apsw.Connection, turn: str) -> list[Card]:
    """Closes what nobody decided; the closed cards."""
    return [card_from(row) for row in QUERIES.all(connection, "cards_close", turn=turn)]


# -- events ---------------------------------------------------------------------------------------------------------------


def tell_outside(connection: apsw.Connection, turn: Turn, changed: Sequence[Card], now: datetime) -> list[Event]:
    """Events of the cards of a parked turn, outside any attempt; told for good: the rewind boundary moves behind them."""
    if not changed:
        return []
    first = take_seqs(connection, turn.conversation, len(changed))
    events = [
        Event(seq, turn.conversation, turn.id, 0, EventKind.APPROVAL, now, payload_of(card))
        for seq, card in enumerate(changed, first)
    ]
    write_events(connection, events)
    guarded(connection, "turn_boundary", id=turn.id, epoch=turn.epoch, seq=events[-1].seq)
    return events


def payload_of(card: Card) -> dict[str, Any]:
    """Of an `approval` event; self-contained, for it takes the place of the card's earlier ones."""
    payload: dict[str, Any] = {
        "card": card.id,
        "kind": card.kind,
        "state": str(card.state),
        "interrupt_id": card.interrupt_id,
    }
    return payload | _asked_payload(card) | _decided_payload(card)


def _asked_payload(card: Card) -> dict[str, Any]:
    call = card.call
    if call is None:
        return {"request": card.request}
    payload: dict[str, Any] = {
        "tool": call.tool,
        "arguments": call.arguments,
        "digest": call.digest,
        "effect_class": call.effect_class,
        "call_id": call.call_id,
    }
    if call.server is not None:
        payload["server"] = call.server
    if card.expires_at is not None:
        payload["expires_at"] = card.expires_at.isoformat()
    if card.why:
        payload["why"] = card.why
    return payload


def _decided_payload(card: Card) -> dict[str, Any]:
    verdict = card.verdict
    if verdict is None:
        return {}
    payload = {"decision": str(verdict.decision), "decided_by": verdict.by}
    return payload if verdict.note is None else payload | {"note": verdict.note}
