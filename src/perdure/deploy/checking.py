"""What keeps a project from being deployed from here: secrets that are not set, files that its images would lack, data of
one container that another would write. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path

from perdure.config import AgentSettings, DeploySettings, Settings
from perdure.deploy.files import ProjectFiles
from perdure.deploy.model import DATA_FOLDER, Mount, Role, Wanted


def missing_secrets(settings: Settings, deploy: DeploySettings, environ: Mapping[str, str]) -> Iterator[str]:
    named = [*deploy.secrets, *(name for agent in deploy.agents.values() for name in agent.secrets)]
    named += [name for service in deploy.services.values() for name in service.secrets]
    for name in dict.fromkeys(named):
        if not environ.get(name):
            yield f"The secret {name} is not set here: export {name}=… (or take it out of `secrets` in {settings.project})."


def missing_files(settings: Settings, deploy: DeploySettings, files: ProjectFiles) -> Iterator[str]:
    built = [agent for agent in settings.agents if given_image(deploy, agent.name) is None]
    if built and settings.project is not None and not files.holds(settings.project):
        yield f"{settings.project} would not be in the image: its name must not begin with a dot, nor `exclude` name it."
    for agent in built:
        for key, path in _files_of(agent):
            if not files.holds(path):
                yield (
                    f"[agents.{agent.name}] `{key}` names {path}, which would not be in the image: it must be a file in "
                    f"{files.folder} that `exclude` of [deploy] does not name and that is not left out always (hidden files, data, keys: docs/deploy.md)."
                )


def _files_of(agent: AgentSettings) -> Iterator[tuple[str, Path]]:
    for key, path in (("system_prompt_file", agent.system_prompt_file), ("mcp_config", agent.mcp_config)):
        if path is not None:
            yield key, path
    references = [("graph", agent.graph), *(("tools", each) for each in agent.tools)]
    for key, reference in references:
        place = (reference or "").rpartition(":")[0]
        if place.endswith(".py"):
            yield key, agent.base / place


def shared_data(wanted: Wanted) -> Iterator[str]:
    """Services may share what they have at /data among themselves: what they make of it is theirs to know."""
    with_data = [(container, _place(container.data)) for container in wanted.containers if container.data is not None]
    for (one, place), (other, same) in combinations(with_data, 2):
        if place == same and {one.role, other.role} != {Role.SERVICE}:
            yield (
                f"{one.name} and {other.name} would both have {place[1]} at {DATA_FOLDER}: each has a database there, and a database has one "
                "writer. Give each a [deploy.volumes] table of its own, or take them out of `at`: then each gets a volume of its own."
            )


def _place(data: Mount | None) -> tuple[str, str]:
    assert data is not None, "only those with data are compared"
    return data.kind, posixpath.normpath(data.source)


def given_image(deploy: DeploySettings, agent: str) -> str | None:
    own = deploy.agents.get(agent)
    return (own.image if own else None) or deploy.image
