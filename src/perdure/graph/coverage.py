"""Which tools of a user's graph pass the guard, and which do not.

Looks at what a graph is made of: its nodes, the graphs inside them, what their functions refer to, the tools of its tool
nodes and the agents that these run. A tool that a node's function calls by itself cannot be seen from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any

from langchain_core.runnables import RunnableBinding, RunnableLambda, RunnableParallel, RunnableSequence
from langchain_core.runnables.utils import get_function_nonlocals
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolNode as StockToolNode
from langgraph.pregel import Pregel

from perdure.graph.middleware import DurableToolsMiddleware
from perdure.graph.tool_node import ToolNode

_MOST_OBJECTS = 20_000
"""A graph whose functions refer to half a program is not looked through to the end."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Names of tools. One that is in both runs inside a guarded node and outside of one."""

    covered: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()


def coverage_of(graph: Pregel[Any, Any, Any, Any]) -> Coverage:
    covered: set[str] = set()
    uncovered: set[str] = set()
    for node in _tool_nodes(graph):
        (covered if _guarded(node) else uncovered).update(node.tools_by_name)
    return Coverage(tuple(sorted(covered)), tuple(sorted(uncovered)))


def _guarded(node: StockToolNode) -> bool:
    if isinstance(node, ToolNode):
        return True
    # `create_agent` keeps its middleware as one function made of all of them.
    return any(isinstance(each, DurableToolsMiddleware) for each in _reachable(node._awrap_tool_call, _wrapped))


def _tool_nodes(graph: Pregel[Any, Any, Any, Any]) -> Iterator[StockToolNode]:
    return (each for each in _reachable(graph, _parts) if isinstance(each, StockToolNode))


def _reachable(start: Any, inside: Any) -> Iterator[Any]:
    seen: set[int] = set()
    waiting = [start]
    while waiting and len(seen) < _MOST_OBJECTS:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting.extend(inside(each))


def _wrapped(function: Any) -> Iterator[Any]:
    """What a function made of functions holds: its closure, what it wraps, and the object of a method."""
    if isinstance(function, MethodType):
        yield function.__self__
        yield function.__func__
    elif isinstance(function, FunctionType):
        yield getattr(function, "__wrapped__", None)
        yield from (cell.cell_contents for cell in function.__closure__ or () if _filled(cell))


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # a name that was never bound
        return False


def _parts(each: Any) -> Iterator[Any]:
    """What it is made of, as far as tools may be in it."""
    if isinstance(each, Pregel):
        for node in each.nodes.values():
            yield node.bound
            yield from node.subgraphs or ()
    elif isinstance(each, StockToolNode):
        yield from each.tools_by_name.values()
    elif isinstance(each, BaseTool):
        yield getattr(each, "func", None)
        yield getattr(each, "coroutine", None)
    elif isinstance(each, FunctionType):
        yield from _referred(each)
    elif isinstance(each, MethodType):
        yield from _referred(each.__func__)
        yield from _own(each.__self__)
    else:
        yield from _steps(each)


def _steps(each: Any) -> Iterator[Any]:
    if isinstance(each, RunnableSequence):
        yield from each.steps
    elif isinstance(each, RunnableParallel):
        yield from each.steps__.values()
    elif isinstance(each, RunnableBinding):
        yield each.bound
    elif isinstance(each, RunnableLambda):
        yield from each.deps
    else:  # LangGraph's own sequences and callables, which have no public names
        yield from getattr(each, "steps", ()) if type(each).__name__ == "RunnableSeq" else ()
        if type(each).__name__ == "RunnableCallable":
            yield each.func
            yield each.afunc
            yield from _own(each.func)
            yield from _own(each.afunc)


def _referred(function: Callable[..., Any]) -> Iterator[Any]:
    """Of the names its code uses, those that may lead to tools; `node.ainvoke` leads to the node."""
    for each in get_function_nonlocals(function):
        found = each.__self__ if isinstance(each, MethodType) else each
        if isinstance(found, Pregel | StockToolNode | BaseTool | FunctionType | RunnableSequence | RunnableBinding):
            yield found


def _own(instance: Any) -> Iterator[Any]:
    held = getattr(instance, "__dict__", {})
    yield from (each for each in held.values() if isinstance(each, Pregel | StockToolNode))
