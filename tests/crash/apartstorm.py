"""The kill storm on three processes: the agent, the gateway and NATS are killed, paused, wiped and cut off at random moments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

from tests.crash.apart import Apart
from tests.crash.people import drop_someone
from tests.crash.server import Launcher
from tests.crash.storm import Cycle, StormReport, age_unclean_starts, ended_within
from tests.servers.nats_server import NatsServer

OF_ONE_AGENT = (
    "plain_answer",
    "four_step_job",
    "three_at_once",
    "tool_error",
    "cancel_then_more",
    "one_behind_another",
)
ENVIRONMENT = {"PERDURE_LEASE_SECONDS": "3", "PERDURE_SWEEP_SECONDS": "0.5"}
"""A paused agent's leases end soon."""

PAUSE_SECONDS = 3.5


class ApartCycle(Cycle):
    calm = OF_ONE_AGENT

    def __init__(
        self, folder: Path, launcher: Launcher, luck: Random, report: StormReport, binary: Path | None = None
    ) -> None:
        """`binary`: another nats-server than the installed one."""
        self.apart = Apart(folder, launcher, ENVIRONMENT, nats=NatsServer(folder / "nats", binary=binary))
        super().__init__(self.apart, luck, report)

    async def run(self, kills: int, people: int) -> None:
        keeping = asyncio.create_task(self._keep_the_gateway())
        try:
            await super().run(kills, people)
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})
            await self.apart.close_all()

    async def _judge(self) -> list[str]:
        return [*await super()._judge(), *await self.apart.told_otherwise(wiped=True)]

    async def _rage(self, kills: int) -> None:
        done, luck, server = 0, self._luck, self.apart
        while done < kills:
            if luck.random() < 0.3:
                self._report.drops += drop_someone(self._history, luck)
            await ended_within(server, luck.uniform(0.02, 0.7))
            done += await self._one_blow(luck.random())
            if server.alive is False:
                age_unclean_starts(server.database)
                await server.launch(self._armed())
            if luck.random() < 0.6:
                await server.ready()

    async def _one_blow(self, dice: float) -> int:
        """How many processes died of it."""
        server = self.apart
        if dice < 0.5:
            await server.kill()
        elif dice < 0.7:
            await server.gateway.kill()
        elif dice < 0.8:
            await server.nats.restart()
        elif dice < 0.88:
            await server.nats.restart(wipe=True)
        elif dice < 0.92:
            await server.stop()
            self._report.stops += 1
            return 0
        else:
            await self._pause()
            return 0
        self._report.kills += 1
        return 1

    async def _pause(self) -> None:
        """The agent, past its leases; or NATS, for a moment."""
        server = self.apart
        if self._luck.random() < 0.5:
            server.nats.pause()
            await asyncio.sleep(self._luck.uniform(0.1, 1.0))
            server.nats.resume()
        elif server.alive:
            server.pause()
            self._history.pauses += 1
            await ended_within(server, PAUSE_SECONDS)
            server.unpause()

    async def _keep_the_gateway(self) -> None:
        """It is started again whenever it died, of a blow or of what it was armed with."""
        gateway = self.apart.gateway
        while True:
            if gateway.boots:
                with suppress(TimeoutError):
                    await gateway.ended(limit_seconds=3600)
                await gateway.launch()
            await asyncio.sleep(0.01)


Begin = Callable[[Path, Launcher, Random, StormReport], Cycle]


def apart_cycles(binary: Path | None = None) -> Begin:
    """What `storm` begins its cycles with."""
    return partial(ApartCycle, binary=binary)
