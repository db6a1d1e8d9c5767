"""`perdure.DurableToolsMiddleware`: the guard around the tool calls of an agent that `create_agent` makes.

    create_agent(model, tools=[search, charge], middleware=[perdure.DurableToolsMiddleware(), …])

It stands first: then every other middleware's work on a tool call (a retry, a change of arguments) is inside one
recorded call, and nothing outside of it can take a question to a person for an error. Needs the package `langchain`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from perdure import ledger
from perdure.errors import PerdureError
from perdure.graph.guard import guarded
from perdure.graph.tool_node import NOT_ASYNCHRONOUS


class DurableToolsMiddleware(AgentMiddleware[Any, Any, Any]):
    """Outside Perdure it does nothing."""

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> Any:
        return await guarded(request, handler)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> Any:
        """Raises PerdureError inside a turn."""
        if ledger.current.get() is not None:
            raise PerdureError(NOT_ASYNCHRONOUS)
        return handler(request)
