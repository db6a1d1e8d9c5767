"""The head of a thread, also when the state does not take what a step wrote.

LangGraph applies a step's recorded writes whenever it reads a thread, and hands every waiting node its input through the
graph's schema. One value that a reducer or a schema refuses would so make the thread unreadable for ever. Here it is then
read without what does not fit, and `sound_place` tells where a repair can go on. Writes nothing.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from functools import cache
from typing import cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.types import StateSnapshot

from perdure.engine.hosting import AnyGraph, saver_of
from perdure.errors import PerdureError


@dataclass(frozen=True, slots=True)
class Head:
    """`fault`: why the state does not take what a step wrote; `state` is then what was before that step."""

    state: StateSnapshot
    fault: Exception | None = None


async def read_head(graph: AnyGraph, config: RunnableConfig, *, subgraphs: bool = False) -> Head:
    """The checkpoint that `config` names, or the newest. Raises what reading raised when nothing can be read at all;
    errors of the store (and types that may not be read back) are never passed over."""
    try:
        return Head(await graph.aget_state(config, subgraphs=subgraphs))
    except PerdureError:
        raise
    except Exception as error:  # the graph's own code: a reducer, a schema
        fault = error
    for reader in (_hiding(graph), _unchecked(_hiding(graph))):
        state = await _read(reader, config)
        if state is not None:
            return Head(state, fault)
    raise fault


async def sound_place(graph: AnyGraph, config: RunnableConfig, fault: Exception) -> tuple[AnyGraph, RunnableConfig]:
    """A view of the graph and the checkpoint where its tasks can be ended without what the state does not take. As little
    as possible is lost: the writes that do not fit, else the whole step, else the steps back to the last one whose nodes can
    start. Raises `fault` when there is none."""
    async for reader, place in _candidates(graph, config):
        if await _read(reader, place) is not None:
            return reader, place
    raise fault


async def _candidates(graph: AnyGraph, config: RunnableConfig) -> AsyncIterator[tuple[AnyGraph, RunnableConfig]]:
    saver = saver_of(graph)
    saved = await saver.aget_tuple(config)
    written = {task for task, *_ in (saved.pending_writes or ())} if saved is not None else set()
    unfit = {task for task in written if await _read(_hiding(graph, written - {task}), config) is None}
    if unfit:
        yield _hiding(graph, unfit), config
    while saved is not None:
        yield _hiding(graph), _at(config, saved.config)
        parent = saved.parent_config
        saved = await saver.aget_tuple(parent) if parent is not None else None


def _at(config: RunnableConfig, place: RunnableConfig) -> RunnableConfig:
    return cast(RunnableConfig, {**config, "configurable": dict(place["configurable"])})


async def _read(graph: AnyGraph, config: RunnableConfig) -> StateSnapshot | None:
    try:
        return await graph.aget_state(config)
    except PerdureError:
        raise
    except Exception:  # what does not fit does not fit here either
        return None


# -- views of a graph -------------------------------------------------------------------------------------------------


def _hiding(graph: AnyGraph, tasks: Collection[str] | None = None) -> AnyGraph:
    """The graph through a saver that leaves out what these tasks wrote and no step has taken yet (None: all tasks)."""
    saver = copy.copy(cast("BaseCheckpointSaver[str]", graph.checkpointer))
    saver.__class__ = _hider(type(saver))  # type: ignore[arg-type]  # a class is hashable
    vars(saver)["hidden_tasks"] = tasks
    view = copy.copy(graph)
    view.checkpointer = saver
    return view


@cache
def _hider(kind: type[BaseCheckpointSaver[str]]) -> type[BaseCheckpointSaver[str]]:
    """A class of its own, for LangGraph copies savers and a copy must hide the same."""

    class Hiding(kind):  # type: ignore[valid-type,misc]
        hidden_tasks: Collection[str] | None

        async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
            found: CheckpointTuple | None = await super().aget_tuple(config)
            if found is None or not found.pending_writes:
                return found
            hidden = self.hidden_tasks
            shown = [write for write in found.pending_writes if hidden is not None and write[0] not in hidden]
            return found._replace(pending_writes=shown)

    return Hiding


def _unchecked(graph: AnyGraph) -> AnyGraph:
    """The graph with nodes whose input passes no schema: for reading, never for running."""
    view = copy.copy(graph)
    view.nodes = {name: copy.copy(node) for name, node in graph.nodes.items()}
    for node in view.nodes.values():
        node.mapper = None
    return view
