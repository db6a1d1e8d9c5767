"""The HTTP client under an MCP session: it tells what the protocol's client keeps to itself.

The protocol's client ends a session without a word on most failures of one request, and leaves a call waiting for ever
when the answer's stream is cut. Whether a call may be sent again depends on how far it came: so that is watched here.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any, Protocol

import httpx
from mcp.types import RequestId

HTTP_SECONDS = 10.0
_BUSY = frozenset({HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.TOO_MANY_REQUESTS})
"""Said of one request: the session and its other calls go on."""

_UNSURE = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, 499})
"""A request that got one of these may have been at work all the same."""

_INTERNAL_ERROR = -32603


class Watcher(Protocol):
    def on_the_way(self, number: RequestId) -> None:
        """The first byte of the request is about to be written."""

    def refused(self, number: RequestId) -> None:
        """The server turned the request away at its door: it took no effect."""

    def lose(self, reason: str) -> None:
        """The session is of no use any more."""


class WatchedClient(httpx.AsyncClient):
    """What the environment says of proxies and certificates holds, as for any client."""

    def __init__(self, headers: dict[str, str], watcher: Watcher) -> None:
        # Reading has no limit of its own: a tool's time is limited where it is called.
        super().__init__(headers=headers, timeout=httpx.Timeout(HTTP_SECONDS, read=None))
        self._watcher = watcher

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        if request.method != "POST":
            return await super().send(request, **options)
        number = _request_id(request)
        request.extensions = {**request.extensions, "trace": self._trace(number)}
        try:
            response = await super().send(request, **options)
        except httpx.TransportError as error:
            self._watcher.lose(str(error) or type(error).__name__)
            raise
        return await self._judged(response, number)

    def _trace(self, number: RequestId | None) -> Any:
        async def trace(event: str, _: Any) -> None:
            if number is not None and event.endswith("send_request_headers.started"):
                self._watcher.on_the_way(number)

        return trace

    async def _judged(self, response: httpx.Response, number: RequestId | None) -> httpx.Response:
        status = response.status_code
        said = f"it answered {status} {response.reason_phrase}".rstrip()
        if status in _BUSY and number is not None:
            await response.aclose()
            told = _error(number, _with_delay(said, response))
            return httpx.Response(HTTPStatus.OK, json=told, request=response.request)
        if status >= HTTPStatus.BAD_REQUEST:
            if number is not None and status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _UNSURE:
                self._watcher.refused(number)
            self._watcher.lose(said)
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = _WatchedStream(response.stream, self._watcher)
        return response


def _request_id(request: httpx.Request) -> RequestId | None:
    """Of the JSON-RPC request in the body; None for a notification or an answer of ours."""
    message = json.loads(request.content)
    return message.get("id") if "method" in message else None


def _error(number: RequestId, text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": _INTERNAL_ERROR, "message": text}}


def _with_delay(said: str, response: httpx.Response) -> str:
    delay = response.headers.get("retry-after")
    return f"{said}, and asks to wait: {delay}" if delay else said


class _WatchedStream(httpx.AsyncByteStream):
    """The stream of one answer. The client leaves it early once it has the answer; reaching its end means a cut."""

    def __init__(self, stream: Any, watcher: Watcher) -> None:
        self._stream = stream
        self._watcher = watcher

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                yield part
        except Exception as error:
            self._watcher.lose(f"the answer was cut off ({error or type(error).__name__})")
            raise
        self._watcher.lose("the answer was cut off")

    async def aclose(self) -> None:
        await self._stream.aclose()
