"""A gateway stops following a turn at its deadline, says so, and hears of its end all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.crash.apart import Apart
from tests.crash.client import Watcher
from tests.crash.server import ForkServer
from tests.crash.streamed import copy_violations

JOB = "please do the four-step job"
LIMIT_SECONDS = 90.0


async def test_at_the_deadline_its_watchers_are_told_and_a_later_end_still_lands(tmp_path: Path) -> None:
    forks = await ForkServer().open()
    slowly, soon = {"PERDURE_DEMO_STEP_SECONDS": "1"}, {"PERDURE_TURN_DEADLINE_SECONDS": "1"}
    server = Apart(tmp_path, forks, slowly, gateway_environment=soon)
    try:
        assert await server.start(), server.said()
        accepted = (await server.api.insist("POST", "/api/chat", {"message": JOB})).body
        turn = accepted["turn"]
        watcher = Watcher(server.api, accepted["conversation"], follow=False)
        await watcher.until(lambda view: any(frame.event == "chat-error" for frame in watcher.seen.frames))
        told = watcher.seen.frames[-1]
        assert (told.event, told.id, told.data["code"], told.data["turn"]) == ("chat-error", None, "DEADLINE", turn)
        async with asyncio.timeout(LIMIT_SECONDS):
            while watcher.seen.connections[-1].ending == "open":
                await asyncio.sleep(0.01)
        assert [each.ending for each in watcher.seen.connections] == ["clean"]
        reading = await server.api.request("GET", f"/api/turns/{turn}")
        assert (reading.status, reading.body["status"]) == (200, "running"), "the turn itself goes on"
        await ended_in_the_copy(server)
        assert (await server.api.request("GET", f"/api/turns/{turn}")).body["status"] == "completed"
        later = Watcher(server.api, accepted["conversation"], follow=False)
        await later.turn_ended(turn)
        await later.stop()
        assert await server.stop() == 0
        assert await server.told_otherwise() == []
    finally:
        await watcher.stop()
        await server.close_all()
        await forks.close()


async def ended_in_the_copy(server: Apart) -> None:
    """Nobody asks for it: what the gateway's file says of the turn becomes what the agent's says."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while server.gateway.waits_for or await copy_violations(server.database, server.gateway.database):
            await asyncio.sleep(0.05)
