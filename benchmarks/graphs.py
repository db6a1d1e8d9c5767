"""The graphs both sides run: plain LangGraph, no model server, the same code for Perdure and for stock."""

from __future__ import annotations

from itertools import count
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph

KILOBYTE = ("The quick brown fox jumps over the lazy dog. " * 23)[:1024]
FILL = "/fill "
_numbers = count(1)


async def reply(state: MessagesState) -> dict[str, list[AnyMessage]]:
    """One kilobyte back: with the kilobyte that was sent, a turn is 2 KB of text."""
    return {"messages": [AIMessage(f"{next(_numbers)} {KILOBYTE}"[:1024])]}


async def model(state: MessagesState) -> dict[str, list[AnyMessage]]:
    """A call, then an answer. `/fill N` answers at once, with a history of N messages."""
    last = state["messages"][-1]
    if not isinstance(last, HumanMessage):
        return {"messages": [AIMessage("It is sunny, as the tool says.")]}
    if str(last.content).startswith(FILL):
        return {"messages": history(int(str(last.content).removeprefix(FILL)) - 1)}
    call = {"name": "look_up", "args": {"what": "weather"}, "id": f"call_{next(_numbers)}", "type": "tool_call"}
    return {"messages": [AIMessage("", tool_calls=[call])]}


def history(length: int) -> list[AnyMessage]:
    """Alternating, ending with the assistant."""
    text = f"{KILOBYTE}"
    return [(AIMessage if index % 2 == 0 else HumanMessage)(f"{index} {text}") for index in range(length)]


async def tool(state: MessagesState) -> dict[str, list[AnyMessage]]:
    last = state["messages"][-1]
    assert isinstance(last, AIMessage)
    return {"messages": [ToolMessage("sunny", tool_call_id=last.tool_calls[0]["id"], name="look_up")]}


def after_model(state: MessagesState) -> str:
    last = state["messages"][-1]
    return "tool" if isinstance(last, AIMessage) and last.tool_calls else END


def one_step() -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(MessagesState)
    graph.add_node("reply", reply)
    graph.add_edge(START, "reply")
    return graph


def three_steps() -> StateGraph[Any, Any, Any, Any]:
    """model → tool → model"""
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tool", tool)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", after_model, ["tool", END])
    graph.add_edge("tool", "model")
    return graph


short = one_step().compile()
chat = three_steps().compile()
