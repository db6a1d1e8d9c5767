"""Which tools of a user's graph pass the guard: found in nodes, subgraphs, functions, methods, agents that are tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode as StockToolNode

from perdure.graph.coverage import Coverage, coverage_of
from perdure.graph.demo import DemoModel
from perdure.graph.load import Graph
from perdure.graph.middleware import DurableToolsMiddleware
from perdure.graph.tool_node import ToolNode


@tool
def a() -> None:
    """A."""


@tool
def b() -> None:
    """B."""


def around(node: Any) -> Graph:
    graph = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    return graph.compile()


class Holder:
    def __init__(self) -> None:
        self.node = StockToolNode([a])

    async def run(self, state: MessagesState) -> Any:
        return await self.node.ainvoke(state)

    async def __call__(self, state: MessagesState) -> Any:
        return await self.node.ainvoke(state)


def in_a_function() -> Graph:
    node = StockToolNode([a])

    async def run(state: MessagesState) -> Any:
        return await node.ainvoke(state)

    return around(run)


def an_agent_as_a_tool() -> Graph:
    inner: Graph = create_agent(DemoModel(), tools=[a])

    @tool
    async def delegate(task: str) -> str:
        """Delegates."""
        return str(await inner.ainvoke({"messages": [("user", task)]}))

    return around(ToolNode([delegate, b]))


UNCOVERED: dict[str, tuple[Callable[[], Graph], tuple[str, ...]]] = {
    "a stock node": (lambda: around(StockToolNode([a])), ()),
    "a stock node in a sequence": (lambda: around(RunnableLambda(lambda state: state) | StockToolNode([a])), ()),
    "a stock node in a subgraph": (lambda: around(around(StockToolNode([a]))), ()),
    "a stock node in a function": (in_a_function, ()),
    "a stock node in a method": (lambda: around(Holder().run), ()),
    "a stock node in an object that is called": (lambda: around(Holder()), ()),
    "an agent": (lambda: create_agent(DemoModel(), tools=[a]), ()),
    "an agent with other middleware": (
        lambda: create_agent(DemoModel(), tools=[a], middleware=[ToolRetryMiddleware()]),
        (),
    ),
    "an agent in a subgraph": (lambda: around(create_agent(DemoModel(), tools=[a])), ()),
    "an agent as a covered tool": (an_agent_as_a_tool, ("b", "delegate")),
}


@pytest.mark.parametrize("what", list(UNCOVERED))
def test_a_tool_that_nothing_guards_is_found(what: str) -> None:
    make, covered = UNCOVERED[what]
    assert coverage_of(make()) == Coverage(covered, ("a",))


COVERED: dict[str, Callable[[], Graph]] = {
    "our node": lambda: around(ToolNode([a])),
    "our node in a subgraph": lambda: around(around(ToolNode([a]))),
    "an agent with our middleware": lambda: create_agent(DemoModel(), tools=[a], middleware=[DurableToolsMiddleware()]),
    "an agent with ours and another": lambda: create_agent(
        DemoModel(), tools=[a], middleware=[DurableToolsMiddleware(), ToolRetryMiddleware()]
    ),
}


@pytest.mark.parametrize("what", list(COVERED))
def test_a_tool_that_is_guarded_is_told_from_it(what: str) -> None:
    assert coverage_of(COVERED[what]()) == Coverage(("a",), ())


def test_a_graph_without_tools_has_none() -> None:
    assert coverage_of(around(lambda state: state)) == Coverage()
