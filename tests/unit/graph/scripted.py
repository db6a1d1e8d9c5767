"""A model that says what a test wrote, and the three kinds of graphs that a call of a tool may be made in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition
from langgraph.types import Interrupt

from perdure.clock import SystemClock
from perdure.effects import GateRequest, ToolPolicy, gate_request
from perdure.graph.ask import ModelCall
from perdure.graph.build import ModelNode, ToolsNode, build
from perdure.graph.load import Graph, HostedGraph
from perdure.graph.middleware import DurableToolsMiddleware
from perdure.graph.models import ModelSource
from perdure.graph.tool_node import ToolNode
from perdure.graph.tools import ToolRegistry
from perdure.turns import DecisionKind, Verdict
from tests.servers.driving import Conversation, RecordingLedger


class ScriptedModel(BaseChatModel):
    """Gives prepared messages in turn, without streaming, and keeps what it was sent."""

    replies: list[AIMessage]
    sent: list[list[BaseMessage]]
    bound: list[str]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        self.bound.extend(each.name for each in tools)
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.sent.append(list(messages))
        return ChatResult(generations=[ChatGeneration(message=self.replies.pop(0))])


class ScriptedSource(ModelSource):
    def __init__(self, model: ScriptedModel) -> None:
        super().__init__("scripted")
        self.scripted = model

    async def get(self) -> BaseChatModel:
        return self.scripted


def asks(*calls: tuple[str, dict[str, Any]]) -> AIMessage:
    return AIMessage("", tool_calls=[tool_call(name=n, args=a, id=f"c{i}") for i, (n, a) in enumerate(calls)])


def says(text: str) -> AIMessage:
    return AIMessage(text)


def built_in(model: ScriptedModel, tools: Sequence[BaseTool]) -> Graph:
    registry = ToolRegistry(tools)
    call = ModelCall(ScriptedSource(model), SystemClock(), retry_seconds=0, idle_seconds=1e9)
    return build(ModelNode(call, registry), ToolsNode(registry, SystemClock(), timeout_seconds=60))


def with_node(model: ScriptedModel, tools: Sequence[BaseTool], **options: Any) -> Graph:
    """A StateGraph with `perdure.ToolNode`: all calls of a message are one task."""
    options = {"handle_tool_errors": True, **options}
    return around(model, ToolNode(tools, **options))


def around(model: ScriptedModel, node: Any) -> Graph:
    async def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", think)
    graph.add_node("tools", node)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()


def with_agent(model: ScriptedModel, tools: Sequence[BaseTool]) -> Graph:
    """What `create_agent` makes: a task for each call."""
    graph: Graph = create_agent(model, tools=list(tools), middleware=[DurableToolsMiddleware()])
    return graph


Make = Callable[[ScriptedModel, Sequence[BaseTool]], Graph]

KINDS: dict[str, Make] = {"built-in": built_in, "tool node": with_node, "create_agent": with_agent}


class Driven:
    """A conversation with such a graph, and the person who decides about its calls."""

    def __init__(self, make: Make, replies: Sequence[AIMessage], *tools: BaseTool, **policy: Any) -> None:
        self.make = make
        self.model = ScriptedModel(replies=list(replies), sent=[], bound=[])
        self.chat = Conversation(HostedGraph("agent", None, make(self.model, tools), "message"))  # type: ignore[arg-type]
        self.record.policy = ToolPolicy(**policy)

    @property
    def record(self) -> RecordingLedger:
        return self.chat.record

    async def say(self, text: str = "go") -> list[BaseMessage]:
        return await self.chat.say(text)

    async def again(self) -> list[BaseMessage]:
        """The next attempt of the turn."""
        self.record.attempt += 1
        return await self.chat.drive(None)

    def deploy(self, *tools: BaseTool) -> None:
        """A later version of the agent has these tools."""
        self.chat.hosted = replace(self.chat.hosted, graph=self.make(self.model, tools))

    async def gates(self) -> dict[str, GateRequest]:
        """What waits for a person, by the name of the tool and its first argument."""
        found = [self.gate(each) for each in await self.chat.interrupts()]
        return {" ".join([each.tool, *map(str, each.arguments.values())]): each for each in found}

    def gate(self, interrupt: Interrupt) -> GateRequest:
        request = gate_request(interrupt.id, interrupt.value)
        assert request is not None
        return request

    async def decide(self, name: str, decision: DecisionKind, **more: Any) -> None:
        request = (await self.gates())[name]
        self.record.verdicts[request.id] = Verdict(decision, by="ann", **more)


def results(messages: Sequence[BaseMessage]) -> dict[str, ToolMessage]:
    """The tool messages by call id; each call has one."""
    found = [each for each in messages if isinstance(each, ToolMessage)]
    by_call = {each.tool_call_id: each for each in found}
    assert len(by_call) == len(found)
    return by_call
