"""What people do to turns: accept, resume, answer, cancel. One transaction each, every one filtered by owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import apsw

from perdure.errors import (
    BadRequest,
    CardDecided,
    IdempotencyConflict,
    NotFound,
    PerdureError,
    TurnInProgress,
    TurnNotResumable,
)
from perdure.events import Event, EventKind
from perdure.store.sqlite.journal import (
    QUERIES,
    approval_payload,
    ending,
    guarded,
    take_seqs,
    touch,
    turn_of,
    write_event,
)
from perdure.store.sqlite.rows import Row, card_from, clean, micros, to_json
from perdure.turns import REOPENABLE, Accepted, Card, CardState, NewTurn, RequestKey, Turn, TurnStatus

KEY_LIFETIME = timedelta(days=7)
"""An older idempotency key counts as unused."""


@dataclass(frozen=True, slots=True)
class Told:
    """A verb's result and the events to publish after its commit."""

    result: Any
    events: list[Event] = field(default_factory=list)


def accept(connection: apsw.Connection, new: NewTurn, now: datetime) -> Accepted:
    """Makes the turn, its message and, for a new one, its conversation durable."""
    repeated = repeated_request(connection, new.owner, new.request_key, now)
    if repeated is not None:
        return repeated
    conversation = _conversation_for(connection, new, now)
    active = turn_of(connection, "turn_active", conversation=conversation)
    if active is not None and new.when_busy != "enqueue":
        raise _busy(connection, active)
    turn = _insert_turn(connection, new, conversation, active, now)
    _remember_request(connection, new.owner, new.request_key, new.turn_id, now)
    return turn


def repeated_request(
    connection: apsw.Connection, owner: str, request_key: RequestKey | None, now: datetime
) -> Accepted | None:
    """What the request was answered before; None without a key, for a new one and for one that is too old to count."""
    if request_key is None:
        return None
    row = QUERIES.one(connection, "key", owner=owner, key=request_key.key)
    if row is None or row["created_at"] < micros(now - KEY_LIFETIME):
        return None
    if row["digest"] != request_key.digest:
        raise IdempotencyConflict(conversation=row["conversation"], turn=row["turn"])
    return Accepted(row["conversation"], row["turn"], TurnStatus(row["status"]), repeated=True)


def _remember_request(
    connection: apsw.Connection, owner: str, request_key: RequestKey | None, turn: str, now: datetime
) -> None:
    if request_key is not None:
        QUERIES.run(
            connection,
            "key_set",
            owner=owner,
            key=request_key.key,
            digest=request_key.digest,
            turn=turn,
            now=micros(now),
        )


def _conversation_for(connection: apsw.Connection, new: NewTurn, now: datetime) -> str:
    if new.conversation is None:
        QUERIES.run(
            connection,
            "conversation_insert",
            id=new.new_conversation_id,
            owner=new.owner,
            agent=new.agent,
            title=clean(new.title),
            now=micros(now),
        )
        return new.new_conversation_id
    row = require_conversation(connection, new.owner, new.conversation)
    if row["agent"] != new.agent:
        raise BadRequest(
            f"This conversation belongs to the agent {row['agent']!r}, not to {new.agent!r}. Leave `agent` out, or start "
            "a new conversation.",
            conversation=new.conversation,
        )
    return new.conversation


def _insert_turn(
    connection: apsw.Connection, new: NewTurn, conversation: str, active: Turn | None, now: datetime
) -> Accepted:
    status = TurnStatus.QUEUED if active is None else TurnStatus.WAITING
    touch(connection, conversation, now)
    QUERIES.run(
        connection,
        "turn_insert",
        id=new.turn_id,
        conversation=conversation,
        owner=new.owner,
        agent=new.agent,
        status=str(status),
        input=to_json(new.input),
        first_seq=_first_seq(connection, conversation, active),
        now=micros(now),
    )
    if active is None:
        QUERIES.run(connection, "turns_supersede", conversation=conversation, before=connection.last_insert_rowid())
    return Accepted(conversation, new.turn_id, status)


def _first_seq(connection: apsw.Connection, conversation: str, active: Turn | None) -> int:
    """For a waiting turn a lower bound (its predecessor holds a reservation); exact once it is queued."""
    if active is not None:
        return active.committed_seq + 1
    row = QUERIES.one(connection, "next_seq", id=conversation)
    assert row is not None
    return int(row["next_seq"])


def _busy(connection: apsw.Connection, active: Turn) -> TurnInProgress:
    pending = [card.interrupt_id for card in _cards(connection, active.id) if card.state is CardState.OPENED]
    if active.status is TurnStatus.PARKED and pending:
        message = (
            f"The conversation waits for a decision: answer {', '.join(pending)} with `resume`, cancel the turn, or send "
            '"when_busy": "enqueue".'
        )
        return TurnInProgress(message, conversation=active.conversation, turn=active.id)
    return TurnInProgress(conversation=active.conversation, turn=active.id)


def resume(
    connection: apsw.Connection, owner: str, conversation: str, now: datetime, request_key: RequestKey | None = None
) -> Accepted:
    """Re-opens the thread's last turn, when it failed or was interrupted and the thread is still as it left it."""
    repeated = repeated_request(connection, owner, request_key, now)
    if repeated is not None:
        return repeated
    require_conversation(connection, owner, conversation)
    turn = _resumable_turn(connection, conversation)
    touch(connection, conversation, now)
    guarded(connection, "turn_reopen", id=turn.id, epoch=turn.epoch)
    _remember_request(connection, owner, request_key, turn.id, now)
    return Accepted(conversation, turn.id, TurnStatus.QUEUED)


def _resumable_turn(connection: apsw.Connection, conversation: str) -> Turn:
    def refuse(reason: str, turn: Turn | None = None) -> TurnNotResumable:
        return TurnNotResumable(reason, conversation=conversation, turn=turn.id if turn else None)

    active = turn_of(connection, "turn_active", conversation=conversation)
    if active is not None:
        raise refuse(f"There is nothing to resume: a turn of the conversation is {active.status}.", active)
    last = turn_of(connection, "turn_last_started", conversation=conversation)
    if last is None:
        raise refuse("There is nothing to resume: the conversation has no turn. Send a message.")
    if last.status not in REOPENABLE:
        raise refuse(f"There is nothing to resume: the last turn is {last.status}. Send a message.", last)
    if last.superseded:
        raise refuse("The last turn cannot be resumed: a later message was accepted. Send a message.", last)
    if last.input is None and not _head_is_of(connection, last):
        raise refuse("The last turn cannot be resumed: the thread has moved on since. Send a message.", last)
    return last


def _head_is_of(connection: apsw.Connection, turn: Turn) -> bool:
    head = QUERIES.one(connection, "thread_head_run", thread=turn.conversation)
    return head is not None and head["run_id"] == turn.id


def answer(
    connection: apsw.Connection,
    owner: str,
    conversation: str,
    answers: Mapping[str, Any],
    *,
    decided_by: str,
    now: datetime,
    request_key: RequestKey | None = None,
) -> Told:
    """Records decisions, all or none; queues the turn when no card is open any more."""
    repeated = repeated_request(connection, owner, request_key, now)
    if repeated is not None:
        return Told(repeated)
    require_conversation(connection, owner, conversation)
    turn = turn_of(connection, "turn_active", conversation=conversation) or turn_of(
        connection, "turn_last_started", conversation=conversation
    )
    cards = {card.interrupt_id: card for card in _cards(connection, turn.id)} if turn else {}
    chosen = _chosen_cards(cards, answers, conversation, turn)
    assert turn is not None
    if turn.status is not TurnStatus.PARKED:
        raise BadRequest(f"No decision is needed: the turn is {turn.status}.", conversation=conversation, turn=turn.id)
    touch(connection, conversation, now)
    events = _decide(connection, turn, chosen, answers, decided_by=decided_by, now=now)
    status = TurnStatus.PARKED
    if all(card.state is not CardState.OPENED for card in _cards(connection, turn.id)):
        guarded(connection, "turn_unpark", id=turn.id, epoch=turn.epoch)
        status = TurnStatus.QUEUED
    _remember_request(connection, owner, request_key, turn.id, now)
    return Told(Accepted(conversation, turn.id, status), events)


def _chosen_cards(
    cards: Mapping[str, Card], answers: Mapping[str, Any], conversation: str, turn: Turn | None
) -> list[Card]:
    pending = [card.interrupt_id for card in cards.values() if card.state is CardState.OPENED]
    unknown = [interrupt_id for interrupt_id in answers if interrupt_id not in cards]
    if unknown or not answers:
        waits = f"These wait for an answer: {', '.join(pending)}." if pending else "Nothing waits for an answer."
        what = f"No question has the id {', '.join(map(repr, unknown))}. " if unknown else "No answer was given. "
        raise BadRequest(what + waits, conversation=conversation, turn=turn.id if turn else None)
    for interrupt_id in answers:
        card = cards[interrupt_id]
        if card.state is CardState.DECIDED and card.decided_at is not None:
            raise CardDecided(
                f"This question was already answered by {card.decided_by} at {card.decided_at.isoformat()}.",
                conversation=conversation,
                turn=card.turn,
            )
        if card.state is CardState.CLOSED:
            raise CardDecided(
                "This question needs no answer any more: its turn has ended.", conversation=conversation, turn=card.turn
            )
    return [cards[interrupt_id] for interrupt_id in answers]


def _decide(
    connection: apsw.Connection,
    turn: Turn,
    chosen: list[Card],
    answers: Mapping[str, Any],
    *,
    decided_by: str,
    now: datetime,
) -> list[Event]:
    first = take_seqs(connection, turn.conversation, len(chosen))
    events = []
    for seq, card in enumerate(chosen, first):
        guarded(
            connection,
            "card_decide",
            id=card.id,
            answer=to_json(answers[card.interrupt_id]),
            decided_by=clean(decided_by),
            now=micros(now),
        )
        payload = approval_payload(card, CardState.DECIDED) | {"decided_by": decided_by}
        event = Event(seq, turn.conversation, turn.id, 0, EventKind.APPROVAL, now, payload)
        write_event(connection, event)
        events.append(event)
    guarded(connection, "turn_boundary", id=turn.id, epoch=turn.epoch, seq=events[-1].seq)
    return events


class NumberNeeded(PerdureError):
    """A running attempt of this process holds the thread's seqs: take the event's number from it and ask again."""


def cancel(
    connection: apsw.Connection, owner: str, turn_id: str, now: datetime, *, seq: int | None, reserved_by: str | None
) -> Told:
    """Asks for a turn's end. `seq` is the number for the end of a waiting turn, taken from the thread's live attempt;
    without it, and while a turn of the thread is leased to `reserved_by`, raises NumberNeeded."""
    turn = turn_of(connection, "turn_of_owner", id=turn_id, owner=owner)
    if turn is None:
        raise NotFound("There is no turn with this id.", turn=turn_id)
    if turn.ended_at is not None:
        return Told(turn)
    events = []
    touch(connection, turn.conversation, now)
    if turn.status is TurnStatus.WAITING:
        events.append(_cancel_waiting(connection, turn, now, seq, reserved_by))
    else:
        guarded(connection, "cancel_request", id=turn.id, epoch=turn.epoch, now=micros(now))
        if turn.status is TurnStatus.PARKED:
            guarded(connection, "turn_unpark", id=turn.id, epoch=turn.epoch)
    return Told(turn_of(connection, "turn", id=turn.id), events)


def _cancel_waiting(
    connection: apsw.Connection, turn: Turn, now: datetime, seq: int | None, reserved_by: str | None
) -> Event:
    if seq is None:
        active = QUERIES.one(connection, "turn_active", conversation=turn.conversation)
        if active is not None and reserved_by is not None and active["lease_owner"] == reserved_by:
            raise NumberNeeded
        seq = take_seqs(connection, turn.conversation, 1)
    guarded(connection, "cancel_waiting", id=turn.id, seq=seq, now=micros(now))
    kind, payload = ending(TurnStatus.CANCELLED, None)
    event = Event(seq, turn.conversation, turn.id, 0, kind, now, payload)
    write_event(connection, event)
    return event


def require_conversation(connection: apsw.Connection, owner: str, conversation: str) -> Row:
    row = QUERIES.one(connection, "conversation", id=conversation, owner=owner)
    if row is None:
        raise NotFound("There is no conversation with this id.", conversation=conversation)
    return row


def _cards(connection: apsw.Connection, turn: str) -> list[Card]:
    return [card_from(row) for row in QUERIES.all(connection, "cards_of_turn", turn=turn)]
