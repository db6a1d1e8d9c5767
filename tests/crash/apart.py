"""The same server in three processes: NATS, one agent, one gateway. What the other suites kill is here the agent.

`Apart` is a `Server` whose life is the agent's and whose API is the gateway's; the gateway and NATS have lives of their own and
can be killed, paused and cut off beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from perdure.failpoints import NATS_NAMES, PLACES
from tests.crash.client import GONE, Api
from tests.crash.journal import opened
from tests.crash.people import Supervisor
from tests.crash.scenarios import DECIDING, MAIN
from tests.crash.server import Launcher, Server
from tests.crash.streamed import copy_violations, stream_violations
from tests.crash.trial import SPECIAL, Plan, Verdict, project_of, try_on
from tests.servers.nats_server import NatsServer

GATEWAYS = frozenset({"follow.apply", "follow.record", "dispatch"})
"""Places that a gateway passes; all others are an agent's."""

AGENT_OF = {
    "parked_graph": "parked",
    "failed_then_more": "short",
    "failed_then_resumed": "short",
}
"""Scenarios that use another agent than `demo`."""


OWN = {"accept_reply": "plain_answer", "dispatch": "plain_answer"}
"""The scenario that reaches a place of bridge or gateway, where it is not the job of four steps."""


class Gateway(Server):
    """The gateway's process: `api` is what people use."""

    def __init__(
        self,
        folder: Path,
        launcher: Launcher,
        nats_url: str,
        environment: Mapping[str, str] | None = None,
        *,
        name: str = "gateway",
    ) -> None:
        super().__init__(folder, launcher, environment)
        self.database = folder / f"{name}.db"
        self.log = folder / f"{name}.log"
        self.passed = folder / f"{name}-failpoints.log"
        self._nats_url = nats_url

    @property
    def waits_for(self) -> int:
        """How many turns it was told to wait for and has not seen the end of, by its file."""
        connection = opened(self.database)
        try:
            return int(next(iter(connection.execute("SELECT count(*) FROM dispatches")))[0])
        finally:
            connection.close()

    def _settings(self) -> dict[str, str]:
        return {
            **super()._settings(),
            "PERDURE_TEST_COMMAND": "gateway",
            "PERDURE_NATS_URL": self._nats_url,
        }


class Apart(Server):
    """One agent, reached through a gateway. `start`, `kill`, `stop` and `boots` are the agent's; `api` is the gateway's."""

    def __init__(
        self,
        folder: Path,
        launcher: Launcher,
        environment: Mapping[str, str] | None = None,
        *,
        agent: str = "demo",
        nats: NatsServer | None = None,
        gateway_environment: Mapping[str, str] | None = None,
        gateway_url: str | None = None,
    ) -> None:
        """`nats`: one of your own making, not started yet. `gateway_url`: how the gateway reaches it, where that differs."""
        super().__init__(folder, launcher, environment)
        self.agent = agent
        self.nats = nats or NatsServer(folder / "nats")
        self.gateway = Gateway(folder, launcher, gateway_url or self.nats.url, gateway_environment)
        self.gateway.token = self.token
        self.health = Api(self.port, self.token)
        self.api = self.gateway.api = Api(self.gateway.port, self.token)

    async def launch(self, failpoints: str = "", **more: str) -> None:
        """Starts the agent; NATS and the gateway, too, where they were not started yet."""
        if not self.boots and self.nats.process is None:
            await self.nats.start()
        if not self.gateway.boots:
            await self.gateway.launch()
        await super().launch(failpoints, **more)

    async def ready(self, limit_seconds: float = 60.0) -> bool:
        """Waits until the agent says that it is ready; False when it died before."""
        boot = self.boots[-1]
        async with asyncio.timeout(limit_seconds):
            while not boot.how:
                with suppress(*GONE):
                    if (await self.health.request("GET", "/api/readyz", timeout_seconds=5)).status == 200:
                        return True
                await asyncio.sleep(0.01)
        return False

    async def told_otherwise(self, *, wiped: bool = False) -> list[str]:
        """Where the stream or the gateway's copy differ from the journal. The agent has stopped as planned."""
        copied = await copy_violations(self.database, self.gateway.database) if self.gateway.alive else []
        return [*await stream_violations(self.nats.url, self.database, wiped=wiped), *copied]

    async def close(self) -> None:
        """The agent alone: a gateway that is started again when it dies is ended by who does that. See `close_all`."""
        await super().close()

    async def close_all(self) -> None:
        await self.close()
        await self.gateway.close()
        self.nats.kill()

    def said(self) -> str:
        return f"{super().said()}\n-- gateway --\n{self.gateway.said()}"

    def _settings(self) -> dict[str, str]:
        return {
            **super()._settings(),
            "PERDURE_TEST_COMMAND": "agent",
            "PERDURE_AGENT_NAME": self.agent,
            "PERDURE_NATS_URL": self.nats.url,
        }


def apart_plans() -> list[Plan]:
    """Every place of bridge and gateway, and every place of the engine once, behind it."""
    own = [Plan(name, OWN.get(name.rpartition(".")[0], "four_step_job")) for name in NATS_NAMES]
    return [*own, *(Plan(f"{place}.after", SPECIAL.get(place, "plain_answer")) for place in PLACES)]


def apart_crossed(passes: Sequence[int] = (1, 3)) -> list[Plan]:
    """Every place of bridge and gateway × scenarios × passes, and every place of the engine on both sides of it."""
    scenarios = (*MAIN, "cancel_then_more", "failed_then_resumed", "approved_services", "uncertain_charge")
    own = [Plan(name, scenario, nth=nth) for name in NATS_NAMES for scenario in scenarios for nth in passes]
    engine = [
        Plan(f"{place}.{side}", SPECIAL.get(place, "plain_answer"), nth=nth)
        for place in PLACES
        for side in ("before", "after")
        for nth in passes
    ]
    return [*own, *engine]


async def try_apart(
    plan: Plan, folder: Path, launcher: Launcher, asleep: Callable[[Path], object] = lambda _: None, **environment: str
) -> Verdict:
    """Runs one plan on three fresh processes; what dies is the one that passes the place. `asleep`: see `try_on`."""
    agent = AGENT_OF.get(plan.scenario, "effects" if plan.scenario in DECIDING else "demo")
    server = Apart(folder, launcher, {**project_of(plan), **environment}, agent=agent)
    try:
        await server.nats.start()
        if plan.failpoint.rpartition(".")[0] in GATEWAYS:
            async with Supervisor(server.gateway, plan.arms):
                verdict = await try_on(server, replace(plan, action="pass"))
            verdict.kills += server.gateway.kills
        else:
            verdict = await try_on(server, plan, asleep)
        verdict.passed |= server.gateway.failpoints_passed()
        if not verdict.violations:
            verdict.violations += await server.told_otherwise()
        return verdict
    finally:
        await server.close_all()
