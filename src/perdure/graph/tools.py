"""The tools of an agent: Python functions, LangChain tools and MCP servers, looked up when a node runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.tools import tool as as_tool

from perdure.errors import ConfigurationError
from perdure.graph.arguments import argument_problem
from perdure.graph.faults import Faults
from perdure.graph.mcp import McpServers, McpState, ServerMissing
from perdure.graph.sources import load_attribute


@dataclass(frozen=True, slots=True)
class BoundTool:
    """A tool an agent may call. `server` is its MCP server's name, None for a Python tool."""

    tool: BaseTool
    server: str | None = None

    def argument_problem(self, arguments: Any) -> str | None:
        """Why these arguments cannot be given to the tool, None when they can (a server checks its own)."""
        return argument_problem(self.tool, arguments)


class ToolRegistry:
    """Python tools are imported when the agent is loaded; MCP tools are discovered when a node first needs them."""

    def __init__(self, python: Sequence[BaseTool], servers: McpServers | None = None) -> None:
        """Raises ConfigurationError when two Python tools share a name."""
        self._python = {each.name: BoundTool(each) for each in python}
        self._servers = servers
        doubled = sorted({each.name for each in python if sum(other.name == each.name for other in python) > 1})
        if doubled:
            raise ConfigurationError([f"Two tools are named {name!r}: rename one of them." for name in doubled])

    async def all(self) -> list[BoundTool]:
        """Every tool that can be called now; a server that cannot be reached is left out and told by `problems()`."""
        if self._servers is None:
            return list(self._python.values())
        remote = [BoundTool(each, each.server_name) for each in await self._servers.tools()]
        return [*self._python.values(), *(each for each in remote if each.tool.name not in self._python)]

    async def find(self, name: str) -> BoundTool | str:
        """The tool, or a sentence for the model that says why there is none. Connects to that tool's server alone."""
        known = self._python.get(name)
        if known is not None:
            return known
        if self._servers is not None:
            found = await self._servers.find(name)
            if isinstance(found, str):
                return found
            if found is not None:
                return BoundTool(found, found.server_name)
        names = ", ".join(sorted(each.tool.name for each in await self.all())) or "none"
        return f"There is no tool named `{name}`. The tools are: {names}."

    def names(self) -> list[str]:
        """Of the Python tools."""
        return list(self._python)

    def listed(self) -> list[tuple[str, list[str]]]:
        """The MCP servers that are connected now and the names of their tools, without asking them."""
        return self._servers.listed() if self._servers else []

    def health(self) -> list[McpState]:
        """Every configured MCP server as of its last contact."""
        return self._servers.health() if self._servers else []

    async def connect(self) -> None:
        """Connects to the MCP servers that are `required`. One that cannot be reached is told by `problems()`."""
        if self._servers:
            with suppress(ServerMissing):
                await self._servers.start()

    def problems(self) -> list[str]:
        return self._servers.problems() if self._servers else []

    async def close(self) -> None:
        if self._servers:
            await self._servers.close()


def load_tools(references: Iterable[str], base: Path, owner: str) -> list[BaseTool]:
    """The Python tools an agent's settings name: LangChain tools, plain functions, or lists of them.

    Raises ConfigurationError: it names each reference that is wrong and what it holds.
    """
    tools: list[BaseTool] = []
    faults = Faults()
    for reference in references:
        with faults:
            found = load_attribute(reference, base, what="A tool", owner=owner)
            each = found if isinstance(found, list | tuple) else [found]
            tools.extend(_tool(one, reference, owner) for one in each)
    faults.refuse()
    return tools


def _tool(value: Any, reference: str, owner: str) -> BaseTool:
    if isinstance(value, BaseTool):
        return value
    if not inspect.isroutine(value):
        raise ConfigurationError(
            f"The tool {reference!r} of agent {owner!r} is a {type(value).__name__}: it must be a function or a LangChain tool."
        )
    try:
        return as_tool(value)
    except (ValueError, TypeError, NameError) as error:
        raise ConfigurationError(f"The tool {reference!r} of agent {owner!r} cannot be used: {error}") from error
