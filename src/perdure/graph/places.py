"""Several calls in one task share what LangGraph counts by task: questions asked by `interrupt()`, and graphs run inside.

It counts anew whenever the task is run. A call whose result is recorded is then not made again and counts nothing, so
that the next call would get its answers, or the stored state of its inner graph. Hence each call has a place of its own:
inner graphs are counted apart, and the answers of a task are for the one call of it that asked.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from langchain_core.runnables import RunnableConfig

from perdure.graph.errors import QuestionsMixed

_SCRATCHPAD = "__pregel_scratchpad"
_APART = 1000
"""More inner graphs than one call will run."""

resuming: ContextVar[bool] = ContextVar("perdure_call_resumes", default=False)
"""Whether the call that runs in this context is run again because its own question may have been answered."""


@dataclass(slots=True)
class Place:
    """Of one call among several of a task. `tool` is for messages."""

    index: int
    tool: str
    asked: bool = False
    """Its tool has called `interrupt()` in this attempt."""

    def within(self, config: RunnableConfig) -> RunnableConfig:
        """What the tool runs with."""
        values = config.get("configurable", {})
        shared = values.get(_SCRATCHPAD)
        if shared is None:
            return config
        foreign = bool(shared.resume) and not resuming.get()

        def next_question() -> int:
            self.asked = True
            if foreign:
                raise mixed(self.tool)
            number: int = shared.interrupt_counter()
            return number

        own = replace(shared, interrupt_counter=next_question, subgraph_counter=count(self.index * _APART).__next__)
        return {**config, "configurable": {**values, _SCRATCHPAD: own}}


def mixed(*tools: str) -> QuestionsMixed:
    names = " and ".join(f"`{each}`" for each in tools)
    return QuestionsMixed(
        f"{names} asked a question by interrupt() beside another call of the same step that asks one: the answer of one could be taken "
        "for the other's. Make each call a task of its own, as create_agent does (one Send per call), or let one of them ask."
    )


def place_of(call: Any, calls: list[Any]) -> Place | None:
    """None where it is the only call."""
    if len(calls) < 2:
        return None
    index = next((n for n, each in enumerate(calls) if each["id"] == call["id"]), None)
    return None if index is None else Place(index, str(call["name"]))
