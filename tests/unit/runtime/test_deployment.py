"""What the composition root gives the engine of a deployment."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from perdure.deploy import docker
from perdure.deploy.docker import DockerEngine
from perdure.deploy.rendering import check_fresh
from perdure.deploy.token import keep_token
from perdure.runtime import deployment
from tests.unit.deploy.memory_engine import MemoryEngine

PROJECT = """
[agents.shop]
model = "demo"

[deploy]
wheelhouse = "wheels"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "perdure.toml").write_text(PROJECT)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "typer-1-py3-none-any.whl").write_bytes(b"")
    return tmp_path


def test_the_engine_builds_from_the_wheels_of_the_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}

    class Recorded(DockerEngine):
        def __init__(self, **options: Path | None) -> None:
            given.update(options)

    monkeypatch.setattr(docker, "DockerEngine", Recorded)
    deployment.open_engine(deployment.load(None, {}, project).deploy)
    assert given == {"wheelhouse": project / "wheels"}


def test_wheels_are_no_part_of_an_image(project: Path) -> None:
    found = deployment.load(None, {}, project)
    assert found._known(None).files.paths == ("perdure.toml",)


# -- what was deployed from somewhere else ----------------------------------------------------------------------------

UNNAMED = '[agents.shop]\nmodel = "demo"\n'


async def deployed_elsewhere(folder: Path) -> tuple[deployment.Deployment, MemoryEngine]:
    """A project without a name, as it is deployed already, seen from a folder without its token file."""
    (folder / "perdure.toml").write_text(UNNAMED)
    found, engine = deployment.load(None, {}, folder), MemoryEngine()
    for container in (await found.describe("t" * 43)).wanted.containers:
        engine.containers[container.name] = replace(container, image_id="sha256:0")
    return found, engine


def secrets_of(token: str) -> bytes:
    with io.BytesIO() as written:
        with tarfile.open(fileobj=written, mode="w") as tar:
            entry = tarfile.TarInfo("secrets/token")
            entry.size = len(token)
            tar.addfile(entry, io.BytesIO(token.encode()))
        return written.getvalue()


async def test_a_project_that_was_deployed_from_another_folder_is_not_taken_over_unsaid(tmp_path: Path) -> None:
    found, engine = await deployed_elsewhere(tmp_path)
    engine.put["perdure-perdure-secrets"] = secrets_of("s" * 43)
    made = await found.plan(engine)
    (told,) = made.plan.warnings
    assert f"there is no {tmp_path / '.perdure' / 'perdure.token'}" in told
    assert "goes on with its token" in told and "uses its data" in told
    assert "copy the token file from there" in told and "give this one a `name` of its own in [deploy]" in told

    assert await found.keep_token(engine) == "s" * 43
    again = await found.plan(engine)
    assert again.plan.warnings == ()
    check_fresh(made.plan, again.plan)


async def test_where_no_token_can_be_had_it_says_that_everybody_signs_in_anew(tmp_path: Path) -> None:
    found, engine = await deployed_elsewhere(tmp_path)
    for name, container in engine.containers.items():
        kept = tuple(mount for mount in container.mounts if mount.target != "/run/secrets")
        engine.containers[name] = replace(container, mounts=kept)
    (told,) = (await found.plan(engine)).plan.warnings
    assert "makes a new token, so that everybody signs in anew" in told


async def test_from_the_first_apply_on_and_of_other_projects_nothing_is_said(tmp_path: Path) -> None:
    found, engine = await deployed_elsewhere(tmp_path)
    keep_token(found.token_file, "t" * 43)
    assert (await found.plan(engine)).plan.warnings == ()
    found.token_file.unlink()
    assert (await found.plan(MemoryEngine())).plan.warnings == ()


async def test_a_named_token_file_that_others_can_read_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("t" * 43)
    (tmp_path / "own.txt").chmod(0o644)
    (tmp_path / "perdure.toml").write_text(f'{UNNAMED}[deploy.gateway]\ntoken_file = "own.txt"\n')
    found = deployment.load(None, {}, tmp_path)
    (told,) = (await found.plan(MemoryEngine())).plan.warnings
    assert "can be read by other users of this machine: chmod 600" in told
    (tmp_path / "own.txt").chmod(0o600)
    assert (await found.plan(MemoryEngine())).plan.warnings == ()
