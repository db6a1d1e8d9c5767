"""The command line's HTTP client: finds the running server, speaks its JSON, follows its streams across restarts."""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any

import httpx2

from perdure.cli.sse import Parser, ServerSentEvent
from perdure.errors import PerdureError
from perdure.events import Event, EventKind, Frame, Reset

CONNECT_SECONDS = 5.0
IDLE_SECONDS = 60.0
"""A stream that says nothing for so long, not even `ping`, is dead."""

PAGE = 200

GIVE_UP_SECONDS = 300.0
"""How long a stream is looked for without one answer before a person is told."""

TELL_SECONDS = 2.0
"""After so long of repeating in vain a person is told why."""

_ENVELOPE = frozenset({"seq", "conversation", "turn", "attempt", "at"})
_KINDS = frozenset(str(kind) for kind in EventKind)
_TOLD = frozenset({"code", "message", "conversation", "turn"})
_WORTH_WAITING = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server listens and what opens it."""

    address: str
    token: str


Locate = Callable[[], Server | None]
"""Finds the server anew: after a restart it may listen elsewhere."""


class Refused(PerdureError):
    """The server answered with an error envelope."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        turn: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, turn=turn, details=details)
        self.status = status
        self.code = code


class Unreachable(PerdureError):
    """The server did not answer."""

    code = "UNREACHABLE"


@dataclass(frozen=True, slots=True)
class Line:
    """The connection as a person should know it: `lost`, then `back`."""

    state: str


class Client:
    """Use as `async with`. Every verb raises `Refused` or `Unreachable`."""

    def __init__(
        self,
        locate: Locate,
        *,
        transport: httpx2.AsyncBaseTransport | None = None,
        waiting: Callable[[str], None] = lambda why: None,
    ) -> None:
        """`waiting`: told once, and why, when something is repeated for longer than a restart takes."""
        self._locate = locate
        self._waiting = waiting
        self._http = httpx2.AsyncClient(
            transport=transport,
            trust_env=False,  # the server is on this machine: no proxy stands between
            timeout=httpx2.Timeout(IDLE_SECONDS, connect=CONNECT_SECONDS),
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def get(self, path: str, **parameters: Any) -> Any:
        return (await self._send("GET", path, params=_given(parameters))).json()

    async def text(self, path: str, **parameters: Any) -> str:
        return str((await self._send("GET", path, params=_given(parameters))).text)

    async def post(self, path: str, body: Mapping[str, Any] | None = None, *, key: str | None = None) -> Any:
        headers = {"Idempotency-Key": key} if key else {}
        return (await self._send("POST", path, json=body if body is not None else {}, headers=headers)).json()

    async def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        return (await self._send("PATCH", path, json=body)).json()

    async def delete(self, path: str, **parameters: Any) -> None:
        await self._send("DELETE", path, params=_given(parameters))

    async def pages(self, path: str, **parameters: Any) -> AsyncGenerator[Any, None]:
        """The items of every page, in order."""
        cursor: str | None = None
        while True:
            page = await self.get(path, cursor=cursor, limit=PAGE, **parameters)
            for item in page["items"]:
                yield item
            cursor = page["next"]
            if cursor is None:
                return

    async def start(self, body: Mapping[str, Any]) -> Any:
        """POST /api/chat, repeated over a restart under one idempotency key: the message is accepted exactly once."""
        key = uuid.uuid4().hex
        return await self._patiently(lambda: self.post("/api/chat", body, key=key))

    async def read(self, path: str) -> Any:
        """A GET, repeated over a restart."""
        return await self._patiently(lambda: self.get(path))

    async def decide(self, card: str, decision: Mapping[str, Any]) -> Any:
        """POST /api/approvals/ID, repeated over a restart: when only its answer was lost, the repeat is refused with
        APPROVAL_DECIDED by the same person."""
        return await self._patiently(lambda: self.post(f"/api/approvals/{card}", decision))

    async def _patiently(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        since, told = time.monotonic(), False
        last: PerdureError = Unreachable("The server did not come back. Start it with: perdure serve")
        for pause in _pauses():
            try:
                return await ask()
            except Unreachable:
                why = "The server does not answer."
            except Refused as refused:
                if refused.status not in _WORTH_WAITING:
                    raise
                why, last = refused.message, refused
            passed = time.monotonic() - since
            if passed >= GIVE_UP_SECONDS:
                break
            if passed >= TELL_SECONDS and not told:
                told = True
                self._waiting(f"{why} This is tried again for {GIVE_UP_SECONDS / 60:.0f} minutes; Ctrl-C gives up.")
            await asyncio.sleep(pause)
        raise last

    async def follow(self, conversation: str, after: int | None = None) -> AsyncGenerator[Frame | Line, None]:
        """Frames until a terminal event, across cuts and restarts; a `Line` tells of each cut and each return.

        Close it (`aclosing`) when leaving before its end.
        """
        cursor = after
        lost = False
        pauses = _pauses()
        while True:
            try:
                async with aclosing(self._stream(conversation, cursor)) as stream:
                    async for sent in stream:
                        if lost:
                            lost = False
                            yield Line("back")
                        pauses = _pauses()
                        frame = frame_of(sent)
                        if frame is None:
                            continue
                        yield frame
                        if isinstance(frame, Event):
                            cursor = frame.seq
                            if frame.terminal:
                                return
            except (httpx2.HTTPError, Unreachable):
                pass
            except Refused as refused:
                if refused.status not in _WORTH_WAITING:
                    raise
            if not lost:  # a clean end without a terminal event is a cut, too
                lost = True
                yield Line("lost")
            pause = next(pauses, None)
            if pause is None:
                raise Unreachable("The server did not come back; the turn is safe. Start it with: perdure serve")
            await asyncio.sleep(pause)

    async def _stream(self, conversation: str, cursor: int | None) -> AsyncGenerator[ServerSentEvent, None]:
        server = self._found()
        headers = {**_bearer(server), "Accept": "text/event-stream"}
        if cursor is not None:
            headers["Last-Event-ID"] = str(cursor)
        url = f"{server.address}/api/chat"
        async with self._http.stream("GET", url, params={"conversation": conversation}, headers=headers) as response:
            if response.is_error:
                await response.aread()
                raise _refusal(response)
            parser = Parser()
            async for piece in response.aiter_raw():
                for sent in parser.feed(piece):
                    yield sent

    async def _send(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> httpx2.Response:
        server = self._found()
        try:
            response = await self._http.request(
                method, f"{server.address}{path}", headers={**_bearer(server), **(headers or {})}, **more
            )
        except httpx2.HTTPError as error:
            raise Unreachable(
                f"The server at {server.address} does not answer ({error.__class__.__name__}). See: perdure doctor"
            ) from error
        if response.is_error:
            raise _refusal(response)
        return response

    def _found(self) -> Server:
        server = self._locate()
        if server is None:
            raise Unreachable("No server is running on this database. Start it with: perdure serve")
        return server


def _pauses() -> Iterator[float]:
    """Seconds to wait before the next try: growing, with jitter, until giving up."""
    waited, pause = 0.0, 0.1
    while waited < GIVE_UP_SECONDS:
        jittered = pause * random.uniform(0.5, 1.0)  # noqa: S311 -- spreads clients, guards nothing
        waited += jittered
        yield jittered
        pause = min(pause * 2, 2.0)


def _given(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}


def _bearer(server: Server) -> dict[str, str]:
    return {"Authorization": f"Bearer {server.token}"}


def _refusal(response: httpx2.Response) -> Refused:
    try:
        body = response.json()
    except ValueError:
        body = {}
    if not isinstance(body, dict):
        body = {}
    message = str(body.get("message") or f"The server answered {response.status_code}.")
    details = {name: value for name, value in body.items() if name not in _TOLD}
    return Refused(response.status_code, str(body.get("code") or "INTERNAL"), message, body.get("turn"), details)


def frame_of(sent: ServerSentEvent) -> Frame | None:
    """A frame of the wire as `perdure.events` knows it; None for `ping`, kinds of later versions, and what a gateway says when it
    does not wait for a turn any more: the turn goes on, and whoever comes back asks again."""
    if sent.event != "reset" and sent.event not in _KINDS:
        return None
    data = json.loads(sent.data)
    if sent.event == "reset":
        return Reset(data["conversation"], data["turn"], data["to_seq"], data["attempt"], data["reason"])
    if "seq" not in data:
        return None
    return Event(
        seq=data["seq"],
        conversation=data["conversation"],
        turn=data["turn"],
        attempt=data["attempt"],
        kind=EventKind(sent.event),
        at=datetime.fromisoformat(data["at"]),
        payload={name: value for name, value in data.items() if name not in _ENVELOPE},
    )
