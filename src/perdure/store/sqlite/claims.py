"""Who drives a turn: claiming the next one, finding the orphans of dead owners and moving those on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import apsw

from perdure.events import Event, EventKind, RewindReason
from perdure.ledger import NOT_UNCERTAIN
from perdure.store.base import Recovered, rewind_reason
from perdure.store.sqlite import calls, cards
from perdure.store.sqlite.calls import KnownCall
from perdure.store.sqlite.endings import end_turn, ending_events
from perdure.store.sqlite.journal import (
    QUERIES,
    guarded,
    take_seqs,
    touch,
    turn_of,
    write_event,
)
from perdure.store.sqlite.rows import micros, to_json, turn_from
from perdure.turns import Failure, FailureCode, Limits, Outcome, Turn, TurnStatus

SEQ_BLOCK = 10_000
"""Seqs an attempt reserves at once; unused ones are given back when it ends."""


@dataclass(frozen=True, slots=True)
class Owner:
    """This process as leases and attempts name it."""

    name: str
    boot: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """A turn that is ours, and the seqs `next_seq` to `end` (exclusive) reserved for its attempt."""

    turn: Turn
    rewind: Event | None
    next_seq: int
    end: int
    calls: Mapping[str, KnownCall]
    """The tool calls that earlier attempts of the turn made."""

    repeats: tuple[str, int]
    """Its last tool call, and how often in a row."""

    asking: bool = False
    """Claimed to ask only: it does no work, so it is not counted."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a claim looks for, as in `Store.claim`."""

    agents: Mapping[str, int | None]
    suspects: bool
    asking: bool
    now: datetime


def claimable(connection: apsw.Connection, limits: Limits, wanted: Wanted) -> bool:
    """Whether `claim` would do anything: only reads, so that a look at an empty queue costs no commit."""
    if QUERIES.one(connection, "queued") is None:
        return False
    if QUERIES.one(connection, "delay_over", now=micros(wanted.now)) is not None:
        return True
    return _next(connection, limits, wanted) is not None


def _next(connection: apsw.Connection, limits: Limits, wanted: Wanted) -> Turn | None:
    if wanted.asking:
        return turn_of(
            connection,
            "claim_next_to_ask",
            agents=to_json(wanted.agents),
            suspect_after=limits.suspect_after,
            known_reasons=to_json(sorted(NOT_UNCERTAIN)),
            now=micros(wanted.now),
        )
    return turn_of(
        connection,
        "claim_next",
        agents=to_json(wanted.agents),
        suspects=int(wanted.suspects),
        suspect_after=limits.suspect_after,
        now=micros(wanted.now),
    )


def claim(
    connection: apsw.Connection, owner: Owner, limits: Limits, wanted: Wanted, *, lease_expires_at: datetime
) -> Claimed | None:
    """queued → running for the next due turn: attempt counted, seqs reserved, and a rewind where one is due."""
    now = wanted.now
    found = _next(connection, limits, wanted)
    if found is None:
        QUERIES.run(connection, "delays_clear", now=micros(now))
        return None
    first = take_seqs(connection, found.conversation, SEQ_BLOCK)
    touch(connection, found.conversation, now)
    row = QUERIES.one(
        connection,
        "turn_claim",
        id=found.id,
        epoch=found.epoch,
        counted=int(not wanted.asking),
        lease_owner=owner.name,
        lease_expires_at=micros(lease_expires_at),
    )
    assert row is not None
    turn = turn_from(row)
    rewind = _rewind(connection, turn, first, now)
    QUERIES.run(
        connection,
        "attempt_insert",
        turn=turn.id,
        epoch=turn.epoch,
        owner=owner.name,
        boot=owner.boot,
        now=micros(now),
    )
    return Claimed(
        turn,
        rewind,
        first + (rewind is not None),
        first + SEQ_BLOCK,
        calls.known(connection, turn.id) if row["tool_calls"] else {},
        (row["repeated"], row["repeats"]),
        wanted.asking,
    )


def _rewind(connection: apsw.Connection, turn: Turn, seq: int, now: datetime) -> Event | None:
    """Voids what an earlier attempt told beyond the last commit. None for a first attempt and after a park."""
    last = QUERIES.one(connection, "attempt_last_outcome", turn=turn.id)
    if last is None or last["outcome"] == Outcome.PARKED:
        return None
    reopened = QUERIES.one(connection, "terminal_retained", turn=turn.id, after=turn.committed_seq) is not None
    reason = RewindReason.RESUMED if reopened else rewind_reason(Outcome(last["outcome"]))
    QUERIES.run(
        connection, "events_drop", conversation=turn.conversation, turn=turn.id, seq=seq, to_seq=turn.committed_seq
    )
    payload = {"to_seq": turn.committed_seq, "reason": str(reason)}
    event = Event(seq, turn.conversation, turn.id, turn.epoch, EventKind.REWIND, now, payload)
    write_event(connection, event)
    return event


def orphans(connection: apsw.Connection, owner: Owner, now: datetime, held: Collection[str]) -> list[Turn]:
    rows = QUERIES.all(connection, "orphans", owner=owner.name, now=micros(now), held=to_json(list(held)))
    return [turn_from(row) for row in rows]


def recover(
    connection: apsw.Connection, owner: Owner, limits: Limits, *, turn_id: str, epoch: int, now: datetime, manual: bool
) -> tuple[Recovered, list[Event]] | None:
    """Moves an orphan on, with the events to publish. None when it is none any more."""
    turn = turn_of(connection, "orphan", id=turn_id, epoch=epoch, owner=owner.name, now=micros(now))
    if turn is None:
        return None
    touch(connection, turn.conversation, now)
    QUERIES.run(
        connection, "attempt_end", turn=turn.id, epoch=epoch, outcome=str(Outcome.DIED), now=micros(now), error=None
    )
    guarded(connection, "turn_worked_until_renewal", id=turn.id, epoch=epoch)
    failure = _verdict(turn, limits, manual)
    if failure is None:
        wait = timedelta(
            seconds=0 if turn.cancel_requested_at else limits.delay_seconds(turn.attempts_without_progress)
        )
        guarded(
            connection,
            "turn_give_back",
            id=turn.id,
            epoch=epoch,
            spent=1,
            not_before=micros(now + wait) if wait else None,
        )
        return Recovered(turn.id, turn.conversation, TurnStatus.QUEUED), []
    return _end_orphan(connection, turn, failure, now)


def _verdict(turn: Turn, limits: Limits, manual: bool) -> Failure | None:
    """Why the orphan ends; None to drive it again. A cancel has one attempt more, which does no step of the graph: what
    the steps did before is no reason not to honour it."""
    more = 0 if turn.cancel_requested_at is None else 1
    if turn.attempts_without_progress >= limits.max_attempts + more:
        cancelled = " The last of them only had to cancel it." if more else ""
        return Failure(
            FailureCode.ATTEMPTS_EXHAUSTED,
            "attempts_exhausted",
            f"The process died {turn.attempts_without_progress} times in a row while it worked on this turn, without "
            f"progress in between.{cancelled} Look at what the turn's last step does, then resume it.",
        )
    if turn.attempts >= limits.total_attempts + more:
        return Failure(
            FailureCode.ATTEMPTS_EXHAUSTED,
            "attempt_cap",
            f"The turn was started {turn.attempts} times, which is the limit. Look at its attempts before you resume it.",
        )
    if manual and turn.cancel_requested_at is None:
        return Failure(
            FailureCode.OWNER_DIED,
            "owner_died",
            "The process that worked on this turn ended, and this agent's turns are not taken up by themselves. Resume it.",
        )
    return None


def _end_orphan(
    connection: apsw.Connection, turn: Turn, failure: Failure, now: datetime
) -> tuple[Recovered, list[Event]]:
    status = TurnStatus.INTERRUPTED if failure.code is FailureCode.OWNER_DIED else TurnStatus.FAILED
    closed = [cards.payload_of(card) for card in cards.close_cards(connection, turn.id)]
    first = take_seqs(connection, turn.conversation, len(closed) + 1)
    seqs = range(first, first + len(closed) + 1)
    events = ending_events(turn, seqs, closed, status=status, failure=failure, now=now)
    for event in events:
        write_event(connection, event)
    end_turn(connection, turn, status, failure, now)
    return Recovered(turn.id, turn.conversation, status), events
