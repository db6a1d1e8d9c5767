"""The built-in graph: model ⇄ tools on a message list, one task per tool call.

One `Send` per call makes each call a task of its own: a finished call is recorded by itself and is never repeated because a
sibling was cut. Every call passes the guard; what it answers, an error included, goes to the model as a tool message. Only
the failures of `errors` end the turn.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Send

from perdure import ledger
from perdure.clock import Clock
from perdure.graph import answers
from perdure.graph.answers import Result
from perdure.graph.ask import ModelCall
from perdure.graph.containment import pass_on
from perdure.graph.errors import Unsettled
from perdure.graph.guard import guarded, not_startable
from perdure.graph.history import calls_of, result_id, sendable, trim
from perdure.graph.limits import LimitExpired, TimeLimit
from perdure.graph.mcp import CallLost
from perdure.graph.places import Place
from perdure.graph.prompts import read_prompt
from perdure.graph.tool_node import ToolNode
from perdure.graph.tools import BoundTool, ToolRegistry

MAX_RESULT_BYTES = 10_000_000


def build(model: ModelNode, tools: ToolsNode) -> CompiledStateGraph[Any, Any, Any, Any]:
    graph = StateGraph(MessagesState)
    graph.add_node("model", model.run)
    # Its input is the payload of `_route`, not the state, for which LangGraph has no type.
    graph.add_node("tools", tools.run)  # type: ignore[arg-type]
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", _route, ["tools", END])
    graph.add_edge("tools", "model")
    return graph.compile()


def _route(state: MessagesState) -> list[Send] | str:
    """One task per call of the last message."""
    last = state["messages"][-1] if state["messages"] else None
    if not isinstance(last, AIMessage):
        return END
    arguments = {call["id"]: call["args"] for call in last.tool_calls}
    sends = [
        Send(
            "tools",
            {
                "message_id": last.id or "",
                "id": call.id,
                "name": call.name,
                "arguments": arguments.get(call.id, {}),
                "problem": call.problem,
            },
        )
        for call in calls_of(last)
    ]
    return sends or END


@dataclass(frozen=True, slots=True)
class ModelNode:
    call: ModelCall
    tools: ToolRegistry
    prompt_file: Path | None = None
    context_tokens: int | None = None

    async def run(self, state: MessagesState, config: RunnableConfig) -> dict[str, list[BaseMessage]]:
        tools = await self.tools.all()
        prompt = read_prompt(self.prompt_file)
        messages = self._prepared(state["messages"], prompt, tools)
        taken = {message.id for message in state["messages"] if message.id}
        return {"messages": [await self.call.reply(messages, tools, config, taken)]}

    def _prepared(
        self, history: Sequence[BaseMessage], prompt: str | None, tools: Sequence[BoundTool]
    ) -> list[BaseMessage]:
        """What the model gets: the prompt and a valid history that fits `context_tokens`. The thread keeps all."""
        system: list[BaseMessage] = [SystemMessage(prompt)] if prompt else []
        messages = sendable(history)
        if self.context_tokens is None:
            return [*system, *messages]
        reserved = count_tokens_approximately(system, tools=[each.tool for each in tools] or None)
        trimmed = trim(messages, self.context_tokens, reserved)
        attempt = ledger.current.get()
        if trimmed.dropped and attempt is not None:
            data = {"dropped": trimmed.dropped, "kept_tokens": trimmed.tokens}
            attempt.note("model", self.call.source.name, "trim", data)
        return [*system, *trimmed.messages]


@dataclass(frozen=True, slots=True)
class ToolsNode:
    tools: ToolRegistry
    clock: Clock
    timeout_seconds: float

    async def run(self, task: Any, config: RunnableConfig) -> Any:
        """Answers exactly one call: `task` is the payload of `_route`. Returns state updates (and commands that the tool returned)."""
        call = ledger.ToolCall(task["id"], task["name"], task["arguments"], task["message_id"])
        found = await self.tools.find(call.name)
        if isinstance(found, str):
            return _update(await not_startable(call, found))
        problem = task["problem"] or found.argument_problem(call.arguments)
        if problem:
            return _update(await not_startable(call, f"The tool `{call.name}` was not called: {problem}"))
        node = _OneCall(found, call, TimeLimit(self.clock, self.timeout_seconds))
        request = {"name": call.name, "args": dict(call.arguments), "id": call.id, "type": "tool_call"}
        return await node.ainvoke([request], config)


def _update(result: Result) -> Any:
    """What a node returns for it. Commands stand beside messages, as in LangGraph's own tool node."""
    parts = result if isinstance(result, list) else [result]
    messages = [each for each in parts if isinstance(each, BaseMessage)]
    commands = [each for each in parts if not isinstance(each, BaseMessage)]
    return [*commands, {"messages": messages}] if commands else {"messages": messages}


class _OneCall(ToolNode):
    """LangGraph's own tool node runs the call: injected state, store and runtime, commands and interrupts work.

    Synchronous tools run in a thread with a copy of the context. Interrupts pass through.
    """

    def __init__(self, bound: BoundTool, call: ledger.ToolCall, limit: TimeLimit) -> None:
        super().__init__([bound.tool], handle_tool_errors=self._describe, awrap_tool_call=_contained)
        self._call = call
        self._limit = limit

    async def _answer(self, request: ToolCallRequest, input_type: Any, place: Place | None) -> Result:
        async def run(given: ToolCallRequest) -> Result:
            return await self._perform(given, input_type)

        return await guarded(request, run, message_id=self._call.message_id, direct=True)

    async def _perform(self, request: ToolCallRequest, input_type: Any) -> Result:
        try:
            async with self._limit:
                result = await super()._perform(request, input_type)
        except LimitExpired as error:
            raise Unsettled(
                f"it did not answer within {self._limit.seconds:g} seconds, was given up and may still be at work"
            ) from error
        return answers.mapped(result, self._kept)

    def _describe(self, error: Exception) -> str:
        """What the model is told of a tool's error. A call that was lost on its way is no such thing."""
        if isinstance(error, CallLost):
            raise Unsettled(str(error)) from error
        try:
            text = str(error).strip()
        except Exception:  # a class of the tool's own, whose text cannot be made
            text = ""
        return f"The tool `{self._call.name}` failed: {text or type(error).__name__}"

    def _kept(self, message: BaseMessage) -> BaseMessage:
        """The call's own message with its stable id and a bounded size; others as they are."""
        if not isinstance(message, ToolMessage) or message.tool_call_id != self._call.id:
            return message
        own = {"id": result_id(self._call.message_id, self._call.id), "name": self._call.name}
        return _bounded(message.model_copy(update=own), self._call)


async def _contained(request: ToolCallRequest, call: Callable[[ToolCallRequest], Awaitable[Any]]) -> Any:
    """A tool that would end the program (`sys.exit`), or that is cancelled by nobody but itself, has failed like any other."""
    try:
        return await call(request)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError(f"{error!r} was raised, and nobody cancelled the call") from error
    except BaseException as error:
        pass_on(error)


def _bounded(message: ToolMessage, call: ledger.ToolCall) -> ToolMessage:
    """A result too large for a thread is cut (text) or refused (structured content), and says so."""
    if isinstance(message.content, str):
        # Half a surrogate pair, as a broken JSON escape gives it, could not be stored: it becomes a question mark.
        encoded = message.content.encode("utf-8", "replace")
        text = encoded[:MAX_RESULT_BYTES].decode("utf-8", "ignore")
        if len(encoded) > MAX_RESULT_BYTES:
            text += f"\n[The result of `{call.name}` was {len(encoded)} bytes; the first {MAX_RESULT_BYTES} are kept.]"
        return message.model_copy(update={"content": text})
    size = len(json.dumps(message.content, default=str))
    if size <= MAX_RESULT_BYTES:
        return message
    return answers.error(
        call, f"The result of `{call.name}` was {size} bytes; at most {MAX_RESULT_BYTES} can be kept. Ask for less."
    )
