"""Takes a deployment away. Data stays unless the project's name is said; images stay: another apply needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perdure.deploy.engine import Engine, Tell
from perdure.deploy.model import LABEL_PROJECT, LABEL_ROLE, Container, Real, Role
from perdure.errors import BadRequest

_ORDER = {Role.GATEWAY: 0, Role.SERVER: 1, Role.AGENT: 2, Role.NATS: 3, Role.SERVICE: 4}
"""The reverse of how they were started: nobody loses what he still needs to drain."""


@dataclass(frozen=True, slots=True)
class Destroyed:
    """Names. `kept`: data volumes that are still there."""

    containers: tuple[str, ...]
    networks: tuple[str, ...]
    purged: tuple[str, ...]
    kept: tuple[str, ...]

    @property
    def nothing(self) -> bool:
        return not (self.containers or self.networks or self.purged)


async def destroy(engine: Engine, real: Real, *, purge: str | None = None, tell: Tell) -> Destroyed:
    """`purge`: the project's name, to remove its data volumes, too. Raises BadRequest (another name; then nothing was done) and
    EngineError. Only what has the project's label is touched: not volumes that others made."""
    if purge is not None and purge != real.project:
        raise BadRequest(
            f"To remove the data say the project's name: {real.project!r}, not {purge!r}. Nothing was removed."
        )
    containers = sorted((each for each in real.containers if _is_ours(each.labels, real)), key=_place)
    for container in containers:
        tell(f"- container {container.name} (drains first)")
        await engine.stop(container.name)
        await engine.remove_container(container.name)
    networks = [network.name for network in real.networks if _is_ours(network.labels, real)]
    for name in networks:
        tell(f"- network {name}")
        await engine.remove_network(name)
    purged, kept = await _volumes(engine, real, purge=purge is not None, tell=tell)
    return Destroyed(tuple(each.name for each in containers), tuple(networks), tuple(purged), tuple(kept))


async def _volumes(engine: Engine, real: Real, *, purge: bool, tell: Tell) -> tuple[list[str], list[str]]:
    """Removed data volumes, and those that stay. The one of secrets goes always: the next apply fills another."""
    purged, kept = [], []
    for volume in real.volumes:
        if not _is_ours(volume.labels, real):
            continue
        data = volume.labels.get(LABEL_ROLE) != Role.SECRETS
        if data and not purge:
            kept.append(volume.name)
            continue
        tell(f"- volume {volume.name}")
        await engine.remove_volume(volume.name)
        if data:
            purged.append(volume.name)
    return purged, kept


def _is_ours(labels: Mapping[str, str], real: Real) -> bool:
    return labels.get(LABEL_PROJECT) == real.project


def _place(container: Container) -> tuple[int, str]:
    return (_ORDER.get(Role(container.role), 0) if container.role in _ORDER else 0, container.name)
