"""What people do to turns: accept, resume, cancel. One transaction each, every one within a scope."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import apsw

from perdure.errors import BadRequest, PerdureError, TurnInProgress, TurnNotResumable
from perdure.events import Event
from perdure.store.sqlite import audit, cards, search
from perdure.store.sqlite.decisions import ask_to_end
from perdure.store.sqlite.journal import (
    QUERIES,
    Told,
    ending,
    guarded,
    require_conversation,
    require_turn,
    take_seqs,
    touch,
    turn_of,
    write_event,
)
from perdure.store.sqlite.keys import remember_request, repeated_request
from perdure.store.sqlite.rows import clean, micros, to_json
from perdure.turns import REOPENABLE, Accepted, NewTurn, RequestKey, Turn, TurnStatus

WHEN_BUSY = ("reject", "enqueue", "interrupt")


def accept(connection: apsw.Connection, new: NewTurn, now: datetime) -> Told:
    """Makes the turn, its message and, for a new one, its conversation durable."""
    if new.when_busy not in WHEN_BUSY:
        raise BadRequest(f"`when_busy` is one of {', '.join(map(repr, WHEN_BUSY))}, not {new.when_busy!r}.")
    if new.discard_pending and new.when_busy != "interrupt":
        raise BadRequest('`discard_pending` goes with `"when_busy": "interrupt"` alone.')
    repeated = repeated_request(connection, new.owner, new.request_key, now)
    if repeated is not None:
        return Told(repeated)
    conversation = _conversation_for(connection, new, now)
    active = turn_of(connection, "turn_active", conversation=conversation)
    events = _make_way(connection, new, active, now) if active is not None else []
    turn = insert_turn(connection, new, conversation, active, now)
    remember_request(connection, new.owner, new.request_key, new.turn_id, now)
    return Told(turn, events)


def _make_way(connection: apsw.Connection, new: NewTurn, active: Turn, now: datetime) -> list[Event]:
    """What the new turn's arrival does to the active one. Raises TurnInProgress."""
    if new.when_busy == "enqueue":
        return []
    if new.when_busy == "reject" or (active.status is TurnStatus.PARKED and not new.discard_pending):
        raise _busy(connection, active, new.when_busy)
    if active.cancel_requested_at is None or active.status is TurnStatus.PARKED:
        audit.note_turn(connection, "cancel", active, by=new.by or new.owner, now=now, for_turn=new.turn_id)
    touch(connection, active.conversation, now)
    return ask_to_end(connection, active, now, discard=new.discard_pending)


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
        search.keep_title(connection, new.new_conversation_id, new.owner, new.title)
        return new.new_conversation_id
    row = require_conversation(connection, new.owner, new.conversation)
    if row["agent"] != new.agent:
        raise BadRequest(
            f"This conversation belongs to the agent {row['agent']!r}, not to {new.agent!r}. Leave `agent` out, or start "
            "a new conversation.",
            conversation=new.conversation,
        )
    return new.conversation


def insert_turn(
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


def _busy(connection: apsw.Connection, active: Turn, when_busy: str) -> TurnInProgress:
    at: dict[str, Any] = {"conversation": active.conversation, "turn": active.id}
    pending = cards.open_of_turn(connection, active.id)
    if active.status is not TurnStatus.PARKED or not pending:
        return TurnInProgress(**at)
    rest = '"discard_pending": true' if when_busy == "interrupt" else '"when_busy": "enqueue"'
    return TurnInProgress(
        f"The conversation waits for a decision: {', '.join(card.id for card in pending)}. Decide (POST /api/approvals/ID, or "
        f"`perdure approvals`), cancel the turn, or send {rest}.",
        details={"pending": [card.id for card in pending]},
        **at,
    )


def resume(
    connection: apsw.Connection,
    scope: str | None,
    conversation: str,
    now: datetime,
    request_key: RequestKey | None = None,
    *,
    by: str = "",
) -> Accepted:
    """Re-opens the thread's last turn, when it failed or was interrupted and the thread is still as it left it."""
    owner = require_conversation(connection, scope, conversation)["owner"]
    repeated = repeated_request(connection, owner, request_key, now)
    if repeated is not None:
        return repeated
    turn = _resumable_turn(connection, conversation)
    touch(connection, conversation, now)
    guarded(connection, "turn_reopen", id=turn.id, epoch=turn.epoch)
    audit.note_turn(connection, "resume", turn, by=by, now=now)
    remember_request(connection, owner, request_key, turn.id, now)
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


class NumberNeeded(PerdureError):
    """A running attempt of this process holds the thread's seqs: take the event's number from it and ask again."""


def cancel(
    connection: apsw.Connection,
    scope: str | None,
    turn_id: str,
    now: datetime,
    *,
    by: str,
    seq: int | None,
    reserved_by: str | None,
) -> Told:
    """Asks for a turn's end. `seq` is the number for the end of a waiting turn, taken from the thread's live attempt;
    without it, and while a turn of the thread is leased to `reserved_by`, raises NumberNeeded."""
    turn = require_turn(connection, scope, turn_id)
    if turn.ended_at is not None:
        return Told(turn)
    touch(connection, turn.conversation, now)
    if turn.status is TurnStatus.WAITING:
        events = [_cancel_waiting(connection, turn, now, seq, reserved_by)]
    else:
        events = ask_to_end(connection, turn, now, discard=False)
    if turn.cancel_requested_at is None or turn.status is TurnStatus.PARKED:
        audit.note_turn(connection, "cancel", turn, by=by, now=now)
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
