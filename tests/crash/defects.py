"""Seeded defects: what a careless hand might have written. Each must be caught, or the suite is blind.

A defect patches the product in the test's own server process (`entry.py`, variable `PERDURE_TEST_DEFECT`); nothing of this exists
in `src`. A statement that is no longer there as it was makes the defect fail loudly instead of proving nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any
from uuid import uuid4

from langgraph.types import Command, StateSnapshot

from perdure.engine import breaking
from perdure.engine import drive as driving
from perdure.engine import plan as planning
from perdure.events import Event, EventKind
from perdure.store.sqlite import attempt as attempts
from perdure.store.sqlite import claims, journal
from perdure.store.sqlite.checkpointer import Checkpointer
from perdure.store.sqlite.journal import QUERIES
from perdure.store.sqlite.outlet import Outlet
from perdure.store.sqlite.store import SQLiteStore
from perdure.store.sqlite.writer import Writer
from perdure.turns import Accepted, NewTurn, TurnStatus
from tests.crash import careless
from tests.crash.trial import Plan


@dataclass(frozen=True, slots=True)
class Defect:
    """`sow` patches this process; `plan` is the trial that must notice (None: the zombie check does), by a violation that
    begins with one of `noticed_as`: a server that does not work at all proves nothing."""

    sow: Callable[[], None]
    plan: Plan | None
    noticed_as: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def seed(name: str) -> None:
    """Makes this process careless."""
    DEFECTS[name].sow()


def _reword(query: str, before: str, after: str) -> None:
    statement = QUERIES[query]
    assert before in statement, f"the query {query} does not say {before!r} any more: renew this defect"
    QUERIES._statements[query] = statement.replace(before, after)


def no_epoch_check() -> None:
    """A stalled attempt goes on writing after another took over."""
    for query in QUERIES:
        if ":epoch" in QUERIES[query] and "attempts" not in QUERIES[query].split("WHERE")[0]:
            QUERIES._statements[query] = QUERIES[query].replace("epoch = :epoch", ":epoch = :epoch")


def answered_before_commit() -> None:
    """202 first, the transaction a moment later."""
    accept = SQLiteStore.accept
    pending: set[asyncio.Task[Accepted]] = set()

    async def later(self: SQLiteStore, new: NewTurn) -> Accepted:
        await asyncio.sleep(0.3)
        return await accept(self, new)

    @wraps(accept)
    async def hasty(self: SQLiteStore, new: NewTurn) -> Accepted:
        pending.add(asyncio.create_task(later(self, new)))
        return Accepted(new.conversation or new.new_conversation_id, new.turn_id, TurnStatus.QUEUED)

    careless.patch(SQLiteStore, "accept", hasty)


def published_before_commit() -> None:
    """Watchers hear of an event while its transaction is on the way to a slow disk: the first result of a life long before."""
    told, waited = threading.Event(), threading.Event()

    def hold(self: Outlet, event: Event) -> None:
        self._publish(event)
        if event.kind is EventKind.TRACE and event.payload["phase"] == "result":
            told.set()

    def committed(self: Outlet, events: Sequence[Event]) -> None:
        return None

    Outlet.hold = hold  # type: ignore[method-assign]
    Outlet.committed = committed  # type: ignore[method-assign,assignment]
    commit = Writer._commit

    def slow(self: Writer, batch: list[Any]) -> None:
        if told.is_set() and not waited.is_set():
            waited.set()
            time.sleep(3)
        commit(self, batch)

    Writer._commit = slow  # type: ignore[method-assign]


def attempt_counted_late() -> None:
    """Counted when the attempt ends: one that dies is never counted, and a poison turn is driven for ever."""
    _reword("turn_claim", "attempts = attempts + :counted,", "")
    for query in ("turn_end", "turn_park"):
        _reword(query, "UPDATE turns SET", "UPDATE turns SET attempts = attempts + 1,")


def input_under_a_new_run_id() -> None:
    """Every attempt sends the input as if it were another message."""
    begin = driving.Drive.__init__

    @wraps(begin)
    def careless(self: driving.Drive, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        metadata = self._config["metadata"]
        metadata["run_id"] = uuid4().hex
        self.attempt.run_id = None  # type: ignore[attr-defined]

    driving.Drive.__init__ = careless  # type: ignore[method-assign]
    _patch_plan("owns_head", lambda turn, state: bool(state.metadata))
    _reword("turn_advance", "input = CASE WHEN :input_stored THEN NULL ELSE input END", "input = input")


def plain_resume_value() -> None:
    """The first answer is sent for all questions."""

    def plain(*, resume: Mapping[str, Any]) -> Command[Any]:
        return Command(resume=next(iter(resume.values())))

    setattr(driving, "Command", plain)  # noqa: B010


def finished_by_next() -> None:
    """`next == ()` is taken for finished: it hides tasks whose writes are recorded and whose step is not."""

    def finished(turn: str, state: StateSnapshot) -> bool:
        return planning.owns_head(turn, state) and state.next == ()

    _patch_plan("finished", finished)
    put = Checkpointer.aput

    @wraps(put)
    async def after_the_writes(self: Checkpointer, *arguments: Any, **named: Any) -> Any:
        await asyncio.sleep(0.05)  # the writes of the step are committed first, so that the kill always falls between
        return await put(self, *arguments, **named)

    Checkpointer.aput = after_the_writes  # type: ignore[method-assign]


def _patch_plan(name: str, function: Callable[..., Any]) -> None:
    """Where it is made, and wherever it is used."""
    users = [module for module in (driving, breaking) if hasattr(module, name)]
    assert hasattr(planning, name), f"{planning.__name__} has no {name} any more: renew this defect"
    assert users, f"nobody uses {name} any more: renew this defect"
    for module in (planning, *users):
        setattr(module, name, function)


def rewind_not_written() -> None:
    """A new attempt goes on as if the lost one had said nothing."""
    assert hasattr(claims, "_rewind")
    claims._rewind = lambda *_: None


def seqs_not_reserved() -> None:
    """Numbering goes on after the last stored event: numbers of streamed text are given out again after a crash."""
    take = journal.take_seqs

    def careless(connection: Any, conversation: str, count: int) -> int:
        if count != claims.SEQ_BLOCK:
            return take(connection, conversation, count)
        last = connection.execute("SELECT max(seq) FROM events WHERE conversation = ?", (conversation,)).fetchall()
        return int(last[0][0] or 0) + 1

    for module in (claims, attempts):
        assert hasattr(module, "take_seqs")
        setattr(module, "take_seqs", careless)  # noqa: B010


def idempotency_ignored() -> None:
    """A repeated request is a new message."""
    accept = SQLiteStore.accept

    @wraps(accept)
    async def forgetful(self: SQLiteStore, new: NewTurn) -> Accepted:
        return await accept(self, replace(new, request_key=None))

    careless.patch(SQLiteStore, "accept", forgetful)


def recorded_results_ignored() -> None:
    """What a step's finished tasks recorded is not read back: they are executed again with their sibling."""
    read = Checkpointer.aget_tuple

    @wraps(read)
    async def blind(self: Checkpointer, config: Any) -> Any:
        found = await read(self, config)
        return found and found._replace(pending_writes=[])

    Checkpointer.aget_tuple = blind  # type: ignore[method-assign]


def stop_spends_an_attempt() -> None:
    """A planned stop counts as a failed attempt."""
    _reword("turn_give_back", "attempts = attempts - (1 - :spent), ", "")


def live_turns_recovered() -> None:
    """The sweep takes turns for orphans that this process is driving."""
    _reword("orphans", "lease_owner <> :owner", ":owner = :owner")
    _reword("orphan", "lease_owner <> :owner", ":owner = :owner")


def cards_left_open() -> None:
    """A cancel of a parked turn leaves its cards waiting for somebody."""
    _reword("cards_close", "AND state = 'opened' RETURNING", "AND state = 'nobody' RETURNING")


def second_decision_counts() -> None:
    """Who decides later overwrites what was decided, and is told that it counted."""
    careless.second_decision_counts()
    _reword("card_decide", "AND state = 'opened'", "")
    _reword("turn_unpark", "status = 'parked'", "status IN ('parked', 'queued')")


DEFECTS: Mapping[str, Defect] = {
    "no_epoch_check": Defect(no_epoch_check, None),
    "second_decision_counts": Defect(second_decision_counts, None),
    "answered_before_commit": Defect(answered_before_commit, Plan("accept.before", "plain_answer"), ("L",)),
    "published_before_commit": Defect(published_before_commit, Plan("recover.after", "killed_once"), ("S",)),
    "attempt_counted_late": Defect(attempt_counted_late, Plan("model_call.before", "four_step_job"), ("A",)),
    "input_under_a_new_run_id": Defect(
        input_under_a_new_run_id, Plan("finish.before", "plain_answer"), ("E", "X", "F")
    ),
    "plain_resume_value": Defect(plain_resume_value, Plan("decision.after", "parked_graph"), ("E",)),
    "finished_by_next": Defect(finished_by_next, Plan("step_checkpoint.before", "plain_answer", nth=2), ("E",)),
    "rewind_not_written": Defect(rewind_not_written, Plan("tool_call.before", "four_step_job", nth=2), ("R", "F")),
    "seqs_not_reserved": Defect(
        seqs_not_reserved,
        Plan("model_call.after", "plain_answer"),
        ("S",),
        {"PERDURE_DEMO_TOKEN_SECONDS": "0.15"},
    ),
    "idempotency_ignored": Defect(idempotency_ignored, Plan("accept.after", "plain_answer"), ("L", "E")),
    "recorded_results_ignored": Defect(
        recorded_results_ignored, Plan("task_writes.after", "three_at_once", nth=3), ("X",)
    ),
    "stop_spends_an_attempt": Defect(stop_spends_an_attempt, Plan("release.after", "handed_over"), ("A",)),
    "live_turns_recovered": Defect(
        live_turns_recovered,
        Plan("finish.after", "four_step_job"),
        ("A",),
        {"PERDURE_SWEEP_SECONDS": "0.2", "PERDURE_LEASE_SECONDS": "3"},
    ),
    "intended_late": Defect(careless.intended_late, Plan("claim.after", "uncertain_charge", "pass"), ("X",)),
    "started_ignored": Defect(careless.started_ignored, Plan("tool_call.after", "charges"), ("X",)),
    "recorded_before_it_happened": Defect(
        careless.recorded_before_it_happened, Plan("claim.after", "uncertain_charge", "pass"), ("X",)
    ),
    "uncertain_hidden": Defect(careless.uncertain_hidden, Plan("tool_call.after", "charges"), ("V",)),
    "any_verdict_will_do": Defect(careless.any_verdict_will_do, Plan("decision.after", "approved_services"), ("G",)),
    "edits_forgotten": Defect(careless.edits_forgotten, Plan("decision.after", "approved_services"), ("G",)),
    "gate_forgotten": Defect(careless.gate_forgotten, Plan("tool_call.before", "approved_services"), ("G",)),
    "keys_of_one_life": Defect(careless.keys_of_one_life, Plan("tool_call.after", "charges"), ("X",)),
    "cancel_forgotten": Defect(careless.cancel_forgotten, Plan("cancel.after", "cancel_then_more"), ("E",)),
    "cards_left_open": Defect(cards_left_open, Plan("finish.after", "uncertain_then_cancelled"), ("B",)),
}
