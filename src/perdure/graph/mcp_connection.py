"""One live session with an MCP server, opened, held and closed by one task of its own.

The protocol's client is built on cancel scopes, which must be left in the task that entered them: so a task per session,
and calls from other tasks. It also leaves a call waiting for ever when the answer's stream is cut: so every call
races with the loss of the session. Each call carries a note of how far it came: a call that never left may be sent again,
also while others were under way.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
import httpx
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from pydantic import ValidationError

from perdure.clock import Clock
from perdure.graph.limits import LimitExpired, TimeLimit
from perdure.graph.mcp_config import ServerSpec
from perdure.graph.mcp_http import WatchedClient

_Reader = MemoryObjectReceiveStream[SessionMessage | Exception]
_Writer = MemoryObjectSendStream[SessionMessage]

T = TypeVar("T")

_CHILD = Path(__file__).with_name("stdio_child.py")
_STDERR_BYTES = 2000
_CLOSE_SECONDS = 10.0
"""A local server gets two seconds after its input closed, two more after SIGTERM, then it is killed."""

_CLIENT = types.Implementation(name="perdure", version="0")


class ServerLost(Exception):
    """The session ended. Of a call that was under way nobody knows whether it took effect."""


class NeverSent(ServerLost):
    """The call did not reach the server, or was turned away at its door: it may be sent again."""


@dataclass
class _Handover(ClientMessageMetadata):
    """How far a request came; travels beside it through the protocol's client."""

    sent: bool = False


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
        self._handed: dict[types.RequestId, _Handover] = {}
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._lost: asyncio.Future[str] = loop.create_future()
        self._ending = asyncio.Event()

    @property
    def lost(self) -> bool:
        return self._lost.done()

    @property
    def calling(self) -> bool:
        """Whether a call is under way that somebody waits for."""
        return bool(self._handed)

    @property
    def reason(self) -> str:
        """Why the session is lost, with the last lines a local server wrote to stderr."""
        said = self._stderr.text()
        reason = self._lost.result() if self._lost.done() else ""
        return f"{reason}. It wrote: {said}" if said else reason

    async def open(self, limit_seconds: float) -> None:
        """Raises NeverSent; then nothing of it is left running."""
        self._owner = asyncio.create_task(self._live(), name=f"mcp {self.spec.name}")
        try:
            async with TimeLimit(self._clock, limit_seconds):
                await _either(self._ready, self._lost)
        except LimitExpired:
            self.lose(f"it did not answer within {limit_seconds:g} seconds")
            await self._end()
        except BaseException:
            await self._end()
            raise
        if self.lost:
            await self._end()
            raise NeverSent(self.reason)

    async def close(self) -> None:
        self.lose("it was closed")
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

    async def call(
        self, tool: str, arguments: Mapping[str, Any], meta: Mapping[str, Any] | None = None
    ) -> types.CallToolResult:
        """`meta` goes into the request's `_meta`. Raises ServerLost (NeverSent when it is sure), or McpError with the server's
        own refusal."""
        parameters = types.CallToolRequestParams.model_validate(
            {"name": tool, "arguments": dict(arguments), "_meta": dict(meta) if meta else None}
        )
        request = types.ClientRequest(types.CallToolRequest(params=parameters))
        handover = _Handover()
        # Not `session.call_tool`: what took effect is told to the model, also when it does not fit the server's own schema.
        return await self._request(
            lambda session: session.send_request(request, types.CallToolResult, metadata=handover), handover
        )

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

    async def _request(
        self, ask: Callable[[ClientSession], Coroutine[Any, Any, T]], handover: _Handover | None = None
    ) -> T:
        if self._session is None or self.lost:
            raise NeverSent(self.reason)
        request = asyncio.ensure_future(ask(self._session))
        try:
            await _either(request, self._lost)
            if not request.done():
                raise self._gone(handover)
            return request.result()
        except McpError as error:
            if error.error.code == types.CONNECTION_CLOSED:
                self.lose("the connection was closed")
                raise self._gone(handover) from error
            raise
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            self.lose("the connection was closed")
            raise self._gone(handover) from error
        finally:
            self._forget(handover)
            if not request.done():
                request.cancel()

    def _gone(self, handover: _Handover | None) -> ServerLost:
        sent = handover is None or handover.sent
        return ServerLost(self.reason) if sent else NeverSent(self.reason)

    async def _live(self) -> None:
        """The owner: everything is entered and left here."""
        reason = "the connection was closed"
        outlet, inlet = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outbox, leaving = anyio.create_memory_object_stream[SessionMessage](0)
        streams = ExitStack()
        for each in (outlet, inlet, outbox, leaving):
            streams.callback(each.close)
        try:
            async with self._transport() as (read, write), anyio.create_task_group() as group:
                streams.callback(read.close)
                async with ClientSession(inlet, outbox, client_info=_CLIENT, message_handler=self._hear) as session:
                    group.start_soon(self._relay, read, outlet)
                    group.start_soon(self._deliver, leaving, write)
                    await session.initialize()
                    self.tools = await _all_tools(session)
                    self._session = session
                    self._ready.set_result(None)
                    await self._ending.wait()
                group.cancel_scope.cancel()
        except Exception as error:  # a group of whatever the transport met
            first = _first(error)
            reason = str(first) or type(first).__name__
        finally:
            streams.close()
            self.lose(reason)

    async def _relay(self, read: _Reader, outlet: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Passes messages on and notices the end of the transport, which the session keeps to itself."""
        async with outlet:
            async for message in read:
                await outlet.send(message)
        if self._ready.done():
            self.lose("the connection was closed")

    async def _deliver(self, leaving: MemoryObjectReceiveStream[SessionMessage], write: _Writer) -> None:
        """Passes requests on and notes how far each came. Over HTTP the client beneath knows it better: see `on_the_way`."""
        async with leaving, write:
            async for message in leaving:
                handover, request = message.metadata, message.message.root
                if isinstance(handover, _Handover) and isinstance(request, types.JSONRPCRequest):
                    handover.sent = self.spec.transport == "stdio"
                    self._handed[request.id] = handover
                try:
                    await write.send(message)
                except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                    if isinstance(handover, _Handover):
                        handover.sent = False
                    self.lose("the connection was closed")
                    return

    def _forget(self, handover: _Handover | None) -> None:
        for number in [number for number, each in self._handed.items() if each is handover]:
            del self._handed[number]

    def on_the_way(self, number: types.RequestId) -> None:
        self._mark(number, sent=True)

    def refused(self, number: types.RequestId) -> None:
        self._mark(number, sent=False)

    def _mark(self, number: types.RequestId, *, sent: bool) -> None:
        if number in self._handed:
            self._handed[number].sent = sent

    async def _hear(self, message: Any) -> None:
        if isinstance(message, ValidationError) and str(message.errors()[0]["input"]).lstrip().startswith("{"):
            # Whose answer it was cannot be told, and its call would wait for ever. Other lines are a server's chatter.
            self.lose("it sent a message that cannot be read")
        elif isinstance(message, types.ServerNotification) and isinstance(
            message.root, types.ToolListChangedNotification
        ):
            self.stale = True

    def lose(self, reason: str) -> None:
        if not self._lost.done():
            self._lost.set_result(reason)
        self._ending.set()

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[tuple[_Reader, _Writer]]:
        if self.spec.transport == "stdio":
            async with self._stdio() as streams:
                yield streams
        elif self.spec.transport == "sse":
            async with sse_client(self.spec.url, httpx_client_factory=self._client) as streams:
                yield streams
        else:
            async with (
                self._client() as client,
                streamable_http_client(self.spec.url, http_client=client) as (read, write, _),
            ):
                yield read, write

    def _client(self, *_: Any, **__: Any) -> httpx.AsyncClient:
        return WatchedClient(dict(self.spec.headers), self)

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
