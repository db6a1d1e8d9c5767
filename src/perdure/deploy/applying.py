"""Does what a plan says, in its order, so that a death at any point loses nothing.

A container is replaced beside the old one: the new one is made as `NAME.next`, the old one drains and stops, the new one starts and
becomes well, and only then the old one is removed and the new one takes its name. When it does not become well the old one is
started again. What an apply that died has left is settled by the next one, before anything else: see `settling`.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from dataclasses import replace

from perdure.clock import Clock, SystemClock
from perdure.deploy.calm import undisturbed
from perdure.deploy.carrying import CarryFailed, Content, carry, content_of_volume
from perdure.deploy.engine import Engine, EngineError, Life, NameTaken, Tell
from perdure.deploy.health import still_runs, until_well
from perdure.deploy.model import (
    DATA_FOLDER,
    LABEL_CARRIED,
    LABEL_ROLE,
    USER_ID,
    Action,
    CarryData,
    Container,
    Kind,
    Plan,
    Role,
    Subject,
    Values,
    Wanted,
)
from perdure.deploy.naming import NEXT
from perdure.deploy.returning import stand_again, take_away, told_when_down
from perdure.deploy.settling import Copy, take_name, unmark

Secrets = Mapping[str, str]
"""File name → content, for the volume of role `secrets`."""


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
        self._marked: set[str] = set()

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
        try:
            await self._make(container, container.name)
            await self._engine.start(container.name)
            await self._well(container, container.name)
        except NameTaken:
            raise
        except BaseException:
            await undisturbed(take_away(self._engine, container.name))
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
        copy = None if carrying is None else self._copy(carrying, before.id, container.image)
        carried: Content | None = None
        stopping = started = False
        try:
            if copy is not None:
                await self._make_room(copy)
            # Before a copy: a successor that has never started has written nothing. Whoever has made it is alone with both.
            await self._make_successor(container, successor)
            if copy is not None:
                await copy.mark(self._engine)
                self._marked.add(copy.container)
            self._tell(f"  {name}: drains and stops (up to its stop timeout)")
            stopping = True
            await self._engine.stop(name)
            if copy is not None:
                carried = await self._carry(copy, owner=_owner(container))
                await copy.whole(self._engine)
            started = True
            await self._engine.start(successor)
            if copy is not None:
                await unmark(self._engine, name)
            await self._well(container, successor)
            await still_runs(self._engine, successor)
        except NameTaken:
            raise
        except BaseException:
            self._tell(f"  {name}: not replaced; the old one is put back")
            await undisturbed(
                self._put_back(container, copy, carried, stopping=stopping, started=started, before=before)
            )
            raise
        await undisturbed(take_name(self._engine, successor, name))

    async def _make_successor(self, container: Container, successor: str) -> None:
        try:
            await self._make(container, successor)
        except NameTaken as error:
            real = await self._engine.read(self._wanted)
            if real.container(successor) is not None:
                raise
            raise NameTaken(
                f"There is a container {successor} that is not of the project {self._plan.project}, and the new {container.name} needs "
                f"that name for a moment. Nothing was replaced. Remove it: docker rm -f {successor}; then apply again."
            ) from error

    async def _put_back(
        self,
        container: Container,
        copy: Copy | None,
        carried: Content | None,
        *,
        stopping: bool,
        started: bool,
        before: Life,
    ) -> None:
        """The old one first: nothing about its successor may keep people from it. Raises no EngineError: what failed first is raised."""
        name, well = container.name, before.running and not before.restarting and before.health != "unhealthy"
        try:
            async with told_when_down(self._engine, name, self._tell):
                if copy is not None and started:
                    await unmark(self._engine, name)
                if before.running and stopping:
                    look = well and started and copy is None  # with a copy it has its data for itself
                    await stand_again(self._engine, name, self._tell, self._clock, look=look)
                else:
                    await take_away(self._engine, f"{name}{NEXT}")
                if copy is not None:
                    await self._drop(copy, carried, started=started)
        except EngineError as error:
            self._tell(f"  {error.message}")

    async def _drop(self, copy: Copy, carried: Content | None, *, started: bool) -> None:
        if started and (carried is None or await self._wrote(copy, carried)):
            self._tell(f"  the volume {copy.volume} is kept: the successor had accepted turns of its own there")
            return
        if started:
            await copy.mark(self._engine)
        if started or copy.container in self._marked:
            await copy.drop(self._engine)

    async def _well(self, container: Container, name: str) -> None:
        self._tell(f"  {container.name}: waits until it is well")
        await until_well(self._engine, name, self._clock)

    # -- data ---------------------------------------------------------------------------------------------------------

    def _copy(self, carrying: CarryData, of: str, image: str) -> Copy:
        made = not carrying.volume_exists
        return Copy(self._plan.project, carrying.container, of, carrying.volume, image, made)

    async def _carry(self, copy: Copy, *, owner: tuple[int, int] | None) -> Content:
        self._tell(f"  {DATA_FOLDER} of {copy.container} is copied into the volume {copy.volume}")
        content = await carry(
            self._engine,
            container=copy.container,
            path=DATA_FOLDER,
            volume=copy.volume,
            image=copy.image,
            owner=owner,
        )
        self._tell(f"  verified: {len(content.files)} files, {content.turns} turns")
        return content

    async def _make_room(self, copy: Copy) -> None:
        """A volume that holds nothing. One that is made says whose data it is for."""
        if not copy.made:
            await self._refuse_data(copy)
            return
        volume = self._wanted.volume(copy.volume)
        assert volume is not None, "data is carried into what is wanted"
        await self._engine.create_volume(replace(volume, labels={**volume.labels, LABEL_CARRIED: copy.of}))

    async def _refuse_data(self, copy: Copy) -> None:
        """What is there is never overwritten."""
        found = await content_of_volume(self._engine, copy.volume, DATA_FOLDER, image=copy.image)
        if found.files:
            raise CarryFailed(
                f"{copy.container} has data of its own at {DATA_FOLDER}, and the volume {copy.volume} holds "
                f"{len(found.files)} files ({found.turns} turns) already. Nothing was changed. If the volume is not needed, "
                f"remove it: docker volume rm {copy.volume}; then apply again."
            )

    async def _wrote(self, copy: Copy, carried: Content) -> bool:
        """Whether the successor did what the old one does not know of; what cannot be read counts as that."""
        try:
            found = await content_of_volume(self._engine, copy.volume, DATA_FOLDER, image=copy.image)
        except EngineError:
            return True
        return not found.did_the_same(carried)

    async def _fill_secrets(self, container: Container) -> None:
        for mount in container.mounts:
            volume = self._wanted.volume(mount.source)
            if volume is None or volume.labels.get(LABEL_ROLE) != Role.SECRETS:
                continue
            await self._engine.create_volume(volume)
            archive = _archive_of(mount.target.rpartition("/")[2], self._secrets)
            await self._engine.put_in(volume.name, mount.target, archive, image=container.image)


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
