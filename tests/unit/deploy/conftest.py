"""A project in a folder, what it wants, and the state of an engine that has just that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from perdure.deploy.files import read_files
from perdure.deploy.model import Container, Image, Real, Variable
from perdure.deploy.project import Description, Known, describe
from perdure.settings.deployment import load_deployment

Describe = Callable[..., Description]

SHOP = """
[agents.shop]
model = "demo"
system_prompt_file = "prompt.md"

[agents.helper]
model = "demo"
"""


@pytest.fixture
def described(tmp_path: Path) -> Describe:
    """`described(deploy_table, environ)`: of two agents, `shop` and `helper`."""

    def from_table(
        table: str = "",
        environ: Mapping[str, str] | None = None,
        /,
        *,
        agents: str = SHOP,
        token: str | None = "t" * 43,
    ) -> Description:
        (tmp_path / "prompt.md").write_text("Be kind.")
        (tmp_path / "perdure.toml").write_text(f"{table}\n{agents}")
        given = {"XDG_DATA_HOME": str(tmp_path / "data"), **(environ or {})}
        settings, deploy = load_deployment(None, given, tmp_path)
        known = Known(given, read_files(tmp_path, deploy.exclude, project=settings.project), "recipe", token)
        return describe(settings, deploy, known)

    return from_table


def realized(description: Description) -> Real:
    """What an engine has after it was all done."""
    wanted = description.wanted
    ids = {image.reference: f"sha256:{number:012x}{'0' * 52}" for number, image in enumerate(wanted.images)}
    return replace(
        wanted,
        images=tuple(Image(image.reference, image.source, ids[image.reference]) for image in wanted.images),
        volumes=tuple(replace(volume, external=False) for volume in wanted.volumes),
        containers=tuple(_real(each, ids[each.image], description.values.of[each.name]) for each in wanted.containers),
    )


def _real(container: Container, image_id: str, values: Mapping[str, str]) -> Container:
    """Engines tell all values, and do not know which of them are secret; what their image says is there too."""
    told = [Variable.of(name, value) for name, value in values.items()] + [Variable.of("PATH", "/usr/bin")]
    return replace(
        container,
        image_id=image_id,
        environment=tuple(sorted(told)),
        inherited=frozenset({"environment.PATH"}),
    )
