"""The static breakpoints of a graph (`interrupt_before`, `interrupt_after`) as the head of a thread meets them."""

from __future__ import annotations

from collections.abc import Sequence

from langgraph.types import StateSnapshot

from perdure.engine.hosting import AnyGraph
from perdure.engine.plan import Breakpoints


async def breakpoints_at(graph: AnyGraph, state: StateSnapshot) -> Breakpoints:
    """`state`: the head of the thread."""
    before = _nodes(graph.interrupt_before_nodes)
    after = _nodes(graph.interrupt_after_nodes)
    return Breakpoints(before, after, await _ran(graph, state) if after else ())


async def _ran(graph: AnyGraph, state: StateSnapshot) -> Sequence[str]:
    """The nodes of the step that made the head."""
    if state.parent_config is None or (state.metadata or {}).get("source") != "loop":
        return ()
    parent = await graph.aget_state(state.parent_config)
    return [task.name for task in parent.tasks]


def _nodes(named: Sequence[str] | str) -> tuple[str, ...]:
    return (named,) if isinstance(named, str) else tuple(named)
