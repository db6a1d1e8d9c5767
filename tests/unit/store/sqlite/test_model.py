"""The journal against a model of plain Python: whatever people, workers, crashes and clocks do, in any order, both agree.

Beside equal states: one active turn per thread, one terminal event per ending, one decision per card, seqs that only rise and
are never used twice, and no write of an attempt that lost its turn.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perdure.errors import BadRequest, CardDecided, LeaseLost, TurnInProgress, TurnNotResumable
from perdure.events import EventKind
from perdure.ledger import CallState, ToolCall, idempotency_key
from perdure.store.base import Question, StoredResult
from perdure.store.sqlite.attempt import SQLiteAttempt
from perdure.store.sqlite.authority import StepPlan
from perdure.store.sqlite.store import SQLiteStore
from perdure.turns import (
    ACTIVE,
    DECISIONS,
    ENDED,
    EXPIRY,
    REOPENABLE,
    Accepted,
    CardState,
    DecisionKind,
    Limits,
    Outcome,
    TurnStatus,
    Verdict,
)
from tests.conformance.conftest import sqlite_journal
from tests.conformance.journal import BROKEN, LEASE_SECONDS, OWNER, Journal, gate, intend

T = TypeVar("T")

LIMITS = Limits(max_attempts=3, total_attempts=7)
Pick = st.integers(0, 10**6)


@dataclass
class ModelCard:
    question: Question
    state: CardState
    expires_at: datetime | None = None
    decision: str | None = None
    by: str | None = None

    @property
    def kind(self) -> str:
        return str(self.question.gate.gate) if self.question.gate else "interrupt"

    def late(self, now: datetime) -> bool:
        return self.state is CardState.OPENED and self.expires_at is not None and self.expires_at <= now


@dataclass
class ModelCall:
    task: str
    starts: int = 1
    state: CallState = CallState.STARTED


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

    cards: dict[str, ModelCard] = field(default_factory=dict)
    """By interrupt id."""

    discards: bool = False
    calls: dict[str, ModelCall] = field(default_factory=dict)
    """By key."""

    model_calls: int = 0
    uncounted: int = 0
    """Model calls that go with the attempt's next commit, or are lost with it."""

    tool_calls: int = 0
    worked: float = 0.0
    fresh: tuple[int, int, float] = (0, 0, 0.0)
    """What was spent at the last fresh budget."""

    claimed_at: float = 0.0
    renewed_at: float = 0.0
    """By the clock that never steps back."""

    @property
    def row(self) -> tuple[object, ...]:
        return (
            str(self.status),
            self.epoch,
            self.attempts,
            self.without_progress,
            self.cancel,
            self.superseded,
            self.discards,
        )

    @property
    def spent(self) -> tuple[int, int, float]:
        model_calls, tool_calls, worked = self.fresh
        return self.model_calls - model_calls, self.tool_calls - tool_calls, round(self.worked - worked, 3)

    @property
    def undecided(self) -> list[ModelCard]:
        return [card for card in self.cards.values() if card.state is CardState.OPENED]

    def commit(self) -> None:
        self.model_calls, self.uncounted = self.model_calls + self.uncounted, 0

    def close_cards(self) -> None:
        for card in self.undecided:
            card.state = CardState.CLOSED

    def decide(self, card: ModelCard, decision: DecisionKind, by: str) -> None:
        card.state, card.decision, card.by = CardState.DECIDED, str(decision), by
        if not self.undecided:
            self.status, self.not_before = TurnStatus.QUEUED, None


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
        if status in {TurnStatus.COMPLETED, TurnStatus.CANCELLED}:
            for call in (call for each in self.of(turn.conversation) for call in each.calls.values()):
                call.state = CallState.SETTLED if call.state is CallState.RECORDED else call.state
        waiting = next((other for other in self.of(turn.conversation) if other.status is TurnStatus.WAITING), None)
        if waiting is not None:
            waiting.status = TurnStatus.QUEUED
            self.supersede(waiting)

    def leave(self, turn: ModelTurn, until: float) -> None:
        """An attempt is over."""
        turn.worked += until - turn.claimed_at
        turn.uncounted = 0

    def ask_to_end(self, turn: ModelTurn, *, discard: bool = False) -> None:
        turn.cancel, turn.not_before = True, None
        turn.discards = turn.discards or discard or turn.status is TurnStatus.PARKED
        if turn.status is TurnStatus.PARKED:
            turn.status = TurnStatus.QUEUED
            turn.close_cards()

    def supersede(self, later: ModelTurn) -> None:
        for turn in self.of(later.conversation):
            if turn is later:
                break
            turn.superseded = turn.superseded or turn.status in REOPENABLE

    @initialize(turns=st.integers(2, 5))
    def a_house_at_work(self, turns: int) -> None:
        for _ in range(turns):
            self.accept(0, True, "reject", False)
        for _ in range(turns):
            self.claim()

    # -- people -------------------------------------------------------------------------------------------------------

    @rule(
        number=Pick,
        new=st.integers(0, 5).map(lambda n: n == 5),
        when_busy=st.sampled_from(["reject", "enqueue", "enqueue", "interrupt"]),
        discard=st.booleans(),
    )
    def accept(self, number: int, new: bool, when_busy: str, discard: bool) -> None:
        known = sorted({turn.conversation for turn in self.turns.values()})
        conversation = None if new or not known else known[number % len(known)]
        busy = self.active(conversation) if conversation else None
        key = self.journal.name("key")
        discard = discard and when_busy == "interrupt"
        accepting = self.journal.accept(
            conversation=conversation, when_busy=when_busy, discard_pending=discard, key=key
        )
        undiscarded = when_busy == "interrupt" and not discard and busy is not None and busy.status is TurnStatus.PARKED
        if busy is not None and (when_busy == "reject" or undiscarded):
            with pytest.raises(TurnInProgress) as refusal:
                self.do(accepting)
            assert refusal.value.turn == busy.id
            assert len(refusal.value.details.get("pending", ())) == len(busy.undecided)
            return
        accepted = self.keys[key] = self.do(accepting)
        turn = ModelTurn(accepted.turn, accepted.conversation, TurnStatus.WAITING if busy else TurnStatus.QUEUED)
        assert accepted.status is turn.status
        self.turns[turn.id] = turn
        if busy is None:
            self.supersede(turn)
        elif when_busy == "interrupt":
            self.ask_to_end(busy, discard=discard)

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
        last.last, last.discards = "resumed", False
        last.fresh = (last.model_calls, last.tool_calls, last.worked)

    @precondition(lambda self: any(turn.cards for turn in self.turns.values()))
    @rule(number=Pick, decision=st.sampled_from(DecisionKind), fit=st.integers(0, 3), answer=st.booleans())
    def decide(self, number: int, decision: DecisionKind, fit: int, answer: bool) -> None:
        asked = [(turn, card) for turn in self.turns.values() for card in turn.cards.values()]
        turn, card = asked[number % len(asked)]
        fitting = sorted(DECISIONS[card.kind])
        decision = fitting[number % len(fitting)] if fit else decision
        before, by = card.state, f"person-{number % 3}"
        outcome = self.do(self.deciding(turn, card, Verdict(decision, by=by), answer))
        if before is not CardState.OPENED:
            assert outcome in {"CardDecided", "BadRequest"}
        elif decision not in fitting:
            assert outcome == "BadRequest"
        elif card.late(self.now):
            assert outcome == "CardDecided"
            turn.decide(card, DecisionKind.DENY, EXPIRY)
        else:
            turn.decide(card, decision, by)
            assert outcome == str(turn.status)

    async def deciding(self, turn: ModelTurn, card: ModelCard, verdict: Verdict, answer: bool) -> str:
        """What became of the turn, or the name of the refusal."""
        store, interrupt_id = self.journal.store, card.question.interrupt_id
        try:
            if answer and self.active(turn.conversation) is turn:
                said = {interrupt_id: verdict}
                return str((await store.answer(OWNER, turn.conversation, said, verdict.by)).status)
            return str((await store.decide(None, await self.card_id(turn, interrupt_id), verdict)).turn_status)
        except (CardDecided, BadRequest) as refusal:
            return type(refusal).__name__

    async def card_id(self, turn: ModelTurn, interrupt_id: str) -> str:
        return (await self.journal.cards(turn.id))[interrupt_id].id

    @precondition(lambda self: any(turn.undecided for turn in self.turns.values()))
    @rule()
    def expire(self) -> None:
        due = self.do(self.journal.store.expire(self.now))
        for turn in self.turns.values():
            for card in turn.undecided:
                if card.late(self.now):
                    turn.decide(card, DecisionKind.DENY, EXPIRY)
        rest = [card.expires_at for turn in self.turns.values() for card in turn.undecided if card.expires_at]
        assert due == min(rest, default=None)

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
            self.ask_to_end(turn)
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
        turn.claimed_at = turn.renewed_at = self.journal.clock.monotonic()
        self.live[turn.id] = attempt
        assert (attempt.spent.model_calls, attempt.spent.tool_calls, round(attempt.spent.seconds, 3)) == turn.spent

    @precondition(lambda self: bool(self.live))
    @rule(number=Pick, tokens=st.integers(0, 3), task=st.sampled_from(["", "recorded", "recorded", "task-0", "task-1"]))
    def step(self, number: int, tokens: int, task: str) -> None:
        turn, attempt = self.pick_live(number)
        if task == "recorded":
            task = next((call.task for call in turn.calls.values() if call.state is CallState.RECORDED), "")
        self.do(self.write(attempt, task, tokens))
        turn.without_progress = 0
        turn.commit()
        for call in turn.calls.values():
            if task and call.task == task and call.state is CallState.RECORDED:
                call.state = CallState.SETTLED

    async def write(self, attempt: SQLiteAttempt, task: str, tokens: int) -> None:
        attempt.trace("node", "node", 1, "enter")
        for _ in range(tokens):
            attempt.token("m", "text")
        result = {"node": "node", "name": "node", "step": 1, "phase": "result"}
        await attempt.submit(StepPlan(traces=[result], progress=True, supersteps=1, task=task), lambda connection: ())

    @precondition(lambda self: bool(self.live))
    @rule(number=Pick, durable=st.booleans())
    def call_model(self, number: int, durable: bool) -> None:
        turn, attempt = self.pick_live(number)
        self.do(attempt.count_model_call(durable=durable))
        turn.uncounted += 1
        assert attempt.spent.model_calls == turn.spent[0] + turn.uncounted
        if durable:
            turn.commit()

    @precondition(lambda self: bool(self.live))
    @rule(number=Pick, known=st.booleans(), outcome=st.sampled_from(["record", "record", "unknown", ""]))
    def call_tool(self, number: int, known: bool, outcome: str) -> None:
        turn, attempt = self.pick_live(number)
        task = f"task-{number % 2}"
        if known and turn.calls:  # what an earlier attempt started is learned of without another start
            key = sorted(turn.calls)[number % len(turn.calls)]
        else:
            key = self.do(intend(attempt, ToolCall(f"c-{number % 4}", "tool", {}, "m"), task=task))
            call = turn.calls.get(key)
            turn.tool_calls += call is None
            turn.calls[key] = ModelCall(task, call.starts + 1 if call else 1)
            turn.commit()
        if outcome:
            turn.commit()
        if outcome == "record":
            attempt.record(key, StoredResult("bytes", b"result"), "success")
            turn.calls[key].state = CallState.RECORDED
        elif outcome:
            attempt.unknown(key, "it went away")
        self.do(attempt.settle())

    @precondition(lambda self: bool(self.live))
    @rule(number=Pick)
    def renew(self, number: int) -> None:
        turn, attempt = self.pick_live(number)
        turn.lease = self.now + timedelta(seconds=LEASE_SECONDS)
        turn.renewed_at = self.journal.clock.monotonic()
        assert self.do(asyncio.to_thread(attempt.renew, turn.lease))

    @precondition(lambda self: bool(self.live))
    @rule(
        number=Pick,
        kinds=st.lists(st.sampled_from(["own", "approval", "brief", "uncertain"]), min_size=1, max_size=2),
        despite=st.booleans(),
    )
    def park(self, number: int, kinds: list[str], despite: bool) -> None:
        turn, attempt = self.pick_live(number)
        closed = [card.question for card in turn.cards.values() if card.state is CardState.CLOSED]
        questions = [self.question(kind) for kind in kinds] + closed[: number % 2]
        self.do(attempt.park(questions, despite_cancel=despite))
        del self.live[turn.id]
        turn.commit()
        self.leave(turn, self.journal.clock.monotonic())
        turn.lease, turn.without_progress, turn.last = None, 0, None
        if turn.cancel and not (despite and not turn.discards):
            turn.status = TurnStatus.QUEUED
            return
        turn.status = TurnStatus.PARKED
        for question in questions:
            seconds = question.gate.expires_seconds if question.gate else None
            expires_at = self.now + timedelta(seconds=seconds) if seconds else None
            turn.cards[question.interrupt_id] = ModelCard(question, CardState.OPENED, expires_at)

    def question(self, kind: str) -> Question:
        name = self.journal.name("interrupt")
        if kind == "own":
            return Question(name, name)
        return gate(name, uncertain=kind == "uncertain", expires_seconds=20 if kind == "brief" else None)

    @precondition(lambda self: bool(self.live))
    @rule(number=Pick, status=st.sampled_from([TurnStatus.COMPLETED, TurnStatus.FAILED, TurnStatus.CANCELLED]))
    def finish(self, number: int, status: TurnStatus) -> None:
        turn, attempt = self.pick_live(number)
        self.do(attempt.finish(status, BROKEN if status is TurnStatus.FAILED else None))
        del self.live[turn.id]
        turn.commit()
        self.leave(turn, self.journal.clock.monotonic())
        self.end(turn, status)

    @precondition(lambda self: bool(self.live))
    @rule(number=Pick, outcome=st.sampled_from([Outcome.RELEASED, Outcome.RETRIED]), delay=st.booleans())
    def release(self, number: int, outcome: Outcome, delay: bool) -> None:
        turn, attempt = self.pick_live(number)
        not_before = self.now + timedelta(seconds=10) if delay else None
        self.do(attempt.release(outcome, not_before=not_before))
        del self.live[turn.id]
        turn.commit()
        self.leave(turn, self.journal.clock.monotonic())
        turn.status, turn.lease = TurnStatus.QUEUED, None
        turn.not_before = None if turn.cancel else not_before
        turn.last = str(outcome)
        if outcome is Outcome.RELEASED:
            turn.attempts -= 1
            turn.without_progress = max(turn.without_progress - 1, 0)

    @precondition(lambda self: bool(self.zombies))
    @rule(
        number=Pick,
        deed=st.sampled_from(["step", "intend", "count", "finish", "park", "release", "renew", "record", "unknown"]),
    )
    def an_attempt_that_lost_its_turn_writes_nothing(self, number: int, deed: str) -> None:
        zombie = self.zombies[number % len(self.zombies)]
        if deed == "renew":
            assert not self.do(asyncio.to_thread(zombie.renew, self.now + timedelta(days=1)))
            return
        call = ToolCall(f"c-{number % 4}", "tool", {}, "m")
        key = idempotency_key(zombie.turn.id, call)
        deeds: dict[str, Callable[[], Awaitable[object]]] = {
            "step": lambda: self.write(zombie, "task-0", 1),
            "intend": lambda: intend(zombie, call),
            "count": lambda: zombie.count_model_call(durable=True),
            "finish": lambda: zombie.finish(TurnStatus.COMPLETED),
            "park": lambda: zombie.park([Question("zombie", "?")]),
            "release": lambda: zombie.release(Outcome.RELEASED),
            "record": lambda: self.unawaited(zombie, lambda: zombie.record(key, StoredResult("b", b""), "success")),
            "unknown": lambda: self.unawaited(zombie, lambda: zombie.unknown(key, "late")),
        }
        with pytest.raises(LeaseLost):
            self.do(deeds[deed]())

    async def unawaited(self, zombie: SQLiteAttempt, write: Callable[[], None]) -> None:
        """A write that nobody waits for: whoever writes next learns of its failure."""
        write()
        await zombie.settle()
        if zombie.latched is not None:
            raise zombie.latched

    # -- the world ----------------------------------------------------------------------------------------------------

    @rule(deed=st.sampled_from(["pass", "pass", "pass", "jump", "expire", "crash"]), number=Pick, manual=st.booleans())
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
            self.leave(turn, turn.renewed_at)
            zombie = self.live.pop(turn.id, None)
            if zombie is not None:
                self.zombies.append(zombie)
            more = int(turn.cancel)
            spent = turn.without_progress >= LIMITS.max_attempts + more or turn.attempts >= LIMITS.total_attempts + more
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
            "SELECT id, status, epoch, attempts, attempts_without_progress, cancel_requested_at IS NOT NULL, superseded, "
            "discards_cards FROM turns ORDER BY accept_number"
        )
        assert [tuple(row[1:]) for row in rows] == [turn.row for turn in self.turns.values()]
        assert [row[0] for row in rows] == list(self.turns)

    @invariant()
    def cards_are_as_the_model_says_and_each_is_decided_once(self) -> None:
        rows = self.read("SELECT turn, interrupt_id, kind, state, decision, decided_by FROM cards")
        cards = [(turn, *each) for turn in self.turns.values() for each in turn.cards.items()]
        assert {tuple(row) for row in rows} == {
            (turn.id, name, card.kind, str(card.state), card.decision, card.by) for turn, name, card in cards
        }
        waiting = {turn.id for turn in self.turns.values() if turn.undecided}
        assert waiting == {turn.id for turn in self.turns.values() if turn.status is TurnStatus.PARKED}
        told = self.read(
            "SELECT payload ->> 'card' FROM events WHERE kind = 'approval' AND payload ->> 'state' = 'decided'"
        )
        decided = self.read("SELECT id FROM cards WHERE state = 'decided'")
        audited = self.read("SELECT card FROM audit WHERE action IN ('decide', 'expire')")
        assert sorted(told) == sorted(decided) == sorted(audited)

    @invariant()
    def calls_are_as_the_model_says(self) -> None:
        rows = self.read("SELECT key, turn, starts, state, task, result IS NOT NULL FROM tool_calls")
        assert {tuple(row) for row in rows} == {
            (key, turn.id, call.starts, str(call.state), call.task, call.state is CallState.RECORDED)
            for turn in self.turns.values()
            for key, call in turn.calls.items()
        }

    @invariant()
    def what_turns_spent_is_as_the_model_says(self) -> None:
        rows = self.read(
            "SELECT id, model_calls - model_calls_from, tool_calls - tool_calls_from, "
            "round((worked - worked_from) / 1e6, 3) FROM turns"
        )
        assert {turn: tuple(spent) for turn, *spent in rows} == {turn.id: turn.spent for turn in self.turns.values()}

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
