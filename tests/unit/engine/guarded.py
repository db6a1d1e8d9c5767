"""The same agent in the three shapes that pass the guard: the built-in graph, a plain graph with `perdure.ToolNode`, and
`create_agent` with the middleware. Its tools leave a record outside; its model refuses what real providers refuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition
from langgraph.types import Command

import perdure
from perdure.clock import SystemClock
from perdure.config import AgentSettings
from perdure.graph.build import ToolsNode, build
from perdure.graph.load import HostedGraph
from perdure.graph.policy import tool_policy
from perdure.graph.tools import ToolRegistry
from perdure.ledger import current_key
from tests import strict
from tests.unit.engine.graphs import AnyGraph, World

SHAPES = ("built-in", "ToolNode", "create_agent")
GATED = ("restart*",)


class Unlisted:
    """A type that no settings name."""


@dataclass
class Outside(World):
    """The world the tools act on. `did`: one entry per effect, `(tool, argument, key)`."""

    did: list[tuple[str, str, str]] = field(default_factory=list)
    heard: list[list[BaseMessage]] = field(default_factory=list)

    def count(self, name: str) -> int:
        return sum(each[0] == name for each in self.did)

    def keys(self, name: str) -> set[str]:
        return {key for each, _, key in self.did if each == name}

    async def act(self, name: str, argument: str) -> str:
        """An effect, then a place to be cut before its return: `after <tool>`."""
        await self.pass_by(f"before {name}")
        self.did.append((name, argument, current_key.get() or ""))
        await self.pass_by(f"after {name}")
        return f"{name} {argument} done"

    def found(self, key: str) -> Any:
        done = any(each[2] == key for each in self.did)
        return "found done" if done else perdure.NOT_HAPPENED


def tools_of(outside: Outside) -> list[BaseTool]:
    @perdure.effect("read")
    @tool
    async def look(at: str) -> str:
        """Reads."""
        return await outside.act("look", at)

    @perdure.effect("keyed")
    @tool
    async def save(at: str) -> str:
        """Saves."""
        return await outside.act("save", at)

    @perdure.effect("checkable", lookup=outside.found)
    @tool
    async def pay(at: str) -> str:
        """Pays."""
        return await outside.act("pay", at)

    @tool
    async def charge(at: str) -> str:
        """Charges, once."""
        return await outside.act("charge", at)

    @tool
    async def restart(at: str) -> str:
        """Restarts, once, and only when a person approves."""
        return await outside.act("restart", at)

    @perdure.effect("read")
    @tool
    async def odd(at: str) -> Any:
        """Gives what cannot be stored."""
        return Command(update={"messages": [ToolMessage("x", tool_call_id=at, artifact=Unlisted())]})

    return [look, save, pay, charge, restart, odd]


class ScriptedAgentModel(BaseChatModel):
    """`call look:a charge:b then restart:c` makes two calls, then one, then answers with what it was told of them all."""

    outside: Any

    @property
    def _llm_type(self) -> str:
        return "scripted agent"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        strict.refuse(messages)
        self.outside.heard.append(list(messages))
        return ChatResult(generations=[ChatGeneration(message=reply(messages))])


def reply(messages: Sequence[BaseMessage]) -> AIMessage:
    start = max(index for index, each in enumerate(messages) if each.type == "human")
    asked, since = str(messages[start].content), messages[start + 1 :]
    rounds = asked.removeprefix("call ").split(" then ") if asked.startswith("call ") else []
    made = sum(isinstance(each, AIMessage) for each in since)
    if made < len(rounds):
        wanted = [each.split(":") for each in rounds[made].split()]
        calls = [
            {"name": name, "args": {"at": at}, "id": f"call-{made}-{index}", "type": "tool_call"}
            for index, (name, at) in enumerate(wanted)
        ]
        return AIMessage("", tool_calls=cast("Any", calls))
    told = [str(each.content) for each in since if isinstance(each, ToolMessage)]
    return AIMessage(" | ".join(told) or f"answer {asked}")


def guarded_agent(shape: str, outside: Outside, *, timeout_seconds: float = 300.0, **settings: Any) -> HostedGraph:
    """Gates `restart`, unless the settings say otherwise."""
    own = AgentSettings("agent", graph="own.py:graph", **{"needs_approval": GATED, **settings})
    registry = ToolRegistry(tools_of(outside)) if shape == "built-in" else None
    graph = {"built-in": built_in, "ToolNode": plain, "create_agent": prebuilt}[shape](outside, timeout_seconds)
    return HostedGraph("agent", own, graph, "message", tools=registry, policy=tool_policy(own))


def built_in(outside: Outside, timeout_seconds: float) -> AnyGraph:
    @dataclass
    class Node:
        model: ScriptedAgentModel

        async def run(self, state: MessagesState) -> dict[str, Any]:
            return {"messages": [await self.model.ainvoke(state["messages"])]}

    tools = ToolsNode(ToolRegistry(tools_of(outside)), SystemClock(), timeout_seconds)
    return build(cast("Any", Node(ScriptedAgentModel(outside=outside))), tools)


def plain(outside: Outside, timeout_seconds: float) -> AnyGraph:
    model = ScriptedAgentModel(outside=outside)

    async def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", think)
    graph.add_node("tools", perdure.ToolNode(tools_of(outside)))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()


def prebuilt(outside: Outside, timeout_seconds: float) -> AnyGraph:
    model = ScriptedAgentModel(outside=outside)
    return create_agent(model, tools_of(outside), middleware=[perdure.DurableToolsMiddleware()])
