"""Arguments that a person approved are the only ones that run, whatever code stands between the guard and the tool."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from langchain_core.tools import BaseTool, ToolException

from perdure.effects import digest_of


class ArgumentsChanged(ToolException):
    """The call was not made."""


_approved: ContextVar[Mapping[str, Any] | None] = ContextVar("perdure_approved_arguments", default=None)


def expect(arguments: Mapping[str, Any] | None) -> None:
    """In this context tools that are `held` run with these arguments alone; None: with any."""
    _approved.set(arguments)


def held(tool: BaseTool) -> BaseTool:
    """The tool itself, or of a call that was approved one that raises ArgumentsChanged for other arguments."""
    approved = _approved.get()
    if approved is None:
        return tool
    expected = digest_of(_visible(tool, approved))

    def check(given: Any) -> None:
        arguments = given.get("args") if isinstance(given, dict) and given.get("type") == "tool_call" else given
        if not isinstance(arguments, dict) or digest_of(_visible(tool, arguments)) != expected:
            raise ArgumentsChanged(
                f"The tool `{tool.name}` was not called: its arguments were changed on the way, after a person approved others."
            )

    def invoke(input: Any, config: Any = None, **more: Any) -> Any:
        check(input)
        return tool.invoke(input, config, **more)

    async def ainvoke(input: Any, config: Any = None, **more: Any) -> Any:
        check(input)
        return await tool.ainvoke(input, config, **more)

    strict = tool.model_copy()
    # A tool is a pydantic model, which takes no new attributes in the ordinary way.
    object.__setattr__(strict, "invoke", invoke)
    object.__setattr__(strict, "ainvoke", ainvoke)
    return strict


def _visible(tool: BaseTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Without what LangGraph injects: state, store, runtime."""
    return tool._filter_injected_args(dict(arguments))
