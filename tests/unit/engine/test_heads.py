"""One value that the state does not take: the conversation stays readable, the turn fails by name, the next message works."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Send
from pydantic import BaseModel

from perdure.errors import StateTypeNotAllowed, TurnNotResumable
from perdure.turns import FailureCode, TurnStatus
from tests.unit.engine.graphs import AnyGraph
from tests.unit.engine.house import ME, OWNER, House, hosted, open_house


class Lists(TypedDict, total=False):
    x: Any
    out: Annotated[list[Any], operator.add]
    one: Any


class Checked(BaseModel):
    x: int = 0
    out: Annotated[list[int], operator.add] = []


def one_node(schema: Any, run: Any) -> AnyGraph:
    return StateGraph(schema).add_node("n", run).add_edge(START, "n").compile()


def reducer_refuses() -> AnyGraph:
    def run(state: Lists) -> dict[str, Any]:
        return {"out": "text" if state.get("x") == "bad" else [state.get("x")]}

    return one_node(Lists, run)


def two_write_one_value() -> AnyGraph:
    def run(state: Lists) -> dict[str, Any]:
        return {"one": 1} if state.get("x") == "bad" else {"out": [1]}

    graph = StateGraph(Lists)
    for name in ("left", "right"):
        graph.add_node(name, run)
        graph.add_edge(START, name)
    return graph.compile()


def schema_refuses_what_a_node_wrote() -> AnyGraph:
    def first(state: Checked) -> dict[str, Any]:
        return {"x": "text" if state.x == 1 else state.x}

    graph = StateGraph(Checked)
    graph.add_node("first", first)
    graph.add_node("second", lambda state: {"out": [state.x]})
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    return graph.compile()


def subgraph_refuses() -> AnyGraph:
    graph = StateGraph(Lists)
    graph.add_node("inner", reducer_refuses())
    graph.add_edge(START, "inner")
    return graph.compile()


CASES: dict[str, tuple[Any, Any, Any]] = {
    "a reducer": (reducer_refuses, {"x": "bad"}, {"x": 2}),
    "a reducer, from the input": (reducer_refuses, {"out": "text"}, {"x": 2}),
    "two writers of one value": (two_write_one_value, {"x": "bad"}, {"x": 2}),
    "a schema, after a node": (schema_refuses_what_a_node_wrote, {"x": 1}, {"x": 2}),
    "a schema, from the input": (schema_refuses_what_a_node_wrote, {"x": "text"}, {"x": 2}),
    "a reducer of a subgraph": (subgraph_refuses, {"x": "bad"}, {"x": 2}),
}


async def readable(house: House, conversation: str, turn: str) -> None:
    await house.agents.conversation(ME, conversation)
    await house.agents.turn(ME, turn)
    assert [each async for each in house.agents.export(ME, conversation)]


@pytest.mark.parametrize("case", CASES)
async def test_what_the_state_does_not_take_fails_one_turn_and_no_more(tmp_path: Path, case: str) -> None:
    make, bad, good = CASES[case]
    async with open_house(tmp_path / "db", hosted("agent", make())) as house:
        before = await house.send(good)
        assert (await house.until(before)).status is TurnStatus.COMPLETED
        kept = (await house.agents.conversation(ME, before.conversation)).state
        failed = await house.send(bad, before.conversation)
        turn = await house.until(failed)
        assert turn.failure is not None
        assert (turn.status, turn.failure.code) == (TurnStatus.FAILED, FailureCode.AGENT_FAILURE)
        assert turn.failure.reason == ("node_failed" if "subgraph" in case else "state_rejected")
        await readable(house, before.conversation, failed.turn)
        if turn.failure.reason == "state_rejected":
            with pytest.raises(TurnNotResumable, match="Send a new message"):
                await house.agents.resume(ME, before.conversation)
        after = await house.send(good, before.conversation)
        ended = await house.until(after)
        assert (ended.status, ended.failure) == (TurnStatus.COMPLETED, None)
        assert kept is not None
        shown = (await house.agents.conversation(ME, before.conversation)).state
        assert shown is not None
        assert shown["out"][: len(kept["out"])] == kept["out"]
        await readable(house, before.conversation, after.turn)


async def test_a_second_attempt_ends_by_the_same_name(tmp_path: Path) -> None:
    """The port refuses such a resume; an attempt that died before its end comes here all the same."""
    async with open_house(tmp_path / "db", hosted("agent", reducer_refuses())) as house:
        failed = await house.send({"x": "bad"})
        await house.until(failed)
        await house.store.resume(OWNER, failed.conversation)
        turn = await house.until(failed, TurnStatus.FAILED)
        assert turn.failure is not None
        assert turn.failure.reason == "state_rejected"
        assert turn.epoch == 2


class Calls(MessagesState):
    pass


async def test_a_sibling_whose_result_fits_keeps_it(tmp_path: Path) -> None:
    def ask(state: Calls) -> dict[str, Any]:
        calls: list[Any] = [{"name": name, "args": {}, "id": name, "type": "tool_call"} for name in ("good", "bad")]
        said = state["messages"][-1].text
        return {"messages": [AIMessage("calling", tool_calls=calls) if said == "call" else AIMessage(f"heard {said}")]}

    def tool(call: Any) -> dict[str, Any]:
        fits = ToolMessage("done", tool_call_id=call["id"], id=f"r-{call['id']}")
        return {"messages": [fits, {"bad": 1}] if call["id"] == "bad" else [fits]}

    def route(state: Calls) -> Any:
        return [Send("tools", call) for call in getattr(state["messages"][-1], "tool_calls", [])] or END

    graph = StateGraph(Calls)
    graph.add_node("ask", ask)
    graph.add_node("tools", tool)  # type: ignore[arg-type]
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", route, ["tools", END])
    async with open_house(tmp_path / "db", hosted("agent", graph.compile())) as house:
        failed = await house.send("call")
        assert (await house.until(failed)).status is TurnStatus.FAILED
        assert await house.messages(failed) == ["user: call", "assistant: calling"]
        after = await house.send("more", failed.conversation)
        assert (await house.until(after)).status is TurnStatus.COMPLETED
        messages = await house.messages(failed)
        assert messages[2] == "tool: done"
        assert messages[3].startswith("tool: ")
        assert messages[3] != "tool: done"
        assert messages[4:] == ["user: more", "assistant: heard more"]


async def test_a_type_that_may_not_be_read_back_is_never_passed_over(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", schema_refuses_what_a_node_wrote())) as house:
        done = await house.send({"x": 2})
        await house.until(done)

        async def blocked(*_: Any, **__: Any) -> None:
            raise StateTypeNotAllowed("blocked")

        conversation = await house.store.conversation(OWNER, done.conversation)
        graph = house.agents._threads._graph(conversation)
        graph.aget_state = blocked  # type: ignore[method-assign,assignment]
        house.agents._threads._graph = lambda _: graph  # type: ignore[method-assign,assignment]
        with pytest.raises(StateTypeNotAllowed):
            await house.agents.conversation(ME, done.conversation)
