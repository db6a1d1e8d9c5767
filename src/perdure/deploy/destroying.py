"""Takes a deployment away. Data stays unless the project's name is said; images stay: another apply needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perdure.deploy.engine import Engine, Tell
from perdure.deploy.model import DATA_FOLDER, LABEL_PROJECT, LABEL_ROLE, WITH_DATABASE, Container, Real, Role, Volume
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
    """`purge`: the project's name, to remove its data volumes, too. Raises BadRequest (another name, data that lies in a container
    itself, or a volume to remove that a container of others has; then nothing was done) and EngineError. Only what has the project's label is touched: not volumes that others made."""
    if purge is not None and purge != real.project:
        raise BadRequest(
            f"To remove the data say the project's name: {real.project!r}, not {purge!r}. Nothing was removed."
        )
    losing = [] if purge is not None else [each.name for each in real.containers if _keeps_data_in_itself(each, real)]
    if losing:
        raise BadRequest(
            f"{', '.join(losing)}: what is at {DATA_FOLDER} lies in the container itself and would be lost. Nothing was removed. "
            f"`perdure apply` carries it into a volume, which stays; to lose it, say: perdure destroy --purge-data {real.project}"
        )
    await _refuse_held(engine, real, purge=purge is not None)
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


async def _refuse_held(engine: Engine, real: Real, *, purge: bool) -> None:
    """An engine removes no volume that a container has, also when that is down."""
    ours = {each.name for each in real.containers if _is_ours(each.labels, real)}
    going = [each for each in real.volumes if _is_ours(each.labels, real) and (purge or not _is_data(each))]
    held = {each.name: set(await engine.holders(each.name)) - ours for each in going}
    holders = sorted(set().union(*held.values()))
    if not holders:
        return
    volumes = ", ".join(name for name, others in held.items() if others)
    raise BadRequest(
        f"{', '.join(holders)}: not of the project {real.project!r}, and it uses a volume that would be removed ({volumes}). "
        f"Nothing was removed. Remove it first: docker rm -f {' '.join(holders)}"
    )


async def _volumes(engine: Engine, real: Real, *, purge: bool, tell: Tell) -> tuple[list[str], list[str]]:
    """Removed data volumes, and those that stay. The one of secrets goes always: the next apply fills another."""
    purged, kept = [], []
    for volume in real.volumes:
        if not _is_ours(volume.labels, real):
            continue
        data = _is_data(volume)
        if data and not purge:
            kept.append(volume.name)
            continue
        tell(f"- volume {volume.name}")
        await engine.remove_volume(volume.name)
        if data:
            purged.append(volume.name)
    return purged, kept


def _is_data(volume: Volume) -> bool:
    return volume.labels.get(LABEL_ROLE) not in {Role.SECRETS, Role.CARRYING}


def _is_ours(labels: Mapping[str, str], real: Real) -> bool:
    return labels.get(LABEL_PROJECT) == real.project


def _keeps_data_in_itself(container: Container, real: Real) -> bool:
    return _is_ours(container.labels, real) and container.role in WITH_DATABASE and container.data is None


def _place(container: Container) -> tuple[int, str]:
    return (_ORDER.get(Role(container.role), 0) if container.role in _ORDER else 0, container.name)
