"""What the composition root gives the engine of a deployment."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.deploy import docker
from perdure.deploy.docker import DockerEngine
from perdure.runtime import deployment

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
