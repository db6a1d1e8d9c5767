"""What people do to turns, on every store: accept, resume, answer, cancel, read, delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from perdure.errors import (
    BadRequest,
    CardDecided,
    IdempotencyConflict,
    NotFound,
    TurnInProgress,
    TurnNotResumable,
)
from perdure.events import EventKind
from perdure.store.base import Question, Store
from perdure.turns import CardState, DecisionKind, Outcome, RequestKey, TurnStatus, Verdict
from tests.conformance.journal import BROKEN, OWNER, STRANGER, Journal, work

# -- accept ---------------------------------------------------------------------------------------------------------------


async def test_an_accepted_message_is_there_after_a_crash(journal: Journal) -> None:
    accepted = await journal.accept("what is the time?")
    await journal.crash()
    turn = await journal.turn(accepted.turn)
    assert (turn.status, turn.input) == (TurnStatus.QUEUED, {"message": "what is the time?"})
    conversation = await journal.store.conversation(OWNER, accepted.conversation)
    assert (conversation.title, conversation.status) == ("what is the time?", TurnStatus.QUEUED)


async def test_a_message_with_nul_and_lone_surrogates_is_kept_as_it_is(journal: Journal) -> None:
    accepted = await journal.accept("a\x00b\ud800c")
    assert (await journal.turn(accepted.turn)).input == {"message": "a\x00b\ud800c"}


async def test_an_accept_wakes_the_queue_and_the_lists(journal: Journal) -> None:
    await journal.accept()
    assert set(journal.heard.rings) == {"queue", "changes"}


async def test_a_repeated_key_gives_the_same_turn(journal: Journal) -> None:
    first = await journal.accept(key="k", digest="d")
    again = await journal.accept(key="k", digest="d")
    assert (again.turn, again.conversation, again.repeated) == (first.turn, first.conversation, True)
    assert len((await journal.store.turns(OWNER, limit=10)).items) == 1


async def test_a_repeated_key_answers_even_while_its_turn_is_busy(journal: Journal) -> None:
    first = await journal.accept()
    second = await journal.accept(conversation=first.conversation, when_busy="enqueue", key="k", digest="d")
    again = await journal.accept(conversation=first.conversation, key="k", digest="d")
    assert (again.turn, again.status) == (second.turn, TurnStatus.WAITING)


async def test_a_key_with_another_body_is_refused(journal: Journal) -> None:
    await journal.accept(key="k", digest="d")
    with pytest.raises(IdempotencyConflict):
        await journal.accept(key="k", digest="other")


async def test_a_key_belongs_to_its_owner(journal: Journal) -> None:
    first = await journal.accept(key="k", digest="d")
    other = await journal.accept(key="k", digest="e", owner=STRANGER)
    assert other.turn != first.turn


async def test_a_key_older_than_a_week_starts_a_new_turn(journal: Journal) -> None:
    first = await journal.accept(key="k", digest="d")
    journal.clock.advance(7 * 86_400 + 1)
    again = await journal.accept(key="k", digest="e")
    assert (again.repeated, again.turn == first.turn) == (False, False)


async def test_a_second_message_names_the_turn_in_progress(journal: Journal) -> None:
    first = await journal.accept()
    with pytest.raises(TurnInProgress) as refusal:
        await journal.accept(conversation=first.conversation)
    assert (refusal.value.conversation, refusal.value.turn) == (first.conversation, first.turn)


async def test_a_message_to_a_parked_turn_names_the_open_questions(journal: Journal) -> None:
    attempt = await journal.running()
    await attempt.park([Question("i-1", "really?")])
    (card,) = await journal.store.cards(attempt.turn.owner, attempt.turn.id)
    with pytest.raises(TurnInProgress, match=card.id) as refused:
        await journal.accept(conversation=attempt.turn.conversation)
    assert refused.value.details == {"pending": [card.id]}


async def test_waiting_turns_come_forward_in_the_order_of_acceptance(journal: Journal) -> None:
    attempt = await journal.running()
    thread = attempt.turn.conversation
    waiting = [await journal.accept(f"{n}", conversation=thread, when_busy="enqueue") for n in range(3)]
    assert {accepted.status for accepted in waiting} == {TurnStatus.WAITING}
    for accepted in waiting:
        await attempt.finish(TurnStatus.COMPLETED)
        attempt = await journal.claimed()
        assert attempt.turn.id == accepted.turn
        assert attempt.turn.first_seq == journal.heard.events[-1].seq + 1


async def test_a_conversation_of_another_agent_is_refused_with_its_name(journal: Journal) -> None:
    attempt = await journal.running()
    await attempt.finish(TurnStatus.COMPLETED)
    with pytest.raises(BadRequest, match="'agent'"):
        await journal.accept(conversation=attempt.turn.conversation, agent="other")


# -- resume ---------------------------------------------------------------------------------------------------------------


async def test_a_failed_turn_is_resumed_with_a_fresh_budget(journal: Journal) -> None:
    attempt = await journal.running()
    await work(attempt)
    await attempt.finish(TurnStatus.FAILED, BROKEN)
    resumed = await journal.store.resume(OWNER, attempt.turn.conversation)
    turn = await journal.turn(resumed.turn)
    assert (turn.status, turn.failure, turn.ended_at) == (TurnStatus.QUEUED, None, None)
    assert turn.supersteps > 0
    assert turn.budget_from == turn.supersteps


async def test_a_resume_repeated_with_its_key_re_opens_the_turn_once(journal: Journal) -> None:
    attempt = await journal.running()
    await attempt.finish(TurnStatus.FAILED, BROKEN)
    thread, key = attempt.turn.conversation, RequestKey("k", "d")
    assert await journal.store.repeated(OWNER, key) is None
    first = await journal.store.resume(OWNER, thread, key)
    again = await journal.store.resume(OWNER, thread, key)
    assert (again.turn, again.repeated) == (first.turn, True)
    assert await journal.store.repeated(OWNER, key) == again
    with pytest.raises(IdempotencyConflict):
        await journal.store.resume(OWNER, thread, RequestKey("k", "another body"))


async def test_a_turn_without_any_checkpoint_can_be_resumed(journal: Journal) -> None:
    attempt = await journal.running()
    await attempt.finish(TurnStatus.FAILED, BROKEN)
    assert (await journal.store.resume(OWNER, attempt.turn.conversation)).turn == attempt.turn.id


async def test_a_resume_forgets_an_old_wish_to_cancel(journal: Journal) -> None:
    attempt = await journal.running()
    await journal.store.cancel(OWNER, attempt.turn.id)
    await attempt.finish(TurnStatus.FAILED, BROKEN)
    await journal.store.resume(OWNER, attempt.turn.conversation)
    assert (await journal.claimed()).turn.cancel_requested_at is None


async def test_what_cannot_be_resumed_says_why(journal: Journal) -> None:
    attempt = await journal.running()
    thread = attempt.turn.conversation
    with pytest.raises(TurnNotResumable, match="running"):
        await journal.store.resume(OWNER, thread)
    await attempt.finish(TurnStatus.COMPLETED)
    with pytest.raises(TurnNotResumable, match="completed"):
        await journal.store.resume(OWNER, thread)


async def test_a_later_message_supersedes_a_failed_turn(journal: Journal) -> None:
    attempt = await journal.running()
    await attempt.finish(TurnStatus.FAILED, BROKEN)
    await journal.accept(conversation=attempt.turn.conversation)
    assert (await journal.turn(attempt.turn.id)).superseded


async def test_a_waiting_message_supersedes_once_it_comes_forward(journal: Journal) -> None:
    attempt = await journal.running()
    await journal.accept(conversation=attempt.turn.conversation, when_busy="enqueue")
    await attempt.finish(TurnStatus.FAILED, BROKEN)
    assert (await journal.turn(attempt.turn.id)).superseded


async def test_a_message_cancelled_while_it_waited_leaves_the_failed_turn_resumable(journal: Journal) -> None:
    attempt = await journal.running()
    waiting = await journal.accept(conversation=attempt.turn.conversation, when_busy="enqueue")
    await journal.store.cancel(OWNER, waiting.turn)
    await attempt.finish(TurnStatus.FAILED, BROKEN)
    assert (await journal.store.resume(OWNER, attempt.turn.conversation)).turn == attempt.turn.id


# -- answer ---------------------------------------------------------------------------------------------------------------


async def parked(journal: Journal, *interrupts: str) -> str:
    attempt = await journal.running()
    await attempt.park([Question(interrupt, {"ask": interrupt}) for interrupt in interrupts])
    return attempt.turn.conversation


async def test_the_turn_is_queued_when_the_last_card_is_decided(journal: Journal) -> None:
    thread = await parked(journal, "i-1", "i-2")
    assert (await journal.answer(thread, {"i-1": "yes"}, "anna")).status is TurnStatus.PARKED
    accepted = await journal.answer(thread, {"i-2": {"deep": [1]}}, "anna")
    assert accepted.status is TurnStatus.QUEUED
    assert await journal.answers(accepted.turn) == {"i-1": "yes", "i-2": {"deep": [1]}}


async def test_an_answer_repeated_with_its_key_counts_once(journal: Journal) -> None:
    thread = await parked(journal, "i-1")
    key = RequestKey("k", "d")
    first = await journal.answer(thread, {"i-1": "yes"}, "anna", key)
    again = await journal.answer(thread, {"i-1": "yes"}, "anna", key)
    assert (again.turn, again.repeated, first.repeated) == (first.turn, True, False)


async def test_the_first_decision_wins_and_the_loser_is_told_who_decided(journal: Journal) -> None:
    thread = await parked(journal, "i-1", "i-2")
    await journal.answer(thread, {"i-1": "yes"}, "anna")
    with pytest.raises(CardDecided, match="anna"):
        await journal.answer(thread, {"i-1": "no", "i-2": "no"}, "clara")
    turn = await journal.store.last_turn(OWNER, thread)
    assert turn is not None
    assert await journal.answers(turn.id) == {"i-1": "yes"}


async def test_a_late_decision_is_told_who_decided(journal: Journal) -> None:
    thread = await parked(journal, "i-1")
    await journal.answer(thread, {"i-1": "yes"}, "anna")
    with pytest.raises(CardDecided, match="anna"):
        await journal.answer(thread, {"i-1": "no"}, "clara")


@pytest.mark.parametrize("answers", [{}, {"unknown": 1}, {"i-1": 1, "unknown": 1}])
async def test_an_unknown_question_is_refused_with_the_open_ones(journal: Journal, answers: dict[str, int]) -> None:
    thread = await parked(journal, "i-1", "i-2")
    with pytest.raises(BadRequest, match="i-1, i-2"):
        await journal.answer(thread, answers, "anna")
    turn = await journal.store.last_turn(OWNER, thread)
    assert turn is not None
    assert await journal.answers(turn.id) == {}


async def test_an_answer_to_nothing_is_refused(journal: Journal) -> None:
    attempt = await journal.running()
    with pytest.raises(BadRequest, match="Nothing waits"):
        await journal.answer(attempt.turn.conversation, {"i-1": "yes"}, "anna")


async def test_a_decision_is_told_as_an_event(journal: Journal) -> None:
    thread = await parked(journal, "i-1")
    await journal.answer(thread, {"i-1": "yes"}, "anna")
    states = [event.payload["state"] for event in journal.heard.events if event.kind is EventKind.APPROVAL]
    assert states == ["opened", "decided"]
    assert journal.heard.events[-1].payload["decided_by"] == "anna"


# -- cancel ---------------------------------------------------------------------------------------------------------------


async def test_a_waiting_turn_is_cancelled_at_once_with_its_end_in_the_order_of_seqs(journal: Journal) -> None:
    attempt = await journal.running()
    attempt.trace("node", "node", 1, "enter")
    waiting = await journal.accept(conversation=attempt.turn.conversation, when_busy="enqueue")
    cancelled = await journal.store.cancel(OWNER, waiting.turn)
    assert cancelled.status is TurnStatus.CANCELLED
    attempt.token("m", "later")
    await attempt.finish(TurnStatus.COMPLETED)
    seqs = [event.seq for event in journal.heard.events]
    assert seqs == sorted(seqs)
    assert [event.kind for event in journal.heard.of(waiting.turn)] == [EventKind.END]


async def test_a_waiting_turn_behind_a_dead_owner_is_cancelled_too(journal: Journal) -> None:
    attempt = await journal.running()
    waiting = await journal.accept(conversation=attempt.turn.conversation, when_busy="enqueue")
    await journal.crash()
    assert (await journal.store.cancel(OWNER, waiting.turn)).status is TurnStatus.CANCELLED
    assert [event.kind for event in journal.heard.of(waiting.turn)] == [EventKind.END]


async def test_a_parked_turn_goes_to_the_queue_to_be_cancelled(journal: Journal) -> None:
    thread = await parked(journal, "i-1")
    turn = await journal.store.last_turn(OWNER, thread)
    assert turn is not None
    cancelled = await journal.store.cancel(OWNER, turn.id)
    assert (cancelled.status, cancelled.cancel_requested_at) == (TurnStatus.QUEUED, journal.clock.now())
    attempt = await journal.claimed()
    await attempt.finish(TurnStatus.CANCELLED)
    (card,) = await journal.store.cards(OWNER, turn.id)
    assert card.state is CardState.CLOSED
    kinds = [event.kind for event in journal.heard.of(turn.id)]
    assert kinds == [EventKind.APPROVAL, EventKind.APPROVAL, EventKind.END]


async def test_a_running_turn_learns_of_the_cancel(journal: Journal) -> None:
    attempt = await journal.running()
    assert await journal.store.cancel_requested([attempt.turn.id]) == set()
    await journal.store.cancel(OWNER, attempt.turn.id)
    assert await journal.store.cancel_requested([attempt.turn.id, "nothing"]) == {attempt.turn.id}
    assert "cancel" in journal.heard.rings


async def test_a_turn_that_parks_after_the_cancel_does_not_wait_for_a_person(journal: Journal) -> None:
    attempt = await journal.running()
    await journal.store.cancel(OWNER, attempt.turn.id)
    await attempt.park([Question("i-1", "really?")])
    assert (await journal.claimed()).turn.id == attempt.turn.id


async def test_a_delayed_turn_is_cancelled_without_its_delay(journal: Journal) -> None:
    attempt = await journal.running()
    later = journal.clock.now().replace(year=2031)
    await attempt.release(Outcome.RETRIED, not_before=later)
    assert await journal.claim() is None
    await journal.store.cancel(OWNER, attempt.turn.id)
    assert (await journal.claimed()).turn.id == attempt.turn.id


async def test_cancelling_again_or_after_the_end_changes_nothing(journal: Journal) -> None:
    attempt = await journal.running()
    await journal.store.cancel(OWNER, attempt.turn.id)
    first = (await journal.turn(attempt.turn.id)).cancel_requested_at
    journal.clock.advance(5)
    assert (await journal.store.cancel(OWNER, attempt.turn.id)).cancel_requested_at == first
    await attempt.finish(TurnStatus.COMPLETED)
    assert (await journal.store.cancel(OWNER, attempt.turn.id)).status is TurnStatus.COMPLETED
    assert len([event for event in journal.heard.events if event.terminal]) == 1


# -- owners ---------------------------------------------------------------------------------------------------------------

Verb = Callable[[Store, str, str, str], Awaitable[object]]

OWNED: dict[str, Verb] = {
    "resume": lambda store, owner, conversation, turn: store.resume(owner, conversation),
    "answer": lambda store, owner, conversation, turn: store.answer(
        owner, conversation, {"i-1": Verdict(DecisionKind.ANSWER, value=1)}, owner
    ),
    "cancel": lambda store, owner, conversation, turn: store.cancel(owner, turn),
    "conversation": lambda store, owner, conversation, turn: store.conversation(owner, conversation),
    "rename": lambda store, owner, conversation, turn: store.rename(owner, conversation, "stolen"),
    "delete": lambda store, owner, conversation, turn: store.delete(owner, conversation),
    "turn": lambda store, owner, conversation, turn: store.turn(owner, turn),
    "last_turn": lambda store, owner, conversation, turn: store.last_turn(owner, conversation),
    "attempts": lambda store, owner, conversation, turn: store.attempts(owner, turn),
    "cards": lambda store, owner, conversation, turn: store.cards(owner, turn),
}


@pytest.mark.parametrize("verb", sorted(OWNED))
async def test_a_stranger_finds_nothing(journal: Journal, verb: str) -> None:
    thread = await parked(journal, "i-1")
    turn = await journal.store.last_turn(OWNER, thread)
    assert turn is not None
    with pytest.raises(NotFound):
        await OWNED[verb](journal.store, STRANGER, thread, turn.id)
    assert await journal.turn(turn.id) == turn
    assert (await journal.store.conversation(OWNER, thread)).title == "hello"


async def test_a_stranger_cannot_send_into_a_conversation(journal: Journal) -> None:
    first = await journal.accept()
    with pytest.raises(NotFound):
        await journal.accept(conversation=first.conversation, owner=STRANGER, when_busy="enqueue")


async def test_a_strangers_lists_are_empty(journal: Journal) -> None:
    accepted = await journal.accept()
    store = journal.store
    assert (await store.conversations(STRANGER, limit=10)).items == []
    assert (await store.turns(STRANGER, limit=10)).items == []
    assert (await store.turns(STRANGER, limit=10, conversation=accepted.conversation)).items == []
    assert await store.changes(STRANGER, 0, 10) == []


# -- lists ----------------------------------------------------------------------------------------------------------------


async def test_conversations_are_paged_newest_activity_first(journal: Journal) -> None:
    made = []
    for _ in range(5):
        made.append((await journal.accept()).conversation)
        journal.clock.advance(1)
    await journal.accept(conversation=made[0], when_busy="enqueue")
    expected = [made[0], *reversed(made[1:])]
    seen: list[str] = []
    cursor = None
    while True:
        page = await journal.store.conversations(OWNER, limit=2, cursor=cursor)
        seen += [conversation.id for conversation in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert seen == expected


async def test_turns_are_filtered_and_paged(journal: Journal) -> None:
    attempt = await journal.running()
    others = [(await journal.accept(agent="other")).turn for _ in range(3)]
    running = await journal.store.turns(OWNER, limit=10, status=TurnStatus.RUNNING)
    assert [turn.id for turn in running.items] == [attempt.turn.id]
    page = await journal.store.turns(OWNER, limit=2, agent="other")
    rest = await journal.store.turns(OWNER, limit=2, agent="other", cursor=page.next)
    assert [turn.id for turn in [*page.items, *rest.items]] == others[::-1]
    assert rest.next is None
    mine = await journal.store.turns(OWNER, limit=10, conversation=attempt.turn.conversation)
    assert [turn.id for turn in mine.items] == [attempt.turn.id]


@pytest.mark.parametrize("cursor", ["x", "e30", "WzFd", "W10", "WzFlNDAwLCAieCJd"])
async def test_a_cursor_that_is_not_ours_is_refused(journal: Journal, cursor: str) -> None:
    with pytest.raises(BadRequest):
        await journal.store.conversations(OWNER, limit=2, cursor=cursor)


async def test_every_change_of_status_is_in_the_summaries(journal: Journal) -> None:
    attempt = await journal.running()
    start = await journal.store.last_change(OWNER)
    await attempt.park([Question("i-1", "?")])
    await journal.answer(attempt.turn.conversation, {"i-1": 1}, "anna")
    await (await journal.claimed()).finish(TurnStatus.COMPLETED)
    await journal.store.rename(OWNER, attempt.turn.conversation, "a better name")
    changes = await journal.store.changes(OWNER, start, 100)
    assert [change.status for change in changes] == ["parked", "queued", "running", "completed", "updated"]
    assert [change.number for change in changes] == sorted({change.number for change in changes})
    assert changes[-1].detail["title"] == "a better name"


async def test_the_turn_to_watch_is_the_active_one_then_the_waiting_one_then_the_last(journal: Journal) -> None:
    attempt = await journal.running()
    thread = attempt.turn.conversation
    await journal.accept(conversation=thread, when_busy="enqueue")
    watched = await journal.store.last_turn(OWNER, thread)
    assert watched is not None
    assert watched.id == attempt.turn.id
    await attempt.finish(TurnStatus.COMPLETED)
    last = await journal.claimed()
    await last.finish(TurnStatus.COMPLETED)
    watched = await journal.store.last_turn(OWNER, thread)
    assert watched is not None
    assert watched.id == last.turn.id


# -- deleting -------------------------------------------------------------------------------------------------------------


async def test_a_conversation_with_a_turn_in_progress_is_not_deleted(journal: Journal) -> None:
    accepted = await journal.accept()
    with pytest.raises(TurnInProgress):
        await journal.store.delete(OWNER, accepted.conversation)


async def test_a_deleted_conversation_is_gone_and_its_thread_starts_empty(journal: Journal) -> None:
    attempt = await journal.running()
    await work(attempt)
    await attempt.finish(TurnStatus.COMPLETED)
    thread = attempt.turn.conversation
    await journal.store.delete(OWNER, thread)
    with pytest.raises(NotFound):
        await journal.store.conversation(OWNER, thread)
    with pytest.raises(NotFound):
        await journal.turn(attempt.turn.id)
    assert await journal.store.events(thread) == []
    assert await journal.store.reader().aget_tuple({"configurable": {"thread_id": thread}}) is None
    assert (await journal.store.changes(OWNER, 0, 100))[-1].status == "deleted"
