"""What becomes of conversations when a project moves between the transports. Pure.

On `embedded` all agents share one file, on `nats` each has its own. A move carries a file as it is from the one to the other; what lies
in it of other agents is in no list there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perdure.deploy.model import LABEL_NAME, Container, Real, Role, Wanted


def moved_conversations(wanted: Wanted, real: Real) -> Iterator[str]:
    """A sentence or two where conversations would be out of sight afterwards."""
    had, wants = _of_role(real.containers, Role.SERVER), _of_role(wanted.containers, Role.SERVER)
    had_agents, wants_agents = _of_role(real.containers, Role.AGENT), _of_role(wanted.containers, Role.AGENT)
    if had and wants_agents and not wants:
        yield from _apart(had[0], wants_agents)
    if had_agents and wants:
        yield from _together(wants[0], had_agents)


def _apart(server: Container, agents: list[Container]) -> Iterator[str]:
    heirs = [agent for agent in agents if _source(agent) == _source(server)]
    others = [agent for agent in agents if agent not in heirs]
    if others:
        where = f"which {_names(heirs)} goes on with" if heirs else "which no agent goes on with"
        yield (
            f"From transport `embedded` to `nats`: all conversations so far lie in {_source(server)}, {where}. Those of {_names(others)} stay in "
            f"it but are in no list any more, and {_names(others)} {_begin(others)} without conversations. Nothing is deleted: back on "
            "`embedded` they are seen again."
        )


def _together(server: Container, agents: list[Container]) -> Iterator[str]:
    hidden = [agent for agent in agents if _source(agent) != _source(server)]
    if hidden:
        places = ", ".join(sorted(_source(agent) for agent in hidden))
        yield (
            f"From transport `nats` to `embedded`: all agents share the file in {_source(server)}. What was said to {_names(hidden)} on NATS lies "
            f"in {places} and is in no list until the project is on `nats` again. It is kept: whoever removes {places} loses those "
            "conversations."
        )


def _of_role(containers: Iterable[Container], role: Role) -> list[Container]:
    return [container for container in containers if container.role == role]


def _source(container: Container) -> str:
    return container.name if container.data is None else container.data.source


def _names(agents: Iterable[Container]) -> str:
    return ", ".join(sorted(agent.labels.get(LABEL_NAME, agent.name) for agent in agents))


def _begin(agents: list[Container]) -> str:
    return "begins" if len(agents) == 1 else "begin"
