"""What a leased attempt promises when a write fails on this store: everything after it is refused, nothing is told."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from perdure.errors import LeaseLost, StorageFull
from perdure.events import EventKind
from perdure.ledger import ToolCall
from perdure.store.sqlite.attempt import SQLiteAttempt
from perdure.store.sqlite.authority import StepPlan
from perdure.store.sqlite.store import SQLiteStore
from perdure.turns import Limits, Outcome, TurnStatus
from tests.conformance.conftest import sqlite_journal
from tests.conformance.journal import OWNER, Journal, intend, work

RESULT = {"node": "tools", "name": "tool", "step": 1, "phase": "result"}


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = sqlite_journal(tmp_path, Limits())
    await journal.start()
    yield journal
    await journal.store.close()


async def running(journal: Journal) -> SQLiteAttempt:
    attempt = await journal.running()
    assert isinstance(attempt, SQLiteAttempt)
    return attempt


def nothing(connection: apsw.Connection) -> tuple[()]:
    return ()


def broken(connection: apsw.Connection) -> tuple[()]:
    raise RuntimeError("the write broke")


def full(connection: apsw.Connection) -> tuple[()]:
    raise StorageFull


async def test_a_step_is_one_transaction_with_its_events_and_the_journals_position(journal: Journal) -> None:
    attempt = await running(journal)
    attempt.trace("tools", "tools", 1, "enter")
    plan = StepPlan(
        traces=[RESULT],
        progress=True,
        supersteps=1,
        input_stored=True,
        message_count=2,
        usage={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
    )
    await attempt.submit(plan, nothing)
    await attempt.submit(StepPlan(usage={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}), nothing)
    turn = await journal.turn(attempt.turn.id)
    assert (turn.committed_seq, turn.supersteps, turn.input, turn.attempts_without_progress) == (2, 1, None, 0)
    assert turn.usage == {"input_tokens": 4, "output_tokens": 5, "total_tokens": 9}
    assert (await journal.store.conversation(OWNER, turn.conversation)).message_count == 2
    assert [event.payload["phase"] for event in journal.heard.events] == ["enter", "result"]


async def test_a_removed_message_is_told_without_stored_bytes(journal: Journal) -> None:
    attempt = await running(journal)
    removed = {"id": "m-1", "status": "removed"}
    await attempt.submit(StepPlan(messages=[removed]), lambda connection: [None])
    (event,) = await journal.store.events(attempt.turn.conversation)
    assert event.payload == {"message": removed}
    assert [event] == journal.heard.events


async def test_what_is_already_enqueued_behind_a_write_that_breaks_is_refused(journal: Journal) -> None:
    """LangGraph enqueues the next checkpoint without looking at the writes before it."""
    attempt = await running(journal)
    told: list[str] = []
    attempt.on_latch(lambda: told.append("latched"))
    first = attempt.submit(StepPlan(traces=[RESULT], progress=True), broken)
    second = attempt.submit(StepPlan(traces=[RESULT], progress=True), nothing)
    attempt.token("m", "behind both")
    outcomes = await asyncio.gather(first, second, return_exceptions=True)
    assert isinstance(outcomes[0], RuntimeError)
    assert isinstance(outcomes[1], LeaseLost)
    assert isinstance(attempt.latched, RuntimeError)
    assert told == ["latched"]
    assert journal.heard.events == []
    assert (await journal.turn(attempt.turn.id)).attempts_without_progress == 1
    with pytest.raises(LeaseLost, match="the write broke"):
        attempt.submit(StepPlan(), nothing)
    attempt.on_latch(lambda: told.append("late"))
    await asyncio.sleep(0)
    assert told == ["latched", "late"]


async def test_a_write_that_returns_too_few_items_undoes_itself(journal: Journal) -> None:
    attempt = await running(journal)
    with pytest.raises(ValueError, match="shorter"):
        await attempt.submit(StepPlan(messages=[{"id": "m-1", "status": "removed"}]), nothing)
    assert await journal.store.events(attempt.turn.conversation) == []


async def test_an_end_told_beside_a_latched_attempt_keeps_the_order_of_seqs(journal: Journal) -> None:
    attempt = await running(journal)
    waiting = await journal.accept(conversation=attempt.turn.conversation, when_busy="enqueue")
    attempt.token("m", "one")
    with pytest.raises(StorageFull):
        await attempt.submit(StepPlan(traces=[RESULT]), full)
    await journal.store.cancel(OWNER, waiting.turn)
    cancelled = journal.heard.events[-1]
    assert (cancelled.turn, cancelled.kind) == (waiting.turn, EventKind.END)
    await attempt.give_up(not_before=journal.clock.now(), error="the disk is full")
    again = await journal.claimed()
    assert again.rewind is not None
    assert again.rewind.seq > cancelled.seq


async def test_an_end_lent_before_the_latch_is_still_told(journal: Journal) -> None:
    attempt = await running(journal)
    waiting = await journal.accept(conversation=attempt.turn.conversation, when_busy="enqueue")
    failing = attempt.submit(StepPlan(traces=[RESULT]), broken)
    cancelled, _ = await asyncio.gather(journal.store.cancel(OWNER, waiting.turn), failing, return_exceptions=True)
    assert not isinstance(cancelled, BaseException)
    assert cancelled.status is TurnStatus.CANCELLED
    await asyncio.sleep(0)
    assert [event.turn for event in journal.heard.events] == [waiting.turn]


async def test_a_look_at_an_empty_queue_commits_nothing(journal: Journal) -> None:
    assert isinstance(journal.store, SQLiteStore)
    await running(journal)
    commits = journal.store._writer.counts.commits
    assert await journal.claim() is None
    assert journal.store._writer.counts.commits == commits


async def test_a_read_that_is_offered_is_given_out_again_once_and_never_after_a_write(journal: Journal) -> None:
    attempt = await running(journal)
    await work(attempt, "good morning")
    read = attempt.checkpointer.aget_tuple
    config: RunnableConfig = {"configurable": {"thread_id": attempt.turn.conversation}}
    first, second = await read(config), await read(config)
    assert first is not None
    assert second is not None
    assert second is not first
    attempt.reuse_read()
    assert await read(config) is second
    third = await read(config)
    assert third is not None
    assert third is not second
    assert all(map(operator.is_not, _messages(third), _messages(second)))
    attempt.reuse_read()
    await attempt.checkpointer.aput_writes(third.config, [("messages", [])], "task")
    fourth = await read(config)
    assert fourth is not None
    assert fourth is not third
    assert fourth.pending_writes


def _messages(found: CheckpointTuple) -> list[Any]:
    messages: list[Any] = found.checkpoint["channel_values"]["messages"]
    return messages


async def test_a_call_that_was_given_up_before_it_was_made_is_counted_by_no_limit(journal: Journal) -> None:
    attempt = await running(journal)
    charge, look = ToolCall("c-1", "charge", {}, "m-1"), ToolCall("c-2", "look", {}, "m-1")
    await intend(attempt, charge)
    before = attempt.spent, attempt.repeats
    starting = asyncio.create_task(intend(attempt, look))
    while attempt.spent == before[0]:
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert (attempt.spent, attempt.repeats) == before
    await attempt.release(Outcome.RELEASED)
    again = await running_again(journal)
    assert (again.spent, again.repeats) == before
    assert [call.call.id for call in await journal.store.ledger(again.turn.id)] == ["c-1"]


async def test_of_like_calls_that_start_at_once_the_one_given_up_is_taken_out_of_the_count(journal: Journal) -> None:
    attempt = await running(journal)
    one, two = (ToolCall(f"c-{number}", "look", {}, "m-1") for number in (1, 2))
    starting, other = (asyncio.create_task(intend(attempt, call)) for call in (one, two))
    while attempt.spent.tool_calls < 2:
        await asyncio.sleep(0)
    starting.cancel()
    await other
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert attempt.spent.tool_calls == 1
    assert attempt.repeats[1] == 1
    await attempt.release(Outcome.RELEASED)
    again = await running_again(journal)
    assert (again.spent.tool_calls, again.repeats) == (1, attempt.repeats)


async def running_again(journal: Journal) -> SQLiteAttempt:
    attempt = await journal.claimed()
    assert isinstance(attempt, SQLiteAttempt)
    return attempt
