"""One live session with an MCP server, opened, held and closed by one task of its own.

The protocol's client is built on cancel scopes, which must be left in the task that entered them: so a task per session,
and calls from other tasks. It also leaves a call waiting for ever when the answer's stream is cut: so every call
races with the loss of the session, and the streams of answers are watched.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import httpx
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from perdure.clock import Clock
from perdure.graph.limits import LimitExpired, TimeLimit
from perdure.graph.mcp_config import ServerSpec

_Reader = MemoryObjectReceiveStream[SessionMessage | Exception]
_Writer = MemoryObjectSendStream[SessionMessage]

T = TypeVar("T")

_CHILD = Path(__file__).with_name("stdio_child.py")
_STDERR_BYTES = 2000
_HTTP_SECONDS = 10.0
_CLOSE_SECONDS = 10.0
"""A local server gets two seconds after its input closed, two more after SIGTERM, then it is killed."""

_SESSION_TERMINATED = "Session terminated"
_CLIENT = types.Implementation(name="perdure", version="0")


class ServerLost(Exception):
    """The session ended. Of a call that was under way nobody knows whether it took effect."""


class NeverSent(ServerLost):
    """The session was gone before the call reached the server: it may be sent again."""


class Connection:
    """`open()`, then `call()` from any task, until `lost` or `close()`. Not opened twice."""

    def __init__(self, spec: ServerSpec, clock: Clock) -> None:
        self.spec = spec
        self.tools: list[types.Tool] = []
        self.stale = False
        """The server told that its list of tools changed."""

        self._clock = clock
        self._session: ClientSession | None = None
        self._owner: asyncio.Task[None] | None = None
        self._stderr = _Tail()
        self._unreachable = False
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._lost: asyncio.Future[str] = loop.create_future()
        self._ending = asyncio.Event()

    @property
    def lost(self) -> bool:
        return self._lost.done()

    @property
    def reason(self) -> str:
        """Why the session is lost, with the last lines a local server wrote to stderr."""
        said = self._stderr.text()
        reason = self._lost.result() if self._lost.done() else ""
        return f"{reason}. It wrote: {said}" if said else reason

    async def open(self, limit_seconds: float) -> None:
        """Raises ServerLost; then nothing of it is left running."""
        self._owner = asyncio.create_task(self._live(), name=f"mcp {self.spec.name}")
        try:
            async with TimeLimit(self._clock, limit_seconds):
                await _either(self._ready, self._lost)
        except LimitExpired:
            self._lose(f"it did not answer within {limit_seconds:g} seconds")
            await self._end()
        except BaseException:
            await self._end()
            raise
        if self.lost:
            await self._end()
            raise ServerLost(self.reason)

    async def close(self) -> None:
        self._lose("it was closed")
        await self._end()

    async def _end(self) -> None:
        """Asks the owner to leave. One that never got ready, or does not leave in time, is cancelled (its child ends)."""
        self._ending.set()
        if self._owner is None:
            return
        if self._ready.done():
            await asyncio.wait({self._owner}, timeout=_CLOSE_SECONDS)
        self._owner.cancel()
        await asyncio.wait({self._owner})

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
        """Raises ServerLost (NeverSent when it is sure), or McpError with the server's own refusal."""
        return await self._request(lambda session: session.call_tool(tool, dict(arguments)))

    async def refresh(self) -> None:
        """Asks for the list of tools again."""
        self.stale = False
        self.tools = await self._request(_all_tools)

    async def answers(self, limit_seconds: float) -> bool:
        """Whether the server answers a ping in time."""
        try:
            async with TimeLimit(self._clock, limit_seconds):
                await self._request(lambda session: session.send_ping())
        except (ServerLost, LimitExpired):
            return False
        except McpError:
            return True  # it does not know pings, but it speaks
        return True

    async def _request(self, ask: Callable[[ClientSession], Coroutine[Any, Any, T]]) -> T:
        if self._session is None or self.lost:
            raise NeverSent(self.reason)
        request = asyncio.ensure_future(ask(self._session))
        try:
            await _either(request, self._lost)
            if not request.done():
                raise NeverSent(self.reason) if self._unreachable else ServerLost(self.reason)
            return request.result()
        except McpError as error:
            if error.error.message == _SESSION_TERMINATED:
                self._lose("the server does not know the session any more")
                raise NeverSent(self.reason) from error
            if error.error.code == types.CONNECTION_CLOSED:
                self._lose("the connection was closed")
                raise ServerLost(self.reason) from error
            raise
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            self._lose("the connection was closed")
            raise NeverSent(self.reason) from error
        finally:
            if not request.done():
                request.cancel()

    async def _live(self) -> None:
        """The owner: everything is entered and left here."""
        reason = "the connection was closed"
        outlet, inlet = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        streams = ExitStack()
        streams.callback(outlet.close)
        streams.callback(inlet.close)
        try:
            async with self._transport() as (read, write), anyio.create_task_group() as group:
                streams.callback(read.close)
                async with ClientSession(inlet, write, client_info=_CLIENT, message_handler=self._hear) as session:
                    group.start_soon(self._relay, read, outlet)
                    await session.initialize()
                    self.tools = await _all_tools(session)
                    self._session = session
                    self._ready.set_result(None)
                    await self._ending.wait()
                group.cancel_scope.cancel()
        except Exception as error:  # a group of whatever the transport met
            first = _first(error)
            self._unreachable = isinstance(first, httpx.ConnectError | httpx.ConnectTimeout)
            reason = str(first) or type(first).__name__
        finally:
            streams.close()
            self._lose(reason)

    async def _relay(self, read: _Reader, outlet: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Passes messages on and notices the end of the transport, which the session keeps to itself."""
        async with outlet:
            async for message in read:
                await outlet.send(message)
        if self._ready.done():
            self._lose("the connection was closed")

    async def _hear(self, message: Any) -> None:
        if isinstance(message, ValidationError) and str(message.errors()[0]["input"]).lstrip().startswith("{"):
            # Whose answer it was cannot be told, and its call would wait for ever. Other lines are a server's chatter.
            self._lose("it sent a message that cannot be read")
        elif isinstance(message, types.ServerNotification) and isinstance(
            message.root, types.ToolListChangedNotification
        ):
            self.stale = True

    def _lose(self, reason: str) -> None:
        if not self._lost.done():
            self._lost.set_result(reason)
        self._ending.set()

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[tuple[_Reader, _Writer]]:
        if self.spec.transport == "stdio":
            async with self._stdio() as streams:
                yield streams
        elif self.spec.transport == "sse":
            async with sse_client(self.spec.url, headers=dict(self.spec.headers), timeout=_HTTP_SECONDS) as streams:
                yield streams
        else:
            async with (
                self._http_client() as client,
                streamable_http_client(self.spec.url, http_client=client) as (read, write, _),
            ):
                yield read, write

    @asynccontextmanager
    async def _stdio(self) -> AsyncIterator[tuple[_Reader, _Writer]]:
        spec = self.spec
        launcher = ["-I", "-S", str(_CHILD), str(os.getpid()), spec.command, *spec.args]
        parameters = StdioServerParameters(
            command=sys.executable, args=launcher, env=dict(spec.env), cwd=spec.cwd, encoding_error_handler="replace"
        )
        async with self._stderr.collecting() as errors, stdio_client(parameters, errlog=errors) as streams:
            # The child has its own copy: only it keeps the pipe open now.
            errors.close()
            yield streams

    def _http_client(self) -> httpx.AsyncClient:
        async def watch(response: httpx.Response) -> None:
            kind = response.headers.get("content-type", "")
            if response.request.method == "POST" and kind.startswith("text/event-stream"):
                response.stream = _WatchedStream(response.stream, self._lose)

        return httpx.AsyncClient(
            headers=dict(self.spec.headers),
            # Reading has no limit of its own: a tool's time is limited where it is called.
            timeout=httpx.Timeout(_HTTP_SECONDS, read=None),
            event_hooks={"response": [watch]},
        )


async def _all_tools(session: ClientSession) -> list[types.Tool]:
    tools: list[types.Tool] = []
    cursor: str | None = None
    while True:
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        tools.extend(page.tools)
        if not page.nextCursor or page.nextCursor == cursor:
            return tools
        cursor = page.nextCursor


async def _either(first: asyncio.Future[Any], second: asyncio.Future[Any]) -> None:
    await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _WatchedStream(httpx.AsyncByteStream):
    """The stream of one answer. The client leaves it early once it has the answer; reaching its end means a cut."""

    def __init__(self, stream: Any, on_cut: Callable[[str], None]) -> None:
        self._stream = stream
        self._on_cut = on_cut

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                yield part
        except Exception as error:
            self._on_cut(f"the answer was cut off ({error or type(error).__name__})")
            raise
        self._on_cut("the answer was cut off")

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Tail(asyncio.Protocol):
    """Keeps the last bytes that a child wrote to stderr."""

    def __init__(self) -> None:
        self._kept = b""

    def data_received(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-_STDERR_BYTES:]

    def text(self) -> str:
        lines = self._kept.decode("utf-8", "replace").strip().splitlines()
        return " | ".join(line.strip() for line in lines[-5:] if line.strip())

    @asynccontextmanager
    async def collecting(self) -> AsyncIterator[Any]:
        read, write = os.pipe()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: self, os.fdopen(read, "rb", buffering=0))
        errors = os.fdopen(write, "w")
        try:
            yield errors
        finally:
            errors.close()
            transport.close()
