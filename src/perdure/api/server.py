"""The HTTP server under the application: uvicorn, told how Perdure wants it.

`HttpProtocol` adds three things: the connection as an ASGI extension (streams abort it), a deadline for request heads, and
the error envelope where the request is no HTTP.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from perdure.api.stream import CONNECTION
from perdure.api.wire import dumps

HEAD_SECONDS = 10.0
MAX_HEAD_BYTES = 32_768


class HttpProtocol(H11Protocol):
    """One connection."""

    head_seconds = HEAD_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._serve = self.app
        self.app = self._with_connection

    async def _with_connection(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("extensions", {})[CONNECTION] = self.transport
        await self._serve(scope, receive, send)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._head_arrived()
        elif self.conn.trailing_data[0] and self._deadline is None and not self.transport.is_closing():
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_arrived()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        """A head that trickles in byte by byte may not hold the connection for ever."""
        self._deadline = self.loop.call_later(self.head_seconds, self.transport.abort)

    def _head_arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def send_400_response(self, msg: str) -> None:
        body = dumps({"code": "BAD_REQUEST", "message": msg})
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        events = (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()


def server_config(app: ASGIApp) -> uvicorn.Config:
    """For `uvicorn.Server(server_config(app))`. Signals, sockets and logging stay with the caller."""
    return uvicorn.Config(
        app,
        http=HttpProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
    )
