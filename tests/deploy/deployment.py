"""A project on a real engine, driven as the command line does it: described, read, planned, applied."""

from __future__ import annotations

import asyncio
import io
import json
import os
import secrets
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2

from perdure.clock import SystemClock
from perdure.deploy import applying
from perdure.deploy.creation import LABEL_CARRIER
from perdure.deploy.destroying import Destroyed, destroy
from perdure.deploy.docker import DockerEngine
from perdure.deploy.files import read_files
from perdure.deploy.model import DATA_FOLDER, TOKEN_NAME, Action, Container, Kind, Plan, Real, Subject
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
{image}
[deploy.environment]
PERDURE_DEMO_STEP_SECONDS = "{step}"
PERDURE_DEMO_EFFECTS = "/data/effects.txt"
{variables}
[deploy.gateway]
port = {port}
{more}"""


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

    image: str | None = None
    """Used as it is; None: built from the project."""

    def write(
        self, *, transport: str | None = None, step: str = "0.1", variables: str = "", more: str = "", port: int = 0
    ) -> None:
        """`variables`: more lines of [deploy.environment]; `more`: further tables; `port`: another than its own."""
        self.transport = transport or self.transport
        text = PROJECT.format(
            name=self.name,
            transport=self.transport,
            base=self.base,
            image=f'image = "{self.image}"\n' if self.image else "",
            step=step,
            variables=variables,
            port=port or self.port,
            more=more,
        )
        (self.folder / "perdure.toml").write_text(text)

    def describe(self) -> Description:
        settings, deploy = load_deployment(None, {}, self.folder)
        files = read_files(self.folder, project=settings.project)
        return describe(settings, deploy, Known({}, files, self.recipe, self.token, self.nats_recipe))

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

    async def keep_image(self) -> None:
        """Built now, and used as it is from then on: no change of the sources makes another one."""
        (image,) = self.describe().wanted.images
        await self.engine.make_image(image, self.said.append)
        self.image = image.reference

    async def apply_bare(self) -> Container:
        """Makes the server as somebody without this tool may have: what is at /data lies in the container itself. The one that is
        wanted instead."""
        described = self.describe()
        (container,) = described.wanted.containers
        kept = tuple(each for each in container.mounts if each.target != DATA_FOLDER)
        bare = replace(container, read_only=False, mounts=kept)
        alone = replace(described.wanted, containers=(bare,))
        (network,) = alone.networks
        (image,) = alone.images
        await self.engine.make_image(image, self.said.append)
        await self.engine.create_network(network)
        action = Action(Kind.CREATE, Subject.CONTAINER, bare.name, "By hand.")
        await applying.apply(
            Plan(alone.project, (action,), "", ""),
            alone,
            described.values,
            self.engine,
            secrets={TOKEN_NAME: self.token},
            tell=self.said.append,
        )
        return container

    async def start_command(self, *words: str, failpoints: str = "") -> asyncio.subprocess.Process:
        """`perdure …` in the project's folder, as a person starts it. Its outputs are pipes."""
        token = self.folder / ".perdure" / f"{self.name}.token"
        token.parent.mkdir(exist_ok=True)
        token.write_text(f"{self.token}\n")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        return await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("perdure")),
            *words,
            cwd=self.folder,
            env={
                **kept,
                "NO_COLOR": "1",
                "COLUMNS": "200",
                **({"PERDURE_FAILPOINTS": failpoints} if failpoints else {}),
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def command(self, *words: str, failpoints: str = "") -> tuple[int | None, str]:
        """Its exit code (negative: the signal that killed it), and what it wrote."""
        process = await self.start_command(*words, failpoints=failpoints)
        told, _ = await process.communicate()
        return process.returncode, told.decode()

    async def leftovers(self) -> list[str]:
        """Of applies that died: containers and volumes that nobody wants."""
        described = self.describe().wanted
        found = [
            each for each in (await self.engine.read(described)).containers if described.container(each.name) is None
        ]
        mine = {each.name for each in described.volumes}
        real = [each.name for each in (await self.engine.read(described)).volumes]
        carriers = [
            each["Names"][0]
            for volume in real
            for each in await self.engine._get(
                "containers/json", all=1, filters={"label": [f"{LABEL_CARRIER}={volume}"]}
            )
        ]
        return [*(each.name for each in found), *(name for name in real if name not in mine), *carriers]

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

    async def steps_done(self, container: str) -> list[tuple[str, str]]:
        """(label, key) of each execution of a step that came to its end, in their order."""
        lines = [json.loads(line) for line in await self.effects(container)]
        return [(line["args"]["label"], line["key"]) for line in lines if line["tool"] == "slow_step"]

    async def effects(self, container: str) -> list[str]:
        """One line for each execution of a step that came to its end."""
        taken = io.BytesIO()
        await self.engine.take_out(container, "/data/effects.txt", taken)
        taken.seek(0)
        with tarfile.open(fileobj=taken) as tar:
            file = tar.extractfile("effects.txt")
            assert file is not None
            return file.read().decode().splitlines()
