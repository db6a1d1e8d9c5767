"""What every request passes, outermost and in this order: access, the body's bounds, the application, the headers.

Plain ASGI: nothing here wraps a stream in a task of its own.
"""

from __future__ import annotations

import time

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.api import body as bodies
from perdure.api.auth import SAFE_METHODS, Access
from perdure.api.context import PERSON
from perdure.api.errors import HEAD_PATHS, INTERNAL_MESSAGE, reply
from perdure.api.metrics import Metrics
from perdure.api.pages import refused_page, wants_page
from perdure.api.stream import SLOT, EventStream
from perdure.api.wire import JSONReply
from perdure.errors import PerdureError, Unauthorized

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}

_UNLOGGED = frozenset({"/api/healthz", "/api/readyz", "/metrics"})

_log = structlog.get_logger("perdure.api")


class Gate:
    """The ASGI application that the server runs."""

    def __init__(self, app: ASGIApp, access: Access, metrics: Metrics, *, max_body_bytes: int) -> None:
        self._app, self._access, self._metrics = app, access, metrics
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(send, method=scope["method"])
        if exchange.method == "HEAD" and scope["path"] in HEAD_PATHS:
            scope = {**scope, "method": "GET"}
        scope[SLOT] = []
        try:
            await self._serve(scope, receive, exchange)
        except bodies.ClientGone:
            return
        except Exception as error:
            await self._on_fault(scope, receive, exchange, error)
        finally:
            self._tell(scope, exchange)

    async def _serve(self, scope: Scope, receive: Receive, exchange: Exchange) -> None:
        try:
            scope[PERSON] = await self._access.admit(scope)
            bodies.check_head(scope)
            body = await bodies.read(scope, receive, self._max_body_bytes) if bodies.expected(scope) else b""
        except PerdureError as error:
            page = isinstance(error, Unauthorized) and wants_page(scope)
            await bodies.answer_early(refused_page() if page else reply(error), scope, receive, exchange.send)
            return
        receive = bodies.replay(body, receive)
        if scope["method"] not in SAFE_METHODS:
            try:
                bodies.check_json(scope, body)
            except PerdureError as error:
                await reply(error)(scope, receive, exchange.send)
                return
        await self._app(scope, receive, exchange.send)
        await self._run_stream(scope, receive, exchange)

    async def _run_stream(self, scope: Scope, receive: Receive, exchange: Exchange) -> None:
        if scope[SLOT]:
            stream: EventStream = scope[SLOT].pop()
            exchange.streamed = True
            try:
                await stream.run(scope, receive, exchange.send)
            except Unauthorized as error:
                await reply(error)(scope, receive, exchange.send)

    async def _on_fault(self, scope: Scope, receive: Receive, exchange: Exchange, error: Exception) -> None:
        _log.error("request_failed", method=scope["method"], path=scope["path"], exc_info=error)
        if exchange.status is None:
            answer = JSONReply({"code": "INTERNAL", "message": INTERNAL_MESSAGE}, status_code=500)
            await answer(scope, receive, exchange.send)

    def _tell(self, scope: Scope, exchange: Exchange) -> None:
        seconds = time.monotonic() - exchange.started_at
        route = getattr(scope.get("route"), "path", "unknown")
        self._metrics.request(exchange.method, route, exchange.status or 0, seconds, stream=exchange.streamed)
        person = scope.get(PERSON)
        if scope["path"] not in _UNLOGGED:
            _log.info(
                "request",
                by=person.name if person else None,
                method=exchange.method,
                path=scope["path"],
                status=exchange.status,
                milliseconds=round(seconds * 1000),
            )


class Exchange:
    """One request's answer: adds the security headers that a route has not set itself, remembers the status, keeps the body
    from who asked for the head alone."""

    __slots__ = ("_send", "method", "started_at", "status", "streamed")

    def __init__(self, send: Send, *, method: str) -> None:
        self._send = send
        self.method = method
        self.started_at = time.monotonic()
        self.streamed = False
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(raw=list(message.get("headers", ())))
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            message = {**message, "headers": headers.raw}
        elif self.method == "HEAD":
            message = {**message, "body": b""}
        await self._send(message)
