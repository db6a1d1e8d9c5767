"""Does what a plan says, in its order, so that a death at any point loses nothing.

A container is replaced beside the old one: the new one is made as `NAME.next`, the old one drains and stops, the new one starts and
becomes well, and only then the old one is removed and the new one takes its name. When it does not become well the old one is
started again. What an apply that died has left is settled by the next one, before anything else: see `settle`.
"""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Mapping
from dataclasses import replace

from perdure.clock import Clock, SystemClock
from perdure.deploy.carrying import CarryFailed, Content, carry, content_of_volume
from perdure.deploy.engine import Engine, EngineError, Life, Tell
from perdure.deploy.health import until_well
from perdure.deploy.model import (
    LABEL_ROLE,
    USER_ID,
    Action,
    CarryData,
    Container,
    Kind,
    Plan,
    Real,
    Role,
    Subject,
    Values,
    Wanted,
)
from perdure.deploy.naming import NEXT
from perdure.deploy.returning import stand_again

LABEL_CARRIED = "perdure.carried-from"
"""On a volume: the id of the container whose data it was made for."""

Secrets = Mapping[str, str]
"""File name → content, for the volume of role `secrets`."""


async def settle(engine: Engine, real: Real, tell: Tell, clock: Clock | None = None) -> bool:
    """Ends what an apply that died has left; True when there was something (then `real` must be read again).

    A new container that runs takes its name once it is well; any other is removed, and the old one is started again.
    """
    left = [each.name for each in real.containers if each.name.endswith(NEXT)]
    for name in left:
        old, life = name.removesuffix(NEXT), await engine.life(name)
        if life is not None and life.running:
            tell(f"{old}: an apply was interrupted after its successor had started; it is finished")
            await until_well(engine, name, clock or SystemClock())
            await _take_name(engine, name, old)
            continue
        tell(f"{old}: an apply was interrupted; what it had not finished is undone")
        await engine.stop(name)
        await engine.remove_container(name)
        before = await engine.life(old)
        if before is not None:
            await engine.start(old)
            if life is not None and not life.started:
                await _drop_copies(engine, real, name, before.id)
    return bool(left)


async def _drop_copies(engine: Engine, real: Real, name: str, old_id: str) -> None:
    """Of a successor that never started: nobody has written to them, and the one that they are of still has everything."""
    successor = real.container(name)
    for mount in successor.mounts if successor is not None else ():
        volume = real.volume(mount.source)
        if volume is not None and volume.labels.get(LABEL_CARRIED) == old_id:
            await engine.remove_volume(volume.name)


async def apply(
    plan: Plan,
    wanted: Wanted,
    values: Values,
    engine: Engine,
    *,
    secrets: Secrets,
    tell: Tell,
    clock: Clock | None = None,
) -> None:
    """Returns when everything is as wanted and well. Raises EngineError (NotWell, CarryFailed) at the first action that fails;
    what was done before stays, and another plan shows what is left to do."""
    await _Applying(plan, wanted, values, engine, secrets=secrets, tell=tell, clock=clock or SystemClock()).all()


class _Applying:
    def __init__(
        self, plan: Plan, wanted: Wanted, values: Values, engine: Engine, *, secrets: Secrets, tell: Tell, clock: Clock
    ) -> None:
        self._plan, self._wanted, self._values = plan, wanted, values
        self._engine, self._secrets, self._tell, self._clock = engine, secrets, tell, clock
        self._carried = {
            action.carry_data.volume
            for action in plan.actions
            if action.carry_data is not None and not action.carry_data.volume_exists
        }

    async def all(self) -> None:
        for action in self._plan.actions:
            self._tell(f"{action.kind} {action.subject} {action.name}")
            await self._one(action)

    async def _one(self, action: Action) -> None:
        match action.subject:
            case Subject.IMAGE:
                image = next(each for each in self._wanted.images if each.reference == action.name)
                await self._engine.make_image(image, self._tell)
            case Subject.VOLUME:
                volume = self._wanted.volume(action.name)
                if volume is not None and volume.name not in self._carried:  # that one is made when its data is to come
                    await self._engine.create_volume(volume)
            case Subject.NETWORK:
                await self._network(action)
            case Subject.CONTAINER:
                await self._container(action)

    async def _network(self, action: Action) -> None:
        for container in action.detaches:
            await self._engine.disconnect(container, action.name)
        if action.kind in {Kind.REMOVE, Kind.REPLACE}:
            await self._engine.remove_network(action.name)
        if action.kind in {Kind.CREATE, Kind.REPLACE}:
            network = self._wanted.network(action.name)
            assert network is not None, "a plan makes only what is wanted"
            await self._engine.create_network(network)

    async def _container(self, action: Action) -> None:
        if action.kind is Kind.REMOVE:
            await self._engine.stop(action.name)
            await self._engine.remove_container(action.name)
            return
        container = self._wanted.container(action.name)
        assert container is not None, "a plan makes only what is wanted"
        if action.kind is Kind.CREATE:
            await self._create(container)
        elif action.kind is Kind.UPDATE and not _needs_another(action, container):
            await self._update(action, container)
        else:
            await self._replace(container, action.carry_data)

    # -- containers ---------------------------------------------------------------------------------------------------

    async def _make(self, container: Container, name: str) -> None:
        await self._fill_secrets(container)
        await self._engine.create_container(container, self._values.of.get(container.name, {}), name=name)

    async def _create(self, container: Container) -> None:
        """One that does not become well is taken away again: another plan must show it as missing, not as done."""
        await self._make(container, container.name)
        try:
            await self._engine.start(container.name)
            await self._well(container, container.name)
        except BaseException:
            await asyncio.shield(self._take_away(container.name))
            raise

    async def _update(self, action: Action, container: Container) -> None:
        attributes = {change.attribute for change in action.changes}
        if any(name == "restart" or name.startswith("limits") for name in attributes):
            await self._engine.update_container(container)
        for network in sorted(name.partition(".")[2] for name in attributes if name.startswith("networks.")):
            await self._engine.disconnect(container.name, network)
            for attachment in container.networks:
                if attachment.network == network:
                    await self._engine.connect(container.name, attachment)
        await self._engine.start(container.name)
        await self._well(container, container.name)

    async def _replace(self, container: Container, carrying: CarryData | None) -> None:
        name, successor = container.name, f"{container.name}{NEXT}"
        before = await self._engine.life(name)
        if before is None:
            raise EngineError(f"{name} is gone since the plan was made. Make another plan.")
        carried: Content | None = None
        started = False
        try:
            if carrying is not None:
                await self._make_room(carrying, before.id, image=container.image)
            await self._make(
                container, successor
            )  # before a copy: while it has never started, its volume is nobody's truth
            self._tell(f"  {name}: drains and stops (up to its stop timeout)")
            await self._engine.stop(name)
            if carrying is not None:
                carried = await self._carry(carrying, image=container.image, owner=_owner(container))
            started = True
            await self._engine.start(successor)
            await self._well(container, successor)
        except BaseException:
            self._tell(f"  {name}: its successor failed; the old one is put back")
            await asyncio.shield(self._put_back(container, carrying, carried, started=started, before=before))
            raise
        await _take_name(self._engine, successor, name)

    async def _put_back(
        self, container: Container, carrying: CarryData | None, carried: Content | None, *, started: bool, before: Life
    ) -> None:
        """The old one first: nothing about its successor may keep people from it."""
        successor = f"{container.name}{NEXT}"
        await self._take_away(successor)
        if before.running:
            await self._engine.start(container.name)
        was_well = before.running and not before.restarting and before.health != "unhealthy"
        if was_well and started and carrying is None:  # else it has its data for itself
            values = self._values.of.get(container.name, {})
            await stand_again(self._engine, container, values, self._tell, self._clock)
        if carrying is None or carrying.volume not in self._carried:
            return
        if carried is not None and started and await self._wrote(container, carrying, carried):
            self._tell(f"  the volume {carrying.volume} is kept: the successor had accepted turns of its own there")
            return
        await self._engine.remove_volume(carrying.volume)

    async def _take_away(self, name: str) -> None:
        if await self._engine.life(name) is not None:
            await self._engine.stop(name)
            await self._engine.remove_container(name)

    async def _well(self, container: Container, name: str) -> None:
        self._tell(f"  {container.name}: waits until it is well")
        await until_well(self._engine, name, self._clock)

    # -- data ---------------------------------------------------------------------------------------------------------

    async def _carry(self, carrying: CarryData, *, image: str, owner: tuple[int, int] | None) -> Content:
        self._tell(f"  {carrying.path} of {carrying.container} is copied into the volume {carrying.volume}")
        content = await carry(
            self._engine,
            container=carrying.container,
            path=carrying.path,
            volume=carrying.volume,
            image=image,
            owner=owner,
        )
        self._tell(f"  verified: {len(content.files)} files, {content.turns} turns")
        return content

    async def _make_room(self, carrying: CarryData, mark: str, *, image: str) -> None:
        """A volume that holds nothing; one that is made says whose data it is for."""
        if carrying.volume_exists:
            await self._refuse_data(carrying, image)
            return
        volume = self._wanted.volume(carrying.volume)
        assert volume is not None, "data is carried into what is wanted"
        await self._engine.create_volume(replace(volume, labels={**volume.labels, LABEL_CARRIED: mark}))

    async def _refuse_data(self, carrying: CarryData, image: str) -> None:
        """What is there is never overwritten."""
        found = await content_of_volume(self._engine, carrying.volume, carrying.path, image=image)
        if found.files:
            raise CarryFailed(
                f"{carrying.container} has data of its own at {carrying.path}, and the volume {carrying.volume} holds "
                f"{len(found.files)} files ({found.turns} turns) already. Nothing was changed. If the volume is not needed, "
                f"remove it: docker volume rm {carrying.volume}; then apply again."
            )

    async def _wrote(self, container: Container, carrying: CarryData, carried: Content) -> bool:
        """Whether the successor accepted what the old one does not have; what cannot be read counts as that."""
        try:
            found = await content_of_volume(self._engine, carrying.volume, carrying.path, image=container.image)
        except EngineError:
            return True
        return found.turns != carried.turns

    async def _fill_secrets(self, container: Container) -> None:
        for mount in container.mounts:
            volume = self._wanted.volume(mount.source)
            if volume is None or volume.labels.get(LABEL_ROLE) != Role.SECRETS:
                continue
            await self._engine.create_volume(volume)
            archive = _archive_of(mount.target.rpartition("/")[2], self._secrets)
            await self._engine.put_in(volume.name, mount.target, archive, image=container.image)


async def _take_name(engine: Engine, successor: str, name: str) -> None:
    if await engine.life(name) is not None:
        await engine.stop(name)
        await engine.remove_container(name)
    await engine.rename_container(successor, name)


def _needs_another(action: Action, container: Container) -> bool:
    """Docker cannot take a limit from a living container, only change it."""
    limits = {f"limits.{each}": getattr(container.limits, each) for each in ("memory_bytes", "nano_cpus", "pids")}
    return any(change.attribute in limits and limits[change.attribute] is None for change in action.changes)


def _owner(container: Container) -> tuple[int, int] | None:
    """Numbers alone: a name says nothing outside its image."""
    user, _, group = container.user.partition(":")
    return (int(user), int(group or user)) if user.isdigit() and (group or user).isdigit() else None


def _archive_of(folder: str, secrets: Secrets) -> io.BytesIO:
    """Readable by the one user of our containers."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        top = tarfile.TarInfo(folder)
        top.type, top.mode, top.uid, top.gid = tarfile.DIRTYPE, 0o700, USER_ID, USER_ID
        tar.addfile(top)
        for name, text in secrets.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            content = f"{text}\n".encode()
            entry.size, entry.mode, entry.uid, entry.gid = len(content), 0o400, USER_ID, USER_ID
            tar.addfile(entry, io.BytesIO(content))
    archive.seek(0)
    return archive
