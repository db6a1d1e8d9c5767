"""LangGraph's request of one tool call: what it says of the call, and how it is changed before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

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


def message_id_of(request: ToolCallRequest, messages_key: str) -> str:
    """Of the last assistant message that holds the call; the task's own id when the state does not tell."""
    call_id = request.tool_call["id"]
    for each in reversed(messages_of(request.state, messages_key)):
        if isinstance(each, AIMessage) and any(call["id"] == call_id for call in each.tool_calls):
            if each.id:
                return each.id
            break
    info = request.runtime.execution_info
    return info.task_id if info is not None else ""


def messages_of(state: Any, key: str) -> list[Any]:
    """Of any kind of state that a tool node takes."""
    if isinstance(state, list):
        return state
    found = state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)
    return list(found) if isinstance(found, list | tuple) else []
