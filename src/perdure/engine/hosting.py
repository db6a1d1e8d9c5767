"""A hosted graph bound to a saver: how the engine drives it and the port reads it.

Never `graph.copy()` or `with_config()`: they lose the list of types that strict deserialisation lets through, and state
comes back as plain dicts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from langgraph._internal._serde import build_serde_allowlist
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel
from langgraph.pregel._loop import PregelLoop

from perdure.graph.load import HostedGraph

AnyGraph = Pregel[Any, Any, Any, Any]


def host(hosted: HostedGraph, saver: BaseCheckpointSaver[str]) -> AnyGraph:
    """A shallow copy that saves through `saver`. The user's own object keeps its checkpointer."""
    bound = bind(hosted.graph, saver)
    types = {(each.__module__, each.__name__) for each in hosted.state_types}
    if types:
        bound.checkpointer = saver.with_allowlist(types)
    return bound


def bind(graph: AnyGraph, saver: BaseCheckpointSaver[str]) -> AnyGraph:
    bound = copy.copy(graph)
    bound.checkpointer = saver
    if bound._serde_allowlist is None and isinstance(bound, CompiledStateGraph):
        schemas = list(bound.builder.schemas)
        bound._serde_allowlist = build_serde_allowlist(schemas=schemas, channels=bound.channels)
    return bound


def saver_of(graph: AnyGraph) -> BaseCheckpointSaver[str]:
    """The graph's saver with the types of its schema let through, as LangGraph reads with it."""
    saver: BaseCheckpointSaver[str] = graph._state_checkpointer({"configurable": {}})
    return saver


class _NothingSaved:
    """Done at once, as often as it is awaited."""

    def __await__(self) -> Iterator[None]:
        return iter(())

    def result(self) -> None:
        return None


# A subgraph compiled with `checkpointer=False` saves nothing, and LangGraph 1.2 awaits its save under `durability="sync"`
# all the same: an attribute that such a loop never sets, whether it runs in an asynchronous or a synchronous node.
if not hasattr(PregelLoop, "_put_checkpoint_fut"):
    PregelLoop._put_checkpoint_fut = _NothingSaved()  # type: ignore[assignment]
