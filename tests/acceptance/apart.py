"""The other shape as a person starts it: NATS, `perdure agent` for each agent, `perdure gateway`, each a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from tests.acceptance.conftest import ServerProcess, eventually
from tests.servers.nats_server import NatsServer


class PartProcess(ServerProcess):
    """`perdure COMMAND` beside others in a folder; its own files are in `folder/NAME`."""

    def __init__(self, folder: Path, command: str, name: str, **variables: str) -> None:
        place = folder / name
        place.mkdir(exist_ok=True)
        super().__init__(folder, **{"PERDURE_DATABASE": str(place / "perdure.db"), **variables})
        self.command = command
        self.database, self.log_file = place / "perdure.db", place / "server.log"


class ApartProcess(ServerProcess):
    """Answers as its gateway does; what is started, killed and stopped by these names are its agents, all of them."""

    def __init__(self, folder: Path, *, agents: Sequence[str] = ("demo",), **variables: str) -> None:
        """The project is `folder`: its files are seen by all agents."""
        self.nats = NatsServer(folder / "nats")
        variables = {"PERDURE_NATS_URL": self.nats.url, **variables}
        super().__init__(folder, **variables)
        self.gateway = PartProcess(folder, "gateway", "gateway", **variables)
        self.database = self.gateway.database
        own = {**variables, "PERDURE_PORT": "0"}
        self.agents = {name: PartProcess(folder, "agent", name, **own, PERDURE_AGENT_NAME=name) for name in agents}
        self._otherwise = False
        """Something was started with other settings."""

    def start(self, **more: str) -> Self:
        """What does not run."""
        if self.nats.process is None:
            self.start_nats()
        self._otherwise |= bool(more)
        for process in (*self.agents.values(), self.gateway):
            if not process.runs():
                process.launch(**more)
        return self.ready()

    def lent(self) -> Iterator[Self]:
        """To one test of several, as if nobody had used it before."""
        self.effects_file.unlink(missing_ok=True)
        yield self.start()
        if self._otherwise:
            self._otherwise = False
            self.kill()
            self.start()

    def ready(self) -> Self:
        for agent in self.agents.values():
            agent.ready()
        self.gateway.ready()
        eventually(self._reaches, "the gateway reaches its agents")
        return self

    def _reaches(self) -> bool:
        known = {each["name"]: each["reach"] for each in self.get("/api/agents").json()["items"]}
        return known == dict.fromkeys(self.agents, "reachable")

    def start_nats(self) -> None:
        # A browser's test has an event loop of its own in this thread.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, self.nats.start()).result()

    def kill(self) -> None:
        for agent in self.agents.values():
            agent.kill()

    def stop(self) -> int:
        """The last code with which one of them ended that is not 0."""
        return max((agent.stop() for agent in self.agents.values()), key=abs)

    def runs(self) -> bool:
        return all(agent.runs() for agent in self.agents.values())

    def close(self) -> None:
        for process in (self.gateway, *self.agents.values()):
            process.close()
        self.nats.kill()

    @property
    def door(self) -> ServerProcess:
        return self.gateway

    @property
    def address(self) -> str:
        return self.gateway.address

    @property
    def token(self) -> str:
        return self.gateway.token

    def log(self) -> str:
        return self.gateway.log()
