"""The tool-call ledger and what a turn spends, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.config import get_config
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send

from perdure.effects import EffectClass
from perdure.errors import LeaseLost, NotFound
from perdure.events import EventKind
from perdure.ledger import CallState, ToolCall
from perdure.store.base import LeasedAttempt, StoredCall, StoredResult
from perdure.turns import Outcome, Spent, TurnStatus
from tests.conformance.journal import BROKEN, LEASE_SECONDS, OWNER, STRANGER, Journal, ask, intend, work

RESULT = StoredResult("msgpack", b"the result")


def call(number: int = 1, **more: Any) -> ToolCall:
    return ToolCall(f"c-{number}", "tool", more or {"x": number}, "m-1", server="bank", effect=EffectClass.ONCE)


async def ledger(journal: Journal, attempt: LeasedAttempt) -> Sequence[StoredCall]:
    await journal.store.check()  # what was enqueued before it is committed after it
    return await journal.store.ledger(attempt.turn.id)


# -- intent and result ----------------------------------------------------------------------------------------------------


async def test_an_intent_is_durable_before_the_call_starts_and_is_told(journal: Journal) -> None:
    attempt = await journal.running()
    key = await intend(attempt, call(), task="t-1", step=2)
    await journal.crash()
    (known,) = await journal.store.ledger(attempt.turn.id)
    assert (known.key, known.state, known.starts, known.call) == (key, CallState.STARTED, 1, call())
    assert (known.attempt, known.epoch, known.started_at) == (1, 1, journal.clock.now())
    assert (known.ended_at, known.status, known.result, known.error) == (None, None, None, None)
    (event,) = [event for event in journal.heard.events if event.kind is EventKind.TRACE]
    assert event.payload == {
        "node": "tools",
        "name": "tool",
        "step": 2,
        "phase": "call",
        "call_id": "c-1",
        "data": {
            "arguments": {"x": 1},
            "message_id": "m-1",
            "server": "bank",
            "effect_class": "once",
            "key": key,
            "starts": 1,
        },
    }


async def test_a_recorded_result_survives_without_any_checkpoint(journal: Journal) -> None:
    attempt = await journal.running()
    key = await intend(attempt, call())
    journal.clock.advance(3)
    attempt.record(key, RESULT, "error")
    await ledger(journal, attempt)
    await journal.crash()
    (known,) = await journal.store.ledger(attempt.turn.id)
    assert (known.state, known.result, known.status) == (CallState.RECORDED, RESULT, "error")
    assert known.ended_at is not None
    assert (known.ended_at - known.started_at).total_seconds() == 3


async def test_a_call_that_is_started_again_keeps_its_row_and_forgets_what_the_earlier_start_gave(
    journal: Journal,
) -> None:
    attempt = await journal.running()
    key = await intend(attempt, call())
    attempt.unknown(key, "the server went away")
    assert (await ledger(journal, attempt))[0].error == "the server went away"
    await journal.die(attempt)
    again = await journal.claimed()
    edited = ToolCall("c-1", "tool", {"x": 9}, "m-1", effect=EffectClass.KEYED)
    assert await intend(again, edited, task="t-2") == key
    (known,) = await journal.store.ledger(attempt.turn.id)
    assert (known.starts, known.attempt, known.epoch, known.error) == (2, 2, 2, None)
    assert (known.call.arguments, known.call.effect) == ({"x": 9}, EffectClass.KEYED)
    starts = [event.payload["data"]["starts"] for event in journal.heard.events if event.kind is EventKind.TRACE]
    assert starts == [1, 2]


async def test_calls_are_listed_in_the_order_of_their_first_start_without_results(journal: Journal) -> None:
    attempt = await journal.running()
    keys = [await intend(attempt, call(number)) for number in range(3)]
    attempt.record(keys[0], RESULT, "success")
    await intend(attempt, call(1))
    await ledger(journal, attempt)
    listed = await journal.store.calls(OWNER, attempt.turn.id)
    assert [(each.key, each.starts, each.result) for each in listed] == [
        (keys[0], 1, None),
        (keys[1], 2, None),
        (keys[2], 1, None),
    ]
    assert len(await journal.store.calls(None, attempt.turn.id)) == 3
    with pytest.raises(NotFound):
        await journal.store.calls(STRANGER, attempt.turn.id)


async def test_a_result_says_how_the_call_ended(journal: Journal) -> None:
    attempt = await journal.running()
    key = await intend(attempt, call())
    with pytest.raises(ValueError, match="success or error"):
        attempt.record(key, RESULT, "fine")


async def test_an_intent_that_is_cancelled_before_the_call_leaves_no_uncertain_call(journal: Journal) -> None:
    attempt = await journal.running()
    intending = asyncio.ensure_future(intend(attempt, call(1)))
    await asyncio.sleep(0)
    intending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await intending
    assert await ledger(journal, attempt) == ()
    key = await intend(attempt, call(1))
    assert [(each.key, each.starts) for each in await ledger(journal, attempt)] == [(key, 1)]


async def test_a_restart_that_is_cancelled_stays_uncertain(journal: Journal) -> None:
    attempt = await journal.running()
    await intend(attempt, call(1))
    intending = asyncio.ensure_future(intend(attempt, call(1)))
    await asyncio.sleep(0)
    intending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await intending
    assert [each.state for each in await ledger(journal, attempt)] == [CallState.STARTED]


# -- settling -------------------------------------------------------------------------------------------------------------


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


async def drive(attempt: LeasedAttempt, count: int = 1, *, fails: Sequence[str] = (), task: str | None = None) -> None:
    """A model step that asks for calls, and one task per call, whose result is recorded before its writes."""
    turn = attempt.turn
    asked = [{"name": "tool", "args": {"x": number}, "id": f"c-{number}"} for number in range(count)]

    async def model(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage("", id="m-1", tool_calls=asked)]}

    async def tools(one: dict[str, Any]) -> dict[str, Any]:
        made = ToolCall(one["id"], "tool", one["args"], "m-1")
        key = await intend(attempt, made, task=task or get_config()["configurable"]["__pregel_task_id"])
        attempt.record(key, RESULT, "success")
        if one["id"] in fails:
            raise RuntimeError("after the effect")
        return {"messages": [ToolMessage("done", tool_call_id=one["id"], id=f"r-{one['id']}")]}

    graph = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tools", tools)  # type: ignore[arg-type]
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda _: [Send("tools", each) for each in asked], ["tools"])
    graph.add_edge("tools", END)
    compiled = graph.compile(checkpointer=attempt.checkpointer)
    start = {"messages": [HumanMessage("hello", id=f"{turn.id}-input")]} if turn.input else None
    config = {"configurable": {"thread_id": turn.conversation}, "metadata": {"run_id": turn.id}}
    await compiled.ainvoke(start, config, durability="sync")  # type: ignore[call-overload]


async def test_the_writes_of_its_task_settle_a_call_and_drop_its_result(journal: Journal) -> None:
    attempt = await journal.running()
    await drive(attempt, 3)
    for known in await ledger(journal, attempt):
        assert (known.state, known.result, known.status) == (CallState.SETTLED, None, "success")
        assert known.ended_at is not None


async def test_a_task_that_failed_after_the_effect_keeps_its_result_until_its_writes_are_there(
    journal: Journal,
) -> None:
    attempt = await journal.running()
    with pytest.raises(RuntimeError, match="after the effect"):
        await drive(attempt, 1, fails=["c-0"])
    (known,) = await ledger(journal, attempt)
    assert (known.state, known.result) == (CallState.RECORDED, RESULT)
    await journal.die(attempt)
    again = await journal.claimed()
    assert (await journal.store.ledger(again.turn.id))[0].result == RESULT
    await drive_reusing(again)
    (known,) = await ledger(journal, again)
    assert (known.state, known.starts, known.result) == (CallState.SETTLED, 1, None)


async def drive_reusing(attempt: LeasedAttempt) -> None:
    """The same graph again; its task takes the recorded result and makes no call."""
    asked = [{"name": "tool", "args": {"x": 0}, "id": "c-0"}]

    async def tools(one: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [ToolMessage("done", tool_call_id=one["id"], id="r-0")]}

    graph = StateGraph(State)
    graph.add_node("model", lambda _: {"messages": []})
    graph.add_node("tools", tools)  # type: ignore[arg-type]
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda _: [Send("tools", each) for each in asked], ["tools"])
    graph.add_edge("tools", END)
    config = {"configurable": {"thread_id": attempt.turn.conversation}, "metadata": {"run_id": attempt.turn.id}}
    compiled = graph.compile(checkpointer=attempt.checkpointer)
    await compiled.ainvoke(None, config, durability="sync")  # type: ignore[call-overload]


async def test_the_end_of_the_turn_settles_what_no_task_did(journal: Journal) -> None:
    attempt = await journal.running()
    await drive(attempt, 2, task="a task of a graph inside")
    assert {known.state for known in await ledger(journal, attempt)} == {CallState.RECORDED}
    await attempt.finish(TurnStatus.CANCELLED)
    assert {(known.state, known.result) for known in await ledger(journal, attempt)} == {(CallState.SETTLED, None)}


async def test_a_failed_turn_keeps_its_results_for_its_resume_and_the_next_turns_end_drops_them(
    journal: Journal,
) -> None:
    attempt = await journal.running()
    key = await intend(attempt, call(1))
    uncertain = await intend(attempt, call(2))
    attempt.record(key, RESULT, "success")
    await attempt.finish(TurnStatus.FAILED, BROKEN)
    assert (await ledger(journal, attempt))[0].result == RESULT
    await journal.accept(conversation=attempt.turn.conversation)
    await (await journal.claimed()).finish(TurnStatus.COMPLETED)
    states = {known.key: (known.state, known.result) for known in await ledger(journal, attempt)}
    assert states == {key: (CallState.SETTLED, None), uncertain: (CallState.STARTED, None)}


async def test_a_large_result_is_not_stored_twice_for_long(journal: Journal) -> None:
    attempt = await journal.running()
    key = await intend(attempt, call())
    attempt.record(key, StoredResult("msgpack", bytes(10_000_000)), "success")
    (known,) = await ledger(journal, attempt)
    assert known.result is not None
    assert len(known.result.data) == 10_000_000
    before = (await journal.store.statistics())["database_bytes"]
    await attempt.finish(TurnStatus.COMPLETED)
    other = await journal.running()
    key = await intend(other, call())
    other.record(key, StoredResult("msgpack", bytes(10_000_000)), "success")
    await other.finish(TurnStatus.COMPLETED)
    await journal.restart()
    assert (await journal.store.statistics())["database_bytes"] < max(before, 10_000_000) * 1.5


async def test_the_writes_of_a_task_settle_its_own_calls_alone(journal: Journal) -> None:
    attempt = await journal.running()
    elsewhere = await intend(attempt, call(8), task="another task")
    attempt.record(elsewhere, RESULT, "success")
    started = await intend(attempt, call(9), task="another task")
    await drive(attempt, 1, task=None)
    states = {each.key: (each.state, each.result) for each in await ledger(journal, attempt)}
    assert states.pop(elsewhere) == (CallState.RECORDED, RESULT)
    assert states.pop(started) == (CallState.STARTED, None)
    assert list(states.values()) == [(CallState.SETTLED, None)]


async def test_a_call_that_another_task_makes_again_is_settled_by_that_one(journal: Journal) -> None:
    attempt = await journal.running()
    made = ToolCall("c-0", "tool", {"x": 0}, "m-1")
    key = await intend(attempt, made, task="the first task")
    attempt.record(key, RESULT, "success")
    await journal.die(attempt)
    again = await journal.claimed()
    with pytest.raises(RuntimeError, match="after the effect"):
        await drive(again, 1, fails=["c-0"], task="the first task")
    assert [each.state for each in await ledger(journal, again)] == [CallState.RECORDED]
    await journal.die(again)
    last = await journal.claimed()
    await drive(last, 1)
    (known,) = await ledger(journal, last)
    assert (known.key, known.state, known.result, known.starts) == (key, CallState.SETTLED, None, 3)


async def test_no_write_settles_a_call_that_was_recorded_for_another_task(journal: Journal) -> None:
    """Also over a restart, where what was recorded is read from the database."""
    attempt = await journal.running()
    key = await intend(attempt, call(8), task="another task")
    attempt.record(key, RESULT, "success")
    await journal.die(attempt)
    again = await journal.claimed()
    await drive(again, 2)
    states = {each.key: each.state for each in await ledger(journal, again)}
    assert states.pop(key) is CallState.RECORDED
    assert set(states.values()) == {CallState.SETTLED}


# -- the fence ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", ["intend", "record", "unknown", "count"])
async def test_an_attempt_that_lost_its_turn_changes_no_call(journal: Journal, write: str) -> None:
    old = await journal.running()
    key = await intend(old, call())
    journal.clock.advance(LEASE_SECONDS + 1)
    assert await journal.recover(old) is not None
    new = await journal.claimed()
    before = await journal.store.ledger(old.turn.id)
    if write == "record":
        old.record(key, RESULT, "success")
    elif write == "unknown":
        old.unknown(key, "late")
    else:
        with pytest.raises(LeaseLost):
            await (intend(old, call(2)) if write == "intend" else old.count_model_call(durable=True))
    assert await ledger(journal, old) == before
    assert isinstance(old.latched, LeaseLost)
    assert (await journal.turn(old.turn.id)).spent == Spent(tool_calls=1, seconds=0.0)
    await new.finish(TurnStatus.COMPLETED)
    with pytest.raises(LeaseLost):
        new.record(key, RESULT, "success")


@pytest.mark.parametrize("told", ["before", "after"])
async def test_a_result_that_comes_after_the_lease_was_lost_is_nobodys(journal: Journal, told: str) -> None:
    """Whether or not the attempt knows already that it lost its turn, and whatever the new owner made of the call."""
    old = await journal.running()
    key = await intend(old, call(), task="t-1")
    journal.clock.advance(LEASE_SECONDS + 1)
    assert await journal.recover(old) is not None
    new = await journal.claimed()
    await intend(new, call(), task="t-2")
    new.record(key, StoredResult("msgpack", b"of the new owner"), "error")
    before = await ledger(journal, new)
    if told == "before":
        assert not await asyncio.to_thread(old.renew, journal.clock.now())
        with pytest.raises(LeaseLost):
            old.record(key, RESULT, "success")
    else:
        old.record(key, RESULT, "success")
    assert await ledger(journal, new) == before
    assert (before[0].result, before[0].status) == (StoredResult("msgpack", b"of the new owner"), "error")
    assert isinstance(old.latched, LeaseLost)
    assert new.latched is None


async def test_a_record_of_a_call_nobody_started_latches(journal: Journal) -> None:
    attempt = await journal.running()
    attempt.record("nothing", RESULT, "success")
    await journal.store.check()
    assert isinstance(attempt.latched, LeaseLost)


# -- what a turn spends ---------------------------------------------------------------------------------------------------


async def test_calls_of_models_and_tools_are_counted_over_all_attempts(journal: Journal) -> None:
    attempt = await journal.running()
    await attempt.count_model_call(durable=True)
    await attempt.count_model_call(durable=False)
    assert attempt.spent.model_calls == 2
    assert (await journal.turn(attempt.turn.id)).spent.model_calls == 1, "the other goes with the next commit"
    await intend(attempt, call(1))
    await intend(attempt, call(2))
    assert attempt.spent == Spent(model_calls=2, tool_calls=2)
    await journal.die(attempt)
    again = await journal.claimed()
    assert again.turn.spent == again.spent == Spent(model_calls=2, tool_calls=2)
    await intend(again, call(2))
    assert again.spent.tool_calls == 2, "it is the same call"
    await intend(again, call(3))
    await again.count_model_call(durable=False)
    await again.release(Outcome.RELEASED)
    assert (await journal.turn(attempt.turn.id)).spent == Spent(model_calls=3, tool_calls=3)


async def test_the_same_call_in_a_row_is_counted_over_all_attempts(journal: Journal) -> None:
    attempt = await journal.running()
    same = [ToolCall(f"c-{number}", "tool", {"x": 1}, "m-1") for number in range(4)]
    await intend(attempt, same[0])
    await intend(attempt, same[1])
    assert attempt.repeats == (same[0].likeness, 2)
    await journal.die(attempt)
    again = await journal.claimed()
    assert again.repeats == (same[0].likeness, 2)
    await intend(again, same[1])
    assert again.repeats == (same[0].likeness, 2), "one more start of a known call is no other call"
    await intend(again, same[2])
    assert again.repeats == (same[0].likeness, 3)
    await intend(again, call(7))
    await intend(again, same[3])
    assert again.repeats == (same[0].likeness, 1)


async def test_tokens_count_with_the_replies_that_used_them(journal: Journal) -> None:
    attempt = await journal.running()
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}

    async def node(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage("hi", id="m-1", usage_metadata=usage)]}

    graph = StateGraph(State).add_node("node", node).add_edge(START, "node").compile(checkpointer=attempt.checkpointer)
    config = {"configurable": {"thread_id": attempt.turn.conversation}, "metadata": {"run_id": attempt.turn.id}}
    start = {"messages": [HumanMessage("hello", id="h-1")]}
    await graph.ainvoke(start, config, durability="sync")  # type: ignore[call-overload]
    assert attempt.spent.tokens == 15
    assert (await journal.turn(attempt.turn.id)).spent.tokens == 15


async def test_time_is_what_attempts_worked_whatever_the_wall_clock_says(journal: Journal) -> None:
    attempt = await journal.running()
    journal.clock.advance(10)
    journal.clock.jump(3_600)
    assert attempt.spent.seconds == 0
    await attempt.park([ask()])
    journal.clock.advance(500)
    await journal.answer(attempt.turn.conversation, {"i-1": 1})
    journal.clock.advance(7)
    again = await journal.claimed()
    assert again.spent.seconds == 10
    journal.clock.advance(2)
    await again.release(Outcome.RETRIED)
    assert (await journal.turn(attempt.turn.id)).spent.seconds == 12


async def test_a_dead_attempt_worked_until_its_last_renewal(journal: Journal) -> None:
    attempt = await journal.running()
    journal.clock.advance(10)
    assert await asyncio.to_thread(attempt.renew, journal.clock.now())
    journal.clock.advance(100)
    await journal.die(attempt)
    again = await journal.claimed()
    assert again.spent.seconds == 10
    journal.clock.advance(100)
    await journal.die(again)
    assert (await journal.turn(attempt.turn.id)).spent.seconds == 10, "it never renewed"


async def test_a_resume_grants_fresh_budgets(journal: Journal) -> None:
    attempt = await journal.running()
    await work(attempt)
    await attempt.count_model_call(durable=True)
    await intend(attempt, call(1))
    journal.clock.advance(5)
    await attempt.finish(TurnStatus.FAILED, BROKEN)
    assert (await journal.turn(attempt.turn.id)).spent == Spent(model_calls=1, tool_calls=1, seconds=5.0)
    await journal.store.resume(OWNER, attempt.turn.conversation)
    again = await journal.claimed()
    assert (again.spent, again.repeats[1]) == (Spent(), 0)
    await intend(again, call(2))
    await again.count_model_call(durable=True)
    assert (await journal.turn(attempt.turn.id)).spent == again.spent == Spent(model_calls=1, tool_calls=1)


# -- numbers --------------------------------------------------------------------------------------------------------------


async def test_the_metrics_tell_what_waits_for_people_and_what_is_under_way(journal: Journal) -> None:
    attempt = await journal.running()
    keys = [await intend(attempt, call(number)) for number in range(3)]
    attempt.record(keys[0], RESULT, "success")
    other = await journal.parked(ask("i-1"))
    journal.clock.advance(90)
    await journal.parked(ask("i-1"), ask("i-2"))
    await journal.store.check()
    numbers = await journal.store.statistics()
    assert (numbers["tool_calls_started"], numbers["tool_calls_recorded"]) == (2, 1)
    assert (numbers["open_cards"], numbers["oldest_open_card_seconds"]) == (3, 90)
    await journal.store.cancel(OWNER, other.turn.id)
    numbers = await journal.store.statistics()
    assert (numbers["open_cards"], numbers["oldest_open_card_seconds"]) == (2, 0)
