"""The journal against a model of plain Python: whatever people, workers, crashes and clocks do, in any order, both agree.

Beside equal states: one active turn per thread, one terminal event per ending, seqs that only rise and are never used twice,
and no write of an attempt that lost its turn.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from perdure.errors import CardDecided, LeaseLost, TurnInProgress, TurnNotResumable
from perdure.events import EventKind
from perdure.ledger import ToolCall
from perdure.store.base import Question
from perdure.store.sqlite.attempt import SQLiteAttempt
from perdure.store.sqlite.authority import StepPlan
from perdure.store.sqlite.store import SQLiteStore
from perdure.turns import ACTIVE, ENDED, REOPENABLE, Accepted, Limits, Outcome, TurnStatus
from tests.conformance.conftest import sqlite_journal
from tests.conformance.journal import BROKEN, LEASE_SECONDS, OWNER, Journal, intend

T = TypeVar("T")

LIMITS = Limits(max_attempts=3, total_attempts=7)
Pick = st.integers(0, 10**6)


@dataclass
class ModelTurn:
    id: str
    conversation: str
    status: TurnStatus
    epoch: int = 0
    attempts: int = 0
    without_progress: int = 0
    cancel: bool = False
    superseded: bool = False
    not_before: datetime | None = None
    lease: datetime | None = None
    endings: int = 0
    last: str | None = None
    """Why the next attempt rewinds: the reason of the rewind, None when there is none to write."""

    questions: dict[str, bool] = field(default_factory=dict)
    """Interrupt id → decided."""

    closed: list[str] = field(default_factory=list)
    """Questions that an ending closed undecided; a resumed turn may meet them again."""

    @property
    def row(self) -> tuple[object, ...]:
        return (
            str(self.status),
            self.epoch,
            self.attempts,
            self.without_progress,
            self.cancel,
            self.superseded,
        )


class JournalMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="perdure-model-"))
        self.runner = asyncio.Runner()
        self.journal: Journal = sqlite_journal(self.folder, LIMITS)
        self.do(self.journal.start())
        self.turns: dict[str, ModelTurn] = {}
        self.live: dict[str, SQLiteAttempt] = {}
        self.zombies: list[SQLiteAttempt] = []
        self.keys: dict[str, Accepted] = {}

    def do(self, call: Awaitable[T]) -> T:
        async def run() -> T:
            return await call

        return self.runner.run(run())

    def teardown(self) -> None:
        self.do(self.journal.store.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    # -- the model ----------------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return self.journal.clock.now()

    def of(self, conversation: str) -> list[ModelTurn]:
        return [turn for turn in self.turns.values() if turn.conversation == conversation]

    def active(self, conversation: str) -> ModelTurn | None:
        return next((turn for turn in self.of(conversation) if turn.status in ACTIVE), None)

    def pick(self, number: int, *statuses: TurnStatus) -> ModelTurn | None:
        found = [turn for turn in self.turns.values() if turn.status in statuses]
        return found[number % len(found)] if found else None

    def pick_live(self, number: int) -> tuple[ModelTurn, SQLiteAttempt]:
        turn = sorted(self.live)[number % len(self.live)]
        return self.turns[turn], self.live[turn]

    def end(self, turn: ModelTurn, status: TurnStatus) -> None:
        turn.status, turn.lease = status, None
        turn.endings += 1
        turn.closed += [question for question, decided in turn.questions.items() if not decided]
        turn.questions = {question: True for question, decided in turn.questions.items() if decided}
        waiting = next((other for other in self.of(turn.conversation) if other.status is TurnStatus.WAITING), None)
        if waiting is not None:
            waiting.status = TurnStatus.QUEUED
            self.supersede(waiting)

    def supersede(self, later: ModelTurn) -> None:
        for turn in self.of(later.conversation):
            if turn is later:
                break
            turn.superseded = turn.superseded or turn.status in REOPENABLE

    # -- people -------------------------------------------------------------------------------------------------------

    @rule(number=Pick, new=st.integers(0, 5).map(lambda n: n == 5), enqueue=st.booleans())
    def accept(self, number: int, new: bool, enqueue: bool) -> None:
        known = sorted({turn.conversation for turn in self.turns.values()})
        conversation = None if new or not known else known[number % len(known)]
        busy = self.active(conversation) if conversation else None
        key = self.journal.name("key")
        accepting = self.journal.accept(
            conversation=conversation, when_busy="enqueue" if enqueue else "reject", key=key
        )
        if busy is not None and not enqueue:
            with pytest.raises(TurnInProgress) as refusal:
                self.do(accepting)
            assert refusal.value.turn == busy.id
            return
        accepted = self.keys[key] = self.do(accepting)
        turn = ModelTurn(accepted.turn, accepted.conversation, TurnStatus.WAITING if busy else TurnStatus.QUEUED)
        assert accepted.status is turn.status
        self.turns[turn.id] = turn
        if busy is None:
            self.supersede(turn)

    @precondition(lambda self: bool(self.keys))
    @rule(number=Pick)
    def accept_again(self, number: int) -> None:
        key = sorted(self.keys)[number % len(self.keys)]
        before = self.keys[key]
        again = self.do(self.journal.accept(conversation=before.conversation, key=key))
        assert (again.turn, again.repeated) == (before.turn, True)

    @precondition(lambda self: self.pick(0, *ENDED) is not None)
    @rule(number=Pick, statuses=st.sampled_from([REOPENABLE, REOPENABLE, ENDED]))
    def resume(self, number: int, statuses: frozenset[TurnStatus]) -> None:
        turn = self.pick(number, *statuses)
        if turn is None:
            return
        started = [
            other
            for other in self.of(turn.conversation)
            if other.status is not TurnStatus.WAITING
            and not (other.status is TurnStatus.CANCELLED and other.epoch == 0)
        ]
        last = started[-1] if started else None
        possible = (
            last is not None
            and self.active(turn.conversation) is None
            and last.status in REOPENABLE
            and not last.superseded
        )
        resuming = self.journal.store.resume(OWNER, turn.conversation)
        if not possible:
            with pytest.raises(TurnNotResumable):
                self.do(resuming)
            return
        assert last is not None
        assert self.do(resuming).turn == last.id
        last.status, last.without_progress, last.cancel, last.not_before = TurnStatus.QUEUED, 0, False, None
        last.last = "resumed"

    @precondition(lambda self: self.pick(0, TurnStatus.PARKED) is not None)
    @rule(number=Pick)
    def decide(self, number: int) -> None:
        turn = self.pick(number, TurnStatus.PARKED)
        if turn is None:
            return
        question = sorted(turn.questions)[number % len(turn.questions)]
        deciding = self.journal.answer(turn.conversation, {question: number}, "anna")
        if turn.questions[question]:
            with pytest.raises(CardDecided):
                self.do(deciding)
            return
        turn.questions[question] = True
        if all(turn.questions.values()):
            turn.status, turn.not_before = TurnStatus.QUEUED, None
        assert self.do(deciding).status is turn.status

    @precondition(lambda self: self.pick(0, *ACTIVE, TurnStatus.WAITING) is not None)
    @rule(number=Pick, statuses=st.sampled_from([(TurnStatus.WAITING,), (TurnStatus.RUNNING,), tuple(TurnStatus)]))
    def cancel(self, number: int, statuses: tuple[TurnStatus, ...]) -> None:
        turn = self.pick(number, *statuses)
        if turn is None:
            return
        if turn.status is TurnStatus.WAITING:
            turn.status, turn.cancel = TurnStatus.CANCELLED, True
            turn.endings += 1
        elif turn.status in ACTIVE:
            turn.cancel, turn.not_before = True, None
            if turn.status is TurnStatus.PARKED:
                turn.status = TurnStatus.QUEUED
        assert self.do(self.journal.store.cancel(OWNER, turn.id)).status is turn.status

    def due(self, suspects: bool) -> list[ModelTurn]:
        return [
            turn
            for turn in self.turns.values()
            if turn.status is TurnStatus.QUEUED
            and (turn.not_before is None or turn.not_before <= self.now)
            and (turn.without_progress >= LIMITS.suspect_after) == suspects
        ]

    # -- workers ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.pick(0, TurnStatus.QUEUED) is not None)
    @rule()
    def claim(self) -> None:
        suspects = not self.due(False)
        due = self.due(suspects)
        attempt = self.do(self.journal.claim(suspects=suspects))
        if not due:
            assert attempt is None
            return
        assert isinstance(attempt, SQLiteAttempt)
        turn = due[0]
        assert attempt.turn.id == turn.id
        assert (attempt.rewind.payload["reason"] if attempt.rewind else None) == turn.last
        turn.status, turn.not_before = TurnStatus.RUNNING, None
        turn.epoch += 1
        turn.attempts += 1
        turn.without_progress += 1
        turn.lease = self.now + timedelta(seconds=LEASE_SECONDS)
        self.live[turn.id] = attempt

    @precondition(lambda self: bool(self.live))
    @rule(number=Pick, progress=st.booleans(), tokens=st.integers(0, 3))
    def step(self, number: int, progress: bool, tokens: int) -> None:
        turn, attempt = self.pick_live(number)
        self.do(self.write(attempt, progress, tokens))
        if progress:
            turn.without_progress = 0

    async def write(self, attempt: SQLiteAttempt, progress: bool, tokens: int) -> None:
        attempt.trace("node", "node", 1, "enter")
        for _ in range(tokens):
            attempt.token("m", "text")
        if progress:
            result = {"node": "node", "name": "node", "step": 1, "phase": "result"}
            await attempt.submit(StepPlan(traces=[result], progress=True, supersteps=1), lambda connection: ())
        else:
            await intend(attempt, ToolCall("c", "tool", {}, "m"))

    @precondition(lambda self: bool(self.live))
    @rule(number=Pick)
    def renew(self, number: int) -> None:
        turn, attempt = self.pick_live(number)
        turn.lease = self.now + timedelta(seconds=LEASE_SECONDS)
        assert self.do(asyncio.to_thread(attempt.renew, turn.lease))

    @precondition(lambda self: bool(self.live))
    @rule(number=Pick, count=st.integers(1, 2))
    def park(self, number: int, count: int) -> None:
        turn, attempt = self.pick_live(number)
        again = turn.closed.pop() if turn.closed and number % 2 else None
        questions = [
            again or self.journal.name("interrupt"),
            *(self.journal.name("interrupt") for _ in range(count - 1)),
        ]
        self.do(attempt.park([Question(question, question) for question in questions]))
        del self.live[turn.id]
        turn.questions = turn.questions | dict.fromkeys(questions, False)
        turn.status = TurnStatus.QUEUED if turn.cancel else TurnStatus.PARKED
        turn.lease, turn.without_progress, turn.last = None, 0, None

    @precondition(lambda self: bool(self.live))
    @rule(number=Pick, status=st.sampled_from([TurnStatus.COMPLETED, TurnStatus.FAILED, TurnStatus.CANCELLED]))
    def finish(self, number: int, status: TurnStatus) -> None:
        turn, attempt = self.pick_live(number)
        self.do(attempt.finish(status, BROKEN if status is TurnStatus.FAILED else None))
        del self.live[turn.id]
        self.end(turn, status)

    @precondition(lambda self: bool(self.live))
    @rule(number=Pick, outcome=st.sampled_from([Outcome.RELEASED, Outcome.RETRIED]), delay=st.booleans())
    def release(self, number: int, outcome: Outcome, delay: bool) -> None:
        turn, attempt = self.pick_live(number)
        not_before = self.now + timedelta(seconds=10) if delay else None
        self.do(attempt.release(outcome, not_before=not_before))
        del self.live[turn.id]
        turn.status, turn.lease = TurnStatus.QUEUED, None
        turn.not_before = None if turn.cancel else not_before
        turn.last = str(outcome)
        if outcome is Outcome.RELEASED:
            turn.attempts -= 1
            turn.without_progress = max(turn.without_progress - 1, 0)

    @precondition(lambda self: bool(self.zombies))
    @rule(number=Pick, deed=st.sampled_from(["step", "intend", "finish", "park", "release", "renew"]))
    def an_attempt_that_lost_its_turn_writes_nothing(self, number: int, deed: str) -> None:
        zombie = self.zombies[number % len(self.zombies)]
        if deed == "renew":
            assert not self.do(asyncio.to_thread(zombie.renew, self.now + timedelta(days=1)))
            return
        deeds = {
            "step": lambda: self.write(zombie, True, 1),
            "intend": lambda: self.write(zombie, False, 0),
            "finish": lambda: zombie.finish(TurnStatus.COMPLETED),
            "park": lambda: zombie.park([Question("zombie", "?")]),
            "release": lambda: zombie.release(Outcome.RELEASED),
        }
        with pytest.raises(LeaseLost):
            self.do(deeds[deed]())

    # -- the world ----------------------------------------------------------------------------------------------------

    @rule(deed=st.sampled_from(["pass", "pass", "jump", "expire", "crash"]), number=Pick, manual=st.booleans())
    def time_and_fate(self, deed: str, number: int, manual: bool) -> None:
        if deed == "pass":
            self.journal.clock.advance((0.5, 5.0, 11.0, 70.0)[number % 4])
            return
        if deed == "crash":
            self.crash(manual)
            return
        if deed == "jump":
            self.journal.clock.jump((-3_600.0, -20.0, 20.0, 3_600.0)[number % 4])
        else:
            self.journal.clock.advance(LEASE_SECONDS + 1)
        self.sweep(manual)

    def sweep(self, manual: bool) -> None:
        expected = {turn.id for turn in self.turns.values() if turn.lease is not None and turn.lease <= self.now}
        self.recover_all(expected, manual)

    def crash(self, manual: bool) -> None:
        self.live.clear()
        self.zombies.clear()
        self.do(self.journal.crash())
        self.recover_all({turn.id for turn in self.turns.values() if turn.status is TurnStatus.RUNNING}, manual)

    def recover_all(self, expected: set[str], manual: bool) -> None:
        store = self.journal.store
        orphans = self.do(store.orphans(self.now, []))
        assert {orphan.id for orphan in orphans} == expected
        for orphan in orphans:
            turn = self.turns[orphan.id]
            recovered = self.do(store.recover(turn.id, turn.epoch, now=self.now, manual=manual))
            zombie = self.live.pop(turn.id, None)
            if zombie is not None:
                self.zombies.append(zombie)
            spent = turn.without_progress >= LIMITS.max_attempts or turn.attempts >= LIMITS.total_attempts
            if spent or (manual and not turn.cancel):
                self.end(turn, TurnStatus.FAILED if spent else TurnStatus.INTERRUPTED)
            else:
                turn.status, turn.lease = TurnStatus.QUEUED, None
                wait = timedelta(seconds=LIMITS.delay_seconds(turn.without_progress))
                turn.not_before = self.now + wait if wait and not turn.cancel else None
                turn.last = "recovered"
            assert recovered is not None
            assert recovered.status is turn.status
            assert self.do(store.recover(turn.id, turn.epoch, now=self.now, manual=manual)) is None

    # -- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def the_journal_is_as_the_model_says(self) -> None:
        rows = self.read(
            "SELECT id, status, epoch, attempts, attempts_without_progress, cancel_requested_at IS NOT NULL, superseded "
            "FROM turns ORDER BY accept_number"
        )
        assert [tuple(row[1:]) for row in rows] == [turn.row for turn in self.turns.values()]
        assert [row[0] for row in rows] == list(self.turns)

    @invariant()
    def a_thread_has_one_active_turn_and_nothing_waits_behind_nothing(self) -> None:
        rows = self.read(
            "SELECT sum(status IN ('queued', 'running', 'parked')), sum(status = 'waiting') FROM turns GROUP BY conversation"
        )
        for active, waiting in rows:
            assert active <= 1
            assert active == 1 or waiting == 0

    @invariant()
    def a_turn_has_one_terminal_event_per_ending(self) -> None:
        rows = self.read("SELECT turn, count(*) FROM events WHERE kind IN ('end', 'chat-error') GROUP BY turn")
        assert dict(rows) == {turn.id: turn.endings for turn in self.turns.values() if turn.endings}
        retained = self.read("SELECT turn FROM events WHERE kind IN ('end', 'chat-error') AND dropped_by IS NULL")
        ended = {turn.id for turn in self.turns.values() if turn.status in ENDED}
        assert ended <= {turn for (turn,) in retained}

    @invariant()
    def seqs_only_rise_and_are_never_used_twice(self) -> None:
        told: dict[str, int] = {}
        for event in self.journal.heard.events:
            assert event.seq > told.get(event.conversation, 0), event
            told[event.conversation] = event.seq
        stored = set(self.read("SELECT conversation, seq FROM events"))
        heard = {
            (event.conversation, event.seq) for event in self.journal.heard.events if event.kind is not EventKind.TOKEN
        }
        assert heard <= stored

    @invariant()
    def every_attempt_has_its_epoch(self) -> None:
        rows = self.read(
            "SELECT t.epoch, count(a.epoch) FROM turns t LEFT JOIN attempts a ON a.turn = t.id GROUP BY t.id"
        )
        assert all(epoch == attempts for epoch, attempts in rows)

    def read(self, statement: str) -> list[tuple[Any, ...]]:
        store = self.journal.store
        assert isinstance(store, SQLiteStore)

        def run(connection: apsw.Connection) -> list[tuple[Any, ...]]:
            return list(connection.execute(statement))

        return store._readers.read_here(run)


TestJournal = JournalMachine.TestCase
TestJournal.settings = settings(
    max_examples=50,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
