"""`perdure.ToolNode` in a StateGraph: several calls of one message are one task."""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolRuntime, tools_condition
from langgraph.prebuilt import ToolNode as StockToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command, RetryPolicy, interrupt
from pydantic import BaseModel

import perdure
from perdure import ledger
from perdure.effects import Gate
from perdure.errors import PerdureError
from perdure.graph.errors import LimitReached, QuestionsMixed
from perdure.graph.keys import call_key
from perdure.graph.load import Graph
from perdure.graph.tool_node import ToolNode
from perdure.ledger import CallState, ToolCall
from perdure.turns import DecisionKind, Verdict
from tests.servers.driving import RecordingLedger
from tests.unit.graph.scripted import KINDS, Driven, around, asks, results, says, with_node


class World:
    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.broken: set[str] = set()

    def tool(self, name: str, effect_class: str = "once") -> BaseTool:
        async def act(n: int = 0) -> str:
            self.ran[name] += 1
            if name in self.broken:
                raise ValueError(f"{name} is broken")
            return f"{name} {n}"

        act.__name__ = name
        act.__doc__ = "Acts."
        return perdure.effect(effect_class)(tool(act))


@pytest.fixture
def world() -> World:
    return World()


def xyz() -> list[AIMessage]:
    return [asks(("x", {"n": 1}), ("y", {"n": 2}), ("z", {"n": 3})), says("done")]


@pytest.mark.parametrize("kind", list(KINDS))
async def test_two_gated_calls_beside_an_ungated_one_run_once_each(world: World, kind: str) -> None:
    driven = Driven(KINDS[kind], xyz(), *map(world.tool, "xyz"), needs_approval=["x", "y"])
    await driven.say()
    assert (set(await driven.gates()), world.ran) == ({"x 1", "y 2"}, {"z": 1})
    await driven.decide("x 1", DecisionKind.APPROVE)
    await driven.again()
    assert (set(await driven.gates()), world.ran) == ({"y 2"}, {"x": 1, "z": 1})
    await driven.decide("y 2", DecisionKind.APPROVE)
    messages = await driven.again()
    assert world.ran == {"x": 1, "y": 1, "z": 1}
    assert [str(each.content) for each in results(messages).values()] == ["x 1", "y 2", "z 3"]


async def test_a_call_that_fails_lets_its_siblings_end_and_they_are_not_repeated(world: World) -> None:
    def make(model: Any, tools: Any) -> Graph:
        return with_node(model, tools, handle_tool_errors=False)

    tools = [world.tool("x", "read"), world.tool("y"), world.tool("z")]
    driven = Driven(make, xyz(), *tools)
    world.broken.add("x")
    with pytest.raises(ValueError, match="x is broken"):
        await driven.say()
    assert world.ran == {"x": 1, "y": 1, "z": 1}
    world.broken.clear()
    assert len(results(await driven.again())) == 3
    assert world.ran == {"x": 2, "y": 1, "z": 1}


async def test_an_exception_that_escapes_a_once_call_leaves_it_uncertain_and_it_is_not_repeated(world: World) -> None:
    def make(model: Any, tools: Any) -> Graph:
        return around(model, ToolNode(tools, handle_tool_errors=False))

    driven = Driven(make, xyz(), *map(world.tool, "xyz"))
    world.broken.add("y")
    await driven.say()
    gate = (await driven.gates())["y 2"]
    assert (gate.gate, gate.why) == (Gate.UNCERTAIN, "the tool raised ValueError: y is broken")
    await driven.again()
    assert world.ran == {"x": 1, "y": 1, "z": 1}
    await driven.decide("y 2", DecisionKind.HAPPENED, result="y was seen")
    assert results(await driven.again())["c1"].content == "y was seen"
    assert world.ran == {"x": 1, "y": 1, "z": 1}


async def test_an_error_that_the_node_handles_is_an_outcome(world: World) -> None:
    driven = Driven(with_node, xyz(), *map(world.tool, "xyz"))
    world.broken.add("y")
    answer = results(await driven.say())["c1"]
    assert (answer.status, "y is broken" in str(answer.content)) == ("error", True)
    assert {each.state for each in driven.record.records.values()} == {CallState.RECORDED}


async def test_a_limit_reaches_the_engine_through_a_node_that_handles_errors_and_retries(world: World) -> None:
    def make(model: Any, tools: Any) -> Graph:
        graph = StateGraph(MessagesState)
        graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
        policy = RetryPolicy(retry_on=Exception, initial_interval=0.0, jitter=False)
        graph.add_node("tools", ToolNode(tools, handle_tool_errors=True), retry_policy=policy)
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        return graph.compile()

    driven = Driven(make, xyz(), *map(world.tool, "xyz"))
    asked: list[str] = []

    async def refuse(call: ToolCall) -> None:
        asked.append(call.name)
        raise LimitReached("tool_call_limit", "enough")

    driven.record.intend = refuse  # type: ignore[method-assign]
    with pytest.raises(LimitReached):
        await driven.say()
    assert (asked, world.ran) == (["x", "y", "z"], {})


async def test_a_cut_waits_for_every_once_call_of_the_task(world: World) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    @tool
    async def quick() -> str:
        """Ends at once when it is cut."""
        await asyncio.Event().wait()
        return ""

    @tool
    async def slow() -> str:
        """Ends when it is let."""
        entered.set()
        await release.wait()
        return "slow"

    calls = [asks(("quick", {}), ("slow", {})), says("done")]
    driven = Driven(with_node, calls, perdure.effect("read")(quick), slow)
    driven.record.grace = 60
    work = asyncio.create_task(driven.say())
    await entered.wait()
    work.cancel()
    for _ in range(100):  # the cut goes from task to task, one turn of the loop each
        await asyncio.sleep(0)
    assert not work.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await work
    states = {each.call.name: each.state for each in driven.record.records.values()}
    assert states == {"quick": CallState.STARTED, "slow": CallState.RECORDED}


# -- a drop-in --------------------------------------------------------------------------------------------------------


def test_it_takes_what_langgraphs_own_takes(world: World) -> None:
    node = ToolNode(
        [world.tool("x")], name="deeds", tags=["t"], handle_tool_errors="oh", messages_key="log", wrap_tool_call=None
    )
    assert (node.name, node.tags, list(node.tools_by_name)) == ("deeds", ["t"], ["x"])
    assert isinstance(node, StockToolNode)


class Log(BaseModel):
    log: Annotated[list[AnyMessage], operator.add]


class LogDict(TypedDict):
    log: Annotated[list[AnyMessage], operator.add]


@pytest.mark.parametrize("schema", [Log, LogDict])
async def test_the_message_is_found_in_any_kind_of_state_and_a_message_without_id_is_known_by_its_task(
    world: World, schema: Any
) -> None:
    graph = StateGraph(schema)
    graph.add_node("tools", ToolNode([world.tool("x")], messages_key="log"))
    graph.add_edge(START, "tools")
    compiled = graph.compile()
    attempt = inside_a_turn()
    for message_id in ("m1", None):
        asked = asks(("x", {"n": 1})).model_copy(update={"id": message_id})
        await compiled.ainvoke({"log": [asked]})
    first, second = attempt.calls
    assert first.message_id == "m1"
    assert second.message_id not in ("", "m1")


def inside_a_turn() -> RecordingLedger:
    attempt = RecordingLedger()
    ledger.current.set(attempt)
    return attempt


async def test_the_same_call_id_in_two_messages_is_two_calls(world: World) -> None:
    replies = [asks(("x", {"n": 1})), asks(("x", {"n": 1})), says("done")]
    driven = Driven(with_node, replies, world.tool("x"))
    await driven.say()
    assert world.ran == {"x": 2}
    assert len(driven.record.records) == 2


async def test_calls_that_cannot_start_are_neither_asked_about_nor_written_down(world: World) -> None:
    bad = AIMessage(
        "",
        tool_calls=[
            {"name": "nothing", "args": {}, "id": "c0", "type": "tool_call"},
            {"name": "x", "args": {"n": "many"}, "id": "c1", "type": "tool_call"},
        ],
        invalid_tool_calls=[{"name": "x", "args": "{", "id": "c2", "error": None, "type": "invalid_tool_call"}],
    )
    driven = Driven(with_node, [bad, says("oh")], world.tool("x"), needs_approval=["*"])
    answers = results(await driven.say())
    assert {name: each.status for name, each in answers.items()} == {"c0": "error", "c1": "error"}
    assert (driven.record.calls, world.ran) == ([], {})


async def test_tools_get_state_runtime_key_and_may_return_commands(world: World) -> None:
    seen: list[Any] = []

    @tool
    async def look(
        state: Annotated[dict[str, Any], InjectedState], runtime: ToolRuntime, config: RunnableConfig
    ) -> Any:
        """Looks."""
        seen.extend([len(state["messages"]), call_key(), call_key(runtime.config), call_key(config)])
        answer = ToolMessage("looked", tool_call_id=runtime.tool_call_id)
        return Command(update={"messages": [answer, HumanMessage("by the way")]})

    driven = Driven(with_node, [asks(("look", {})), says("done")], look)
    messages = await driven.say()
    ((key, record),) = driven.record.records.items()
    assert seen == [2, key, key, key]
    assert isinstance(record.result, Command)
    assert [each.type for each in messages] == ["human", "ai", "tool", "human", "ai"]
    assert all(each.id for each in messages)


async def test_synchronous_tools_know_their_key_too() -> None:
    seen: list[str | None] = []

    @tool
    def look() -> str:
        """Looks."""
        seen.append(call_key())
        return "seen"

    driven = Driven(with_node, [asks(("look", {})), says("done")], look)
    await driven.say()
    assert seen == list(driven.record.records)


async def test_wrappers_run_inside_the_guard_and_cannot_change_what_was_approved(world: World) -> None:
    async def double(request: ToolCallRequest, execute: Callable[..., Any]) -> Any:
        call = request.tool_call.copy()
        call["args"] = {"n": call["args"]["n"] * 2}
        return await execute(request.override(tool_call=call))

    def make(model: Any, tools: Any) -> Graph:
        return around(model, ToolNode(tools, awrap_tool_call=double, handle_tool_errors=False))

    replies = [asks(("x", {"n": 1}), ("y", {"n": 2})), says("done")]
    driven = Driven(make, replies, world.tool("x"), world.tool("y"), needs_approval=["x"])
    await driven.say()
    await driven.decide("x 1", DecisionKind.APPROVE)
    answers = results(await driven.again())
    assert (answers["c0"].status, answers["c1"].content) == ("error", "y 4")
    assert "changed on the way" in str(answers["c0"].content)
    assert world.ran == {"y": 1}


async def test_a_synchronous_wrapper_cannot_either(world: World) -> None:
    def double(request: ToolCallRequest, execute: Callable[..., Any]) -> Any:
        call = request.tool_call.copy()
        call["args"] = {"n": call["args"]["n"] * 2}
        return execute(request.override(tool_call=call))

    @tool
    def act(n: int, runtime: ToolRuntime) -> str:
        """Acts."""
        world.ran["act"] += 1
        return f"did {n}"

    def make(model: Any, tools: Any) -> Graph:
        return around(model, ToolNode(tools, wrap_tool_call=double, handle_tool_errors=True))

    driven = Driven(make, [asks(("act", {"n": 1})), says("done")], act, needs_approval=["act"])
    await driven.say()
    await driven.decide("act 1", DecisionKind.APPROVE)
    assert "changed on the way" in str(results(await driven.again())["c0"].content)
    assert world.ran == {}


async def test_it_stands_in_a_subgraph(world: World) -> None:
    def make(model: Any, tools: Any) -> Graph:
        inner = with_node(model, tools)
        outer = StateGraph(MessagesState)
        outer.add_node("inner", inner)
        outer.add_edge(START, "inner")
        outer.add_edge("inner", END)
        return outer.compile()

    driven = Driven(make, xyz(), *map(world.tool, "xyz"), needs_approval=["x", "y"])
    await driven.say()
    assert set(await driven.gates()) == {"x 1", "y 2"}
    await driven.decide("x 1", DecisionKind.APPROVE)
    await driven.decide("y 2", DecisionKind.DENY)
    assert len(results(await driven.again())) == 3
    assert world.ran == {"x": 1, "z": 1}


def test_a_synchronous_graph_outside_of_perdure_works(world: World) -> None:
    @tool
    def act(n: int) -> str:
        """Acts."""
        return f"did {n}"

    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([act]))
    graph.add_edge(START, "tools")
    state = graph.compile().invoke({"messages": [asks(("act", {"n": 1}))]})
    assert state["messages"][-1].content == "did 1"


async def test_a_synchronous_call_inside_a_turn_is_refused(world: World) -> None:
    inside_a_turn()

    @tool
    def act(n: int) -> str:
        """Acts."""
        world.ran["act"] += 1
        return f"did {n}"

    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([act]))
    graph.add_edge(START, "tools")
    compiled: Any = graph.compile()
    with pytest.raises(PerdureError, match="ainvoke"):
        await asyncio.to_thread(compiled.invoke, {"messages": [asks(("act", {"n": 1}))]})
    assert world.ran == {}


# -- questions of a tool's own ----------------------------------------------------------------------------------------


@tool
async def ask(n: int) -> str:
    """Asks a person."""
    return f"{interrupt(f'first {n}?')} {interrupt(f'second {n}?')}"


@pytest.mark.parametrize("kind", list(KINDS))
async def test_a_gated_tool_may_ask_questions_of_its_own(kind: str) -> None:
    driven = Driven(KINDS[kind], [asks(("ask", {"n": 1})), says("done")], ask, needs_approval=["ask"])
    await driven.say()
    await driven.decide("ask 1", DecisionKind.APPROVE)
    await driven.again()
    for question, answer in (("first 1?", "a"), ("second 1?", "b")):
        (asked,) = await driven.chat.interrupts()
        assert asked.value == question
        (record,) = driven.record.records.values()
        assert record.paused
        await driven.chat.drive(Command(resume={asked.id: answer}))
    (record,) = driven.record.records.values()
    assert (record.state, record.starts) == (CallState.RECORDED, 3)
    assert results(await driven.chat.drive(None))["c0"].content == "a b"


async def test_one_calls_own_question_beside_a_gate_of_another(world: World) -> None:
    replies = [asks(("x", {"n": 1}), ("ask", {"n": 2}), ("z", {"n": 3})), says("done")]
    driven = Driven(with_node, replies, world.tool("x"), ask, world.tool("z"), needs_approval=["x"])
    await driven.say()
    gate, own = await driven.chat.interrupts()
    assert (driven.gate(gate).tool, own.value) == ("x", "first 2?")
    driven.record.verdicts[gate.id] = Verdict(DecisionKind.APPROVE)
    await driven.chat.drive(Command(resume={own.id: "a"}))
    (own,) = await driven.chat.interrupts()
    assert (own.value, world.ran) == ("second 2?", {"x": 1, "z": 1})
    messages = await driven.chat.drive(Command(resume={own.id: "b"}))
    assert results(messages)["c1"].content == "a b"
    assert world.ran == {"x": 1, "z": 1}


async def test_two_calls_of_one_task_that_ask_questions_of_their_own_are_refused() -> None:
    driven = Driven(with_node, [asks(("ask", {"n": 1}), ("ask", {"n": 2})), says("done")], ask)
    with pytest.raises(QuestionsMixed):
        await driven.say()


async def test_an_agent_as_a_tool_asks_at_its_own_gates_and_goes_on_where_it_stopped(world: World) -> None:
    inner_model = Driven(with_node, [asks(("x", {"n": 1}), ("z", {"n": 2})), says("inner is done")], world.tool("x"))
    inner = with_node(inner_model.model, [world.tool("x"), world.tool("z")])

    @tool
    async def delegate(task: str) -> str:
        """Lets another agent do it."""
        state = await inner.ainvoke({"messages": [("user", task)]})
        return str(state["messages"][-1].content)

    replies = [asks(("y", {"n": 1}), ("delegate", {"task": "go"})), says("done")]
    driven = Driven(with_node, replies, world.tool("y"), delegate, needs_approval=["x"])
    await driven.say()
    assert (set(await driven.gates()), world.ran) == ({"x 1"}, {"y": 1, "z": 1})
    await driven.decide("x 1", DecisionKind.APPROVE)
    assert results(await driven.again())["c1"].content == "inner is done"
    assert world.ran == {"x": 1, "y": 1, "z": 1}
    assert len(inner_model.model.sent) == 2


async def test_two_agents_as_tools_keep_apart_what_they_have_stored(world: World) -> None:
    """One is finished and not run again: the other must not be given its stored state."""
    tools = [world.tool("x"), world.tool("z")]
    first = Driven(with_node, [asks(("z", {"n": 1})), says("first is done")], *tools)
    second = Driven(with_node, [asks(("z", {"n": 2}), ("x", {"n": 3})), says("second is done")], *tools)

    def agent(name: str, driven: Driven) -> BaseTool:
        inner = with_node(driven.model, tools)

        async def delegate() -> str:
            state = await inner.ainvoke({"messages": [("user", name)]})
            return str(state["messages"][-1].content)

        delegate.__name__, delegate.__doc__ = name, "Lets another agent do it."
        return tool(delegate)

    replies = [asks(("first", {}), ("second", {})), says("done")]
    driven = Driven(with_node, replies, agent("first", first), agent("second", second), needs_approval=["x"])
    await driven.say()
    await driven.decide("x 3", DecisionKind.APPROVE)
    answers = results(await driven.again())
    assert [str(each.content) for each in answers.values()] == ["first is done", "second is done"]
    assert (world.ran, len(first.model.sent), len(second.model.sent)) == ({"x": 1, "z": 2}, 2, 2)


async def test_a_call_that_asks_only_after_another_one_was_answered_does_not_get_its_answer() -> None:
    replies = [asks(("first_asks", {}), ("then_asks", {})), says("done")]
    driven = Driven(with_node, replies, asking("first_asks"), asking("then_asks"), needs_approval=["then_asks"])
    await driven.say()
    own, gate = sorted(await driven.chat.interrupts(), key=lambda each: each.id.startswith("gate-"))
    driven.record.verdicts[gate.id] = Verdict(DecisionKind.APPROVE)
    with pytest.raises(QuestionsMixed, match="`then_asks` asked a question"):
        await driven.chat.drive(Command(resume={own.id: "the first one's answer"}))
    states = {each.call.name: each.state for each in driven.record.records.values()}
    assert states == {"first_asks": CallState.RECORDED, "then_asks": CallState.STARTED}
    await driven.again()
    assert [driven.gate(each).gate for each in await driven.chat.interrupts()] == [Gate.UNCERTAIN]


def asking(name: str) -> BaseTool:
    async def ask() -> str:
        return str(interrupt(f"{name}?"))

    ask.__name__, ask.__doc__ = name, "Asks a person."
    return tool(ask)


async def test_it_may_be_called_from_a_node_of_ones_own(world: World) -> None:
    def make(model: Any, tools: Any) -> Graph:
        node = ToolNode(tools, handle_tool_errors=True)

        async def run(state: MessagesState) -> Any:
            return await node.ainvoke(state)

        return around(model, run)

    driven = Driven(make, xyz(), *map(world.tool, "xyz"), needs_approval=["x"])
    await driven.say()
    await driven.decide("x 1", DecisionKind.APPROVE)
    assert len(results(await driven.again())) == 3
    assert world.ran == {"x": 1, "y": 1, "z": 1}
    assert len({call.message_id for call in driven.record.calls}) == 1


async def test_an_interrupted_inner_graph_keeps_its_questions_apart_from_those_of_another(world: World) -> None:
    """Two agents as tools of one task, each asking by interrupt() in a graph of its own."""

    def agent(name: str) -> BaseTool:
        inner = Driven(with_node, [asks((f"ask_{name}", {})), says(f"{name} is done")], asking(f"ask_{name}"))
        graph = inner.chat.hosted.graph

        async def delegate() -> str:
            state = await graph.ainvoke({"messages": [("user", name)]})
            return str([each.content for each in state["messages"]][-2:])

        delegate.__name__, delegate.__doc__ = name, "Lets another agent do it."
        return tool(delegate)

    driven = Driven(with_node, [asks(("first", {}), ("second", {})), says("done")], agent("first"), agent("second"))
    await driven.say()
    questions = {each.value: each.id for each in await driven.chat.interrupts()}
    assert sorted(questions) == ["ask_first?", "ask_second?"]
    await driven.chat.drive(Command(resume={questions["ask_second?"]: "2"}))
    (left,) = await driven.chat.interrupts()
    assert left.value == "ask_first?"
    messages = await driven.chat.drive(Command(resume={left.id: "1"}))
    answers = [str(each.content) for each in results(messages).values()]
    assert answers == ["['1', 'first is done']", "['2', 'second is done']"]
