"""How an attempt ends: parked, finished or given back. Each runs inside the attempt's last transaction, behind its fence,
and owns what is left of its seqs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

import apsw

from perdure.events import Event, EventKind
from perdure.store.base import Question
from perdure.store.sqlite.journal import (
    QUERIES,
    approval_payload,
    close_cards,
    ending,
    failure_bindings,
    guarded,
    promote_waiting,
    touch,
    write_event,
)
from perdure.store.sqlite.outlet import Seqs
from perdure.store.sqlite.rows import card_from, clean, micros, to_json
from perdure.turns import Card, CardState, Failure, Outcome, Turn, TurnStatus


def park(
    connection: apsw.Connection, turn: Turn, seqs: Seqs, questions: Sequence[Question], now: datetime
) -> list[Event]:
    """running → parked with a card for each new question; what was told so far stays told. On to queued at once when a
    cancel came meanwhile: a person who has spoken is not asked."""
    events = []
    for card in _new_cards(connection, turn, questions, now):
        _open_card(connection, card)
        payload = approval_payload(card, CardState.OPENED)
        event = Event(seqs.take(), turn.conversation, turn.id, turn.epoch, EventKind.APPROVAL, now, payload)
        write_event(connection, event)
        events.append(event)
    _leave(connection, turn, seqs, Outcome.PARKED, now)
    guarded(connection, "turn_park", id=turn.id, epoch=turn.epoch, committed_seq=seqs.last)
    QUERIES.run(connection, "turn_unpark_cancelled", id=turn.id)
    return events


def finish(
    connection: apsw.Connection, turn: Turn, seqs: Seqs, status: TurnStatus, failure: Failure | None, *, now: datetime
) -> list[Event]:
    """running → an end: open cards closed, the terminal event, and the first waiting turn queued."""
    closed = [approval_payload(card, CardState.CLOSED) for card in close_cards(connection, turn.id)]
    numbers = [seqs.take() for _ in range(len(closed) + 1)]
    events = ending_events(turn, numbers, closed, status=status, failure=failure, now=now)
    for event in events:
        write_event(connection, event)
    _leave(connection, turn, seqs, Outcome(str(status)), now, error=failure.message if failure else None)
    end_turn(connection, turn, status, failure, now)
    return events


def give_back(
    connection: apsw.Connection,
    turn: Turn,
    seqs: Seqs,
    outcome: Outcome,
    now: datetime,
    *,
    not_before: datetime | None,
    error: str | None,
) -> list[Event]:
    """running → queued. A planned release spends no attempt, a retry does."""
    _leave(connection, turn, seqs, outcome, now, error=error)
    guarded(
        connection,
        "turn_give_back",
        id=turn.id,
        epoch=turn.epoch,
        spent=int(outcome is Outcome.RETRIED),
        not_before=micros(not_before) if not_before else None,
    )
    return []


def end_turn(
    connection: apsw.Connection, turn: Turn, status: TurnStatus, failure: Failure | None, now: datetime
) -> None:
    """running → an end, and the turn behind it comes forward."""
    guarded(
        connection,
        "turn_end",
        id=turn.id,
        epoch=turn.epoch,
        status=str(status),
        now=micros(now),
        **failure_bindings(failure),
    )
    promote_waiting(connection, turn.conversation)


def ending_events(
    turn: Turn,
    seqs: Iterable[int],
    closed: Sequence[Mapping[str, Any]],
    *,
    status: TurnStatus,
    failure: Failure | None,
    now: datetime,
) -> list[Event]:
    """The last events of an ending, with these numbers: cards that close, then the terminal one."""
    kinds: list[tuple[EventKind, Mapping[str, Any]]] = [(EventKind.APPROVAL, payload) for payload in closed]
    kinds.append(ending(status, failure))
    return [
        Event(number, turn.conversation, turn.id, turn.epoch, kind, now, payload)
        for number, (kind, payload) in zip(seqs, kinds, strict=True)
    ]


def _leave(
    connection: apsw.Connection, turn: Turn, seqs: Seqs, outcome: Outcome, now: datetime, *, error: str | None = None
) -> None:
    """The attempt's end, the conversation's activity, and the seqs that were not used."""
    QUERIES.run(
        connection,
        "attempt_end",
        turn=turn.id,
        epoch=turn.epoch,
        outcome=str(outcome),
        now=micros(now),
        error=clean(error) if error else None,
    )
    touch(connection, turn.conversation, now)
    QUERIES.run(connection, "seqs_give_back", id=turn.conversation, next_seq=seqs.last + 1, end=seqs.end)


def _new_cards(connection: apsw.Connection, turn: Turn, questions: Sequence[Question], now: datetime) -> list[Card]:
    """The questions that need a card opened: a new one, or the one that an earlier ending of the turn closed. A known open
    card is kept as it is."""
    known = {row["interrupt_id"]: card_from(row) for row in QUERIES.all(connection, "cards_of_turn", turn=turn.id)}
    closed = {interrupt_id: card.id for interrupt_id, card in known.items() if card.state is CardState.CLOSED}
    fresh = [each for each in questions if each.interrupt_id not in known or each.interrupt_id in closed]
    if not fresh and all(known[question.interrupt_id].state is not CardState.OPENED for question in questions):
        raise ValueError("every question of this park was answered before: send the answers instead")
    return [
        Card(
            id=closed.get(question.interrupt_id) or uuid4().hex,
            turn=turn.id,
            conversation=turn.conversation,
            owner=turn.owner,
            interrupt_id=question.interrupt_id,
            kind="interrupt",
            request=question.request,
            state=CardState.OPENED,
            opened_at=now,
        )
        for question in fresh
    ]


def _open_card(connection: apsw.Connection, card: Card) -> None:
    QUERIES.run(
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
    )
