"""What the engine does to turns, on every store: claim, lease, fence, recover."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from langchain_core.runnables import RunnableConfig

from perdure.effects import EffectClass, Gate, GateRequest
from perdure.errors import LeaseLost
from perdure.events import EventKind
from perdure.ledger import NOT_BEGUN, PAUSED, ToolCall, idempotency_key
from perdure.store.base import LeasedAttempt, Question, StoredResult
from perdure.turns import CardState, DecisionKind, FailureCode, Limits, Outcome, TurnStatus, Verdict
from tests.conformance.journal import BROKEN, LEASE_SECONDS, OWNER, Journal, intend, step, work

# -- claim ----------------------------------------------------------------------------------------------------------------


async def test_turns_are_claimed_in_the_order_of_acceptance_and_only_once(journal: Journal) -> None:
    accepted = [(await journal.accept()).turn for _ in range(3)]
    attempts = await asyncio.gather(*(journal.claim() for _ in range(4)))
    assert [attempt.turn.id if attempt else None for attempt in attempts] == [*accepted, None]


async def test_a_claim_counts_the_attempt_before_any_work(journal: Journal) -> None:
    attempt = await journal.running()
    turn = attempt.turn
    assert (turn.status, turn.epoch, turn.attempts, turn.attempts_without_progress) == (TurnStatus.RUNNING, 1, 1, 1)
    assert (attempt.number, attempt.rewind) == (1, None)
    (row,) = await journal.store.attempts(OWNER, turn.id)
    assert (row.number, row.outcome) == (1, None)


async def test_only_the_asked_agents_are_claimed(journal: Journal) -> None:
    await journal.accept(agent="other")
    assert await journal.claim({"agent": None}) is None
    assert await journal.claim({"other": None, "agent": None}) is not None


async def test_an_agent_at_its_limit_is_passed_over_for_another(journal: Journal) -> None:
    await journal.accept()
    await journal.accept()
    await journal.accept(agent="other")
    limits = {"agent": 1, "other": None}
    first = await journal.claim(limits)
    second = await journal.claim(limits)
    assert first is not None
    assert second is not None
    assert (first.turn.agent, second.turn.agent) == ("agent", "other")
    assert await journal.claim(limits) is None
    await first.finish(TurnStatus.COMPLETED)
    assert await journal.claim(limits) is not None


async def test_a_delayed_turn_is_due_at_its_time(journal: Journal) -> None:
    attempt = await journal.running()
    later = journal.clock.now() + timedelta(seconds=10)
    await attempt.release(Outcome.RETRIED, not_before=later)
    assert await journal.claim() is None
    assert await journal.store.next_due(["agent"]) == later
    assert await journal.store.next_due(["other"]) is None
    journal.clock.advance(10)
    assert await journal.claim() is not None
    assert await journal.store.next_due(["agent"]) is None


async def test_a_due_turn_that_waits_for_a_free_place_needs_no_clock(journal: Journal) -> None:
    delayed = await journal.running()
    await delayed.release(Outcome.RETRIED, not_before=journal.clock.now() + timedelta(seconds=10))
    await journal.accept()
    assert await journal.claim({"agent": 1}) is not None
    journal.clock.advance(20)
    assert await journal.claim({"agent": 1}) is None
    assert await journal.store.next_due(["agent"]) is None


async def test_a_turn_that_keeps_failing_without_progress_is_claimed_as_a_suspect_alone(journal: Journal) -> None:
    attempt = await journal.running()
    for _ in range(Limits().suspect_after):
        await attempt.release(Outcome.RETRIED)
        assert await journal.store.suspects_due(["agent"], journal.clock.now()) in {0, 1}
        again = await journal.claim(suspects=attempt.turn.attempts_without_progress >= Limits().suspect_after)
        assert again is not None
        attempt = again
    await attempt.release(Outcome.RETRIED)
    assert await journal.store.suspects_due(["agent"], journal.clock.now()) == 1
    assert await journal.claim() is None
    assert await journal.claim(suspects=True) is not None


# -- a suspect whose call is uncertain ----------------------------------------------------------------------------------


def _charge(effect: EffectClass = EffectClass.ONCE) -> ToolCall:
    return ToolCall("c-1", "charge_card", {"amount": 5}, "m-1", effect=effect)


def _what_became_of_it(attempt: LeasedAttempt, starts: int = 1) -> Question:
    call = _charge()
    gate = GateRequest(
        gate=Gate.UNCERTAIN,
        key=idempotency_key(attempt.turn.id, call),
        call_id=call.id,
        message_id=call.message_id,
        tool=call.name,
        server=None,
        arguments=call.arguments,
        effect=call.effect,
        starts=starts,
    )
    return Question(gate.id, gate.value(), gate)


async def _suspect(journal: Journal, call: ToolCall | None = None, *, recorded: bool = False, why: str = "") -> str:
    """A turn that died as often as a suspect does, and last in this call; its id."""
    attempt = await journal.running()
    for deaths in range(1, Limits().suspect_after + 1):
        if call is not None and deaths == Limits().suspect_after:
            key = await intend(attempt, call)
            if why:
                attempt.unknown(key, why)
            if recorded:
                attempt.record(key, StoredResult("msgpack", b"done"), "success")
            await journal.store.check()
        await journal.die(attempt)
        journal.clock.advance(60)
        if deaths < Limits().suspect_after:
            attempt = await journal.claimed()
    return attempt.turn.id


async def test_a_suspect_with_an_uncertain_call_is_claimed_to_ask_and_stays_a_suspect(journal: Journal) -> None:
    turn = await _suspect(journal, _charge())
    before = await journal.turn(turn)
    asking = await journal.claim({"agent": 0}, asking=True)
    assert asking is not None
    assert (asking.turn.id, asking.asking, asking.turn.status) == (turn, True, TurnStatus.RUNNING)
    await asking.park([_what_became_of_it(asking)], despite_cancel=True)
    parked = await journal.turn(turn)
    assert parked.status is TurnStatus.PARKED
    assert (parked.attempts, parked.attempts_without_progress) == (before.attempts, before.attempts_without_progress)
    (card,) = await journal.store.cards(OWNER, turn)
    await journal.store.decide(OWNER, card.id, Verdict(DecisionKind.GIVE_UP, by=OWNER))
    assert await journal.claim(asking=True) is None
    assert await journal.claim() is None
    alone = await journal.claim(suspects=True)
    assert alone is not None
    assert (alone.asking, alone.turn.attempts_without_progress) == (False, before.attempts_without_progress + 1)


async def test_another_start_of_a_call_that_was_decided_on_is_asked_about_again(journal: Journal) -> None:
    turn = await _suspect(journal, _charge())
    asking = await journal.claim(asking=True)
    assert asking is not None
    await asking.park([_what_became_of_it(asking)], despite_cancel=True)
    (card,) = await journal.store.cards(OWNER, turn)
    await journal.store.decide(OWNER, card.id, Verdict(DecisionKind.RETRY, by=OWNER))
    alone = await journal.claim(suspects=True)
    assert alone is not None
    await intend(alone, _charge())
    await alone.release(Outcome.RELEASED)
    again = await journal.claim(asking=True)
    assert again is not None
    await again.park([_what_became_of_it(again, starts=2)], despite_cancel=True)
    assert [card.state for card in await journal.store.cards(OWNER, turn)] == [CardState.DECIDED, CardState.OPENED]


@pytest.mark.parametrize("end", ["dies", "is released", "is retried"])
async def test_an_attempt_to_ask_that_does_not_come_to_it_costs_the_turn_nothing(journal: Journal, end: str) -> None:
    turn = await _suspect(journal, _charge())
    before = await journal.turn(turn)
    asking = await journal.claim(asking=True)
    assert asking is not None
    if end == "dies":
        assert (await journal.die(asking)).status is TurnStatus.QUEUED
        journal.clock.advance(60)
    else:
        await asking.release(Outcome.RELEASED if end == "is released" else Outcome.RETRIED)
    after = await journal.turn(turn)
    assert (after.attempts, after.attempts_without_progress) == (before.attempts, before.attempts_without_progress)
    assert await journal.claim(asking=True) is not None


async def test_only_what_a_person_must_tell_is_a_reason_to_ask(journal: Journal) -> None:
    await _suspect(journal)
    await _suspect(journal, _charge(EffectClass.KEYED))
    await _suspect(journal, _charge(), recorded=True)
    await _suspect(journal, _charge(), why=PAUSED)
    await _suspect(journal, _charge(), why=NOT_BEGUN)
    await intend(await journal.running(), _charge())
    assert await journal.claim(asking=True) is None
    uncertain = await _suspect(journal, _charge(), why="the server went away")
    assert await journal.claim({"other": None}, asking=True) is None
    found = await journal.claim(asking=True)
    assert found is not None
    assert found.turn.id == uncertain


async def test_a_suspect_that_is_to_be_cancelled_asks_too_unless_its_cards_are_discarded(journal: Journal) -> None:
    turn = await _suspect(journal, _charge())
    await journal.store.cancel(OWNER, turn)
    asking = await journal.claim(asking=True)
    assert asking is not None
    await asking.park([_what_became_of_it(asking)], despite_cancel=True)
    assert (await journal.turn(turn)).status is TurnStatus.PARKED
    await journal.store.cancel(OWNER, turn)
    assert (await journal.turn(turn)).status is TurnStatus.QUEUED
    assert await journal.claim(asking=True) is None
    assert await journal.claim(suspects=True) is None, "to be closed it need not be alone"
    assert await journal.claim() is not None


async def test_when_a_suspect_is_due_is_told_apart_from_other_delays(journal: Journal) -> None:
    attempt = await journal.running()
    await attempt.release(Outcome.RETRIED, not_before=journal.clock.now() + timedelta(seconds=5))
    assert await journal.store.next_due(["agent"], suspects=True) is None
    journal.clock.advance(5)
    again = await journal.claimed()
    later = journal.clock.now() + timedelta(seconds=7)
    await again.release(Outcome.RETRIED, not_before=later)
    assert await journal.store.next_due(["agent"], suspects=True) == later


async def test_a_claim_that_nobody_waits_for_any_more_goes_back_to_the_queue(journal: Journal) -> None:
    await journal.accept()
    claiming = asyncio.ensure_future(journal.claim())
    await asyncio.sleep(0)
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    attempt = await _claimed_in_the_end(journal)
    assert attempt.turn.attempts == 1


async def _claimed_in_the_end(journal: Journal) -> LeasedAttempt:
    while (attempt := await journal.claim()) is None:
        await asyncio.sleep(0)
    return attempt


# -- rewinds --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("outcome", "reason"), [(Outcome.RELEASED, "released"), (Outcome.RETRIED, "retried")])
async def test_a_turn_that_was_given_back_begins_with_a_rewind(journal: Journal, outcome: Outcome, reason: str) -> None:
    attempt = await journal.running()
    await intend(attempt, ToolCall("c-1", "tool", {"x": 1}, "m-1"), step=2)
    await attempt.release(outcome)
    again = await journal.claimed()
    assert again.rewind is not None
    assert again.rewind.payload == {"to_seq": again.turn.committed_seq, "reason": reason}
    assert [event.kind for event in await journal.store.events(again.turn.conversation)] == [EventKind.REWIND]


async def test_a_rewind_keeps_what_was_committed_with_a_checkpoint(journal: Journal) -> None:
    attempt = await journal.running()
    await work(attempt)
    kept = await journal.store.events(attempt.turn.conversation)
    await intend(attempt, ToolCall("c-1", "tool", {}, "m-1"), step=2)
    await journal.die(attempt)
    again = await journal.claimed()
    assert again.rewind is not None
    assert again.rewind.payload["reason"] == "recovered"
    retained = await journal.store.events(attempt.turn.conversation)
    assert [event for event in retained if event.kind is not EventKind.REWIND] == kept
    assert await journal.store.rewound_after(attempt.turn.id, kept[-1].seq) == again.rewind
    assert await journal.store.rewound_after(attempt.turn.id, again.rewind.seq) is None


async def test_a_decision_needs_no_rewind_and_a_crash_after_it_forgets_no_card(journal: Journal) -> None:
    attempt = await journal.running()
    await attempt.park([Question("i-1", "?")])
    await journal.answer(attempt.turn.conversation, {"i-1": 1}, "anna")
    again = await journal.claimed()
    assert again.rewind is None
    again.trace("node", "node", 1, "enter")
    await journal.die(again)
    assert (await journal.claimed()).rewind is not None
    told = [
        event.payload["state"]
        for event in await journal.store.events(attempt.turn.conversation)
        if event.kind is EventKind.APPROVAL
    ]
    assert told == ["opened", "decided"]


async def test_a_resume_rewinds_the_ending_away(journal: Journal) -> None:
    attempt = await journal.running()
    await attempt.finish(TurnStatus.FAILED, BROKEN)
    await journal.store.resume(OWNER, attempt.turn.conversation)
    again = await journal.claimed()
    assert again.rewind is not None
    assert again.rewind.payload["reason"] == "resumed"
    assert [event.kind for event in await journal.store.events(attempt.turn.conversation)] == [EventKind.REWIND]
    assert len([event for event in journal.heard.events if event.terminal]) == 1


async def test_a_resume_of_an_interrupted_turn_is_told_as_resumed(journal: Journal) -> None:
    attempt = await journal.running()
    await journal.crash()
    await journal.recover(attempt, manual=True)
    await journal.store.resume(OWNER, attempt.turn.conversation)
    again = await journal.claimed()
    assert again.rewind is not None
    assert again.rewind.payload["reason"] == "resumed"


# -- the fence ------------------------------------------------------------------------------------------------------------


async def test_an_old_attempt_writes_nothing_latches_and_is_told(journal: Journal) -> None:
    old = await journal.running()
    told: list[bool] = []
    old.on_latch(lambda: told.append(True))
    await _lose(journal, old)
    new = await journal.claimed()
    before = await journal.turn(old.turn.id)
    with pytest.raises(LeaseLost):
        await intend(old, ToolCall("c-1", "tool", {}, "m-1"))
    assert isinstance(old.latched, LeaseLost)
    assert told == [True]
    writes: list[Callable[[], Awaitable[None]]] = [
        lambda: old.finish(TurnStatus.COMPLETED),
        lambda: old.park([Question("i-1", "?")]),
        lambda: old.release(Outcome.RELEASED),
        lambda: work(old),
    ]
    for write in writes:
        with pytest.raises(LeaseLost):
            await write()
    assert await journal.turn(old.turn.id) == before
    assert {event.attempt for event in journal.heard.events} == {new.number}


async def _lose(journal: Journal, attempt: LeasedAttempt) -> None:
    """The lease is over while its owner, unaware, still lives."""
    journal.clock.advance(LEASE_SECONDS + 1)
    assert await journal.recover(attempt) is not None


@pytest.mark.parametrize("ending", ["finish", "park", "release"])
async def test_an_old_attempt_cannot_end_its_turn(journal: Journal, ending: str) -> None:
    old = await journal.running()
    await _lose(journal, old)
    new = await journal.claimed()
    endings = {
        "finish": lambda: old.finish(TurnStatus.COMPLETED),
        "park": lambda: old.park([Question("i-1", "?")]),
        "release": lambda: old.release(Outcome.RELEASED),
    }
    with pytest.raises(LeaseLost):
        await endings[ending]()
    assert (await journal.turn(old.turn.id)).status is TurnStatus.RUNNING
    await new.finish(TurnStatus.COMPLETED)


async def test_an_old_attempts_checkpoints_are_refused(journal: Journal) -> None:
    old = await journal.running()
    await _lose(journal, old)
    await journal.claimed()
    with pytest.raises(LeaseLost):
        await work(old)
    thread: RunnableConfig = {"configurable": {"thread_id": old.turn.conversation}}
    assert await journal.store.reader().aget_tuple(thread) is None


async def test_what_was_enqueued_behind_a_refused_write_is_refused_too(journal: Journal) -> None:
    old = await journal.running()
    await _lose(journal, old)
    await journal.claimed()
    intents = [intend(old, ToolCall(f"c-{n}", "tool", {}, "m-1")) for n in range(3)]
    outcomes = await asyncio.gather(*intents, return_exceptions=True)
    assert all(isinstance(outcome, LeaseLost) for outcome in outcomes)


async def test_a_lease_is_renewed_from_another_thread_until_it_is_lost(journal: Journal) -> None:
    attempt = await journal.running()
    until = journal.clock.now() + timedelta(seconds=90)
    assert await asyncio.to_thread(attempt.renew, until)
    assert (await journal.turn(attempt.turn.id)).lease_expires_at == until
    journal.clock.advance(91)
    await journal.recover(attempt)
    assert not await asyncio.to_thread(attempt.renew, until)
    assert isinstance(attempt.latched, LeaseLost)


async def test_an_attempt_that_ended_is_not_renewed_and_not_latched(journal: Journal) -> None:
    attempt = await journal.running()
    await attempt.finish(TurnStatus.COMPLETED)
    assert not await asyncio.to_thread(attempt.renew, journal.clock.now())
    assert attempt.latched is None


async def test_nothing_is_written_after_the_end(journal: Journal) -> None:
    attempt = await journal.running()
    await attempt.finish(TurnStatus.COMPLETED)
    attempt.token("m", "late")
    attempt.trace("node", "node", 1, "leave")
    with pytest.raises(LeaseLost):
        await work(attempt)
    assert [event.kind for event in journal.heard.events] == [EventKind.END]


@pytest.mark.parametrize(
    ("status", "failure"),
    [(TurnStatus.COMPLETED, BROKEN), (TurnStatus.FAILED, None), (TurnStatus.PARKED, None)],
)
async def test_an_ending_that_makes_no_sense_is_refused_before_it_begins(
    journal: Journal, status: TurnStatus, failure: object
) -> None:
    attempt = await journal.running()
    with pytest.raises(ValueError, match="turn"):
        await attempt.finish(status, BROKEN if failure else None)
    await attempt.finish(TurnStatus.COMPLETED)


# -- counting -------------------------------------------------------------------------------------------------------------


async def test_a_planned_release_spends_no_attempt_and_a_retry_does(journal: Journal) -> None:
    attempt = await journal.running()
    await attempt.release(Outcome.RELEASED)
    turn = await journal.turn(attempt.turn.id)
    assert (turn.attempts, turn.attempts_without_progress) == (0, 0)
    await (await journal.claimed()).release(Outcome.RETRIED, error="try again")
    turn = await journal.turn(attempt.turn.id)
    assert (turn.attempts, turn.attempts_without_progress, turn.epoch) == (1, 1, 2)
    rows = await journal.store.attempts(OWNER, turn.id)
    assert [(row.number, row.outcome, row.error) for row in rows] == [
        (1, Outcome.RELEASED, None),
        (2, Outcome.RETRIED, "try again"),
    ]


async def test_a_committed_step_is_progress_and_drops_the_journals_copy_of_the_input(journal: Journal) -> None:
    attempt = await journal.running()
    await work(attempt, "one", "two")
    turn = await journal.turn(attempt.turn.id)
    assert (turn.input, turn.attempts_without_progress) == (None, 0)
    assert turn.supersteps == attempt.supersteps == 2
    assert attempt.progressed
    await attempt.finish(TurnStatus.COMPLETED)
    conversation = await journal.store.conversation(OWNER, turn.conversation)
    assert conversation.message_count == 3
    (row,) = await journal.store.attempts(OWNER, turn.id)
    assert (row.progressed, row.outcome) == (True, Outcome.COMPLETED)


async def test_an_intent_is_no_progress(journal: Journal) -> None:
    attempt = await journal.running()
    await intend(attempt, ToolCall("c-1", "tool", {}, "m-1"))
    turn = await journal.turn(attempt.turn.id)
    assert (turn.attempts_without_progress, turn.committed_seq) == (1, 0)
    assert not attempt.progressed


# -- recovery -------------------------------------------------------------------------------------------------------------


async def test_after_a_crash_every_running_turn_is_an_orphan_whatever_the_clock_says(journal: Journal) -> None:
    attempt = await journal.running()
    await journal.accept()
    journal.clock.jump(-3_600)
    await journal.crash()
    orphans = await journal.store.orphans(journal.clock.now(), [])
    assert [orphan.id for orphan in orphans] == [attempt.turn.id]


async def test_an_own_turn_is_an_orphan_once_its_lease_is_over_and_nobody_holds_it(journal: Journal) -> None:
    attempt = await journal.running()
    store, clock = journal.store, journal.clock
    assert await store.orphans(clock.now(), []) == []
    assert await journal.recover(attempt) is None
    clock.advance(LEASE_SECONDS + 1)
    assert await store.orphans(clock.now(), [attempt.turn.id]) == []
    assert [orphan.id for orphan in await store.orphans(clock.now(), [])] == [attempt.turn.id]


async def test_an_orphan_is_recovered_once(journal: Journal) -> None:
    attempt = await journal.running()
    await journal.crash()
    assert await journal.recover(attempt) is not None
    assert await journal.recover(attempt) is None
    await journal.claimed()
    assert await journal.recover(attempt) is None
    rows = await journal.store.attempts(OWNER, attempt.turn.id)
    assert [row.outcome for row in rows] == [Outcome.DIED, None]


async def test_redrives_wait_longer_and_end_after_three_attempts_without_progress(journal: Journal) -> None:
    attempt = await journal.running()
    waiting = await journal.accept(conversation=attempt.turn.conversation, when_busy="enqueue")
    assert (await journal.die(attempt)).status is TurnStatus.QUEUED
    attempt = await journal.claimed()
    assert (await journal.die(attempt)).status is TurnStatus.QUEUED
    assert (await journal.turn(attempt.turn.id)).not_before == journal.clock.now() + timedelta(seconds=1)
    journal.clock.advance(1)
    suspect = await journal.claim(suspects=True)
    assert suspect is not None
    assert (await journal.die(suspect)).status is TurnStatus.FAILED
    turn = await journal.turn(attempt.turn.id)
    assert turn.failure is not None
    assert (turn.failure.code, turn.failure.reason) == (FailureCode.ATTEMPTS_EXHAUSTED, "attempts_exhausted")
    assert journal.heard.events[-1].payload["code"] == "ATTEMPTS_EXHAUSTED"
    assert (await journal.turn(waiting.turn)).status is TurnStatus.QUEUED


async def test_progress_starts_the_count_again(journal: Journal) -> None:
    attempt = await journal.running()
    for _ in range(5):
        await step(attempt)
        assert (await journal.die(attempt)).status is TurnStatus.QUEUED
        attempt = await journal.claimed()


async def test_all_attempts_together_are_capped_and_a_resume_does_not_reset_that(journal: Journal) -> None:
    attempt = await journal.running()
    for _ in range(Limits().total_attempts - 1):
        await step(attempt)
        await attempt.release(Outcome.RETRIED)
        attempt = await journal.claimed()
    assert (await journal.die(attempt)).status is TurnStatus.FAILED
    failure = (await journal.turn(attempt.turn.id)).failure
    assert failure is not None
    assert failure.reason == "attempt_cap"
    await journal.store.resume(OWNER, attempt.turn.conversation)
    assert (await journal.die(await journal.claimed())).status is TurnStatus.FAILED


async def test_a_manual_agents_orphan_is_interrupted(journal: Journal) -> None:
    attempt = await journal.running()
    await journal.crash()
    recovered = await journal.recover(attempt, manual=True)
    assert recovered is not None
    assert recovered.status is TurnStatus.INTERRUPTED
    event = journal.heard.events[-1]
    assert (event.kind, event.payload["status"], event.payload["code"]) == (
        EventKind.CHAT_ERROR,
        "interrupted",
        "OWNER_DIED",
    )


async def test_a_cancelled_orphan_is_queued_at_once_even_for_a_manual_agent(journal: Journal) -> None:
    attempt = await journal.running()
    await journal.store.cancel(OWNER, attempt.turn.id)
    await journal.crash()
    recovered = await journal.recover(attempt, manual=True)
    assert recovered is not None
    assert recovered.status is TurnStatus.QUEUED
    assert (await journal.claimed()).turn.cancel_requested_at is not None


async def test_a_cancel_of_a_turn_that_died_too_often_has_one_attempt_of_its_own(journal: Journal) -> None:
    turn = await _suspect(journal)
    last = await journal.claim(suspects=True)
    assert last is not None
    await journal.store.cancel(OWNER, turn)
    assert (await journal.die(last)).status is TurnStatus.QUEUED
    cancelling = await journal.claim()
    assert cancelling is not None
    assert cancelling.turn.cancel_requested_at is not None
    await cancelling.finish(TurnStatus.CANCELLED)
    assert (await journal.turn(turn)).status is TurnStatus.CANCELLED


async def test_a_turn_that_kills_the_process_while_it_is_cancelled_is_given_up(journal: Journal) -> None:
    turn = await _suspect(journal)
    await journal.store.cancel(OWNER, turn)
    for expected in (TurnStatus.QUEUED, TurnStatus.FAILED):
        attempt = await journal.claim()
        assert attempt is not None
        assert (await journal.die(attempt)).status is expected
    ended = await journal.turn(turn)
    assert ended.failure is not None
    assert ended.failure.reason == "attempts_exhausted"
    assert "only had to cancel it" in ended.failure.message


async def test_after_an_orphan_was_moved_on_its_attempt_numbers_nothing_any_more(journal: Journal) -> None:
    attempt = await journal.running()
    journal.clock.advance(LEASE_SECONDS + 1)
    recovered = await journal.recover(attempt, manual=True)
    assert recovered is not None
    await journal.store.resume(OWNER, attempt.turn.conversation)
    waiting = await journal.accept(conversation=attempt.turn.conversation, when_busy="enqueue")
    await journal.store.cancel(OWNER, waiting.turn)
    told = [event.seq for event in journal.heard.events]
    assert told == sorted(set(told))


# -- starts ---------------------------------------------------------------------------------------------------------------


async def test_starts_that_did_not_end_cleanly_are_counted(journal: Journal) -> None:
    since = journal.clock.now()
    assert await journal.store.unclean_boots(since) == 0
    await journal.restart()
    assert await journal.store.unclean_boots(since) == 0
    await journal.crash()
    await journal.crash()
    assert await journal.store.unclean_boots(since) == 2
    journal.clock.advance(60)
    assert await journal.store.unclean_boots(journal.clock.now()) == 0


async def test_a_healthy_store_passes_its_own_check(journal: Journal) -> None:
    await journal.store.check()
    numbers = await journal.store.statistics()
    assert numbers["turns_queued"] == 0
    await journal.accept()
    journal.clock.advance(7)
    numbers = await journal.store.statistics()
    assert (numbers["turns_queued"], numbers["oldest_queued_seconds"]) == (1, 7)


async def test_a_question_that_an_ending_closed_is_opened_again_when_the_resumed_turn_meets_it(
    journal: Journal,
) -> None:
    attempt = await journal.running()
    await attempt.park([Question("i-1", "what?")])
    await journal.store.cancel(OWNER, attempt.turn.id)
    await (await journal.claimed()).finish(TurnStatus.FAILED, BROKEN)
    await journal.store.resume(OWNER, attempt.turn.conversation)
    await (await journal.claimed()).park([Question("i-1", "what?")])
    (card,) = await journal.store.cards(OWNER, attempt.turn.id)
    assert card.state is CardState.OPENED
    accepted = await journal.answer(attempt.turn.conversation, {"i-1": "yes"}, "anna")
    assert accepted.status is TurnStatus.QUEUED
