"""`perdure.ToolNode`: LangGraph's tool node with the guard around each of its calls.

    graph.add_node("tools", perdure.ToolNode([search, charge]))

It takes what LangGraph's takes. Wrappers of tool calls run inside the guard. A node that gets several calls brings each
to its own end before it ends itself: what was finished is in the ledger and is used when the task is run again, and all
questions to people are asked at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.messages import ToolCall
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphInterrupt
from langgraph.prebuilt import ToolNode as StockToolNode
from langgraph.prebuilt import ToolRuntime
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import Runtime

from perdure import ledger
from perdure.errors import PerdureError
from perdure.graph.answers import Result
from perdure.graph.approved import held
from perdure.graph.guard import guarded

_Input = Literal["list", "dict", "tool_calls"]

NOT_ASYNCHRONOUS = (
    "A tool node of Perdure was called synchronously inside a turn (`invoke`, `stream`): such a call could not be recorded before it "
    "starts. Call it with `ainvoke`, or add it to the graph as a node."
)


@dataclass(frozen=True, slots=True)
class _Held:
    """What a call raised, until its siblings have ended."""

    error: BaseException


class ToolNode(StockToolNode):
    """A drop-in for `langgraph.prebuilt.ToolNode`. Outside Perdure it is the same."""

    def _func(self, input: Any, config: RunnableConfig, runtime: Runtime[Any]) -> Any:
        """Raises PerdureError inside a turn."""
        if ledger.current.get() is not None:
            raise PerdureError(NOT_ASYNCHRONOUS)
        return super()._func(input, config, runtime)

    async def _arun_one(self, call: ToolCall, input_type: _Input, tool_runtime: ToolRuntime[Any, Any]) -> Any:
        tool = self.tools_by_name.get(call["name"])
        request = ToolCallRequest(tool_call=call, tool=tool, state=tool_runtime.state, runtime=tool_runtime)
        try:
            return await self._answer(request, input_type)
        except BaseException as error:
            if isinstance(error, Exception | asyncio.CancelledError):
                return _Held(error)
            raise

    async def _answer(self, request: ToolCallRequest, input_type: _Input) -> Result:
        async def run(given: ToolCallRequest) -> Result:
            return await self._perform(given, input_type)

        direct = self._wrap_tool_call is None and self._awrap_tool_call is None
        return await guarded(request, run, messages_key=self._messages_key, direct=direct)

    async def _perform(self, request: ToolCallRequest, input_type: _Input) -> Result:
        """One start of the tool, as the stock node makes it: wrappers, injected arguments, handled errors."""
        result: Result = await super()._arun_one(request.tool_call, input_type, request.runtime)
        return result

    async def _execute_tool_async(self, request: ToolCallRequest, input_type: _Input, config: Any) -> Any:
        return await super()._execute_tool_async(_strict(request), input_type, config)

    def _execute_tool_sync(self, request: ToolCallRequest, input_type: _Input, config: Any) -> Any:
        return super()._execute_tool_sync(_strict(request), input_type, config)

    def _combine_tool_outputs(self, outputs: list[Any], input_type: _Input) -> Any:
        raised = [each.error for each in outputs if isinstance(each, _Held)]
        if raised:
            raise _joined(raised)
        return super()._combine_tool_outputs(outputs, input_type)


def _strict(request: ToolCallRequest) -> ToolCallRequest:
    return request.override(tool=held(request.tool)) if request.tool is not None else request


def _joined(raised: list[BaseException]) -> BaseException:
    """What the task ends with: the questions of all its calls, unless one of them failed."""
    failures = [each for each in raised if not isinstance(each, GraphInterrupt)]
    own = [each for each in failures if isinstance(each, PerdureError)]
    if failures:
        return (own or failures)[0]
    if len(raised) == 1:
        return raised[0]
    return GraphInterrupt(tuple(one for each in raised for one in each.args[0]))
