"""A gateway stops following a turn at its deadline, says so, and hears of its end all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.crash.apart import Apart
from tests.crash.client import Watcher
from tests.crash.server import ForkServer
from tests.crash.streamed import copy_violations

JOB = "please do the four-step job"
LIMIT_SECONDS = 90.0


async def test_at_the_deadline_its_watchers_are_told_and_a_later_end_still_lands(tmp_path: Path) -> None:
    forever, soon = {"PERDURE_DEMO_STEP_SECONDS": "3600"}, {"PERDURE_TURN_DEADLINE_SECONDS": "1"}
    async with started(tmp_path, forever, soon) as server:
        accepted = (await server.api.insist("POST", "/api/chat", {"message": JOB})).body
        turn = accepted["turn"]
        async with watching(server, accepted["conversation"]) as watcher:
            await watcher.until(lambda view: any(frame.event == "chat-error" for frame in watcher.seen.frames))
            told = watcher.seen.frames[-1]
            assert (told.event, told.id, told.data["code"], told.data["turn"]) == ("chat-error", None, "DEADLINE", turn)
            async with asyncio.timeout(LIMIT_SECONDS):
                while watcher.seen.connections[-1].ending == "open":
                    await asyncio.sleep(0.01)
            assert [each.ending for each in watcher.seen.connections] == ["clean"]
        await eventually(lambda: _is(server, turn, "running"))
        await server.api.insist("POST", f"/api/turns/{turn}/cancel")
        await eventually(lambda: ended_in_the_copy(server))
        assert await _is(server, turn, "cancelled")
        async with watching(server, accepted["conversation"]) as later:
            await later.turn_ended(turn)
        assert await server.stop() == 0
        assert await server.told_otherwise() == []


@asynccontextmanager
async def started(folder: Path, agent: dict[str, str], gateway: dict[str, str]) -> AsyncIterator[Apart]:
    forks = await ForkServer().open()
    server = Apart(folder, forks, agent, gateway_environment=gateway)
    try:
        assert await server.start(), server.said()
        yield server
    finally:
        await server.close_all()
        await forks.close()


@asynccontextmanager
async def watching(server: Apart, conversation: str) -> AsyncIterator[Watcher]:
    watcher = Watcher(server.api, conversation, follow=False)
    try:
        yield watcher
    finally:
        await watcher.stop()


async def eventually(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not await true():
            await asyncio.sleep(0.02)


async def _is(server: Apart, turn: str, status: str) -> bool:
    reading = await server.api.request("GET", f"/api/turns/{turn}")
    return (reading.status, reading.body["status"]) == (200, status)


async def ended_in_the_copy(server: Apart) -> bool:
    """Nobody asks for it: what the gateway's file says of the turn becomes what the agent's says."""
    return not server.gateway.waits_for and not await copy_violations(server.database, server.gateway.database)
