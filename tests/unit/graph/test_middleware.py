"""`perdure.DurableToolsMiddleware` in an agent that `create_agent` makes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.prebuilt import ToolRuntime
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

import perdure
from perdure import ledger
from perdure.effects import Gate
from perdure.errors import PerdureError
from perdure.graph.errors import LimitReached
from perdure.graph.keys import call_key
from perdure.graph.load import Graph
from perdure.ledger import CallState, ToolCall
from perdure.turns import DecisionKind
from tests.unit.graph.scripted import Driven, Make, ScriptedModel, asks, results, says, with_agent


class Doubles(AgentMiddleware[Any, Any, Any]):
    """Changes the arguments on their way to the tool."""

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        call = request.tool_call.copy()
        call["args"] = {"n": call["args"]["n"] * 2}
        return await handler(request.override(tool_call=call))


def agent_with(*more: AgentMiddleware[Any, Any, Any]) -> Make:
    def make(model: ScriptedModel, tools: Sequence[BaseTool]) -> Graph:
        graph: Graph = create_agent(model, tools=list(tools), middleware=[perdure.DurableToolsMiddleware(), *more])
        return graph

    return make


async def test_a_retry_inside_is_one_recorded_call() -> None:
    tries: list[str | None] = []

    @tool
    async def flaky(n: int) -> str:
        """Fails twice."""
        tries.append(call_key())
        if len(tries) < 3:
            raise ConnectionError("busy")
        return f"did {n}"

    retry = ToolRetryMiddleware(max_retries=3, initial_delay=0.0, jitter=False)
    driven = Driven(agent_with(retry), [asks(("flaky", {"n": 1})), says("done")], flaky)
    assert results(await driven.say())["c0"].content == "did 1"
    ((key, record),) = driven.record.records.items()
    assert (tries, record.starts, record.state) == ([key] * 3, 1, CallState.RECORDED)


async def test_an_exception_of_a_once_tool_is_a_question_and_of_others_ends_the_turn() -> None:
    @tool
    async def boom() -> str:
        """Fails."""
        raise ValueError("boom")

    calls = [asks(("boom", {})), says("done")]
    driven = Driven(with_agent, calls, boom)
    await driven.say()
    (gate,) = (await driven.gates()).values()
    assert (gate.gate, gate.why) == (Gate.UNCERTAIN, "the tool raised ValueError: boom")
    with pytest.raises(ValueError, match="boom"):
        await Driven(with_agent, calls, perdure.effect("read")(boom)).say()


async def test_a_middleware_inside_cannot_change_what_was_approved() -> None:
    ran: list[int] = []

    @tool
    async def act(n: int, runtime: ToolRuntime) -> str:
        """Acts."""
        ran.append(n)
        return f"did {n}"

    @tool
    async def free(n: int) -> str:
        """Acts without a question."""
        ran.append(n)
        return f"did {n}"

    replies = [asks(("act", {"n": 1}), ("free", {"n": 5})), says("done")]
    driven = Driven(agent_with(Doubles()), replies, act, free, needs_approval=["act"])
    await driven.say()
    await driven.decide("act 1", DecisionKind.APPROVE)
    answers = results(await driven.again())
    assert ran == [10]
    assert answers["c1"].content == "did 10"
    assert (answers["c0"].status, "changed on the way" in str(answers["c0"].content)) == ("error", True)


async def test_an_approved_tool_gets_its_runtime_and_its_key() -> None:
    @tool
    async def act(n: int, runtime: ToolRuntime) -> str:
        """Acts."""
        return f"{n} {runtime.tool_call_id} {call_key(runtime.config)} {call_key()}"

    driven = Driven(with_agent, [asks(("act", {"n": 1})), says("done")], act, needs_approval=["act"])
    await driven.say()
    await driven.decide("act 1", DecisionKind.APPROVE)
    messages = await driven.again()
    (key,) = driven.record.records
    assert results(messages)["c0"].content == f"1 c0 {key} {key}"


async def test_a_tool_that_answers_directly_and_one_that_commands() -> None:
    @tool(return_direct=True)
    async def final() -> str:
        """Answers the user itself."""
        return "that is all"

    direct = Driven(with_agent, [asks(("final", {}))], final)
    assert (await direct.say())[-1].content == "that is all"

    @tool
    async def note(runtime: ToolRuntime) -> Command[Any]:
        """Notes."""
        return Command(update={"messages": [ToolMessage("noted", tool_call_id=runtime.tool_call_id)]})

    commanded = Driven(with_agent, [asks(("note", {})), says("done")], note)
    assert results(await commanded.say())["c0"].content == "noted"
    (record,) = commanded.record.records.values()
    assert isinstance(record.result, Command)


async def test_a_limit_passes_through_every_other_middleware() -> None:
    @tool
    async def act() -> str:
        """Acts."""
        return "did"

    def make(model: ScriptedModel, tools: Sequence[BaseTool]) -> Graph:
        outside = ToolRetryMiddleware(max_retries=3, initial_delay=0.0, jitter=False)
        graph: Graph = create_agent(model, tools=list(tools), middleware=[outside, perdure.DurableToolsMiddleware()])
        return graph

    driven = Driven(make, [asks(("act", {})), says("done")], act)
    asked: list[str] = []

    async def refuse(call: ToolCall) -> None:
        asked.append(call.name)
        raise LimitReached("tool_call_limit", "enough")

    driven.record.intend = refuse  # type: ignore[method-assign]
    with pytest.raises(LimitReached):
        await driven.say()
    assert asked == ["act"]


async def test_a_synchronous_agent_inside_a_turn_is_refused_and_outside_works() -> None:
    @tool
    def act() -> str:
        """Acts."""
        return "did"

    driven = Driven(with_agent, [asks(("act", {})), says("done"), asks(("act", {}))], act)
    graph: Any = driven.chat.hosted.graph
    assert graph.invoke({"messages": [("user", "go")]})["messages"][-1].content == "done"
    ledger.current.set(driven.record)
    with pytest.raises(PerdureError, match="ainvoke"):
        graph.invoke({"messages": [("user", "go")]})
