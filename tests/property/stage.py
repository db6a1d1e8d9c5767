"""Agents whose model and tools stop at every moment and ask a director what is to happen there: go on, fail, be killed, be cancelled.

A moment is a pass through `Stage.moment`: before a model call, in the middle of its answer, when a call reaches its tool, and between
the tool's effect and its return. The record of effects is the stage's own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from langchain.agents import create_agent
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolRuntime

from perdure import NOT_HAPPENED, DurableToolsMiddleware, ToolNode, call_key, effect
from tests.crash.scripted import ScriptedModel
from tests.strict import HistoryRefused


class Broken(RuntimeError):
    """A node, a tool or the model failed because the director said so."""


@dataclass(slots=True)
class Stage:
    """What happens at which moment, and what was seen."""

    acts: dict[int, str] = field(default_factory=dict)
    """Moment (counted over the whole history) → `kill`, `cancel`, `interrupt` or `fail`."""

    starts: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    arguments: dict[str, list[str]] = field(default_factory=dict)
    """Key → the labels it was started with."""

    refusals: list[str] = field(default_factory=list)
    moments: int = 0
    act: str = ""
    """What the director waits for somebody to do."""

    _called: asyncio.Event = field(default_factory=asyncio.Event)
    _done: asyncio.Event = field(default_factory=asyncio.Event)

    async def moment(self) -> None:
        self.moments += 1
        act = self.acts.pop(self.moments, "")
        if act == "fail":
            raise Broken(f"moment {self.moments} broke")
        if act and not self.act:
            self.act = act
            self._done.clear()
            self._called.set()
            await self._done.wait()

    async def called(self) -> str:
        """The next act that somebody must do; `done` tells that it was."""
        await self._called.wait()
        return self.act

    def done(self) -> None:
        self.act = ""
        self._called.clear()
        self._done.set()


class StagedModel(ScriptedModel):
    """The scripted model on a stage; what it refuses is written down, whatever the turn makes of it."""

    pause_seconds: float = 0.0

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        stage = current()
        await stage.moment()
        first = True
        try:
            async for chunk in super()._astream(messages, stop, run_manager, **kwargs):
                yield chunk
                if first:
                    await stage.moment()
                first = False
        except HistoryRefused as error:
            stage.refusals.append(str(error))
            raise


_stages: list[Stage] = [Stage()]


def current() -> Stage:
    return _stages[-1]


def enter(stage: Stage) -> None:
    _stages[:] = [stage]


async def act(label: str, config: RunnableConfig) -> str:
    stage, key = current(), call_key(config) or ""
    stage.starts[key] += 1
    stage.arguments.setdefault(key, []).append(label)
    await stage.moment()
    stage.effects[key] += 1
    await stage.moment()
    return f"{label}: done"


async def booked(key: str) -> Any:
    return "booked: done" if current().effects[key] else NOT_HAPPENED


@effect("read")
@tool
async def look(label: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Looks at something."""
    return await act(label, runtime.config)


@effect("keyed")
@tool
async def save(label: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Saves something."""
    return await act(label, runtime.config)


@effect("checkable", lookup=booked)
@tool
async def book(label: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Books something."""
    return await act(label, runtime.config)


@effect("once")
@tool
async def charge(label: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Charges a card."""
    return await act(label, runtime.config)


@effect("once")
@tool
async def restart(label: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Restarts a service; a person is asked before."""
    return await act(label, runtime.config)


@effect("read")
@tool
async def break_down(label: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Fails, always."""
    await act(label, runtime.config)
    raise ToolException(f"{label} broke down")


break_down.handle_tool_error = True  # an answer for the model, in every tool node

tools: list[BaseTool] = [look, save, book, charge, restart, break_down]


def own() -> StateGraph[Any, Any, Any, Any]:
    """A plain graph that gives the model its thread as it is; all calls of an answer run in one task."""
    model: BaseChatModel = StagedModel()

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
    return create_agent(StagedModel(), tools, middleware=[DurableToolsMiddleware()])
