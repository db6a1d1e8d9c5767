"""compose.yaml, by Compose itself on a real engine: both of its shapes answer a turn, and what they know stays when they go."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from perdure.deploy.docker import DockerEngine
from perdure.deploy.model import Build, Image
from tests.acceptance.conftest import environment
from tests.deploy.conftest import CACHE, HERE, ROOT
from tests.deploy.deployment import Deployment
from tests.servers.process import free_port

IMAGES = {"PERDURE_IMAGE": "perdure", "NATS_IMAGE": "nats"}
"""Variable of the file → target of our Dockerfiles."""

PATIENCE_SECONDS = 300


@pytest.fixture(scope="session")
def program() -> Path:
    folder = CACHE / "compose"
    done = subprocess.run(
        [HERE / "compose.sh", sys.executable, folder],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    if done.returncode != 0:
        pytest.skip(f"COMPOSE IS NOT TESTED HERE: {done.stderr[-2000:]}")
    return folder / "docker-compose"


@dataclass
class Composed:
    """The file in a folder of its own, with the `.env` that its head tells to make."""

    program: Path
    deployment: Deployment

    @property
    def images(self) -> dict[str, str]:
        """Variable → image."""
        return {variable: f"perdure-{self.deployment.name}-{target}:latest" for variable, target in IMAGES.items()}

    async def compose(self, *arguments: str) -> str:
        return await asyncio.to_thread(self._compose, arguments)

    def _compose(self, arguments: tuple[str, ...]) -> str:
        done = subprocess.run(
            [self.program, "--project-name", self.deployment.name, "--progress", "quiet", *arguments],
            cwd=self.deployment.folder,
            env=environment(PERDURE_PORT=str(self.deployment.port), **self.images),
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def answers(self, conversation: str | None = None) -> str:
        """A turn to its end; its conversation."""
        accepted = await self.deployment.say("hello", conversation)
        await self.deployment.until(accepted["turn"], lambda turn: turn["status"] == "completed")
        return str(accepted["conversation"])


@pytest.fixture
async def composed(program: Path, engine: DockerEngine, base_image: str, tmp_path: Path) -> AsyncIterator[Composed]:
    text = (ROOT / "compose.yaml").read_text()
    (tmp_path / "compose.yaml").write_text(text)
    (tmp_path / "compose.nats.conf").write_text((ROOT / "compose.nats.conf").read_text())
    (told,) = re.findall(r"^# +(\(umask 077;.*\))$", text, re.MULTILINE)
    subprocess.run(["bash", "-ec", told], cwd=tmp_path, check=True)
    secrets = dict(line.split("=", 1) for line in (tmp_path / ".env").read_text().splitlines())
    deployment = Deployment(engine, tmp_path, base_image, free_port(), token=secrets["PERDURE_TOKEN"])
    made = Composed(program, deployment)
    for variable, target in IMAGES.items():
        await engine.make_image(Image(made.images[variable], build=Build(target, base_image)), print)
    yield made
    await made.compose("--profile", "nats", "down", "--volumes")
    for reference in made.images.values():
        await engine._ask(f"images/{reference}", "DELETE", fine=(404,))


@pytest.mark.proof
async def test_one_container_answers_and_its_conversations_stay_when_it_goes(composed: Composed) -> None:
    assert (composed.deployment.folder / ".env").stat().st_mode & 0o077 == 0
    await composed.compose("up", "--detach", "--wait")
    conversation = await composed.answers()
    await composed.compose("down")
    await composed.compose("up", "--detach", "--wait")
    assert await composed.deployment.conversations() == [conversation]
    assert (await composed.compose("ps", "--services")).split() == ["perdure"]


@pytest.mark.proof
async def test_agent_and_gateway_apart_answer_and_their_conversations_stay_when_they_go(composed: Composed) -> None:
    up = ("--profile", "nats", "up", "--detach", "--wait", "gateway")
    await composed.compose(*up)
    conversation = await composed.answers()
    await composed.compose("--profile", "nats", "down")
    await composed.compose(*up)
    assert await composed.answers(conversation) == conversation
    assert await composed.deployment.conversations() == [conversation]
    assert set((await composed.compose("--profile", "nats", "ps", "--services")).split()) == {
        "nats",
        "agent",
        "gateway",
    }
