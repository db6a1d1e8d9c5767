"""What our design leans on in LangGraph and in the saver, rule by rule (DESIGN 4a): a new LangGraph must keep them."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import operator
import re
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import apsw
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint, writes_sort_key
from langgraph.checkpoint.base import id as checkpoint_ids
from langgraph.config import get_config
from langgraph.errors import GraphDrained, GraphInterrupt, GraphRecursionError
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.runtime import RunControl
from langgraph.types import Command, Interrupt, Send, interrupt
from pydantic import BaseModel

from perdure.engine.forgetting import asking_anew
from perdure.engine.hosting import bind
from perdure.engine.ledger import TASK_ID
from perdure.errors import LeaseLost
from perdure.store.sqlite.authority import StepPlan, StepWrite
from perdure.store.sqlite.checkpointer import Checkpointer
from perdure.turns import TurnStatus
from tests.conformance.journal import Journal, work
from tests.conformance.savers import Opened, Owner, opened

THREAD = "t"


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    steps: Annotated[list[str], operator.add]


class Killed(Exception):
    """The process died here."""


class Cut(Owner):
    """Dies at a write: nothing of it and of all later ones reaches the database."""

    def __init__(self, owner: Owner, at: int) -> None:
        super().__init__(owner._writer, str(owner.thread_id), str(owner.run_id))
        self._at = at
        self.submitted = 0

    def submit(self, plan: StepPlan, write: StepWrite) -> asyncio.Future[None]:
        self.submitted += 1
        if self.submitted > self._at:
            self.latched = self.latched or Killed()
        return super().submit(plan, write)


def agent(saver: Checkpointer, *, gated: bool = False, ran: list[str] | None = None) -> Any:
    """model ⇄ tools, one task per call: the built-in agent's shape."""
    ran = ran if ran is not None else []

    async def model(state: State) -> dict[str, Any]:
        asked = next(m for m in reversed(state["messages"]) if m.type == "human")
        if state["messages"][-1].type == "human" and "tools" in str(asked.content):
            calls: list[Any] = [{"name": name, "args": {}, "id": f"{asked.id}-{name}"} for name in ("a", "b")]
            return {"messages": [AIMessage("", id=f"{asked.id}-calls", tool_calls=calls)]}
        return {"messages": [AIMessage(f"answer {asked.content}", id=f"{asked.id}-answer")]}

    async def tool(call: dict[str, Any]) -> dict[str, Any]:
        if gated:
            interrupt({"tool": call["name"]})
        ran.append(call["name"])
        return {
            "messages": [ToolMessage("done", name=call["name"], tool_call_id=call["id"], id=f"{call['id']}-result")]
        }

    def route(state: State) -> Any:
        last = state["messages"][-1]
        return [Send("tools", call) for call in getattr(last, "tool_calls", [])] or END

    graph: Any = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tools", tool)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", route, ["tools", END])
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


def config(run_id: str | None, **more: Any) -> Any:
    named: dict[str, Any] = {"configurable": {"thread_id": THREAD}, **more}
    return named | ({"metadata": {"run_id": run_id}} if run_id else {})


def question(text: str, message_id: str) -> Any:
    return {"messages": [HumanMessage(text, id=message_id)]}


async def state_of(database: Opened) -> Any:
    return await agent(database.saver).aget_state(config(None))


def texts(state: Any) -> list[Any]:
    return [(message.id, message.content) for message in state.values.get("messages", [])]


def finished(state: Any, run_id: str) -> bool:
    """DESIGN 4a.3."""
    return bool(state.metadata["run_id"] == run_id and state.metadata["source"] == "loop" and state.tasks == ())


# -- 1: the same input again is idempotent ----------------------------------------------------------------------------


async def writes_of(tmp_path: Path, text: str) -> int:
    async with opened(tmp_path / "count.db") as database:
        cut = Cut(database.owner(THREAD, "one"), 1_000)
        await agent(database.saver_of(cut)).ainvoke(question(text, "h"), config("one"), durability="sync")
        return cut.submitted


@pytest.mark.parametrize("text", ["hello", "with tools"])
async def test_an_input_that_is_sent_again_after_any_cut_is_answered_once(tmp_path: Path, text: str) -> None:
    total = await writes_of(tmp_path, text)
    assert total >= 5
    looked_wrong = 0
    for cut_at in range(total + 1):
        async with opened(tmp_path / f"{cut_at}.db") as database:
            await agent(database.saver).ainvoke(question("before", "h0"), config("zero"), durability="sync")
            cut = Cut(database.owner(THREAD, "one"), cut_at)
            with _dies():
                await agent(database.saver_of(cut)).ainvoke(question(text, "h1"), config("one"), durability="sync")
            database.shared.forget(THREAD)
            head = await state_of(database)
            complete = texts(head)[-1:] == [("h1-answer", f"answer {text}")] and head.tasks == ()
            assert finished(head, "one") == complete
            looked_wrong += head.next == () and not finished(head, "one")
            again = database.saver_of(database.owner(THREAD, "one"))
            await agent(again).ainvoke(question(text, "h1"), config("one"), durability="sync")
            ids = [message_id for message_id, _ in texts(await state_of(database))]
            assert len(ids) == len(set(ids))
            assert (ids.count("h1"), ids.count("h1-answer")) == (1, 1)
            assert finished(await state_of(database), "one")
    assert looked_wrong > 0, "`next` alone would have done: the rule is not needed any more"


async def test_a_write_must_name_its_turn_and_its_thread(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        for run_id, thread in ((None, THREAD), ("another", THREAD), ("one", "another")):
            owner = database.owner(THREAD, "one")
            named = config(run_id) | {"configurable": {"thread_id": thread}}
            with pytest.raises(LeaseLost, match=r"turn|thread"):
                await agent(database.saver_of(owner)).ainvoke(question("hello", "h"), named, durability="sync")
            await owner.settle()
            assert owner.latched is not None
        assert await database.count("checkpoints") == 0
        assert await database.count("writes") == 0


async def test_writes_without_a_run_id_pass_only_on_top_of_the_turns_own_checkpoint(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        await agent(database.saver).ainvoke(question("hello", "h"), config("zero"), durability="sync")
        saver = database.saver_of(database.owner(THREAD, "one"))
        graph = agent(saver)
        foreign = (await graph.aget_state(config(None))).config
        with pytest.raises(LeaseLost):
            await saver.aput_writes(foreign, [("steps", ["x"])], "task")
        saver = database.saver_of(database.owner(THREAD, "one"))
        own = await agent(saver).aupdate_state(config("one"), {"steps": ["y"]}, as_node="model")
        await saver.aput_writes(own, [("steps", ["z"])], "task")
        assert await database.rows("SELECT count(*) FROM writes WHERE task_id = 'task'") == [(1,)]


# -- 4: decisions by id -----------------------------------------------------------------------------------------------


async def test_decisions_by_id_survive_a_cut_and_are_sent_again_as_one_map(tmp_path: Path) -> None:
    for cut_at in range(6):
        async with opened(tmp_path / f"{cut_at}.db") as database:
            ran: list[str] = []
            parked = agent(database.saver_of(database.owner(THREAD, "one")), gated=True)
            await parked.ainvoke(question("with tools", "h"), config("one"), durability="sync")
            state = await parked.aget_state(config("one"))
            assert sorted(each.value["tool"] for each in state.interrupts) == ["a", "b"]
            cut = agent(database.saver_of(Cut(database.owner(THREAD, "one"), cut_at)), gated=True)
            with _dies():
                answers: Any = Command(resume={each.id: "yes" for each in state.interrupts})
                await cut.ainvoke(answers, config("one"), durability="sync")
            database.shared.forget(THREAD)
            final = agent(database.saver_of(database.owner(THREAD, "one")), gated=True, ran=ran)
            state = await final.aget_state(config("one"))
            rebuilt: Any = Command(resume={each.id: "yes" for each in state.interrupts}) if state.interrupts else None
            await final.ainvoke(rebuilt or question("with tools", "h"), config("one"), durability="sync")
            state = await final.aget_state(config("one"))
            assert finished(state, "one")
            assert len(ran) == len(set(ran))
            assert [m.id for m in state.values["messages"]].count("h-answer") == 1


async def test_half_of_the_decisions_leaves_the_turn_parked(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        ran: list[str] = []
        graph = agent(database.saver, gated=True, ran=ran)
        await graph.ainvoke(question("with tools", "h"), config("one"), durability="sync")
        first = (await graph.aget_state(config("one"))).interrupts[0]
        await graph.ainvoke(Command(resume={first.id: "yes"}), config("one"), durability="sync")
        state = await graph.aget_state(config("one"))
        assert (len(state.interrupts), len(ran)) == (1, 1)
        await graph.ainvoke(
            Command(resume={each.id: "yes" for each in state.interrupts}), config("one"), durability="sync"
        )
        assert sorted(ran) == ["a", "b"]


# -- 4b: gates, which are no `interrupt()` -----------------------------------------------------------------------------


def gate(name: str) -> Interrupt:
    """As the guard around tool calls raises it: with an id of its own that LangGraph takes no answers for."""
    return Interrupt(value={"gate": name}, id=f"gate-{name}")


def gated_step(saver: Checkpointer, node: Any, **more: Any) -> Any:
    graph: Any = StateGraph(State)
    for name, run in {"gated": node, **more}.items():
        graph.add_node(name, run)
        graph.add_edge(START, name)
    return graph.compile(checkpointer=saver)


async def test_a_gate_is_a_pending_question_and_a_resume_without_input_runs_its_task_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        passed: set[str] = set()

        async def node(state: State) -> dict[str, Any]:
            if "a" not in passed:
                raise GraphInterrupt((gate("a"),))
            return {"steps": ["ran"]}

        graph = gated_step(database.saver, node)
        await graph.ainvoke({"steps": []}, config("one"), durability="sync")
        for _ in range(2):
            assert [each.id for each in (await graph.aget_state(config("one"))).interrupts] == ["gate-a"]
            await graph.ainvoke(None, config("one"), durability="sync")
        passed.add("a")
        await graph.ainvoke(None, config("one"), durability="sync")
        state = await graph.aget_state(config("one"))
        assert finished(state, "one")
        assert state.values["steps"] == ["ran"]


async def test_several_gates_of_one_task_are_all_pending(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        passed: set[str] = set()

        async def node(state: State) -> dict[str, Any]:
            waiting = tuple(gate(name) for name in ("a", "b") if name not in passed)
            if waiting:
                raise GraphInterrupt(waiting)
            return {"steps": ["ran"]}

        graph = gated_step(database.saver, node)
        await graph.ainvoke({"steps": []}, config("one"), durability="sync")
        assert [each.id for each in (await graph.aget_state(config("one"))).interrupts] == ["gate-a", "gate-b"]
        passed.add("a")
        await graph.ainvoke(None, config("one"), durability="sync")
        assert [each.id for each in (await graph.aget_state(config("one"))).interrupts] == ["gate-b"]
        passed.add("b")
        await graph.ainvoke(None, config("one"), durability="sync")
        assert finished(await graph.aget_state(config("one")), "one")


async def test_gates_leave_the_positions_of_a_tasks_own_questions_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        passed: set[str] = set()

        def pass_gate(name: str) -> None:
            if name not in passed:
                raise GraphInterrupt((gate(name),))

        async def node(state: State) -> dict[str, Any]:
            pass_gate("a")
            first = interrupt("q1")
            pass_gate("b")
            return {"steps": [first, interrupt("q2")]}

        async def sibling(state: State) -> dict[str, Any]:
            return {"steps": [interrupt("q3")]}

        graph = gated_step(database.saver, node, sibling=sibling)
        await graph.ainvoke({"steps": []}, config("one"), durability="sync")
        for expected, gates in (("gate-a q3", "a"), ("q1", ""), ("gate-b", "b"), ("q2", "")):
            state = await graph.aget_state(config("one"))
            assert " ".join(each.id if "gate" in each.value else each.value for each in state.interrupts) == expected
            own = {each.id: f"to {each.value}" for each in state.interrupts if "gate" not in each.value}
            passed.update(gates)
            await graph.ainvoke(Command(resume=own) if own else None, config("one"), durability="sync")
        state = await graph.aget_state(config("one"))
        assert finished(state, "one")
        assert sorted(state.values["steps"]) == ["to q1", "to q2", "to q3"]


async def test_answers_are_taken_for_ids_of_langgraphs_own_form_alone(tmp_path: Path) -> None:
    """A map with any other key would be taken for the answer itself: the engine leaves such ids out."""
    async with opened(tmp_path / "a.db") as database:
        graph = agent(database.saver, gated=True)
        await graph.ainvoke(question("with tools", "h"), config("one"), durability="sync")
        for each in (await graph.aget_state(config("one"))).interrupts:
            assert re.fullmatch(r"[0-9a-f]{32}", each.id)


async def test_a_task_whose_recorded_answers_are_overwritten_asks_from_its_first_question_on(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        asked: list[Any] = []

        async def node(state: State) -> dict[str, Any]:
            answers = [interrupt("q1"), interrupt("q2")]
            asked.append(answers)
            if len(asked) == 1:
                raise RuntimeError("broken")
            return {"steps": answers}

        graph = gated_step(database.saver, node)
        await graph.ainvoke({"steps": []}, config("one"), durability="sync")
        for value in ("a1", "a2"):
            (pending,) = (await graph.aget_state(config("one"))).interrupts
            with contextlib.suppress(RuntimeError):
                await graph.ainvoke(Command(resume={pending.id: value}), config("one"), durability="sync")
        assert asked == [["a1", "a2"]]
        await asking_anew(graph, "one").ainvoke(None, config("one"), durability="sync")
        for value, expected in (("b1", "q1"), ("b2", "q2")):
            (pending,) = (await graph.aget_state(config("one"))).interrupts
            assert pending.value == expected
            await graph.ainvoke(Command(resume={pending.id: value}), config("one"), durability="sync")
        assert (await graph.aget_state(config("one"))).values["steps"] == ["b1", "b2"]


async def test_a_task_finds_the_id_in_its_config_under_which_its_writes_are_stored(tmp_path: Path) -> None:
    """A call's result is settled by the writes of the task that made it, in a subgraph too."""
    async with opened(tmp_path / "a.db") as database:
        found: list[str] = []

        async def node(state: State) -> dict[str, Any]:
            found.append(str(get_config()["configurable"][TASK_ID]))
            return {"steps": ["ran"]}

        inner: Any = StateGraph(State)
        inner.add_node("inner", node)
        inner.add_edge(START, "inner")
        graph = gated_step(database.saver, node, nested=inner.compile())
        await graph.ainvoke({"steps": []}, config("one"), durability="sync")
        stored = {row[0] for row in await database.rows("SELECT task_id FROM writes")}
        assert len(found) == 2
        assert {*found} <= stored


# -- 5: the order of writes, and the latch ----------------------------------------------------------------------------


OVERTAKEN = """
    SELECT count(*) FROM checkpoints c WHERE json_extract(c.metadata, '$.source') = 'loop' AND NOT EXISTS (
        SELECT 1 FROM writes w WHERE w.space = c.space AND w.checkpoint_id = c.parent_id)
"""
"""Steps whose checkpoint was committed before the writes it consumed."""


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("late", [False, True], ids=["ours", "enqueued after an await"])
async def test_a_tasks_writes_are_stored_before_the_checkpoint_that_consumes_them(
    tmp_path: Path, durability: str, late: bool
) -> None:
    async with opened(tmp_path / "a.db") as database:
        seen: list[int] = []
        owner = database.owner(THREAD, "one")
        owner.observe = lambda connection: seen.extend(row[0] for row in connection.execute(OVERTAKEN))
        saver = (_Late if late else Checkpointer)(database.shared, owner)
        await agent(saver).ainvoke(question("with tools", "h"), config("one"), durability=durability)
        assert len(seen) == len(owner.plans) > 8
        assert any(seen) == late


async def test_pending_writes_come_back_in_the_order_in_which_a_live_step_applies_them(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        await agent(database.saver).ainvoke(question("hello", "h"), config("one"), durability="sync")
        head = (await state_of(database)).config
        written = [("z", "~b, 0000000002"), ("y", "~b, 0000000010"), ("x", ""), ("w", "~é")]
        for task_id, path in written:
            await database.saver.aput_writes(head, [("steps", [task_id]), ("other", 1)], task_id, path)
        found = await database.saver.aget_tuple(head)
        assert found is not None
        expected = sorted(written, key=lambda task: writes_sort_key(task[1], task[0]))
        assert [task_id for task_id, channel, _ in found.pending_writes or () if channel == "steps"] == [
            task_id for task_id, _ in expected
        ]


async def test_what_is_enqueued_is_a_copy(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        release = threading.Event()
        blocked = database.writer.submit(lambda connection: release.wait(60))
        message, checkpoint = HumanMessage("as it was", id="h"), empty_checkpoint()
        checkpoint["channel_values"] = {"messages": [message], "table": {"a": 1}}
        checkpoint["channel_versions"] = {"messages": "1.a", "table": "1.a"}
        place: Any = {"configurable": {"thread_id": THREAD, "checkpoint_ns": ""}}
        putting = asyncio.ensure_future(
            database.saver.aput(place, checkpoint, {"source": "loop", "step": 1}, checkpoint["channel_versions"])
        )
        writes = [("messages", [message]), ("table", {"b": [1]})]
        await asyncio.sleep(0)
        named: Any = {"configurable": {**place["configurable"], "checkpoint_id": checkpoint["id"]}}
        writing = asyncio.ensure_future(database.saver.aput_writes(named, writes, "task"))
        await asyncio.sleep(0)
        message.content = "changed"
        checkpoint["channel_values"]["table"]["a"] = 2
        writes[1][1]["b"].append(2)  # type: ignore[index]
        release.set()
        await asyncio.gather(putting, writing, blocked)
        found = await database.saver.aget_tuple(place)
        assert found is not None
        assert found.checkpoint["channel_values"] == {
            "messages": [HumanMessage("as it was", id="h")],
            "table": {"a": 1},
        }
        assert [value for _, _, value in found.pending_writes or ()] == [
            [HumanMessage("as it was", id="h")],
            {"b": [1]},
        ]


async def test_a_tasks_writes_that_fail_do_not_stop_langgraph_but_the_latch_does(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        owner = database.owner(THREAD, "one")
        saver = _Failing(database.shared, owner)
        with pytest.raises(Exception, match="the disk is gone"):
            await agent(saver).ainvoke(question("hello", "h"), config("one"), durability="sync")
        assert owner.latched is not None
        rows = await database.rows("SELECT json_extract(metadata, '$.source') FROM checkpoints ORDER BY position")
        assert rows == [("input",)]
        assert not finished(await state_of(database), "one")


async def test_a_write_whose_parent_is_not_the_head_is_refused_unless_it_is_a_fork_or_an_update(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        saver = database.saver_of(database.owner(THREAD, "one"))
        await agent(saver).ainvoke(question("hello", "h"), config("one"), durability="sync")
        history = [state async for state in agent(saver).aget_state_history(config("one"))]
        past = config("one") | {"configurable": history[1].config["configurable"]}
        await agent(saver).aupdate_state(past, {"steps": ["an update of the past"]}, as_node="model")
        stale = {**history[0].config["configurable"]}
        checkpoint = empty_checkpoint()
        for source, refused in (("loop", True), ("input", True), ("fork", False)):
            owner = database.owner(THREAD, "one")
            writing = database.saver_of(owner)
            named: Any = {"configurable": stale, "metadata": {"run_id": "one"}}
            if refused:
                with pytest.raises(LeaseLost, match="head"):
                    await writing.aput(named, checkpoint, {"source": source, "step": 9}, {})  # type: ignore[typeddict-item]
                assert isinstance(owner.latched, LeaseLost)
            else:
                await writing.aput(named, checkpoint, {"source": "fork", "step": 9}, {})


async def test_an_attempt_of_an_old_epoch_writes_nothing_and_latches(journal: Journal) -> None:
    old = await journal.running()
    journal.clock.advance(timedelta(minutes=5).total_seconds())
    assert await journal.recover(old) is not None
    new = await journal.claimed()
    told = asyncio.Event()
    old.on_latch(told.set)
    with pytest.raises(LeaseLost):
        await work(old, "too late")
    await told.wait()
    assert old.latched is not None
    place: Any = {"configurable": {"thread_id": old.turn.conversation, "checkpoint_ns": ""}}
    assert await journal.store.reader().aget_tuple(place) is None
    with pytest.raises(LeaseLost):
        named = {"configurable": {**place["configurable"], "checkpoint_id": "x"}, "metadata": {"run_id": old.turn.id}}
        await old.checkpointer.aput_writes(named, [("messages", [])], "task")  # type: ignore[arg-type]
    await work(new, "in time")
    await new.finish(TurnStatus.COMPLETED)
    found = await journal.store.reader().aget_tuple(place)
    assert found is not None
    assert [message.content for message in found.checkpoint["channel_values"]["messages"]] == ["hello", "in time"]


# -- the latest checkpoint is the one committed last --------------------------------------------------------------------


async def test_a_clock_that_steps_back_hides_no_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path / "a.db") as database:
        graph = agent(database.saver)
        await graph.ainvoke(question("first", "h1"), config("one"), durability="sync")
        now = time.time_ns
        monkeypatch.setattr(checkpoint_ids, "_last_v6_timestamp", None)
        monkeypatch.setattr(time, "time_ns", lambda: now() - 3_600 * 10**9)
        await graph.ainvoke(question("second", "h2"), config("two"), durability="sync")
        ids = [row[0] for row in await database.rows("SELECT checkpoint_id FROM checkpoints ORDER BY position")]
        assert ids != sorted(ids), "the clock did not step back"
        for forgotten in (False, True):
            if forgotten:
                database.shared.forget(THREAD)
            state = await graph.aget_state(config(None))
            assert texts(state)[-1] == ("h2-answer", "answer second")
            history = [each async for each in graph.aget_state_history(config(None))]
            assert [each.metadata["run_id"] for each in history] == ["two"] * 3 + ["one"] * 3
            before = [each async for each in graph.aget_state_history(config(None), before=history[3].config)]
            assert [each.metadata["run_id"] for each in before] == ["one"] * 2


# -- the step count ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_supersteps_count_what_langgraphs_recursion_limit_counts(tmp_path: Path, limit: int) -> None:
    async with opened(tmp_path / "a.db") as database:
        for turn in ("one", "two"):
            owner = database.owner(THREAD, turn)
            graph: Any = StateGraph(State)
            graph.add_node("again", _again)
            graph.add_edge(START, "again")
            graph.add_edge("again", "again")
            with pytest.raises(GraphRecursionError):
                await graph.compile(checkpointer=database.saver_of(owner)).ainvoke(
                    question("go", turn), config(turn, recursion_limit=limit), durability="sync"
                )
            assert sum(plan.supersteps for plan in owner.plans) == limit
            assert [plan.input_stored for plan in owner.plans].count(True) == 1


async def test_the_input_and_the_step_that_hands_it_on_are_no_progress(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        owner = database.owner(THREAD, "one")

        async def broken(state: State) -> dict[str, Any]:
            raise RuntimeError("broken")

        graph: Any = StateGraph(State)
        graph.add_node("broken", broken)
        graph.add_edge(START, "broken")
        with pytest.raises(RuntimeError):
            await graph.compile(checkpointer=database.saver_of(owner)).ainvoke(
                question("go", "h"), config("one"), durability="sync"
            )
        assert len(owner.plans) == 4
        assert [plan for plan in owner.plans if plan.progress or plan.supersteps] == []


# -- 7: drain ---------------------------------------------------------------------------------------------------------


async def test_a_drain_stops_between_steps_and_the_same_input_goes_on_from_there(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        ran: list[str] = []
        control = RunControl()
        graph = agent(database.saver_of(database.owner(THREAD, "one")), ran=ran)

        async def drive() -> None:
            async for part in graph.astream(
                question("with tools", "h"), config("one"), stream_mode="tasks", durability="sync", control=control
            ):
                if part["name"] == "tools" and "result" in part:
                    control.request_drain("shutdown")

        with pytest.raises(GraphDrained):
            await drive()
        assert not finished(await graph.aget_state(config("one")), "one")
        again = agent(database.saver_of(database.owner(THREAD, "one")), ran=ran)
        await again.ainvoke(question("with tools", "h"), config("one"), durability="sync")
        assert sorted(ran) == ["a", "b"]
        assert finished(await graph.aget_state(config("one")), "one")


# -- 8: a user's graph ------------------------------------------------------------------------------------------------


class Note(BaseModel):
    text: str


class Notes(TypedDict, total=False):
    note: Note
    count: int


def user_graph(**compiled: Any) -> Any:
    graph: Any = StateGraph(Notes)
    graph.add_node("write", lambda state: {"note": Note(text="written"), "count": 1})
    graph.add_edge(START, "write")
    graph.add_edge("write", END)
    return graph.compile(**compiled)


async def test_a_shallow_copy_keeps_the_types_of_the_graphs_schema(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        original = user_graph()
        mine = copy.copy(original)
        mine.checkpointer = database.saver
        await mine.ainvoke({"count": 0}, config("one"), durability="sync")
        assert (await mine.aget_state(config("one"))).values["note"] == Note(text="written")
        assert original.checkpointer is None


async def test_the_saver_that_langgraph_copies_shares_everything_that_changes(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        clone = database.saver.with_allowlist({("somewhere", "Something")})
        assert clone is not database.saver
        assert clone._shared is database.saver._shared  # type: ignore[attr-defined]
        graph = agent(database.saver)
        await graph.ainvoke(question("hello", "h"), config("one"), durability="sync")
        await agent(clone).ainvoke(question("more", "h2"), config("two"), durability="sync")  # type: ignore[arg-type]
        assert len(texts(await state_of(database))) == 4


@pytest.mark.parametrize("checkpointer", [None, False, True], ids=["inherits", "none", "own"])
@pytest.mark.parametrize("called", ["as a node", "in an asynchronous node", "in a synchronous node"])
async def test_subgraphs_of_every_kind_run_under_sync_durability(
    tmp_path: Path, checkpointer: bool | None, called: str
) -> None:
    inner = user_graph(checkpointer=checkpointer)

    async def asynchronous(state: Notes) -> Any:
        return await inner.ainvoke(state)

    def synchronous(state: Notes) -> Any:
        return inner.invoke(state)

    node = {"as a node": inner, "in an asynchronous node": asynchronous, "in a synchronous node": synchronous}[called]
    outer: Any = StateGraph(Notes)
    outer.add_node("inner", node)
    outer.add_edge(START, "inner")
    outer.add_edge("inner", END)
    graph = outer.compile()
    async with opened(tmp_path / "a.db") as database:
        mine = bind(graph, database.saver_of(database.owner(THREAD, "one")))
        await mine.ainvoke({"count": 0}, config("one"), durability="sync")
        assert (await mine.aget_state(config("one"))).values == {"note": Note(text="written"), "count": 1}
        spaces = {row[0].split(":")[0] for row in await database.rows("SELECT ns FROM spaces")}
        assert spaces == ({""} if checkpointer is False else {"", "inner"})
    assert graph.checkpointer is None
    assert inner.checkpointer is checkpointer


async def test_a_synchronous_call_on_the_loop_says_what_to_do(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        with pytest.raises(TypeError, match="ainvoke"):
            agent(database.saver).get_state(config("one"))


# -- helpers ----------------------------------------------------------------------------------------------------------


class _Late(Checkpointer):
    """A saver that does something else first, until the checkpoint that consumes the writes is committed."""

    async def aput_writes(self, config: Any, *arguments: Any, **more: Any) -> None:
        parent, give_up = config["configurable"]["checkpoint_id"], time.monotonic() + 2
        children = "SELECT 1 FROM checkpoints WHERE parent_id = ?"
        while time.monotonic() < give_up:
            if self._shared.readers.read_here(lambda connection: connection.execute(children, (parent,)).fetchall()):
                break
            await asyncio.sleep(0)
        await super().aput_writes(config, *arguments, **more)


class _Failing(Checkpointer):
    """The rows of the first task's writes cannot be stored."""

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        def fail(connection: apsw.Connection) -> list[int]:
            raise OSError("the disk is gone")

        await self._authority.submit(StepPlan(), fail)


class _Dies:
    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        return error is None or isinstance(error, Killed)


def _dies() -> _Dies:
    return _Dies()


async def _again(state: State) -> dict[str, Any]:
    return {"steps": ["again"]}
