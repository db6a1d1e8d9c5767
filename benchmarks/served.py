"""Figures of a server process: latency, idle clients, recovery, a large file, a long list."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw

from benchmarks.meters import Figure, resident
from benchmarks.pairs import raw_rate
from tests.crash.client import Api, Watcher
from tests.crash.server import CommandLine, Server

PROJECT = Path(__file__).with_name("perdure.toml")
HTTP_TURNS = 60
IDLE_CLIENTS = 2_000
ORPHANS = 1_000
LIST_ROWS = 100_000
LARGE_BYTES = 1_000_000_000


@asynccontextmanager
async def serving(folder: Path, **environment: str) -> AsyncIterator[Server]:
    launcher = CommandLine()
    folder.mkdir(exist_ok=True)
    server = Server(folder, launcher, {"PERDURE_PROJECT": str(PROJECT), **environment})
    assert await server.start(), server.said()
    try:
        yield server
    finally:
        if server.alive:
            await server.stop()
        await server.close()
        await launcher.close()


async def http(folder: Path) -> list[Figure]:
    """A 3-step turn over HTTP: sent, followed to its end, one after the other; and how soon the first event is there."""
    async with serving(folder / "http") as server:
        for _ in range(5):
            await _turn(server.api, "chat")
        begun = time.perf_counter()
        firsts = [await _turn(server.api, "chat") for _ in range(HTTP_TURNS)]
        over_http = HTTP_TURNS / (time.perf_counter() - begun)
    raw = await raw_rate(folder, HTTP_TURNS)
    ratio, first = over_http / raw, statistics.median(firsts) * 1e3
    worst = statistics.quantiles(firsts, n=20)[-1] * 1e3
    return [
        Figure(
            "3-step turns/s over HTTP", f"{over_http:.1f}/s", f"{raw:.1f}/s", f"{ratio:.2f}", "≥ 0.75 ×", ratio >= 0.75
        ),
        Figure(
            "first event after the request", f"{first:.0f} ms (p95 {worst:.0f})", target="< 30 ms", reached=first < 30
        ),
    ]


async def _turn(api: Api, agent: str) -> float:
    """Sends a message in a new conversation and follows it to its end; seconds to the first event."""
    begun = time.perf_counter()
    reply = await api.request("POST", "/api/chat", {"message": "What is the weather?", "agent": agent})
    assert reply.status == 202, reply
    watcher = Watcher(api, reply.body["conversation"], follow=False)
    turn = reply.body["turn"]
    await watcher.until(lambda view: turn in view.turns)
    first = time.perf_counter() - begun
    await watcher.turn_ended(turn)
    await watcher.stop()
    return first


async def idle(folder: Path) -> list[Figure]:
    """What 2,000 clients cost that follow and hear nothing."""
    async with serving(folder / "idle") as server:
        pid = server.boots[-1].pid
        for _ in range(3):
            await _turn(server.api, "chat")
        reply = await server.api.request("POST", "/api/chat", {"message": "hello", "agent": "chat"})
        conversation = reply.body["conversation"]
        await asyncio.gather(*(_follow(server.api, conversation) for _ in range(50)))
        before = resident(pid)
        writers = []
        for _ in range(IDLE_CLIENTS // 50):
            writers += await asyncio.gather(*(_follow(server.api, conversation) for _ in range(50)))
        each = (resident(pid) - before) / IDLE_CLIENTS / 1024
        for writer in writers:
            writer.close()
    return [Figure("memory of an idle follower (2,000)", f"{each:.1f} KiB", target="< 40 KiB", reached=each < 40)]


async def _follow(api: Api, conversation: str) -> asyncio.StreamWriter:
    """Opens a stream and waits until the last turn's end was told on it."""
    reader, writer = await api.open("GET", f"/api/chat?conversation={conversation}&follow=1")
    await reader.readuntil(b"event: end")
    return writer


async def recovery(folder: Path) -> list[Figure]:
    """`kill -9` with 1,000 turns at work: when have all been claimed again? And a single one: when does it speak again?"""
    environment = {"PERDURE_MAX_RUNNING": "2000", "PERDURE_DEMO_STEP_SECONDS": "120"}
    async with serving(folder / "many", **environment) as server:
        message = {"message": "please do the four-step job", "agent": "demo"}
        for _ in range(ORPHANS // 20):
            await asyncio.gather(*(server.api.insist("POST", "/api/chat", message) for _ in range(20)))
        await _until_claimed(server.database, 1, ORPHANS)
        await server.kill()
        ready = await _time_to_ready(server)
        begun = time.perf_counter()
        await _until_claimed(server.database, 2, ORPHANS)
        claimed = time.perf_counter() - begun
        await server.kill()
    single = await _single_orphan(folder / "single")
    return [
        Figure(
            f"{ORPHANS:,} orphans: all claimed after ready", f"{claimed:.1f} s", target="≤ 30 s", reached=claimed <= 30
        ),
        Figure(f"{ORPHANS:,} orphans: ready after start", f"{ready:.1f} s"),
        Figure("one orphan: first event after ready", f"{single * 1e3:.0f} ms", target="≤ 1 s", reached=single <= 1),
    ]


async def _single_orphan(folder: Path) -> float:
    async with serving(folder, PERDURE_DEMO_STEP_SECONDS="120") as server:
        reply = await server.api.request(
            "POST", "/api/chat", {"message": "please do the four-step job", "agent": "demo"}
        )
        watcher = Watcher(server.api, reply.body["conversation"])
        turn = reply.body["turn"]
        await watcher.until(lambda view: any(trace["phase"] == "call" for trace in view.turn(turn).traces))
        await server.kill()
        heard = asyncio.create_task(_heard(watcher))
        await server.start()
        begun = time.perf_counter()
        at = await heard
        await watcher.stop()
        await server.kill()
        return max(at - begun, 0.0)


async def _heard(watcher: Watcher) -> float:
    """When the first event of the second attempt came, on the performance clock."""
    await watcher.until(lambda _: any(frame.data.get("attempt") == 2 for frame in watcher.seen.frames if frame.id))
    return time.perf_counter()


async def _until_claimed(database: Path, epoch: int, count: int) -> None:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(5_000)
    try:
        async with asyncio.timeout(300):
            while _scalar(connection, f"SELECT count(*) FROM attempts WHERE epoch = {epoch}") < count:
                await asyncio.sleep(0.1)
    finally:
        connection.close()


async def _time_to_ready(server: Server) -> float:
    begun = time.perf_counter()
    assert await server.start(), server.said()
    return time.perf_counter() - begun


async def large(folder: Path) -> list[Figure]:
    """A file of 1 GB with 100,000 conversations: ready, and a page of the list."""
    async with serving(folder / "large") as server:
        await _turn(server.api, "chat")
    await asyncio.to_thread(_enlarge, folder / "large" / "perdure.db")
    async with serving(folder / "large") as server:
        await server.stop()
        ready = await _time_to_ready(server)
        took = []
        for _ in range(20):
            begun = time.perf_counter()
            reply = await server.api.request("GET", "/api/conversations?limit=50")
            took.append(time.perf_counter() - begun)
            assert len(reply.body["items"]) == 50
        size = server.database.stat().st_size
    page = statistics.median(took) * 1e3
    return [
        Figure(f"ready with a file of {size / 1e9:.1f} GB", f"{ready:.1f} s", target="≤ 3 s", reached=ready <= 3),
        Figure("a page of 100,000 conversations", f"{page:.0f} ms", target="< 50 ms", reached=page < 50),
    ]


def _enlarge(database: Path) -> None:
    connection = apsw.Connection(str(database))
    connection.execute("PRAGMA synchronous=OFF").fetchall()
    owner = _text(connection, "SELECT owner FROM conversations LIMIT 1")
    with connection:
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO conversations (id, owner, agent, title, message_count, created_at, updated_at) "
            "SELECT 'filler-' || i, ?, 'chat', 'Conversation ' || i, 2, 1000 + i, 1000 + i FROM n",
            (LIST_ROWS, owner),
        )
    first = int(_scalar(connection, "SELECT max(id) FROM items")) + 1_000_000
    with connection:
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO items (id, kind, data) SELECT ? + i, 1, randomblob(100000) FROM n",
            (LARGE_BYTES // 100_000, first),
        )
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()


def _scalar(connection: apsw.Connection, statement: str) -> float:
    return float(next(iter(connection.execute(statement)))[0])


def _text(connection: apsw.Connection, statement: str) -> str:
    return str(next(iter(connection.execute(statement)))[0])
