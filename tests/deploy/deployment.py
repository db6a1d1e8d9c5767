"""A project on a real engine, driven as the command line does it: described, read, planned, applied."""

from __future__ import annotations

import asyncio
import io
import secrets
import socket
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from perdure.clock import SystemClock
from perdure.deploy import applying
from perdure.deploy.destroying import Destroyed, destroy
from perdure.deploy.docker import DockerEngine
from perdure.deploy.files import read_files
from perdure.deploy.model import TOKEN_NAME, Plan, Real
from perdure.deploy.planner import plan
from perdure.deploy.project import Description, Known, describe
from perdure.deploy.settling import settle
from perdure.deploy.sources import recipe
from perdure.settings.deployment import load_deployment

WAIT_SECONDS = 60.0

PROJECT = """\
drain_seconds = 3

[agents.worker]
model = "demo"

[deploy]
name = "{name}"
transport = "{transport}"
base_image = "{base}"

[deploy.environment]
PERDURE_DEMO_STEP_SECONDS = "{step}"
PERDURE_DEMO_EFFECTS = "/data/effects.txt"

[deploy.gateway]
port = {port}
{more}"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Deployment:
    engine: DockerEngine
    folder: Path
    base: str
    port: int
    name: str = field(default_factory=lambda: f"t{secrets.token_hex(4)}")
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    transport: str = "embedded"
    said: list[str] = field(default_factory=list)
    nats_recipe: str = ""
    recipe: str = field(default_factory=recipe)

    def write(self, *, transport: str | None = None, step: str = "0.1", more: str = "") -> None:
        self.transport = transport or self.transport
        text = PROJECT.format(
            name=self.name, transport=self.transport, base=self.base, step=step, port=self.port, more=more
        )
        (self.folder / "perdure.toml").write_text(text)

    def describe(self) -> Description:
        settings, deploy = load_deployment(None, {}, self.folder)
        return describe(settings, deploy, Known({}, read_files(self.folder), self.recipe, self.token, self.nats_recipe))

    async def real(self) -> Real:
        return await self.engine.read(self.describe().wanted)

    async def plan(self) -> Plan:
        described = self.describe()
        return plan(described.wanted, await self.engine.read(described.wanted))

    async def apply(self) -> Plan:
        described = self.describe()
        await settle(self.engine, await self.engine.read(described.wanted), self.said.append, SystemClock())
        made = plan(described.wanted, await self.engine.read(described.wanted))
        await applying.apply(
            made,
            described.wanted,
            described.values,
            self.engine,
            secrets={TOKEN_NAME: self.token},
            tell=self.said.append,
        )
        return made

    async def destroy(self, *, purge: str | None = None) -> Destroyed:
        return await destroy(self.engine, await self.real(), purge=purge, tell=self.said.append)

    async def clear(self) -> None:
        await self.destroy(purge=self.name)
        for image in (await self.real()).images:
            if image.reference.startswith(f"perdure-{self.name}-"):
                await self.engine._ask(f"images/{image.reference}", "DELETE", fine=(404,))

    # -- what people do -----------------------------------------------------------------------------------------------

    async def request(self, method: str, path: str, **more: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        async with httpx2.AsyncClient(trust_env=False, timeout=30.0, headers=headers) as http:
            return await http.request(method, f"http://127.0.0.1:{self.port}{path}", **more)

    async def say(self, message: str, conversation: str | None = None) -> dict[str, Any]:
        body = {"message": message} | ({"conversation": conversation} if conversation else {})
        answer = await self.request("POST", "/api/chat", json=body)
        assert answer.status_code == 202, answer.text
        accepted: dict[str, Any] = answer.json()
        return accepted

    async def turn(self, turn: str) -> dict[str, Any]:
        answer = await self.request("GET", f"/api/turns/{turn}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def until(self, turn: str, ready: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Also while the server is away for a moment."""
        until, found = time.monotonic() + WAIT_SECONDS, None
        while time.monotonic() < until:
            try:
                found = await self.turn(turn)
                if ready(found):
                    return found
            except httpx2.TransportError:
                pass
            await asyncio.sleep(0.1)
        raise AssertionError(f"in {WAIT_SECONDS} seconds it did not come so far: {found}")

    async def conversations(self) -> Sequence[str]:
        answer = await self.request("GET", "/api/conversations")
        return [each["id"] for each in answer.json()["items"]]

    async def effects(self, container: str) -> list[str]:
        """One line for each execution of a step that came to its end."""
        taken = io.BytesIO()
        await self.engine.take_out(container, "/data/effects.txt", taken)
        taken.seek(0)
        with tarfile.open(fileobj=taken) as tar:
            file = tar.extractfile("effects.txt")
            assert file is not None
            return file.read().decode().splitlines()
