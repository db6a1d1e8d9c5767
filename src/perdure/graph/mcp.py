"""MCP servers of an agent: connected on first need, kept open, isolated from each other, reconnected when lost.

A server that cannot be reached hides nothing but itself: its tools are absent, `problems()` says why, and the next turn
tries again after reading the file anew. Without a server that is `required` the agent does not answer. Reading a
conversation never connects to anything.

What a call raises tells what became of it: `CallLost` says that nobody knows (it was under way when its server or its
time was lost, so it stays uncertain); any other ToolException is an outcome (the tool's own error, the server's refusal,
or a server that could not be reached, which was then not called).
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.tools import ToolException
from mcp import McpError, types

from perdure import ledger
from perdure.clock import Clock
from perdure.errors import ConfigurationError
from perdure.graph.errors import GraphFailure
from perdure.graph.limits import LimitExpired, TimeLimit
from perdure.graph.mcp_config import McpConfig, ServerSpec, parse_mcp_config
from perdure.graph.mcp_connection import Connection, NeverSent, ServerLost
from perdure.graph.mcp_tool import McpTool, bound_tool, result_text
from perdure.turns import FailureCode

CONNECT_SECONDS = 30.0
_PING_SECONDS = 5.0
_SLOW_SECONDS = 2.0
_FIRST_WAIT_SECONDS = 0.25
_LONGEST_WAIT_SECONDS = 4.0


class CallLost(ToolException):
    """The call reached the server and its outcome is not known: it may or may not have taken effect."""


class ServerMissing(GraphFailure):
    """A server that is `required` cannot be reached: the agent does not answer without it."""

    failure_code = FailureCode.TOOL_FAILURE
    reason = "mcp_server_missing"
    code = str(FailureCode.TOOL_FAILURE)


def read_mcp_config(path: Path, environment: Mapping[str, str] | None = None) -> McpConfig:
    """Raises ConfigurationError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        detail = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(f"The MCP configuration {path} cannot be read: {detail}.") from error
    return parse_mcp_config(text, source=path, environment=os.environ if environment is None else environment)


@dataclass(frozen=True, slots=True)
class McpState:
    """What is known of a server. `problem`: why it could not be reached last."""

    name: str
    connected: bool
    tools: int
    problem: str | None


class McpServer:
    """One configured server and its current session."""

    def __init__(self, spec: ServerSpec, clock: Clock, connect_seconds: float = CONNECT_SECONDS) -> None:
        self.spec = spec
        self.problem: str | None = None
        self._clock = clock
        self._connect_seconds = spec.options.init_seconds or connect_seconds
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._tools: dict[str, McpTool] = {}
        self._tools_of: Sequence[types.Tool] = ()
        self._misfits: Sequence[str] = ()
        self._slow_failure_of: str | None = None
        self._suspect = False
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def tools(self, turn: str | None) -> Mapping[str, McpTool]:
        """Tools by the name a model sees; none while the server cannot be reached.

        A server that took long to fail is asked only once per turn.
        """
        if turn is not None and self._slow_failure_of == turn and not self.alive:
            return {}
        started = self._clock.monotonic()
        try:
            connection = await self._awaited()
        except (ServerLost, McpError) as error:
            slow = self._clock.monotonic() - started > _SLOW_SECONDS
            self._slow_failure_of = turn if slow else None
            self.problem = self._unavailable(error)
            return {}
        return self._named(connection)

    async def find(self, name: str) -> McpTool | str | None:
        """The tool, None when the server has none of that name, or why the server cannot be asked."""
        try:
            connection = await self._listed()
        except (ServerLost, McpError) as error:
            return self._unavailable(error)
        return self._named(connection).get(name)

    async def call(self, tool: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> str:
        """The result's text. Raises CallLost when nobody knows what became of the call, else ToolException: see above."""
        self._calls += 1
        self._idle.clear()
        try:
            return result_text(await self._call(tool, arguments, meta))
        except (asyncio.CancelledError, CallLost):
            # Given up by its time limit or with its turn: a server that hangs must not keep its place.
            self._suspect = True
            raise
        except McpError as error:
            raise ToolException(error.error.message) from error
        except NeverSent as error:
            raise ToolException(f"{self._unavailable(error)} It was not called.") from error
        except ServerLost as error:
            fate = "The call was under way: it may or may not have taken effect."
            raise CallLost(f"{self._unavailable(error)} {fate}") from error
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def _call(self, tool: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> types.CallToolResult:
        connection = await self._connected()
        try:
            return await self._limited(connection, tool, arguments, meta)
        except NeverSent:
            return await self._limited(await self._connected(), tool, arguments, meta)

    async def _limited(
        self, connection: Connection, tool: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> types.CallToolResult:
        seconds = self.spec.options.call_seconds.of(tool)
        if seconds is None:
            return await connection.call(tool, arguments, meta)
        try:
            async with TimeLimit(self._clock, seconds):
                return await connection.call(tool, arguments, meta)
        except LimitExpired:
            raise CallLost(
                f"The MCP server `{self.spec.name}` did not answer within {seconds:g} seconds and was given up. "
                "The call may still be at work, and may or may not have taken effect."
            ) from None

    async def retire(self) -> None:
        """Closes once no call is under way."""
        await self._idle.wait()
        await self.close()

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        if self._connection is not None:
            await self._connection.close()

    def listed(self) -> list[str]:
        """The names of its tools, without asking it; of one that is not connected none."""
        return list(self._named(self._connection)) if self._connection is not None and self.alive else []

    def problems(self) -> list[str]:
        """Why it is not available, or what its entry says that fits none of its tools."""
        return [self.problem] if self.problem else [f"MCP server `{self.spec.name}`: {each}." for each in self._misfits]

    @property
    def state(self) -> McpState:
        return McpState(self.spec.name, self.alive, len(self.listed()), self.problem)

    @property
    def alive(self) -> bool:
        return self._connection is not None and not self._connection.lost

    async def _awaited(self) -> Connection:
        """A required server that others start is waited for: it may still be on its way up."""
        patient = self.spec.options.required and self.spec.transport != "stdio"
        until = self._clock.monotonic() + (self._connect_seconds if patient else 0)
        wait = _FIRST_WAIT_SECONDS
        while True:
            try:
                return await self._listed()
            except (ServerLost, McpError):
                if self._clock.monotonic() + wait > until:
                    raise
            await self._clock.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)

    async def _listed(self) -> Connection:
        """The live session with its list of tools up to date."""
        connection = await self._connected()
        if connection.stale:
            await connection.refresh()
        return connection

    async def _connected(self) -> Connection:
        """The live session; one attempt to open it is shared by all who wait. Raises ServerLost."""
        if self._suspect and self._connection is not None and not self._connection.calling:
            # A server that does one thing at a time is silent while it is at work on another call.
            self._suspect = False
            if not await self._connection.answers(_PING_SECONDS):
                await self._connection.close()
        if self._connection is not None and not self._connection.lost:
            return self._connection
        if self._connecting is None or self._connecting.done():
            # A session outlives the turn that first needed it: it must not hold on to that turn's context.
            self._connecting = asyncio.create_task(self._open(), context=contextvars.Context())
            self._connecting.add_done_callback(_retrieved)
        return await asyncio.shield(self._connecting)

    async def _open(self) -> Connection:
        if self._connection is not None:
            # A lost session may still hold its child or its socket.
            await self._connection.close()
        connection = Connection(self.spec, self._clock)
        await connection.open(self._connect_seconds)
        self._connection = connection
        self.problem = self._slow_failure_of = None
        return connection

    def _named(self, connection: Connection) -> Mapping[str, McpTool]:
        """Tool objects are kept as long as the list is the same: their schemas are costly to make."""
        if self._tools_of is not connection.tools:
            options = self.spec.options
            offered = [each for each in connection.tools if options.offers(each.name)]
            bound = [bound_tool(self.spec.name, self, each, options) for each in offered]
            self._tools = {tool.name: tool for tool in bound}
            self._tools_of = connection.tools
            self._misfits = options.misfits(
                {each.name: each.inputSchema.get("properties", {}) for each in connection.tools}
            )
        return self._tools

    def _unavailable(self, error: Exception) -> str:
        return f"The MCP server `{self.spec.name}` is not available: {str(error).rstrip('.')}."


class McpServers:
    """All servers of one `mcp.json`, which is read again whenever it changed."""

    def __init__(self, path: Path, clock: Clock, connect_seconds: float = CONNECT_SECONDS) -> None:
        self._path = path
        self._clock = clock
        self._connect_seconds = connect_seconds
        self._servers: dict[str, McpServer] = {}
        self._stamp: tuple[int, ...] | None = None
        self._problem: str | None = None
        self._reading = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Connects to the servers that are `required`. Raises ServerMissing when one of them cannot be reached."""
        await self._read()
        required = [each for each in self._servers.values() if each.spec.options.required]
        await asyncio.gather(*(each.tools(None) for each in required))
        self._insist()

    def missing(self) -> list[str]:
        """Why the agent cannot answer now: each required server that is not connected, one sentence each."""
        required = [each for each in self._servers.values() if each.spec.options.required and not each.alive]
        return [each.problem or f"The MCP server `{each.spec.name}` is not connected yet." for each in required]

    def _insist(self) -> None:
        missing = self.missing()
        if missing:
            raise ServerMissing(f"{' '.join(missing)} The agent does not answer without it: start it, then resume.")

    async def tools(self) -> list[McpTool]:
        """The tools of all servers that can be reached. In a turn it raises ServerMissing when one that is `required` cannot."""
        await self._read()
        attempt = ledger.current.get()
        turn = attempt.turn if attempt is not None else None
        found = await asyncio.gather(*(each.tools(turn) for each in self._servers.values()))
        if attempt is not None:
            self._insist()
        return [tool for tools in found for tool in tools.values()]

    async def find(self, name: str) -> McpTool | str | None:
        """See McpServer.find; None also when no server of that prefix is configured."""
        await self._read()
        server = self._servers.get(name.partition("__")[0])
        return await server.find(name) if server is not None and "__" in name else None

    def listed(self) -> list[tuple[str, list[str]]]:
        """The connected servers and the names of their tools as they were last told."""
        return [(name, each.listed()) for name, each in self._servers.items() if each.alive]

    def health(self) -> list[McpState]:
        """Each configured server as of its last contact, without asking it."""
        return [each.state for each in self._servers.values()]

    def problems(self) -> list[str]:
        own = [self._problem] if self._problem else []
        return [*own, *(problem for each in self._servers.values() for problem in each.problems())]

    async def close(self) -> None:
        servers = list(self._servers.values())
        self._servers.clear()
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*(each.close() for each in servers), *self._retiring, return_exceptions=True)

    async def _read(self) -> None:
        """A file that cannot be read now leaves the servers as they are, and is told."""
        async with self._reading:
            stamp = await asyncio.to_thread(_stamp, self._path)
            if stamp == self._stamp:
                return
            try:
                config = await asyncio.to_thread(read_mcp_config, self._path)
            except ConfigurationError as error:
                self._problem = " ".join(error.problems)
            else:
                self._problem = None
                self._adopt(config)
            self._stamp = stamp

    def _adopt(self, config: McpConfig) -> None:
        known = self._servers
        self._servers = {}
        for spec in config.servers:
            old = known.get(spec.name)
            if old is not None and old.spec == spec:
                self._servers[spec.name] = known.pop(spec.name)
            else:
                self._servers[spec.name] = McpServer(spec, self._clock, self._connect_seconds)
        for gone in known.values():
            task = asyncio.create_task(gone.retire())
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return (-1,)
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _retrieved(task: asyncio.Task[Connection]) -> None:
    """A failure that nobody waits for any more is no news: the next use tries again."""
    if not task.cancelled():
        task.exception()
