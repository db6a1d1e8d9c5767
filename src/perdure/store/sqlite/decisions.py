"""What becomes of cards: a person decides, time runs out, or a cancel closes them. The first decision counts.

A card is open only while its turn is parked. Whatever decides the last open one queues the turn, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from typing import Any

import apsw

from perdure.errors import BadRequest, CardDecided, Forbidden
from perdure.events import Event
from perdure.store.base import Decided
from perdure.store.sqlite import audit, cards
from perdure.store.sqlite.journal import QUERIES, Told, guarded, require_conversation, touch, turn_of
from perdure.store.sqlite.keys import remember_request, repeated_request
from perdure.store.sqlite.rows import card_from, clean, instant_or_none, micros, to_json
from perdure.turns import (
    DECISIONS,
    EXPIRY,
    Accepted,
    Card,
    CardState,
    DecisionKind,
    RequestKey,
    Turn,
    TurnStatus,
    Verdict,
)

EXPIRED_AT_ONCE = 100
"""Cards whose time is over that one transaction denies."""

_EXPIRED_NOTE = "Nobody decided in time."


# -- a person's decision --------------------------------------------------------------------------------------------------


def decide(connection: apsw.Connection, scope: str | None, card_id: str, verdict: Verdict, now: datetime) -> Told:
    """One decision: `Store.decide`."""
    card = cards.require_card(connection, scope, verdict.by, card_id)
    turn = _parked_turn(connection, card)
    _refuse_settled(connection, card)
    _refuse_unfit(card, verdict)
    late = _deny_late(connection, turn, [card], now)
    if late is not None:
        return late
    return _counted(connection, turn, [(card, verdict)], now)


def answer(
    connection: apsw.Connection,
    scope: str | None,
    conversation: str,
    answers: Mapping[str, Verdict],
    *,
    decided_by: str,
    now: datetime,
    request_key: RequestKey | None = None,
) -> Told:
    """Decisions by interrupt id, all or none: `Store.answer`."""
    owner = require_conversation(connection, scope, conversation)["owner"]
    repeated = repeated_request(connection, owner, request_key, now)
    if repeated is not None:
        return Told(repeated)
    turn = turn_of(connection, "turn_active", conversation=conversation) or turn_of(
        connection, "turn_last_started", conversation=conversation
    )
    chosen = _chosen(connection, conversation, turn, answers)
    assert turn is not None
    pairs = [(card, replace(answers[card.interrupt_id], by=decided_by)) for card in chosen]
    for card, verdict in pairs:
        _refuse_unfit(card, verdict)
    late = _deny_late(connection, turn, chosen, now)
    if late is not None:
        return late
    told = _counted(connection, turn, pairs, now)
    remember_request(connection, owner, request_key, turn.id, now)
    return Told(Accepted(conversation, turn.id, told.result.turn_status), told.events)


def _chosen(
    connection: apsw.Connection, conversation: str, turn: Turn | None, answers: Mapping[str, Verdict]
) -> list[Card]:
    known = {card.interrupt_id: card for card in cards.of_turn(connection, turn.id)} if turn else {}
    pending = [card for card in known.values() if card.state is CardState.OPENED]
    unknown = [interrupt_id for interrupt_id in answers if interrupt_id not in known]
    if unknown or not answers:
        ids = ", ".join(card.interrupt_id for card in pending)
        waits = f"These wait for an answer: {ids}." if pending else "Nothing waits for an answer."
        what = f"No question has the id {', '.join(map(repr, unknown))}. " if unknown else "No answer was given. "
        raise BadRequest(
            what + waits,
            conversation=conversation,
            turn=turn.id if turn else None,
            details={"pending": [card.id for card in pending]},
        )
    chosen = [known[interrupt_id] for interrupt_id in answers]
    for card in chosen:
        _refuse_settled(connection, card)
    return chosen


def _parked_turn(connection: apsw.Connection, card: Card) -> Turn:
    turn = turn_of(connection, "turn", id=card.turn)
    assert turn is not None
    return turn


def _refuse_unfit(card: Card, verdict: Verdict) -> None:
    """Who may not decide this card, and what is no decision on it."""
    at: dict[str, Any] = {"conversation": card.conversation, "turn": card.turn}
    if card.deciders and verdict.by not in card.deciders:
        raise Forbidden(f"This card is decided by {', '.join(card.deciders)}.", **at)
    fit = DECISIONS.get(card.kind, frozenset())
    if verdict.decision not in fit:
        raise BadRequest(
            f"A card of kind `{card.kind}` takes {', '.join(sorted(f'`{kind}`' for kind in fit))}, not "
            f"`{verdict.decision}`.",
            **at,
        )
    for name, said, decision in (
        ("arguments", verdict.arguments, DecisionKind.APPROVE),
        ("result", verdict.result, DecisionKind.HAPPENED),
        ("value", verdict.value, DecisionKind.ANSWER),
    ):
        if said is not None and verdict.decision is not decision:
            raise BadRequest(f"`{name}` goes with the decision `{decision}` alone.", **at)


def _refuse_settled(connection: apsw.Connection, card: Card) -> None:
    if card.state is not CardState.OPENED:
        raise _decided_before(card, [each.id for each in cards.open_of_turn(connection, card.turn)])


def _decided_before(card: Card, pending: Sequence[str]) -> CardDecided:
    verdict = card.verdict
    at: dict[str, Any] = {"conversation": card.conversation, "turn": card.turn}
    if verdict is None:
        return CardDecided(
            "This question needs no answer any more: its turn was cancelled or has ended.",
            details={"decision": None, "decided_by": None, "decided_at": None, "pending": list(pending)},
            **at,
        )
    when = verdict.at.isoformat() if verdict.at else None
    return CardDecided(
        f"This question was already answered by {verdict.by} at {when}: {verdict.decision}.",
        details={
            "decision": str(verdict.decision),
            "decided_by": verdict.by,
            "decided_at": when,
            "pending": list(pending),
        },
        **at,
    )


# -- time -----------------------------------------------------------------------------------------------------------------


def expire(connection: apsw.Connection, now: datetime) -> Told:
    """Denies some of the approvals whose time is over; how many."""
    rows = QUERIES.all(connection, "cards_expired", now=micros(now), limit=EXPIRED_AT_ONCE)
    expired = sorted((card_from(row) for row in rows), key=lambda card: card.turn)
    events: list[Event] = []
    for _, together in groupby(expired, key=lambda card: card.turn):
        some = list(together)
        events += _deny(connection, _parked_turn(connection, some[0]), some, now).events
    return Told(len(expired), events)


def next_expiry(connection: apsw.Connection) -> datetime | None:
    row = QUERIES.one(connection, "next_expiry")
    return instant_or_none(row["due"]) if row else None


def _deny_late(connection: apsw.Connection, turn: Turn, chosen: Sequence[Card], now: datetime) -> Told | None:
    """A decision that comes after its card's time is over does not count: the time has decided."""
    expired = [card for card in chosen if card.expires_at is not None and card.expires_at <= now]
    if not expired:
        return None
    told = _deny(connection, turn, expired, now)
    pending = [card.id for card in cards.open_of_turn(connection, turn.id)]
    return Told(None, told.events, _decided_before(told.result.card, pending))


def _deny(connection: apsw.Connection, turn: Turn, expired: Sequence[Card], now: datetime) -> Told:
    verdict = Verdict(DecisionKind.DENY, note=_EXPIRED_NOTE, by=EXPIRY)
    return _counted(connection, turn, [(card, verdict) for card in expired], now, action="expire")


# -- what counts ----------------------------------------------------------------------------------------------------------


def _counted(
    connection: apsw.Connection,
    turn: Turn,
    pairs: Sequence[tuple[Card, Verdict]],
    now: datetime,
    *,
    action: str = "decide",
) -> Told:
    """Records decisions on open cards, tells them, and queues the turn when no card is open any more."""
    touch(connection, turn.conversation, now)
    decided = [_set(connection, card, verdict, now) for card, verdict in pairs]
    for card in decided:
        audit.note_decision(connection, action, card, now=now)
    events = cards.tell_outside(connection, turn, decided, now)
    if QUERIES.one(connection, "cards_undecided", turn=turn.id) is not None:
        QUERIES.run(connection, "change_still_parked", turn=turn.id)
        return Told(Decided(decided[0], TurnStatus.PARKED), events)
    guarded(connection, "turn_unpark", id=turn.id, epoch=turn.epoch)
    return Told(Decided(decided[0], TurnStatus.QUEUED), events)


def _set(connection: apsw.Connection, card: Card, verdict: Verdict, now: datetime) -> Card:
    """The compare-and-set."""
    said = replace(verdict, by=clean(verdict.by), note=None if verdict.note is None else clean(verdict.note), at=now)
    guarded(
        connection,
        "card_decide",
        id=card.id,
        decision=str(said.decision),
        arguments=None if said.arguments is None else to_json(said.arguments),
        note=said.note,
        result=to_json(said.result) if said.decision is DecisionKind.HAPPENED else None,
        value=to_json(said.value) if said.decision is DecisionKind.ANSWER else None,
        by=said.by,
        now=micros(now),
    )
    return replace(card, state=CardState.DECIDED, verdict=said)


def ask_to_end(connection: apsw.Connection, turn: Turn, now: datetime, *, discard: bool) -> list[Event]:
    """Asks for the end of an active turn. A parked one goes back to the queue, its cards closed; `discard`: what a running
    one may still ask needs no answer either."""
    parked = turn.status is TurnStatus.PARKED
    guarded(
        connection, "cancel_request", id=turn.id, epoch=turn.epoch, now=micros(now), discards=int(parked or discard)
    )
    if not parked:
        return []
    events = cards.tell_outside(connection, turn, cards.close_cards(connection, turn.id), now)
    guarded(connection, "turn_unpark", id=turn.id, epoch=turn.epoch)
    return events
