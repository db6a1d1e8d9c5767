"""The size and the pace of requests: bounded, refused readably, never in the way of others."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.api import body as bodies
from perdure.api.server import HttpProtocol
from perdure.config import Settings

from .conftest import PATIENCE_SECONDS, FakeAgents, Running

LIMIT = Settings().max_message_bytes


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Status and envelope, read while the request is still under way."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        envelope = json.loads(await reader.readexactly(length))
    return int(head.split()[1]), envelope


async def test_a_declared_length_is_refused_before_the_body_is_sent(server: Running, agents: FakeAgents) -> None:
    reader, writer = await server.connect()
    length = f"Content-Length: {LIMIT + 1}"
    writer.write(server.head("POST", "/api/chat", "Content-Type: application/json", length))
    status, envelope = await read_answer(reader)
    assert (status, envelope["code"]) == (413, "TOO_LARGE")
    assert f"{LIMIT:,}" in envelope["message"]
    writer.write(b'{"message": "')
    for _ in range(LIMIT // 50_000):
        writer.write(b"x" * 50_000)
        await writer.drain()
    assert agents.calls == []


async def test_a_chunked_body_is_counted_and_refused_while_it_is_sent(server: Running, agents: FakeAgents) -> None:
    reader, writer = await server.connect()
    chunked = "Transfer-Encoding: chunked"
    writer.write(server.head("POST", "/api/chat", "Content-Type: application/json", chunked))
    answer = asyncio.create_task(read_answer(reader))
    chunk = b"c350\r\n" + b"x" * 50_000 + b"\r\n"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not answer.done():
            writer.write(chunk)
            await writer.drain()
    status, envelope = await answer
    assert (status, envelope["code"]) == (413, "TOO_LARGE")
    writer.write(b"0\r\n\r\n")
    assert await reader.read() == b""
    assert agents.calls == []


async def test_a_client_that_reads_only_after_sending_everything_still_gets_the_answer(server: Running) -> None:
    async with server.client() as client:
        response = await client.post("/api/chat", json={"message": "x" * 5_000_000})
        assert (response.status_code, response.json()["code"]) == (413, "TOO_LARGE")

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(50):
                yield b"x" * 100_000

        headers = {"Content-Type": "application/json"}
        response = await client.post("/api/chat", content=chunks(), headers=headers)
        assert (response.status_code, response.json()["code"]) == (413, "TOO_LARGE")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_curl_shows_the_answer(server: Running, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"message": "x" * 3_000_000}))
    for more in ([], ["-H", "Transfer-Encoding: chunked"], ["-H", "Expect:"]):
        curl = await asyncio.create_subprocess_exec(
            *("curl", "-sS", "--noproxy", "*", "-X", "POST", "--data-binary", f"@{body}"),
            *("-H", "Content-Type: application/json", "-H", "Authorization: Bearer correct-horse-battery-staple"),
            *(*more, f"{server.url}/api/chat"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(curl.communicate(), PATIENCE_SECONDS)
        assert (curl.returncode, err) == (0, b"")
        assert json.loads(out)["code"] == "TOO_LARGE"


async def test_the_largest_body_is_taken(server: Running, agents: FakeAgents) -> None:
    async with server.client() as client:
        text = "x" * (LIMIT - len(json.dumps({"message": ""})))
        body = json.dumps({"message": text}).encode()
        assert len(body) == LIMIT
        headers = {"Content-Type": "application/json"}
        assert (await client.post("/api/chat", content=body, headers=headers)).status_code == 202
        assert (await client.post("/api/chat", content=body + b" ", headers=headers)).status_code == 413
    assert agents.asked("start")[0]["input"]["message"] == text


async def test_a_stranger_is_refused_without_reading_his_body(server: Running) -> None:
    reader, writer = await server.connect()
    head = f"POST /api/chat HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 900000\r\n\r\n"
    writer.write(head.encode())
    status, envelope = await read_answer(reader)
    assert (status, envelope["code"]) == (401, "UNAUTHORIZED")


async def test_a_refused_body_without_an_end_does_not_hold_the_connection(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "DRAIN_SECONDS", 0.05)
    reader, writer = await server.connect()
    writer.write(server.head("POST", "/api/chat", f"Content-Length: {LIMIT * 2}"))
    assert (await read_answer(reader))[0] == 413
    assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b""


async def test_a_body_that_never_arrives_is_given_up(monkeypatch: pytest.MonkeyPatch, server: Running) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.05)
    reader, writer = await server.connect()
    writer.write(server.head("POST", "/api/chat", "Content-Type: application/json", "Content-Length: 10") + b"{")
    status, envelope = await read_answer(reader)
    assert status == 400
    assert "did not arrive" in envelope["message"]


async def test_a_head_that_trickles_in_is_cut_off(monkeypatch: pytest.MonkeyPatch, server: Running) -> None:
    monkeypatch.setattr(HttpProtocol, "head_seconds", 0.05)
    for sent in (b"", b"GET / HT"):
        reader, writer = await server.connect()
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b""
    reader, writer = await server.connect()
    writer.write(server.head("GET", "/api/healthz"))
    await asyncio.wait_for(reader.readuntil(b'{"status":"ok"}'), PATIENCE_SECONDS)
    writer.write(b"GET / HT")
    assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b""


async def test_what_is_no_http_gets_the_envelope_too(server: Running) -> None:
    reader, writer = await server.connect()
    writer.write(b"\x16\x03\x01 hello\r\n\r\n")
    status, envelope = await read_answer(reader)
    assert (status, envelope["code"]) == (400, "BAD_REQUEST")


async def test_a_head_without_an_end_is_refused(server: Running) -> None:
    reader, writer = await server.connect()
    writer.write(server.head("GET", "/api/turns").removesuffix(b"\r\n"))
    answer = asyncio.create_task(read_answer(reader))
    while not answer.done():
        writer.write(b"X-Filler: " + b"x" * 10_000 + b"\r\n")
        await asyncio.sleep(0.01)
    assert (await answer)[0] == 400


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_forgotten(server: Running, agents: FakeAgents) -> None:
    _, writer = await server.connect()
    writer.write(server.head("POST", "/api/chat", "Content-Type: application/json", "Content-Length: 100") + b"{")
    await writer.drain()
    writer.transport.abort()
    async with server.client() as client:
        assert (await client.get("/api/healthz")).status_code == 200
    assert agents.calls == []
    assert not [line for line in server.logged if line["log_level"] == "error"]


async def test_a_body_whose_end_is_disputed_is_refused_and_the_connection_closed(
    server: Running, agents: FakeAgents
) -> None:
    reader, writer = await server.connect()
    both = ("Content-Type: application/json", "Content-Length: 4", "Transfer-Encoding: chunked")
    hidden = server.head("POST", "/api/chat", "Content-Type: application/json", "Content-Length: 18")
    writer.write(server.head("POST", "/api/chat", *both) + b"0\r\n\r\n" + hidden + b'{"message": "mine"}')
    status, envelope = await read_answer(reader)
    assert (status, envelope["code"]) == (400, "BAD_REQUEST")
    assert "Content-Length" in envelope["message"] and "Transfer-Encoding" in envelope["message"]
    assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b""
    assert agents.calls == []


@pytest.mark.parametrize("encoding", ["gzip", "br, gzip", "x-mine"])
async def test_a_body_that_would_have_to_be_unpacked_is_refused_by_name(
    server: Running, agents: FakeAgents, encoding: str
) -> None:
    async with server.client(headers={"Content-Encoding": encoding, "Content-Type": "application/json"}) as client:
        response = await client.post("/api/chat", content=b"\x1f\x8b packed")
        assert (response.status_code, response.json()["code"]) == (400, "BAD_REQUEST")
        assert f"Content-Encoding {encoding}" in response.json()["message"]
        plain = await client.post("/api/chat", json={"message": "hi"}, headers={"Content-Encoding": "identity"})
        assert plain.status_code == 202
    assert len(agents.asked("start")) == 1


async def test_what_is_no_http_is_answered_with_a_whole_status_line(server: Running) -> None:
    reader, writer = await server.connect()
    writer.write(b"GARBAGE\r\n\r\n")
    assert (await asyncio.wait_for(reader.readline(), PATIENCE_SECONDS)) == b"HTTP/1.1 400 Bad Request\r\n"
