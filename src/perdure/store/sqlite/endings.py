"""How an attempt ends: parked, finished or given back. Each runs inside the attempt's last transaction, behind its fence,
and owns what is left of its seqs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import apsw

from perdure.events import Event, EventKind
from perdure.store.base import Question, Spoken
from perdure.store.sqlite import cards
from perdure.store.sqlite.journal import (
    QUERIES,
    ending,
    failure_bindings,
    guarded,
    promote_waiting,
    touch,
    turn_of,
    write_event,
)
from perdure.store.sqlite.outlet import Seqs
from perdure.store.sqlite.rows import clean, micros
from perdure.turns import Failure, Outcome, Turn, TurnStatus


def park(
    connection: apsw.Connection,
    turn: Turn,
    seqs: Seqs,
    questions: Sequence[Question],
    now: datetime,
    *,
    despite_cancel: bool,
    spoken: Sequence[Spoken],
    worked: bool,
) -> list[Event]:
    """running → parked with a card for each new question; what was told so far stays told. On to queued at once, without
    cards, when a cancel came meanwhile: a person who has spoken is not asked, unless what a call did must be said.
    `worked`: the attempt ran code of the graph, and did not break."""
    asks = _must_ask(connection, turn, despite_cancel)
    events = []
    for card in cards.new_cards(connection, turn, questions, now) if asks else ():
        cards.open_card(connection, card)
        payload = cards.payload_of(card)
        event = Event(seqs.take(), turn.conversation, turn.id, turn.epoch, EventKind.APPROVAL, now, payload)
        write_event(connection, event)
        events.append(event)
    for each in spoken:
        bindings = {"message": clean(each.message), "text": clean(each.text)}
        QUERIES.run(connection, "spoken_keep", turn=turn.id, **bindings)
    _leave(connection, turn, seqs, Outcome.PARKED, now)
    guarded(connection, "turn_park", id=turn.id, epoch=turn.epoch, committed_seq=seqs.last, worked=int(worked))
    if not asks:
        guarded(connection, "turn_unpark", id=turn.id, epoch=turn.epoch)
    return events


def _must_ask(connection: apsw.Connection, turn: Turn, despite_cancel: bool) -> bool:
    current = turn_of(connection, "turn", id=turn.id)
    assert current is not None
    return current.cancel_requested_at is None or (despite_cancel and not current.discards_cards)


def finish(
    connection: apsw.Connection, turn: Turn, seqs: Seqs, status: TurnStatus, failure: Failure | None, *, now: datetime
) -> list[Event]:
    """running → an end: open cards closed, the terminal event, and the first waiting turn queued."""
    closed = [cards.payload_of(card) for card in cards.close_cards(connection, turn.id)]
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
    counted: bool,
    not_before: datetime | None,
    error: str | None,
) -> list[Event]:
    """running → queued. A planned release takes an attempt that was counted back, a retry does not."""
    _leave(connection, turn, seqs, outcome, now, error=error)
    guarded(
        connection,
        "turn_give_back",
        id=turn.id,
        epoch=turn.epoch,
        spent=int(outcome is Outcome.RETRIED or not counted),
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
    QUERIES.run(connection, "spoken_drop", turn=turn.id)
    if failure is None:
        QUERIES.run(connection, "calls_settle_all", conversation=turn.conversation)
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
