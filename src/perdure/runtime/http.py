"""The HTTP server inside the process: bound by us, stopped by us, proved to answer before anything relies on it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator

import httpx2
import uvicorn
from starlette.types import ASGIApp

from perdure.api.server import server_config
from perdure.clock import Clock
from perdure.errors import NotReady

READY_SECONDS = 30.0
_FIRST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 1.0


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the runtime's: it drains turns before the server may go."""
        yield


class HttpServer:
    """`start`, `until_ready`, `stop`. `ended` is done when it stopped for whatever reason."""

    def __init__(self, app: ASGIApp, bound: socket.socket) -> None:
        self._server = _Server(server_config(app))
        self._bound = bound
        self.ended: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.ended = asyncio.create_task(self._server.serve(sockets=[self._bound]), name="perdure-http")

    async def stop(self) -> None:
        """Takes no new connection, lets requests under way answer, returns when all is closed."""
        self._server.should_exit = True
        if self.ended is not None:
            await self.ended

    async def until_ready(self, address: str, clock: Clock) -> None:
        """Returns when our own health check answers over the real socket. Raises NotReady after 30 seconds."""
        until, pause = clock.monotonic() + READY_SECONDS, _FIRST_PAUSE_SECONDS
        # Plain HTTP with ourselves: loading the authorities of TLS would cost more than the question.
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        async with httpx2.AsyncClient(trust_env=False, timeout=READY_SECONDS, verify=nobody) as http:
            while not await self._answers(http, address):
                if clock.monotonic() >= until or (self.ended is not None and self.ended.done()):
                    raise NotReady(f"The server does not answer its own health check at {address}: it gives up.")
                await clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    async def _answers(self, http: httpx2.AsyncClient, address: str) -> bool:
        try:
            return (await http.get(f"{address}/api/healthz")).status_code == 200
        except httpx2.HTTPError:
            return False
