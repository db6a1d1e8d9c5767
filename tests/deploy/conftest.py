"""A real Docker engine, a base image that was not pulled, and projects that leave nothing behind.

The engine is the one that Docker's own client would find (DOCKER_HOST, the local socket). Where none answers every test here says so
and is skipped. What takes long is kept in PERDURE_TEST_DEPLOY_CACHE (/tmp/deploy): the base's files and the wheels.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiodocker
import pytest

from perdure.deploy.docker import DockerEngine
from perdure.deploy.engine import EngineUnreachable
from tests.deploy.deployment import Deployment
from tests.servers.process import free_port

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CACHE = Path(os.environ.get("PERDURE_TEST_DEPLOY_CACHE", "/tmp/deploy"))
BASE = "perdure-test-base:latest"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.docker)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def base_image() -> str:
    """Debian with Python, imported into the engine once."""

    async def imported() -> str | None:
        try:
            async with DockerEngine():
                pass
        except EngineUnreachable as error:
            return error.message
        async with aiodocker.Docker() as docker:
            if not await docker.images.list(filter=BASE):
                await asyncio.to_thread(_run, str(HERE / "base_image.sh"), str(CACHE / "base-bookworm.tar"))
                with (CACHE / "base-bookworm.tar").open("rb") as tar:
                    name, _, tag = BASE.partition(":")
                    async with docker._query(
                        "images/create", "POST", params={"fromSrc": "-", "repo": name, "tag": tag}, data=tar
                    ) as response:
                        await response.read()
        return None

    why = asyncio.run(imported())
    if why is not None:
        pytest.skip(f"NOTHING OF DEPLOYMENTS IS TESTED HERE: {why}")
    return BASE


@pytest.fixture(scope="session")
def wheelhouse() -> Path:
    """No container of the tests reaches a package index."""
    folder = CACHE / "wheelhouse"
    locks = [ROOT / "requirements.lock", ROOT / "src" / "perdure" / "deploy" / "nats.lock"]
    _run(str(HERE / "wheelhouse.sh"), sys.executable, str(folder), *map(str, locks))
    return folder


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"NOTHING OF DEPLOYMENTS IS TESTED HERE: {command[0]} failed: {done.stderr[-2000:]}")


@pytest.fixture
async def engine(base_image: str, wheelhouse: Path) -> AsyncIterator[DockerEngine]:
    async with DockerEngine(wheelhouse=wheelhouse) as docker:
        yield docker


@pytest.fixture
async def deployment(engine: DockerEngine, tmp_path: Path, base_image: str) -> AsyncIterator[Deployment]:
    """A project with the demo agent, `embedded` until a test says otherwise."""
    made = Deployment(engine, tmp_path, base_image, free_port())
    made.write()
    try:
        yield made
    finally:
        await made.clear()
