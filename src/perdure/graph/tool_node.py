"""`perdure.ToolNode`: LangGraph's tool node with the guard around each of its calls.

    graph.add_node("tools", perdure.ToolNode([search, charge]))

It takes what LangGraph's takes. Wrappers of tool calls run inside the guard. A node that gets several calls brings each
to its own end before it ends itself: what was finished is in the ledger and is used when the task is run again, and all
questions to people are asked at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any, Literal

from langchain_core.messages import AIMessage, ToolCall
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
from perdure.graph.places import Place, mixed, place_of
from perdure.graph.requests import messages_of

_Input = Literal["list", "dict", "tool_calls"]

NOT_ASYNCHRONOUS = (
    "A tool node of Perdure was called synchronously inside a turn (`invoke`, `stream`): such a call could not be recorded before it "
    "starts. Call it with `ainvoke`, or add it to the graph as a node."
)


@dataclass(frozen=True, slots=True)
class _Held:
    """What a call raised, until its siblings have ended. `asker`: the tool, when it asked a question of its own."""

    error: BaseException
    asker: str | None = None


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
        place = place_of(call, self._siblings(request, input_type))
        try:
            return await self._answer(request, input_type, place)
        except BaseException as error:
            if isinstance(error, Exception | asyncio.CancelledError):
                return _Held(error, place.tool if place is not None and place.asked else None)
            raise

    def _siblings(self, request: ToolCallRequest, input_type: _Input) -> list[ToolCall]:
        """All calls of the task: those of the last assistant message, unless it was sent this one alone."""
        if input_type == "tool_calls":
            return []
        messages = messages_of(request.state, self._messages_key)
        return next((each.tool_calls for each in reversed(messages) if isinstance(each, AIMessage)), [])

    async def _answer(self, request: ToolCallRequest, input_type: _Input, place: Place | None) -> Result:
        async def run(given: ToolCallRequest) -> Result:
            if place is not None:
                given = replace(given, runtime=replace(given.runtime, config=place.within(given.runtime.config)))
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
        held = [each for each in outputs if isinstance(each, _Held)]
        if held:
            raise _joined(held)
        return super()._combine_tool_outputs(outputs, input_type)


def _strict(request: ToolCallRequest) -> ToolCallRequest:
    return request.override(tool=held(request.tool)) if request.tool is not None else request


def _joined(held: list[_Held]) -> BaseException:
    """What the task ends with: the questions of all its calls, unless one of them failed."""
    failures = [each.error for each in held if not isinstance(each.error, GraphInterrupt)]
    own = [each for each in failures if isinstance(each, PerdureError)]
    if failures:
        return (own or failures)[0]
    askers = [each.asker for each in held if each.asker is not None]
    if len(askers) > 1:
        return mixed(*askers)
    if len(held) == 1:
        return held[0].error
    return GraphInterrupt(tuple(one for each in held for one in each.error.args[0]))
