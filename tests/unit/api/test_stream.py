"""Event streams on the wire: frames, cursors, heartbeats, and every way in which a stream ends."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from perdure.api.auth import ADMIN
from perdure.api.stream import Ending, Streams, encode_frame
from perdure.errors import NotReady
from perdure.events import Event, EventKind, Gone, ListsReset, Reached, Reset, Unfollowed
from perdure.turns import Change

from .conftest import AT, PATIENCE_SECONDS, FakeAgents, Running

WATCH = "/api/chat?conversation=mine"
FINAL_CHUNK = b"\r\n0\r\n\r\n"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


class Watcher:
    """A raw client: sees chunks as they are on the wire."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.received = b""

    @classmethod
    async def open(cls, server: Running, path: str = WATCH, *headers: str) -> Watcher:
        watcher = cls(*await server.connect())
        watcher.writer.write(server.head("GET", path, *headers))
        await watcher.until(b"retry: 1000\n\n")
        return watcher

    async def until(self, expected: bytes) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while expected not in self.received:
                piece = await self.reader.read(65536)
                assert piece, f"closed before {expected!r}: {self.received!r}"
                self.received += piece

    async def to_the_end(self) -> bytes:
        async with asyncio.timeout(PATIENCE_SECONDS):
            try:
                while piece := await self.reader.read(65536):
                    self.received += piece
            except ConnectionError:
                pass
        return self.received

    @property
    def body(self) -> str:
        """What the chunks hold."""
        rest, told = self.received.partition(b"\r\n\r\n")[2], b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            told, rest = told + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        return told.decode()


async def test_the_first_bytes_come_at_once_with_the_headers_of_a_stream(server: Running) -> None:
    watcher = await Watcher.open(server)
    head = watcher.received.partition(b"\r\n\r\n")[0].decode().lower().split("\r\n")
    assert head[0] == "http/1.1 200 ok"
    assert "content-type: text/event-stream; charset=utf-8" in head
    assert "cache-control: no-store, no-transform" in head
    assert "x-accel-buffering: no" in head
    assert "transfer-encoding: chunked" in head


async def test_frames_have_ids_where_they_are_cursors(server: Running, agents: FakeAgents) -> None:
    agents.recorded = [
        Reset("mine", "mine-turn", 3, 2, "recovered"),
        Event(4, "mine", "mine-turn", 2, EventKind.TRACE, AT, {"node": "n", "phase": "enter"}),
    ]
    watcher = await Watcher.open(server)
    agents.publish(5, EventKind.TOKEN, message_id="m", text="a\nb\r\nc\u2028d")
    agents.publish(6, EventKind.END, status="completed")
    await watcher.until(FINAL_CHUNK)
    blocks = watcher.body.split("\n\n")
    assert blocks[0] == "retry: 1000"
    assert blocks[1].split("\n")[0] == "event: reset"
    assert "id:" not in blocks[1]
    token = dict(line.split(": ", 1) for line in blocks[3].split("\n"))
    assert (token["event"], token["id"]) == ("token", "5")
    assert json.loads(token["data"]) == {
        "seq": 5,
        "conversation": "mine",
        "turn": "mine-turn",
        "attempt": 1,
        "at": "2026-01-02T03:04:05+00:00",
        "message_id": "m",
        "text": "a\nb\r\nc\u2028d",
    }
    assert [block.split("\n")[0] for block in blocks[2:5]] == ["event: trace", "event: token", "event: end"]


def test_a_frame_is_one_line_of_valid_json_whatever_the_text() -> None:
    hostile = {"text": "\r\n\n\nevent: end\n\ndata: {}\n\n", "half": "\ud800", "not": float("nan")}
    lines = encode_frame(Event(1, "c", "t", 1, EventKind.TRACE, AT, hostile)).decode().split("\n")
    assert lines[0] == "event: trace"
    assert lines[2:] == ["id: 1", "", ""]
    told = json.loads(lines[1].removeprefix("data: "), parse_constant=pytest.fail)
    assert (told["text"], told["half"], told["not"]) == (hostile["text"], "\ufffd", None)


async def test_a_terminal_event_closes_the_stream_cleanly(server: Running, agents: FakeAgents) -> None:
    watcher = await Watcher.open(server)
    agents.publish(1, EventKind.CHAT_ERROR, status="failed", code="X", reason="x", message="x")
    await watcher.until(FINAL_CHUNK)
    assert b"event: chat-error" in watcher.received
    await until(lambda: len(server.streams) == 0)
    assert sum(server.streams.cut.values()) == 0
    assert agents.followers_left == 1
    watcher.writer.write(server.head("GET", "/api/healthz"))
    await watcher.until(b'{"status":"ok"}')


async def test_a_following_stream_stays_open_across_turns(server: Running, agents: FakeAgents) -> None:
    watcher = await Watcher.open(server, WATCH + "&follow=1")
    agents.publish(1, EventKind.END, status="completed")
    await watcher.until(b"id: 1\n\n")
    agents.publish(2, EventKind.TOKEN, message_id="m", text="next turn")
    await watcher.until(b"id: 2\n\n")
    assert FINAL_CHUNK not in watcher.received
    assert agents.asked("follow")[0]["follow"] is True


@pytest.mark.parametrize("path", [WATCH, WATCH + "&follow=1", "/api/events"])
async def test_a_shutdown_says_come_back_and_never_closes_cleanly(
    server: Running, agents: FakeAgents, path: str
) -> None:
    watcher = await Watcher.open(server, path)
    agents.publish(1, EventKind.TOKEN, message_id="m", text="x")
    await server.streams.abort_all()
    received = await watcher.to_the_end()
    assert received.rstrip().endswith(b"retry: 1000")
    assert received.count(b"retry: 1000") == 2
    assert FINAL_CHUNK not in received
    await until(lambda: len(server.streams) == 0)
    assert server.streams.cut[Ending.SHUTDOWN] == 1


async def test_a_client_library_sees_the_abort_as_an_error(server: Running, agents: FakeAgents) -> None:
    async with server.client() as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            async with client.stream("GET", WATCH) as stream:
                async for _ in stream.aiter_bytes():
                    await server.streams.abort_all()


async def test_after_the_abort_new_streams_are_told_to_come_back(server: Running) -> None:
    await server.streams.abort_all()
    async with server.client() as client:
        response = await client.get(WATCH)
        assert (response.status_code, response.json()["code"]) == (503, "NOT_READY")
        assert response.headers["retry-after"] == "1"
        assert (await client.get("/api/turns")).status_code == 200


async def test_a_source_that_ends_without_a_terminal_event_is_not_closed_cleanly(
    server: Running, agents: FakeAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def frames(self: FakeAgents, conversation: str, follow: bool) -> Any:
        yield Event(1, conversation, "t", 1, EventKind.TOKEN, AT, {"message_id": "m", "text": "x"})

    monkeypatch.setattr(FakeAgents, "_frames", frames)
    watcher = await Watcher.open(server)
    received = await watcher.to_the_end()
    assert b"event: token" in received
    assert FINAL_CHUNK not in received


@pytest.mark.parametrize(("error", "ending"), [(ValueError("secret"), Ending.BROKEN), (NotReady(), Ending.SHUTDOWN)])
async def test_a_source_that_fails_is_cut_without_its_details(
    server: Running, agents: FakeAgents, monkeypatch: pytest.MonkeyPatch, error: Exception, ending: Ending
) -> None:
    async def frames(self: FakeAgents, conversation: str, follow: bool) -> Any:
        yield Event(1, conversation, "t", 1, EventKind.TOKEN, AT, {"message_id": "m", "text": "x"})
        raise error

    monkeypatch.setattr(FakeAgents, "_frames", frames)
    watcher = await Watcher.open(server)
    received = await watcher.to_the_end()
    assert FINAL_CHUNK not in received
    assert b"secret" not in received
    assert server.streams.cut[ending] == 1


async def test_an_error_before_the_first_frame_is_an_answer_not_a_stream(server: Running, agents: FakeAgents) -> None:
    async with server.client() as client:
        response = await client.get("/api/chat?conversation=unknown")
    assert (response.status_code, response.json()["code"]) == (404, "NOT_FOUND")


async def test_a_client_that_goes_away_gives_its_subscription_back_and_cancels_nothing(
    server: Running, agents: FakeAgents
) -> None:
    watcher = await Watcher.open(server)
    assert agents.transport.watchers == 1
    watcher.writer.transport.abort()
    await until(lambda: agents.transport.watchers == 0)
    await until(lambda: server.streams.cut[Ending.GONE] == 1)
    assert agents.asked("cancel") == []


@pytest.mark.parametrize(
    ("header", "query", "after"),
    [
        ("7", "", 7),
        ("", "&after=9", 9),
        ("7", "&after=9", 7),
        ("0", "", 0),
        ("-1", "", None),
        ("", "", None),
    ],
)
async def test_the_cursor_of_a_reconnect_goes_before_the_one_of_the_address(
    server: Running, agents: FakeAgents, header: str, query: str, after: int | None
) -> None:
    headers = (f"Last-Event-ID: {header}",) if header else ()
    await Watcher.open(server, WATCH + query, *headers)
    assert agents.asked("follow")[0]["after"] == after


@pytest.mark.parametrize("header", ["abc", "1.5", "-7", "1 2", "٣", "9" * 30])
async def test_a_malformed_cursor_is_refused_before_the_stream(
    server: Running, agents: FakeAgents, header: str
) -> None:
    async with server.client() as client:
        for path in (WATCH, "/api/events"):
            response = await client.get(path, headers={b"Last-Event-ID": header.encode()})
            assert (response.status_code, response.json()["code"]) == (400, "BAD_REQUEST")
    assert agents.calls == []


async def test_changes_are_told_with_their_own_cursor(server: Running, agents: FakeAgents) -> None:
    change = Change(41, "turn", "c1", "t1", "running", AT)
    agents.recorded_changes = [change, replace(change, number=42, kind="conversation", turn=None, status="deleted")]
    watcher = await Watcher.open(server, "/api/events?after=40")
    await watcher.until(b"id: 42\n\n")
    first, second = watcher.body.split("\n\n")[1:3]
    assert first.split("\n")[0] == "event: turn"
    assert first.split("\n")[2] == "id: 41"
    assert json.loads(second.split("\n")[1].removeprefix("data: ")) == {
        "number": 42,
        "kind": "conversation",
        "conversation": "c1",
        "turn": None,
        "status": "deleted",
        "at": "2026-01-02T03:04:05+00:00",
    }
    assert agents.asked("changes") == [{"person": ADMIN, "after": 40}]


@pytest.mark.parametrize("path", [WATCH, WATCH + "&follow=1"])
async def test_the_stream_of_a_deleted_conversation_says_so_and_ends_cleanly(
    server: Running, agents: FakeAgents, path: str
) -> None:
    agents.recorded = [Gone("mine")]
    agents.ends_after_recorded = True
    watcher = await Watcher.open(server, path)
    await watcher.until(FINAL_CHUNK)
    assert watcher.body.split("\n\n")[1] == 'event: gone\ndata: {"conversation":"mine"}'


@pytest.mark.parametrize("path", [WATCH, WATCH + "&follow=1"])
async def test_a_turn_that_is_followed_no_more_is_told_without_an_id_and_the_stream_ends_cleanly(
    server: Running, agents: FakeAgents, path: str
) -> None:
    agents.recorded = [Unfollowed("mine", "t1", 900.0)]
    agents.ends_after_recorded = True
    watcher = await Watcher.open(server, path)
    await watcher.until(FINAL_CHUNK)
    event, data, *rest = watcher.body.split("\n\n")[1].split("\n")
    assert (event, rest) == ("event: chat-error", [])
    told = json.loads(data.removeprefix("data: "))
    assert (told["turn"], told["status"], told["code"]) == ("t1", "running", "DEADLINE")


async def test_the_reach_of_an_agent_has_no_id(server: Running, agents: FakeAgents) -> None:
    agents.recorded_changes = [Reached("agent", "unreachable"), Change(7, "turn", "c1", "t1", "running", AT)]
    watcher = await Watcher.open(server, "/api/events")
    await watcher.until(b"id: 7\n\n")
    assert watcher.body.split("\n\n")[1] == 'event: reach\ndata: {"agent":"agent","reach":"unreachable"}'


async def test_a_reset_of_the_lists_has_no_id(server: Running, agents: FakeAgents) -> None:
    agents.recorded_changes = [ListsReset("cursor_unknown"), Change(7, "turn", "c1", "t1", "running", AT)]
    watcher = await Watcher.open(server, "/api/events?after=99")
    await watcher.until(b"id: 7\n\n")
    assert watcher.body.split("\n\n")[1] == 'event: reset\ndata: {"reason":"cursor_unknown"}'


class TestHeartbeat:
    @pytest.fixture
    def streams(self) -> Streams:
        return Streams(heartbeat_seconds=0.02)

    async def test_a_silent_stream_is_kept_alive_without_ids(self, server: Running) -> None:
        watchers = [await Watcher.open(server), await Watcher.open(server, "/api/events")]
        for watcher in watchers:
            await watcher.until(b"event: ping\ndata: {}\n\n")
            assert "id:" not in watcher.body
            watcher.writer.close()
        await until(lambda: len(server.streams) == 0)
        assert server.streams._timer is None


class TestSlowReader:
    @pytest.fixture
    def streams(self) -> Streams:
        return Streams(heartbeat_seconds=0.1, send_seconds=0.3)

    async def test_a_client_that_does_not_read_is_cut_off_and_slows_nobody(
        self, server: Running, agents: FakeAgents
    ) -> None:
        lazy = socket.socket()
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(("127.0.0.1", server.port))
        lazy.sendall(server.head("GET", WATCH))
        await until(lambda: agents.transport.watchers == 1)
        busy = await Watcher.open(server)
        seq = 0
        async with asyncio.timeout(PATIENCE_SECONDS):
            while server.streams.cut[Ending.SLOW] == 0:
                seq += 1
                agents.publish(seq, EventKind.MESSAGE, message={"id": f"m{seq}", "content": "x" * 50_000})
                await busy.until(b"id: %d\n\n" % seq)
                busy.received = b""
        assert len(server.streams) == 1
        await until(lambda: agents.transport.watchers == 1)
        lazy.close()
