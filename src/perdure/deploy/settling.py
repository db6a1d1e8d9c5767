"""What an apply that died has left, put right by the next one before anything else.

Two things tell what had happened. A container `NAME.next` is a successor: once it was started its data is its own. A volume
`NAME.carrying`, the mark, is there from when the volume was found empty and before the first byte of a copy until its successor has
started: as long as it is there the one that the copy is of still has everything, so the copy may go. Beside it `NAME.carried` is there
from when the copy was found whole. A successor that was started without it (by hand) has nothing to be believed; has it done something
all the same, a person decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perdure.clock import Clock
from perdure.deploy.calm import undisturbed
from perdure.deploy.carrying import content_of_container, content_of_volume
from perdure.deploy.engine import Engine, EngineError, Tell
from perdure.deploy.health import NotWell, still_runs, until_well
from perdure.deploy.model import (
    DATA_FOLDER,
    LABEL_CARRIED,
    LABEL_IMAGE,
    LABEL_NAME,
    LABEL_PROJECT,
    LABEL_ROLE,
    LABEL_VOLUME,
    Real,
    Role,
    Volume,
)
from perdure.deploy.naming import CARRIED, CARRYING, NEXT, UNDOING
from perdure.deploy.returning import stand_again, start_again, take_away, told_when_down
from perdure.errors import PerdureError


class BothHaveData(PerdureError):
    """The old container and its successor each have what the other has not. Both are down, nothing was removed."""

    code = "BOTH_HAVE_DATA"


@dataclass(frozen=True, slots=True)
class Copy:
    """Of a container's /data, in a volume that held nothing before. `of`: the container's id. `image`: through which it is reached."""

    project: str
    container: str
    of: str
    volume: str
    image: str
    made: bool
    """The volume was made for it."""

    async def mark(self, engine: Engine) -> None:
        await engine.create_volume(Volume(_mark_of(self.container), self._labels))

    async def whole(self, engine: Engine) -> None:
        """Before a successor starts with it."""
        await engine.create_volume(Volume(_whole_of(self.container), self._labels))

    @property
    def _labels(self) -> Mapping[str, str]:
        labels = {LABEL_PROJECT: self.project, LABEL_ROLE: str(Role.CARRYING), LABEL_NAME: self.container}
        return labels | {LABEL_CARRIED: self.of, LABEL_VOLUME: self.volume, LABEL_IMAGE: self.image}

    async def drop(self, engine: Engine) -> None:
        """Of one that nobody has used; then the mark."""
        if self.made:
            await engine.remove_volume(self.volume)
        else:
            await engine.empty_volume(self.volume, DATA_FOLDER, image=self.image)
        await unmark(engine, self.container)


async def unmark(engine: Engine, container: str) -> None:
    """From now on the copy counts as used."""
    await engine.remove_volume(_mark_of(container))
    await engine.remove_volume(_whole_of(container))


def _whole_of(container: str) -> str:
    return f"{container}{CARRIED}"


def _mark_of(container: str) -> str:
    return f"{container}{CARRYING}"


def unsettled(real: Real) -> bool:
    """Whether an apply that died has left something."""
    return bool(_begun(real)) or any(each.labels.get(LABEL_ROLE) == Role.CARRYING for each in real.volumes)


def _begun(real: Real) -> Sequence[str]:
    """Names of the containers beside which there is a successor, or what undoes an upgrade."""
    names = [each.name for each in real.containers]
    return sorted({name.removesuffix(end) for name in names for end in (NEXT, UNDOING) if name.endswith(end)})


def _copies(real: Real) -> Iterator[Copy]:
    """Those that are marked."""
    for mark in real.volumes:
        if mark.labels.get(LABEL_ROLE) != Role.CARRYING or mark.name.endswith(CARRIED):
            continue
        of, name = mark.labels[LABEL_CARRIED], mark.labels[LABEL_VOLUME]
        volume = real.volume(name)
        made = volume is None or volume.labels.get(LABEL_CARRIED) == of
        yield Copy(real.project, mark.labels[LABEL_NAME], of, name, mark.labels[LABEL_IMAGE], made)


async def settle(engine: Engine, real: Real, tell: Tell, clock: Clock) -> bool:
    """True when there was something (then `real` must be read again).

    A successor that runs and is well takes its name; any other is removed, and the old one is started again, an upgrade of its file
    undone where that keeps it from being well. A copy that nobody has used is dropped. Raises BothHaveData.
    """
    used: set[str] = set()
    marked = {copy.container: copy for copy in _copies(real)}
    for name in _begun(real):
        async with told_when_down(engine, name, tell):
            if await _successor(engine, real, name, tell, clock, copy=marked.get(name)):
                used.add(name)
    for copy in marked.values():
        if copy.container not in used:
            async with told_when_down(engine, copy.container, tell):
                await _undo(engine, copy, tell)
    for volume in real.volumes:
        if volume.labels.get(LABEL_ROLE) == Role.CARRYING and volume.name.endswith(CARRIED):
            await engine.remove_volume(volume.name)  # of a death between the removals of both
    return unsettled(real)


async def _successor(engine: Engine, real: Real, old: str, tell: Tell, clock: Clock, *, copy: Copy | None) -> bool:
    """Settles it; whether it had started with a copy that was whole."""
    name = f"{old}{NEXT}"
    life = await engine.life(name)
    started = life is not None and life.started
    if started and copy is not None and await _is_doubtful(engine, real, copy):
        await _refuse_to_lose(engine, copy, name, tell)
        used = False
    else:
        used = started
    if used:
        await unmark(engine, old)
        if life is not None and life.running and await _finish(engine, name, old, tell, clock):
            return True
    tell(f"{old}: an apply was interrupted; what it had not finished is undone")
    await undisturbed(stand_again(engine, old, tell, clock, look=started and copy is None))
    return used


async def _is_doubtful(engine: Engine, real: Real, copy: Copy) -> bool:
    """Whether a copy need not be whole, and the one that it is of still has everything."""
    if real.volume(_whole_of(copy.container)) is not None:
        return False
    life = await engine.life(copy.container)
    return life is not None and life.id == copy.of


async def _refuse_to_lose(engine: Engine, copy: Copy, successor: str, tell: Tell) -> None:
    """Returns with both down, when the copy can go. Nobody knows whether it was whole when its successor was started."""
    tell(
        f"{successor} was started before it was known that the copy in the volume {copy.volume} is whole; both are looked at"
    )
    for name in (successor, copy.container):
        await engine.stop(name)
    if await _lost_nothing(engine, copy):
        return
    raise BothHaveData(
        f"{successor} has done something in the volume {copy.volume} that {copy.container} does not know of, and nobody knows whether "
        f"the copy there was whole. Both are down, and nothing was removed. To go on with {copy.container} and drop what is in "
        f"{copy.volume}: docker rm {successor}; then `perdure apply`. To go on with what is in {copy.volume} and lose what "
        f"{copy.container} has beyond it: docker volume rm {_mark_of(copy.container)} && docker start {successor}; then `perdure apply`."
    )


async def _lost_nothing(engine: Engine, copy: Copy) -> bool:
    """When the copy goes; what cannot be read counts as something."""
    try:
        found = await content_of_volume(engine, copy.volume, DATA_FOLDER, image=copy.image)
        return found.did_nothing or found.did_the_same(await content_of_container(engine, copy.container, DATA_FOLDER))
    except EngineError:
        return False


async def _finish(engine: Engine, successor: str, name: str, tell: Tell, clock: Clock) -> bool:
    tell(f"{name}: an apply was interrupted after its successor had started; it is finished")
    try:
        await until_well(engine, successor, clock)
        await still_runs(engine, successor)
    except NotWell as error:
        tell(error.message)
        return False
    await undisturbed(take_name(engine, successor, name))
    return True


async def _undo(engine: Engine, copy: Copy, tell: Tell) -> None:
    old = await engine.life(copy.container)
    if old is None or old.id != copy.of:
        tell(
            f"{copy.container}: whose data was being copied into the volume {copy.volume} is gone. What is there is kept, and may not be whole."
        )
        await unmark(engine, copy.container)
        return
    tell(
        f"{copy.container}: an apply was interrupted while its data was copied into the volume {copy.volume}; the copy is dropped"
    )
    await start_again(engine, copy.container)
    await copy.drop(engine)


async def take_name(engine: Engine, successor: str, name: str) -> None:
    """The old one goes, the new one has its name."""
    await take_away(engine, name)
    await engine.rename_container(successor, name)
