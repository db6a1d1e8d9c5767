"""Small real graphs that stop, fail, wait and loop in the ways the engine must handle."""

from __future__ import annotations

import asyncio
import functools
import operator
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage, message_chunk_to_message
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.pregel import Pregel
from langgraph.types import Send, interrupt

AnyGraph = Pregel[Any, Any, Any, Any]

PATIENCE_SECONDS = 60.0
"""A loaded machine fails no test; only what never happens does."""


class Values(TypedDict, total=False):
    done: Annotated[list[str], operator.add]


@dataclass
class World:
    """What a test steers and sees of a graph's nodes."""

    ran: list[str] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    entered: dict[str, asyncio.Event] = field(default_factory=dict)
    held: dict[str, asyncio.Event] = field(default_factory=dict)

    def hold(self, name: str) -> None:
        """`pass_by(name)` waits until `let(name)`."""
        self.held[name] = asyncio.Event()
        self.entered[name] = asyncio.Event()

    def let(self, name: str) -> None:
        self.held.pop(name).set()

    async def met(self, name: str) -> None:
        """Returns when somebody has come to the gate: somebody else each time it is awaited."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.entered[name].wait()
        self.entered[name].clear()

    async def pass_by(self, name: str) -> None:
        if name in self.held:
            gate = self.held[name]
            self.entered[name].set()
            await gate.wait()
        if name in self.failing:
            raise RuntimeError(f"{name} broke")
        self.ran.append(name)


class ScriptedModel(BaseChatModel):
    """Streams word by word: tool calls `a`, `b` when the message says so, else `answer <message>`."""

    world: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("unused"))])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        await self.world.pass_by("model")
        last = messages[-1]
        if last.type == "human" and str(last.content).startswith("call "):
            names = str(last.content).split()[1:]
            yield ChatGenerationChunk(message=AIMessageChunk(content="Calling. "))
            calls = [tool_call_chunk(name=name, args="{}", id=f"call-{name}", index=i) for i, name in enumerate(names)]
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=calls))
            return
        asked = next(str(each.content) for each in reversed(messages) if each.type == "human")
        for index, word in enumerate(["answer ", asked]):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))
            await self.world.pass_by(f"word {index}")


def agent(world: World) -> AnyGraph:
    """model ⇄ tools, one task per call. `ask` waits for a person, others run."""
    model = ScriptedModel(world=world)

    async def think(state: MessagesState) -> dict[str, Any]:
        pieces = [piece async for piece in model.astream(state["messages"])]
        return {"messages": [message_chunk_to_message(functools.reduce(operator.add, pieces))]}

    async def tool(call: Any) -> dict[str, Any]:
        content = "done"
        if call["name"].startswith("ask"):
            content = str(interrupt({"tool": call["name"]}))
        await world.pass_by(call["name"])
        return {"messages": [ToolMessage(content, name=call["name"], tool_call_id=call["id"], id=f"r-{call['id']}")]}

    def route(state: MessagesState) -> list[Send] | str:
        last = state["messages"][-1]
        return [Send("tools", call) for call in getattr(last, "tool_calls", [])] or END

    graph = StateGraph(MessagesState)
    graph.add_node("model", think)
    graph.add_node("tools", cast("Any", tool))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", route, ["tools", END])
    graph.add_edge("tools", "model")
    return graph.compile()


def chain(world: World, *names: str, **compiled: Any) -> AnyGraph:
    """JSON state; the nodes run one after the other."""

    def node(name: str) -> Any:
        async def run(state: Values) -> Values:
            await world.pass_by(name)
            return {"done": [name]}

        return run

    graph = StateGraph(Values)
    for name in names:
        graph.add_node(name, node(name))
    for before, after in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(before, after)
    return graph.compile(**compiled)


def questions(world: World, asked: Sequence[str], *, parallel: bool = False) -> AnyGraph:
    """JSON state; one node asks each question in turn, or one node each asks at once."""

    def asking(name: str, own: Sequence[str]) -> Any:
        async def run(state: Values) -> Values:
            answers = [str(interrupt({"question": each})) for each in own]
            await world.pass_by(name)
            return {"done": answers}

        return run

    graph = StateGraph(Values)
    nodes = {each: [each] for each in asked} if parallel else {"ask": list(asked)}
    for name, own in nodes.items():
        graph.add_node(name, asking(name, own))
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    return graph.compile()


def endless(world: World) -> AnyGraph:
    async def tick(state: Values) -> Values:
        await world.pass_by("tick")
        return {"done": ["tick"]}

    graph = StateGraph(Values)
    graph.add_node("tick", tick)
    graph.add_edge(START, "tick")
    graph.add_edge("tick", "tick")
    return graph.compile()
