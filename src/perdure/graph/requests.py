"""LangGraph's request of one tool call: what it says of the call, and how it is changed before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest

from perdure.effects import digest_of
from perdure.graph.approved import held
from perdure.graph.arguments import argument_problem
from perdure.graph.keys import with_call_key
from perdure.ledger import ToolCall


def cannot_start(request: ToolCallRequest) -> bool:
    """The tool node will refuse it: nothing happens, so nothing is asked or written."""
    return request.tool is None or argument_problem(request.tool, request.tool_call["args"]) is not None


def with_arguments(request: ToolCallRequest, call: ToolCall, key: str) -> ToolCallRequest:
    """The request with the arguments that run and with the key in the configuration that the tool gets."""
    runtime = replace(request.runtime, config=with_call_key(request.runtime.config, key))
    asked = request.tool_call.copy()
    asked["args"] = dict(call.arguments)
    return replace(request, tool_call=asked, tool=held(request.tool) if request.tool else None, runtime=runtime)


def refusal_of(tool: BaseTool | None, call: ToolCall) -> str | None:
    """Why the tool cannot be started with these arguments, for the model; None when it can."""
    if tool is None:
        return f"There is no tool named `{call.name}`."
    problem = argument_problem(tool, call.arguments)
    return f"The tool `{call.name}` was not called: {problem}" if problem else None


def holder_of(request: ToolCallRequest, messages_key: str) -> tuple[str, str]:
    """The id of the last assistant message that holds the call (the task's own when the state does not tell), and what
    tells the call from others of that message with the same id."""
    call_id = request.tool_call["id"]
    for each in reversed(messages_of(request.state, messages_key)):
        if isinstance(each, AIMessage) and any(call["id"] == call_id for call in each.tool_calls):
            if each.id:
                return each.id, twin_of(each, call_id, request.tool_call["name"], request.tool_call["args"])
            break
    info = request.runtime.execution_info
    return (info.task_id if info is not None else ""), ""


def twin_of(message: AIMessage, call_id: str | None, name: str, arguments: Any) -> str:
    """Empty where the id alone names the call. Some model servers give calls of one answer the same id, or none: those are told
    apart by what they ask for."""
    if sum(call["id"] == call_id for call in message.tool_calls) < 2:
        return ""
    return digest_of([name, arguments])


def messages_of(state: Any, key: str) -> list[Any]:
    """Of any kind of state that a tool node takes."""
    if isinstance(state, list):
        return state
    found = state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)
    return list(found) if isinstance(found, list | tuple) else []
