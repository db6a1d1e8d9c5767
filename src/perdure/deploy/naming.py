"""How everything that is made for a project is named and labelled."""

from __future__ import annotations

import re

from perdure.deploy.model import LABEL_NAME, LABEL_PROJECT, LABEL_ROLE, Role

DEFAULT_PROJECT = "perdure"
NEXT = ".next"
"""Ends the name of a container that is about to take another's place."""

UNDOING = ".undo"
"""Ends the name of a container that undoes, once, what a successor has done to this one's file."""

CARRYING = ".carrying"
"""Ends the name of the volume that says: the data of this container is being carried, and its copy was not used yet."""

CARRIED = ".carried"
"""Ends the name of the volume that says beside it: the copy is whole."""


def container_name(project: str, role: Role, name: str | None = None) -> str:
    return "-".join(("perdure", project, role, *([name] if name else [])))


def network_name(project: str) -> str:
    return f"perdure-{project}-network"


def data_volume(project: str, *words: str) -> str:
    """`perdure-agent-shop-data`; of other projects than the default with the project: `perdure-PROJECT-agent-shop-data`."""
    return "-".join((*_first(project), *words, "data"))


def declared_volume(project: str, name: str) -> str:
    return "-".join((*_first(project), "volume", name))


def secrets_volume(project: str) -> str:
    return f"perdure-{project}-secrets"


def _first(project: str) -> tuple[str, ...]:
    return ("perdure",) if project == DEFAULT_PROJECT else ("perdure", project)


def image_reference(project: str, source: str, *words: str) -> str:
    """Of an image built here: its tag says what it is made from, so a new source never moves an old name."""
    return f"{re.sub(r'[^a-z0-9]+', '-', '-'.join(('perdure', project, *words)).lower()).strip('-')}:{source[:12]}"


def labels(project: str, role: Role, name: str | None = None) -> dict[str, str]:
    return {LABEL_PROJECT: project, LABEL_ROLE: str(role), LABEL_NAME: name or str(role)}
