"""A real HTTP and SSE client on plain sockets that writes down everything it received.

It behaves as a good client does: a request whose answer was lost is sent again with the same Idempotency-Key, and a stream that
broke is opened again with `Last-Event-ID`. What it wrote down is one of the three records the oracle compares.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.crash.fold import FoldedView, View

GONE = (ConnectionError, asyncio.IncompleteReadError, TimeoutError, OSError)
"""What a client sees when the server died, or is not there yet."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: Any


@dataclass(slots=True)
class SseFrame:
    """One frame as it came over the wire; `id` is None for `reset`, `ping` and `retry` hints."""

    event: str
    id: int | None
    data: dict[str, Any]


@dataclass(slots=True)
class Connection:
    """One opened stream: the cursor it asked from, what it got, and how it ended (`clean`, `broken`, `dropped`)."""

    cursor: int | None
    frames: list[SseFrame] = field(default_factory=list)
    ending: str = "open"


@dataclass(slots=True)
class Seen:
    """All that one client received of one conversation: the raw frames by connection, and their fold."""

    conversation: str
    connections: list[Connection] = field(default_factory=list)
    view: View = field(default_factory=View)

    @property
    def frames(self) -> list[SseFrame]:
        return [frame for connection in self.connections for frame in connection.frames]

    def take(self, frame: SseFrame) -> None:
        self.connections[-1].frames.append(frame)
        self.view.apply(frame.event, frame.data)


class Api:
    """One server, wherever it listens at the moment."""

    def __init__(self, port: int, token: str, host: str = "127.0.0.1") -> None:
        self.host = host
        self.port = port
        self.token = token

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = 60.0,
    ) -> Reply:
        """One request on a connection of its own. Raises one of `GONE` when no whole answer came."""
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await self.open(method, path, body, headers)
            try:
                status, answer = await _read_head(reader)
                payload = b"".join([piece async for piece in _body(reader, answer)])
            finally:
                writer.close()
        return Reply(status, json.loads(payload) if payload[:1] in {b"{", b"["} else payload.decode())

    async def insist(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        limit_seconds: float = 90.0,
        on_try: Callable[[], object] = lambda: None,
    ) -> Reply:
        """The same request again until a server answers it (503 and 5xx of a dying server count as no answer)."""
        async with asyncio.timeout(limit_seconds):
            while True:
                on_try()
                with suppress(*GONE):
                    reply = await self.request(method, path, body, headers)
                    if reply.status < 500:
                        return reply
                await asyncio.sleep(0.02)

    async def open(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Sends a request on a connection of its own; the answer is the caller's to read."""
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=2**22)
        content = b"" if body is None else json.dumps(body).encode()
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {self.host}:{self.port}",
            f"Authorization: Bearer {self.token}",
            "Connection: close",
            f"Content-Length: {len(content)}",
            *([] if body is None else ["Content-Type: application/json"]),
            *(f"{name}: {value}" for name, value in (headers or {}).items()),
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        await writer.drain()
        return reader, writer


class Refused(Exception):
    """The stream was answered with an error status."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"{reply.status}: {reply.body}")
        self.reply = reply


class Watcher:
    """Follows one conversation until told to stop, across drops and restarts, with one cursor."""

    def __init__(self, api: Api, conversation: str, *, follow: bool = True) -> None:
        self.api = api
        self.seen = Seen(conversation)
        self.follow = follow
        self._changed = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._stopped = False
        self._task = asyncio.create_task(self._watch())

    @property
    def view(self) -> View:
        return self.seen.view

    @property
    def connected(self) -> bool:
        return self._writer is not None

    def drop(self) -> None:
        """Loses the connection, as a network does; the watcher reconnects with its cursor."""
        if self._writer is not None:
            self.seen.connections[-1].ending = "dropped"
            self._writer.transport.abort()

    async def stop(self) -> None:
        self._stopped = True
        self._task.cancel()
        await asyncio.wait({self._task})

    async def until(self, condition: Callable[[View], bool], limit_seconds: float = 90.0) -> None:
        """Returns when the folded view fulfils the condition. Raises TimeoutError, or what ended the watcher."""
        async with asyncio.timeout(limit_seconds):
            while not condition(self.view):
                self._changed.clear()
                changed = asyncio.create_task(self._changed.wait())
                await asyncio.wait({changed, self._task}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                if self._task.done() and not condition(self.view):
                    self._task.result()
                    raise AssertionError(f"the stream of {self.seen.conversation} ended before the condition was met")

    async def turn_ended(self, turn: str, limit_seconds: float = 90.0) -> FoldedView:
        await self.until(lambda view: view.turn(turn).ending is not None, limit_seconds)
        return self.view.turn(turn)

    async def _watch(self) -> None:
        cursor: int | None = None
        while not self._stopped:
            connection = Connection(cursor)
            self.seen.connections.append(connection)
            with suppress(*GONE):
                async for frame in self._open(connection):
                    self.seen.take(frame)
                    cursor = frame.id if frame.id is not None else cursor
                    self._changed.set()
                if connection.ending == "open":
                    connection.ending = "clean"
            if connection.ending == "clean" and not self.follow:
                return
            if connection.ending == "open":
                connection.ending = "broken"
            await asyncio.sleep(0.02)

    async def _open(self, connection: Connection) -> AsyncIterator[SseFrame]:
        headers = {} if connection.cursor is None else {"Last-Event-ID": str(connection.cursor)}
        path = f"/api/chat?conversation={self.seen.conversation}{'&follow=1' if self.follow else ''}"
        reader, self._writer = await self.api.open("GET", path, None, {"Accept": "text/event-stream", **headers})
        try:
            status, answer = await _read_head(reader)
            if status >= 500:
                raise ConnectionError(f"{status} from a server that starts or stops")
            if status != 200:
                raise Refused(Reply(status, b"".join([piece async for piece in _body(reader, answer)]).decode()))
            async for frame in parse_sse(_body(reader, answer)):
                yield frame
        finally:
            self._writer.close()
            self._writer = None


async def parse_sse(pieces: AsyncIterator[bytes]) -> AsyncIterator[SseFrame]:
    """Frames of an event stream; a frame cut off in the middle is none."""
    buffer = b""
    async for piece in pieces:
        buffer += piece
        while b"\n\n" in buffer:
            block, _, buffer = buffer.partition(b"\n\n")
            fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if ": " in line and line[0] != ":")
            if "data" in fields:
                number = fields.get("id")
                yield SseFrame(
                    fields.get("event", "message"), int(number) if number else None, json.loads(fields["data"] or "{}")
                )


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = (line.split(":", 1) for line in head[1:] if ":" in line)
    return int(head[0].split(" ")[1]), {name.strip().lower(): value.strip() for name, value in fields}


async def _body(reader: asyncio.StreamReader, head: Mapping[str, str]) -> AsyncIterator[bytes]:
    """The body in pieces. A chunked body that stops without its last chunk is a broken connection, not an end."""
    if head.get("transfer-encoding", "") != "chunked":
        yield await reader.readexactly(int(head.get("content-length", "0")))
        return
    while True:
        size = int((await reader.readuntil(b"\r\n")).strip().split(b";")[0], 16)
        piece = await reader.readexactly(size + 2)
        if size == 0:
            return
        yield piece[:-2]
