"""What a repair leaves in the thread, wherever the work was cut and wherever the repair itself was."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import StateSnapshot

from perdure import failpoints
from perdure.engine.relay import Partial
from perdure.engine.repair import (
    Mend,
    additions,
    cancelled,
    has_open_calls,
    messages_of,
    open_turn,
    repair,
    writer_node,
)
from perdure.failpoints import FailpointError
from perdure.graph.history import CANCELLED, NOT_RECORDED, Asked
from tests.unit.engine.graphs import AnyGraph, World, agent, chain

CALLS = AIMessage(
    "", id="ai", tool_calls=[{"name": name, "args": {}, "id": f"call-{name}", "type": "tool_call"} for name in "ab"]
)


def bound(graph: AnyGraph) -> AnyGraph:
    own = copy.copy(graph)
    own.checkpointer = InMemorySaver()
    return own


def config(run: str = "T1") -> Any:
    return {"configurable": {"thread_id": "thread"}, "metadata": {"run_id": run}}


async def head(graph: AnyGraph) -> StateSnapshot:
    return await graph.aget_state(config())


async def texts(graph: AnyGraph) -> list[str]:
    return [f"{message.type}:{message.text}" for message in messages_of(await head(graph))]


async def cut_in_tools(world: World) -> AnyGraph:
    """`a` is done and recorded, `b` was cut."""
    graph = bound(agent(world))
    world.hold("b")
    given = {"messages": [HumanMessage("call a b", id="h1")]}
    work = asyncio.create_task(graph.ainvoke(given, config(), durability="sync"))
    await world.met("b")
    while "a" not in world.ran:
        await asyncio.sleep(0)
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work
    world.let("b")
    return graph


async def test_a_finished_sibling_keeps_its_result_and_the_cut_call_gets_one() -> None:
    graph = await cut_in_tools(World())
    await repair(graph, "thread", "T1", cancelled(None))
    state = await head(graph)
    assert state.tasks == ()
    assert await texts(graph) == ["human:call a b", "ai:Calling. ", "tool:done", f"tool:{CANCELLED}"]
    assert not has_open_calls(state)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_repair_that_was_killed_anywhere_is_done_again_with_the_same_result(side: str, at: int) -> None:
    graph = await cut_in_tools(World())
    failpoints.arm(f"repair.{side}:error@{at}")
    try:
        with pytest.raises(FailpointError):
            await repair(graph, "thread", "T1", cancelled(None))
    finally:
        failpoints.arm("")
    await repair(graph, "thread", "T1", cancelled(None))
    assert await texts(graph) == ["human:call a b", "ai:Calling. ", "tool:done", f"tool:{CANCELLED}"]
    assert (await head(graph)).tasks == ()


async def test_the_next_turn_goes_on_from_a_repaired_thread() -> None:
    world = World()
    graph = await cut_in_tools(world)
    await repair(graph, "thread", "T1", Mend())
    await graph.ainvoke({"messages": [HumanMessage("next", id="h2")]}, config("T2"), durability="sync")
    assert (await texts(graph))[-3:] == [f"tool:{NOT_RECORDED}", "human:next", "ai:answer next"]
    assert "b" not in world.ran


async def test_a_message_that_was_never_sent_to_the_graph_is_in_the_thread_after_its_cancel() -> None:
    world = World()
    graph = bound(agent(world))
    await repair(graph, "thread", "T1", cancelled(HumanMessage("hello", id="h1")))
    await repair(graph, "thread", "T1", cancelled(HumanMessage("hello", id="h1")))
    assert await texts(graph) == ["human:hello"]
    assert (await head(graph)).tasks == ()
    assert world.ran == []


async def test_a_graph_without_messages_only_ends_its_tasks() -> None:
    graph = bound(chain(World(failing={"two"}), "one", "two"))
    with contextlib.suppress(RuntimeError):
        await graph.ainvoke({"done": []}, config(), durability="sync")
    await repair(graph, "thread", "T1", Mend())
    state = await head(graph)
    assert state.tasks == ()
    assert state.values == {"done": ["one"]}


def test_shown_text_is_kept_when_no_call_is_open() -> None:
    said = [HumanMessage("hello", id="h1")]
    (kept,) = additions(said, cancelled(None, [Partial("ai-1", "half an ans")]))
    assert isinstance(kept, AIMessage)
    assert (kept.id, kept.content, kept.tool_calls) == ("ai-1", "half an ans", [])
    assert kept.additional_kwargs == {"perdure_status": "cancelled"}


def test_text_that_is_committed_or_comes_from_inside_a_tool_is_not_kept() -> None:
    whole = AIMessage("whole", id="ai-1")
    assert additions([HumanMessage("hello", id="h1"), whole], cancelled(None, [Partial("ai-1", "who")])) == []
    inside = additions([HumanMessage("hello", id="h1"), CALLS], cancelled(None, [Partial("inner", "thinking")]))
    assert [message.type for message in inside] == ["tool", "tool"]


def test_what_is_said_beside_an_open_call_is_kept_and_what_is_said_inside_of_it_is_not() -> None:
    said = [HumanMessage("hello", id="h1"), CALLS]
    beside = Partial("ai-2", "meanwhile", frozenset({"task-2"}))
    inside = Partial("ai-3", "thinking", frozenset({"task-1", "inner"}))
    found = additions(said, cancelled(None, [inside, beside], calling={"task-1"}, covers=lambda tool: True))
    assert [message.id for message in found][2:] == ["ai-2"]
    assert [message.type for message in found] == ["tool", "tool", "ai"]


def test_a_call_gets_what_is_known_of_it() -> None:
    def closing(asker: AIMessage, asked: Asked) -> ToolMessage | None:
        known = asked.id == "call-b" and asker.id == "ai"
        return ToolMessage("recorded", tool_call_id=asked.id, id="r-b") if known else None

    first, second = additions([HumanMessage("go", id="h1"), CALLS], Mend(closing=closing))
    assert (first.content, second.content, second.id) == (NOT_RECORDED, "recorded", "r-b")


def test_only_what_the_unfinished_turn_left_is_mended() -> None:
    old = [HumanMessage("one", id="h1"), CALLS, HumanMessage("two", id="h2")]
    assert list(open_turn(old)) == [old[-1]]
    assert additions(old, Mend()) == []


def test_a_result_id_is_made_from_its_call() -> None:
    said = [HumanMessage("go", id="h1"), CALLS, ToolMessage("done", tool_call_id="call-a", id="r")]
    (first,), (second,) = additions(said, Mend()), additions(said, Mend())
    assert isinstance(first, ToolMessage)
    assert (first.tool_call_id, first.status, first.id) == ("call-b", "error", second.id)


def test_messages_are_appended_where_no_code_of_the_graph_runs() -> None:
    async def node(state: MessagesState) -> dict[str, Any]:
        return {}

    def refuse(state: MessagesState) -> str:
        raise AssertionError("a router ran")

    graph = StateGraph(MessagesState)
    for name in ("routed", "plain"):
        graph.add_node(name, node)
    graph.add_conditional_edges(START, refuse, ["routed"])
    graph.add_conditional_edges("routed", refuse, ["plain"])
    graph.add_edge("plain", END)
    assert writer_node(graph.compile()) == "plain"
    assert writer_node(agent(World())) == START
    assert writer_node(chain(World(), "one")) is None
