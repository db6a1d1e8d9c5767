"""MCP servers of an agent: connected on first need, kept open, isolated from each other, reconnected when lost.

A server that cannot be reached hides nothing but itself: its tools are absent, `problems()` says why, and the next turn
tries again after reading the file anew. Reading a conversation never connects to anything.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool, ToolException
from mcp import McpError, types
from pydantic import PrivateAttr

from perdure import ledger
from perdure.clock import Clock
from perdure.errors import ConfigurationError
from perdure.graph.mcp_config import McpConfig, ServerSpec, parse_mcp_config
from perdure.graph.mcp_connection import Connection, NeverSent, ServerLost

CONNECT_SECONDS = 30.0
_PING_SECONDS = 5.0
_SLOW_SECONDS = 2.0
_LONGEST_NAME = 64
"""What model providers accept."""


def read_mcp_config(path: Path, environment: Mapping[str, str] | None = None) -> McpConfig:
    """Raises ConfigurationError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        detail = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(f"The MCP configuration {path} cannot be read: {detail}.") from error
    return parse_mcp_config(text, source=path, environment=os.environ if environment is None else environment)


class McpTool(BaseTool):
    """One tool of a server. Its arguments are checked by the server, against the schema the model is shown."""

    server_name: str
    remote_name: str
    _server: McpServer = PrivateAttr()

    def _run(self, *_: Any, **__: Any) -> str:
        raise NotImplementedError("MCP tools are asynchronous")

    async def _arun(self, /, **arguments: Any) -> str:
        return await self._server.call(self.remote_name, arguments)


class McpServer:
    """One configured server and its current session."""

    def __init__(self, spec: ServerSpec, clock: Clock, connect_seconds: float = CONNECT_SECONDS) -> None:
        self.spec = spec
        self.problem: str | None = None
        self._clock = clock
        self._connect_seconds = connect_seconds
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._tools: dict[str, McpTool] = {}
        self._tools_of: Sequence[types.Tool] = ()
        self._slow_failure_of: str | None = None
        self._suspect = False
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def tools(self, turn: str | None) -> Mapping[str, McpTool]:
        """Tools by the name a model sees; none while the server cannot be reached.

        A server that took long to fail is asked only once per turn.
        """
        if turn is not None and self._slow_failure_of == turn and not self._alive:
            return {}
        started = self._clock.monotonic()
        try:
            connection = await self._listed()
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

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """The result's text. Raises ToolException: the tool's own error, or what became of the server."""
        self._calls += 1
        self._idle.clear()
        try:
            return _text(await self._call(tool, arguments))
        except asyncio.CancelledError:
            # Given up by its time limit or with its turn: a server that hangs must not keep its place.
            self._suspect = True
            raise
        except McpError as error:
            raise ToolException(error.error.message) from error
        except ServerLost as error:
            sure = isinstance(error, NeverSent)
            fate = "It was not called." if sure else "The call was under way: it may or may not have taken effect."
            raise ToolException(f"{self._unavailable(error)} {fate}") from error
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def _call(self, tool: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
        connection = await self._connected()
        try:
            return await connection.call(tool, arguments)
        except NeverSent:
            return await (await self._connected()).call(tool, arguments)

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

    @property
    def _alive(self) -> bool:
        return self._connection is not None and not self._connection.lost

    async def _listed(self) -> Connection:
        """The live session with its list of tools up to date."""
        connection = await self._connected()
        if connection.stale:
            await connection.refresh()
        return connection

    async def _connected(self) -> Connection:
        """The live session; one attempt to open it is shared by all who wait. Raises ServerLost."""
        if self._suspect and self._connection is not None:
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
            self._tools = {tool.name: tool for tool in (self._tool(each) for each in connection.tools)}
            self._tools_of = connection.tools
        return self._tools

    def _tool(self, described: types.Tool) -> McpTool:
        tool = McpTool(
            name=tool_name(self.spec.name, described.name),
            description=described.description or described.title or described.name,
            args_schema={"properties": {}, **described.inputSchema},
            server_name=self.spec.name,
            remote_name=described.name,
        )
        tool._server = self
        return tool

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

    async def tools(self) -> list[McpTool]:
        await self._read()
        attempt = ledger.current.get()
        turn = attempt.turn if attempt is not None else None
        found = await asyncio.gather(*(each.tools(turn) for each in self._servers.values()))
        return [tool for tools in found for tool in tools.values()]

    async def find(self, name: str) -> McpTool | str | None:
        """See McpServer.find; None also when no server of that prefix is configured."""
        await self._read()
        server = self._servers.get(name.partition("__")[0])
        return await server.find(name) if server is not None and "__" in name else None

    def problems(self) -> list[str]:
        problems = [self._problem, *(each.problem for each in self._servers.values())]
        return [each for each in problems if each]

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


def tool_name(server: str, tool: str) -> str:
    """`server__tool`, in the letters and the length that model providers accept."""
    name = f"{server}__{re.sub(r'[^A-Za-z0-9_-]', '_', tool)}"
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 9]}_{hashlib.sha256(tool.encode()).hexdigest()[:8]}"


def _text(result: types.CallToolResult) -> str:
    """Text only: other content is named in brackets. Raises ToolException for a result that is an error."""
    parts = [_content_text(each) for each in result.content]
    if not parts and result.structuredContent is not None:
        parts = [str(result.structuredContent)]
    text = "\n".join(parts)
    if result.isError:
        raise ToolException(text or "the server gave no reason")
    return text


def _content_text(content: types.ContentBlock) -> str:
    if isinstance(content, types.TextContent):
        return content.text
    if isinstance(content, types.EmbeddedResource) and isinstance(content.resource, types.TextResourceContents):
        return content.resource.text
    if isinstance(content, types.ResourceLink):
        return f"[link {content.uri}]"
    return f"[{content.type}]"


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
