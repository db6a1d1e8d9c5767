"""The client against a real socket: cuts, restarts elsewhere, refusals; each message accepted once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from perdure.cli.client import Client, Line, Refused, Server, Unreachable, frame_of
from perdure.cli.sse import ServerSentEvent
from perdure.events import Event, EventKind, Reset, Unfollowed

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

Script = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


def wire(seq: int, kind: str, **payload: object) -> bytes:
    data = {"seq": seq, "conversation": "c", "turn": "t", "attempt": 1, "at": "2026-01-01T00:00:00+00:00", **payload}
    body = f"event: {kind}\ndata: {json.dumps(data)}\nid: {seq}\n\n".encode()
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"


def plain(status: int, body: object) -> bytes:
    content = json.dumps(body).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode() + content


@asynccontextmanager
async def scripted(*scripts: Script) -> AsyncIterator[tuple[str, list[str]]]:
    """A server whose n-th connection plays the n-th script. Yields its address and the heads of requests it got."""
    requests: list[str] = []
    playing = iter(scripts)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        requests.append(head)
        await next(playing)(head, writer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", requests


@asynccontextmanager
async def talking(*scripts: Script, **options: Any) -> AsyncIterator[tuple[Client, list[str]]]:
    async with (
        scripted(*scripts) as (address, requests),
        Client(lambda: Server(address, "secret"), **options) as client,
    ):
        yield client, requests


def playing(*pieces: bytes, abort: bool = False) -> Script:
    async def play(_: str, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
        await writer.drain()
        if abort:
            writer.transport.abort()

    return play


async def test_a_stream_is_followed_over_cuts_with_the_cursor_until_its_terminal_event() -> None:
    first = playing(HEAD, wire(1, "token", message_id="m", text="a"), wire(2, "token", message_id="m", text="b"))
    busy = playing(plain(503, {"code": "NOT_READY", "message": "starting"}))
    clean = playing(HEAD, wire(3, "trace", node="n"), b"0\r\n\r\n")
    last = playing(HEAD, wire(4, "end", status="completed"), b"0\r\n\r\n")
    async with talking(first, busy, clean, last) as (client, requests):
        seen = [frame async for frame in client.follow("c", None)]
    kinds = [frame.state if isinstance(frame, Line) else getattr(frame, "kind", "") for frame in seen]
    assert kinds == ["token", "token", "lost", "back", "trace", "lost", "back", "end"]
    cursors = [head.lower().partition("last-event-id: ")[2].partition("\r\n")[0] for head in requests]
    assert cursors == ["", "2", "2", "3"]
    assert all("authorization: bearer secret" in head.lower() for head in requests)


async def test_a_server_that_comes_back_elsewhere_is_found() -> None:
    before = playing(HEAD, wire(1, "trace", node="n"), abort=True)
    after = playing(HEAD, wire(2, "end", status="completed"), b"0\r\n\r\n")
    async with scripted(before) as (old, _), scripted(after) as (new, _):
        places = iter([Server(old, "s"), None, Server(new, "s")])
        async with Client(lambda: next(places)) as client:
            seen = [frame async for frame in client.follow("c", 0)]
    assert [frame.seq for frame in seen if isinstance(frame, Event)] == [1, 2]


async def test_an_id_that_does_not_exist_ends_the_stream_with_the_servers_words() -> None:
    async with talking(playing(plain(404, {"code": "NOT_FOUND", "message": "nothing here"}))) as (client, _):
        with pytest.raises(Refused, match="nothing here") as caught:
            [frame async for frame in client.follow("c")]
    assert (caught.value.status, caught.value.code) == (404, "NOT_FOUND")


async def test_a_message_is_repeated_under_one_key_until_the_server_answers() -> None:
    accepted = {"conversation": "c", "turn": "t", "status": "queued"}
    async with talking(playing(abort=True), playing(plain(503, {})), playing(plain(202, accepted))) as (
        client,
        requests,
    ):
        assert await client.start({"message": "hi"}) == accepted
    keys = {head.lower().partition("idempotency-key: ")[2].partition("\r\n")[0] for head in requests}
    assert len(requests) == 3 and len(keys) == 1 and "" not in keys


async def test_who_waits_is_told_why_and_is_refused_with_it_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent behind a gateway is away: nothing is said of a server that did not come back."""
    monkeypatch.setattr("perdure.cli.client.TELL_SECONDS", 0.0)
    monkeypatch.setattr("perdure.cli.client.GIVE_UP_SECONDS", 0.2)
    away = plain(503, {"code": "AGENT_UNAVAILABLE", "message": "the agent is away"})
    told: list[str] = []
    async with talking(*(playing(away) for _ in range(8)), waiting=told.append) as (client, _):
        with pytest.raises(Refused, match="the agent is away"):
            await client.start({"message": "hi"})
    assert len(told) == 1 and told[0].startswith("the agent is away")


async def test_a_refused_message_is_not_repeated() -> None:
    body = {"code": "TURN_IN_PROGRESS", "message": "busy", "turn": "t9"}
    async with talking(playing(plain(409, body))) as (client, requests):
        with pytest.raises(Refused) as caught:
            await client.start({"message": "hi"})
    assert caught.value.turn == "t9" and len(requests) == 1


async def test_without_a_server_a_request_names_the_command_to_run() -> None:
    async with Client(lambda: None) as client:
        with pytest.raises(Unreachable, match="perdure serve"):
            await client.get("/api/turns")


async def test_an_answer_that_is_not_json_is_still_told() -> None:
    async with talking(playing(b"HTTP/1.1 502 X\r\nContent-Length: 4\r\n\r\noops")) as (client, _):
        with pytest.raises(Refused, match="502"):
            await client.get("/api/turns")


def test_frames_of_later_versions_and_pings_are_passed_over() -> None:
    assert frame_of(ServerSentEvent("ping", "{}")) is None
    assert frame_of(ServerSentEvent("hologram", "{}")) is None
    assert frame_of(ServerSentEvent("chat-error", json.dumps(Unfollowed("c", "t", 900.0).wire()))) is None
    reset = '{"conversation":"c","turn":"t","to_seq":3,"attempt":2,"reason":"recovered"}'
    assert frame_of(ServerSentEvent("reset", reset)) == Reset("c", "t", 3, 2, "recovered")


def test_a_frame_of_the_wire_is_the_event_that_was_sent() -> None:
    data = '{"seq":7,"conversation":"c","turn":"t","attempt":1,"at":"2026-01-01T00:00:00+00:00","status":"completed"}'
    event = frame_of(ServerSentEvent("end", data, "7"))
    assert isinstance(event, Event) and event.kind is EventKind.END
    assert event.wire() == json.loads(data)
