"""What goes away between an agent and its gateway: NATS, its store, the end of its store, the network."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from tests.crash.apart import Apart
from tests.crash.oracle import violations
from tests.crash.people import Person, settle
from tests.crash.records import History, read_effects
from tests.crash.scenarios import SCENARIOS, STEPS, THREE_AT_ONCE
from tests.crash.server import Launcher
from tests.crash.streamed import Reader
from tests.crash.trial import LIMIT_SECONDS
from tests.servers.nats_server import NatsServer

Blow = Callable[[Apart], Awaitable[None]]

LOAD = ("four_step_job", "one_behind_another", "four_step_job")
"""What people do meanwhile."""

ASKED = 2 * len(STEPS) + len(THREE_AT_ONCE.labels)
"""Effects of all that."""

SLOWLY = {"PERDURE_DEMO_STEP_SECONDS": "0.3"}
"""So that blows fall into the middle."""


async def killed(server: Apart) -> None:
    """For a while there is none at all: the agent goes on with its steps."""
    server.nats.kill()
    await _more_effects(server, 2)
    await server.nats.start()


async def wiped(server: Apart) -> None:
    await server.nats.restart(wipe=True)


class EndLost:
    """A power cut under a lazy `sync_interval`: what was acknowledged since the last fsync is gone, and the stream is there."""

    def __init__(self) -> None:
        self._saved = Path()

    async def remember(self, server: Apart) -> None:
        """What is on the disk, so to say, when the power is cut."""
        server.nats.stop()
        self._saved = server.folder / "as-it-was"
        await asyncio.to_thread(shutil.copytree, server.nats.store, self._saved)
        await server.nats.start()

    async def lose(self, server: Apart) -> None:
        server.nats.kill()
        server.nats.wipe()
        await asyncio.to_thread(shutil.copytree, self._saved, server.nats.store)
        await server.nats.start()


async def ride_out(folder: Path, launcher: Launcher, blows: list[Blow], nats: NatsServer) -> list[str]:
    """People work, each blow falls once something more has happened, one program reads the stream all the time. Every broken
    promise; all of it must come right by itself."""
    server = Apart(folder, launcher, SLOWLY, nats=nats)
    history = History(boots=server.boots)
    try:
        async with asyncio.timeout(2 * LIMIT_SECONDS):
            assert await server.start(), server.said()
            async with Reader(nats.url) as reader:
                people = [Person(server, history) for _ in LOAD]
                working = [asyncio.ensure_future(SCENARIOS[what](one)) for what, one in zip(LOAD, people, strict=True)]
                await _accepted(history, len(LOAD))
                for blow in blows:
                    await _more_effects(server, 2)
                    await blow(server)
                await asyncio.gather(*working)
                await settle(server, history)
                code = await server.stop()
                assert code == 0, f"a planned stop ended with {code}\n{server.said()}"
                unlike = await reader.differences(server.database)
        found = await asyncio.to_thread(violations, history, server.database, server.effects)
        return [*found, *await server.told_otherwise(wiped=True), *unlike]
    finally:
        for watcher in history.watchers:
            await watcher.stop()
        await server.close_all()


async def _accepted(history: History, count: int) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while sum(1 for sent in history.sent if sent.turn) < count:
            await asyncio.sleep(0.01)


async def _more_effects(server: Apart, count: int) -> None:
    """Returns when so many more have happened, or all that people asked for."""
    wanted = min(len(read_effects(server.effects)) + count, ASKED)
    async with asyncio.timeout(LIMIT_SECONDS):
        while len(read_effects(server.effects)) < wanted:
            await asyncio.sleep(0.01)


class Network:
    """A network namespace with NATS in it and two cables into it: `agent` and `gateway` are the addresses at their ends. Needs
    root and `ip`."""

    def __init__(self) -> None:
        self._name = f"perdure-{uuid4().hex[:6]}"
        self._cables = {"agent": f"pa{uuid4().hex[:8]}", "gateway": f"pg{uuid4().hex[:8]}"}
        third = int(uuid4().hex[:2], 16)
        self._nets = {"agent": f"10.231.{third}", "gateway": f"10.232.{third}"}

    @property
    def command(self) -> list[str]:
        """What a command is put behind to run inside."""
        return ["ip", "netns", "exec", self._name]

    def address(self, cable: str) -> str:
        """Of whatever listens inside."""
        return f"{self._nets[cable]}.2"

    def cut(self, cable: str) -> None:
        """At the far end: here nothing is said to be wrong, and nothing comes back."""
        self._inside("link", "set", f"{self._cables[cable]}i", "down")

    def mend(self, cable: str) -> None:
        self._inside("link", "set", f"{self._cables[cable]}i", "up")

    def _inside(self, *words: str) -> None:
        _ip("-n", self._name, *words)

    def make(self) -> None:
        """Raises OSError and CalledProcessError where that is not permitted."""
        _ip("netns", "add", self._name)
        self._inside("link", "set", "lo", "up")
        for cable, here in self._cables.items():
            there, net = f"{here}i", self._nets[cable]
            _ip("link", "add", here, "type", "veth", "peer", "name", there)
            _ip("link", "set", there, "netns", self._name)
            _ip("addr", "add", f"{net}.1/30", "dev", here)
            _ip("link", "set", here, "up")
            self._inside("addr", "add", f"{net}.2/30", "dev", there)
            self._inside("link", "set", there, "up")

    def remove(self) -> None:
        """The cables go with the namespace."""
        subprocess.run(["ip", "netns", "del", self._name], capture_output=True, check=False)


@contextmanager
def network() -> Iterator[Network | None]:
    """None where there can be none: no root, no `ip`."""
    made = Network()
    try:
        try:
            made.make()
        except (OSError, subprocess.CalledProcessError):
            yield None
        else:
            yield made
    finally:
        made.remove()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], capture_output=True, check=True)
