"""Tools of every effect class that act on the outside world, and three agents that call them in parallel.

`PERDURE_TEST_TOOL_SECONDS` (0.03) passes before each effect and again between the effect and the tool's return.
"""

import asyncio
import os
from typing import Any

from langchain.agents import create_agent
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolRuntime

from perdure import NOT_HAPPENED, DurableToolsMiddleware, ToolNode, call_key, effect
from tests.crash import world
from tests.crash.scripted import ScriptedModel


def outside() -> str:
    return os.environ["PERDURE_DEMO_EFFECTS"]


async def act(name: str, label: str, config: RunnableConfig, *, deduplicates: bool = False) -> str:
    """Arrives, takes effect, and returns what the outside said; a kill falls anywhere between."""
    key, arguments = call_key(config) or "", {"label": label}
    pause = float(os.environ.get("PERDURE_TEST_TOOL_SECONDS", "0.03"))
    await asyncio.to_thread(world.arrive, outside(), name, arguments, key)
    await asyncio.sleep(pause)
    said = await asyncio.to_thread(world.take_effect, outside(), name, arguments, key, deduplicates=deduplicates)
    await asyncio.sleep(pause)
    return said


async def booked(key: str) -> Any:
    """What became of the call with this key."""
    return await asyncio.to_thread(world.find, outside(), key) or NOT_HAPPENED


@effect("read")
@tool
async def look(label: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Looks at something."""
    return await act("look", label, runtime.config)


@effect("keyed")
@tool
async def save(label: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Saves something under the key of the call."""
    return await act("save", label, runtime.config, deduplicates=True)


@effect("checkable", lookup=booked)
@tool
async def book(label: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Books something; the record tells whether it was booked."""
    return await act("book", label, runtime.config)


@effect("once")
@tool
async def charge(label: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Charges a card."""
    return await act("charge", label, runtime.config)


@effect("once")
@tool
async def restart(label: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Restarts a service; a person is asked before."""
    return await act("restart", label, runtime.config)


@effect("read")
@tool
async def break_down(label: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Fails, always."""
    await act("break_down", label, runtime.config)
    raise ToolException(f"{label} broke down")


break_down.handle_tool_error = True  # an answer for the model, in every tool node

tools: list[BaseTool] = [look, save, book, charge, restart, break_down]


def of_ones_own() -> StateGraph[Any, Any, Any, Any]:
    """A plain graph: all calls of an answer in one task."""
    model = ScriptedModel()

    async def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def route(state: MessagesState) -> str:
        return "tools" if getattr(state["messages"][-1], "tool_calls", None) else END

    graph = StateGraph(MessagesState)
    graph.add_node("model", think)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", route, ["tools", END])
    graph.add_edge("tools", "model")
    return graph


def made() -> Any:
    """LangChain's agent with the middleware."""
    return create_agent(ScriptedModel(), tools, middleware=[DurableToolsMiddleware()])
