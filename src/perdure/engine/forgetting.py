"""A view of a graph whose unfinished tasks have forgotten every answer they were given.

LangGraph records the answers of a task by position, and hands them out again by position when the task runs once more. After
an attempt that failed or died, a node that asks otherwise the second time would take one of them for another question. Seen
through this view each task asks again from its first question on, and is answered by what it asks.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import cast

from langchain_core.runnables import RunnableConfig
from langgraph._internal._constants import RESUME
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.pregel._task_status import read_task_statuses

from perdure.engine.hosting import AnyGraph


def asking_anew(graph: AnyGraph, turn: str) -> AnyGraph:
    """For one stream of this turn that sends no answers. What the turn recorded is overwritten wherever LangGraph reads it,
    subgraphs included: no later attempt meets it either, however this one ends."""
    saver = copy.copy(cast("BaseCheckpointSaver[str]", graph.checkpointer))
    saver.__class__ = _forgetter(type(saver))  # type: ignore[arg-type]  # a class is hashable
    vars(saver)["forgetting_turn"] = turn
    view = copy.copy(graph)
    view.checkpointer = saver
    return view


@cache
def _forgetter(kind: type[BaseCheckpointSaver[str]]) -> type[BaseCheckpointSaver[str]]:
    """A class of its own, for LangGraph copies savers and a copy must forget the same."""

    class Forgetting(kind):  # type: ignore[valid-type,misc]
        forgetting_turn: str

        async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
            found: CheckpointTuple | None = await super().aget_tuple(config)
            if found is None or not found.pending_writes or found.metadata.get("run_id") != self.forgetting_turn:
                return found
            writes = found.pending_writes
            unfinished = {task for task, status in read_task_statuses(writes).items() if not status.finished}
            answered = {task for task, channel, value in writes if channel == RESUME and value and task in unfinished}
            if not answered:
                return found
            for task in answered:
                await self.aput_writes(found.config, [(RESUME, [])], task)
            kept = [each for each in writes if each[1] != RESUME or each[0] not in answered]
            return found._replace(pending_writes=kept)

    return Forgetting
