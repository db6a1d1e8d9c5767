"""Server-sent events, written by hand: durable ids, our own heartbeat, and an end that tells the truth.

A stream is closed cleanly only when its last event was a terminal one. In every other case (a shutdown, a slow reader, a
fault) the connection is aborted without the final chunk, because clients take a clean close for the end of a turn.

A route returns an `EventStream`; the gate runs it after the framework has let go of the request, so an idle stream is two
small tasks: one that waits for events, one that waits for the client to go away. One timer serves all heartbeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any, Protocol

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from perdure.api.wire import dumps
from perdure.errors import BadRequest, NotReady, Unauthorized
from perdure.events import Event, EventKind, Frame, Gone, ListsReset, Reached, Unfollowed
from perdure.transport.base import SlowWatcher
from perdure.turns import Change

SLOT = "perdure.stream"
"""Where a route leaves its stream in the scope for the gate."""

CONNECTION = "perdure.connection"
"""The ASGI extension by which our server hands out the connection."""

RETRY_MILLISECONDS = 1_000
SEND_SECONDS = 30.0
CLOSE_SECONDS = 2.0

REVOKED_MESSAGE = "This token was revoked."

_HINT = f"retry: {RETRY_MILLISECONDS}\n\n".encode()
_PING = b"event: ping\ndata: {}\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
]

_log = structlog.get_logger("perdure.api")


class Connection(Protocol):
    """One TCP connection."""

    def close(self) -> None:
        """Closes once everything written is sent."""
        ...

    def abort(self) -> None:
        """Closes now; what was not sent is lost."""
        ...


class Ending(StrEnum):
    """Why a stream was ended by something other than its source."""

    GONE = "gone"
    SLOW = "slow"
    SHUTDOWN = "shutdown"
    BROKEN = "broken"
    REVOKED = "revoked"
    """The token it was opened with."""


class Streams:
    """All open streams of this process: their heartbeat, their limit of patience, their end at shutdown."""

    def __init__(self, *, heartbeat_seconds: float, send_seconds: float = SEND_SECONDS) -> None:
        self._heartbeat_seconds = heartbeat_seconds
        self._send_seconds = send_seconds
        self._open: set[EventStream] = set()
        self._pings: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._barred: set[str] = set()
        self._emptied = asyncio.Event()
        self.cut: dict[Ending, int] = dict.fromkeys(Ending, 0)
        """How many streams ended by each cause, for the metrics."""

    def __len__(self) -> int:
        return len(self._open)

    def check_open(self) -> None:
        """Raises NotReady once `abort_all` has begun."""
        if self._closing:
            raise NotReady("The server is going down; connect again in a moment.")

    def bar(self, name: str) -> None:
        """The token of this name was revoked: what it watches ends now, and what it asked to watch just before never begins."""
        self._barred.add(name)
        for stream in list(self._open):
            if stream.whose == name:
                stream.end(Ending.REVOKED)

    def barred(self, name: str) -> bool:
        return name in self._barred

    async def abort_all(self, within_seconds: float = CLOSE_SECONDS) -> None:
        """Tells every client to come back, then cuts its connection. New streams are refused from now on."""
        self._closing = True
        for stream in list(self._open):
            stream.end(Ending.SHUTDOWN)
        with suppress(TimeoutError):
            async with asyncio.timeout(within_seconds):
                while self._open:
                    self._emptied.clear()
                    await self._emptied.wait()

    def enter(self, stream: EventStream) -> None:
        self._open.add(stream)
        if self._timer is None:
            self._schedule()

    def leave(self, stream: EventStream, ending: Ending | None) -> None:
        self._open.discard(stream)
        if ending:
            self.cut[ending] += 1
        if not self._open:
            self._emptied.set()
            if self._timer:
                self._timer.cancel()
                self._timer = None

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._heartbeat_seconds / 4, self._tick)

    def _tick(self) -> None:
        now = asyncio.get_running_loop().time()
        for stream in list(self._open):
            if stream.stuck_for(now) > self._send_seconds:
                stream.end(Ending.SLOW)
            elif stream.silent_for(now) >= self._heartbeat_seconds:
                ping = asyncio.get_running_loop().create_task(stream.ping())
                self._pings.add(ping)
                ping.add_done_callback(self._pings.discard)
        self._schedule()


class EventStream(Response):
    """The answer of a stream route. `source` yields what `encode` turns into frames; `ends` tells whether an item is one
    after which the source may end and the stream be closed cleanly. `whose`: the name of who watches."""

    def __init__(
        self,
        streams: Streams,
        source: AsyncIterator[Any],
        encode: Callable[[Any], bytes],
        ends: Callable[[Any], bool],
        whose: str,
    ) -> None:
        self.whose = whose
        self.status_code = 200
        self.background = None
        self.body = b""
        self.raw_headers = list(_HEADERS)
        self._streams, self._source, self._encode, self._ends = streams, source, encode, ends
        self._send: Send
        self._task: asyncio.Task[Any] | None = None
        self._ending: Ending | None = None
        self._sending_since: float | None = None
        self._sent_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[SLOT].append(self)

    async def run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Writes until the source ends, the client goes away or `end` is called. Raises Unauthorized, before anything is
        written, when the token was revoked since its request was admitted."""
        if self._streams.barred(self.whose):
            await _close(self._source)
            raise Unauthorized(REVOKED_MESSAGE)
        self._send, self._task = send, asyncio.current_task()
        watcher = asyncio.create_task(self._watch(receive))
        self._streams.enter(self)
        try:
            clean = await self._write_all()
        finally:
            self._task = None
            await _close(self._source)
            self._streams.leave(self, self._ending)
        try:
            await self._finish(clean, scope.get("extensions", {}).get(CONNECTION), watcher)
        finally:
            watcher.cancel()

    def end(self, ending: Ending) -> None:
        """Ends the stream from outside, once."""
        if self._task is not None and self._ending is None:
            self._ending = ending
            self._task.cancel()

    def silent_for(self, now: float) -> float:
        return now - self._sent_at if self._sending_since is None else 0.0

    def stuck_for(self, now: float) -> float:
        """Seconds since the client last took what was written to it, 0 when nothing is pending."""
        return 0.0 if self._sending_since is None else now - self._sending_since

    async def ping(self) -> None:
        if self._task is not None and self._sending_since is None:
            await self._put(_PING)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.end(Ending.GONE)

    async def _write_all(self) -> bool:
        """True when the stream may be closed cleanly."""
        clean = True
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._put(_HINT)
            async for item in self._source:
                clean = self._ends(item)
                await self._put(self._encode(item))
        except asyncio.CancelledError:
            if self._ending is None or self._task is None or self._task.uncancel() > 0:
                raise
            return False
        except SlowWatcher:
            self._ending = Ending.SLOW
            return False
        except NotReady:
            self._ending = Ending.SHUTDOWN
            return False
        except Exception:
            self._ending = self._ending or Ending.BROKEN
            _log.exception("stream_broken")
            return False
        if not clean:
            self._ending = Ending.BROKEN
        return clean

    async def _put(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._sending_since = loop.time()
        try:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            self._sending_since = None
            self._sent_at = loop.time()

    async def _finish(self, clean: bool, connection: Connection | None, watcher: asyncio.Task[None]) -> None:
        if clean:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        elif connection is not None and self._ending is not Ending.GONE:
            await self._cut(connection, watcher)

    async def _cut(self, connection: Connection, watcher: asyncio.Task[None]) -> None:
        """Ends the connection without the final chunk. A client that still reads gets the hint first; returns when the
        server knows that the connection is gone."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS / 2):
                if self._ending is Ending.SLOW:
                    connection.abort()
                else:
                    await self._put(_HINT)
                    connection.close()
                await asyncio.shield(watcher)
        except TimeoutError:
            connection.abort()
            await watcher


async def _close(source: AsyncIterator[Any]) -> None:
    """A generator gives its subscription back now, not when it is collected."""
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()


# -- frames -----------------------------------------------------------------------------------------------------------


def encode_frame(frame: Frame | Gone | Unfollowed) -> bytes:
    if isinstance(frame, Event):
        return _frame(frame.kind, frame.wire(), frame.seq)
    if isinstance(frame, Gone):
        return _frame("gone", frame.wire(), None)
    if isinstance(frame, Unfollowed):
        return _frame(EventKind.CHAT_ERROR, frame.wire(), None)
    return _frame("reset", frame.wire(), None)


def encode_change(change: Change | ListsReset | Reached) -> bytes:
    if isinstance(change, ListsReset):
        return _frame("reset", change.wire(), None)
    if isinstance(change, Reached):
        return _frame("reach", change.wire(), None)
    data = {
        "number": change.number,
        "kind": change.kind,
        "conversation": change.conversation,
        "turn": change.turn,
        "status": change.status,
        "at": change.at,
        **change.detail,
    }
    return _frame(change.kind, data, change.number)


def _frame(event: str, data: Any, id: int | None) -> bytes:
    tail = b"\n\n" if id is None else b"\nid: %d\n\n" % id
    return b"event: " + event.encode() + b"\ndata: " + dumps(data) + tail


def ends_turn(frame: Frame | Gone | Unfollowed) -> bool:
    return ends_conversation(frame) or (isinstance(frame, Event) and frame.terminal)


def ends_conversation(frame: Frame | Gone | Unfollowed) -> bool:
    return isinstance(frame, Gone | Unfollowed)


def never(item: Any) -> bool:
    return False


def cursor(last_event_id: str | None, after: str | None) -> int | None:
    """The cursor a client names: its header (a browser's reconnect) goes before the query. `-1` means from the start."""
    given = (last_event_id or after or "").strip()
    if given in {"", "-1"}:
        return None
    if given.isascii() and given.isdigit() and len(given) <= 18:
        return int(given)
    raise BadRequest("Last-Event-ID (or `after`) must be the id of an event: a whole number.")
