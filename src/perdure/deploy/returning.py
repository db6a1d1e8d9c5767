"""The old container again, after its successor failed, or whoever made that one was killed.

A successor that has started has upgraded the file at /data, and the old program refuses a newer one. Its own image puts the copy back that
it made before (`perdure restore --undo-upgrade`), which it refuses once something was done in the upgraded file. For that the successor,
which is down, stays until the old one runs: it knows its image and its values, and as long as it is there the next apply begins here again.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from perdure.clock import Clock
from perdure.deploy.engine import Engine, EngineError, Tell
from perdure.deploy.health import LOOK_SECONDS, TAIL_LINES, NotWell, until_well, word_of
from perdure.deploy.model import Role
from perdure.deploy.naming import NEXT, UNDOING

UNDO = ("restore", "--undo-upgrade")
UNDO_SECONDS = 1_800.0
"""After which an undoing is given up. It copies the file twice and upgrades one of the copies: half a minute a gigabyte on a slow disk, so
that is enough for sixty. One that hangs keeps people from the old container no longer than that."""

_WITH_JOURNAL = frozenset({Role.SERVER, Role.AGENT})


async def stand_again(engine: Engine, name: str, tell: Tell, clock: Clock, *, look: bool) -> None:
    """Started, and its successor stopped before and removed afterwards.

    `look`: tells whether it is well, and undoes the upgrade when that keeps it from it. Raises EngineError when the engine refuses; it
    was then started all the same, if the engine did that.
    """
    async with _down(engine, name):
        made = await _stop(engine, f"{name}{NEXT}")
        await _await_undoing_of_others(engine, name, tell, clock)
    if look and await engine.life(name) is not None:
        await _look_after(engine, name, tell, clock)
    if made:
        await engine.remove_container(f"{name}{NEXT}")


async def _look_after(engine: Engine, name: str, tell: Tell, clock: Clock) -> None:
    if await _well(engine, name, tell, clock):
        return
    if await _share_journal(engine, name):
        async with _down(engine, name):
            await engine.stop(name)  # nobody else may hold the file
            undone = await _undo_upgrade(engine, name, tell, clock)
        if undone and await _well(engine, name, tell, clock):
            return
    tell(
        f"  {name}: it does not run. Its data is whole. Mend what kept the new one from being well, and apply again: turns go on there"
    )


async def _share_journal(engine: Engine, name: str) -> bool:
    """Whether its successor may have upgraded the file that it has itself."""
    old, successor = await engine.container(name), await engine.container(f"{name}{NEXT}")
    if old is None or successor is None or old.data is None or successor.data is None:
        return False
    same = (old.data.kind, old.data.source) == (successor.data.kind, successor.data.source)
    return same and successor.role in _WITH_JOURNAL


async def _well(engine: Engine, name: str, tell: Tell, clock: Clock) -> bool:
    try:
        await until_well(engine, name, clock, restarts_borne=1)  # nothing it waits for is new to it
    except NotWell as error:
        tell(f"  {error.message}")
        return False
    tell(f"  {name}: runs as before, and is well")
    return True


# -- the undoing ------------------------------------------------------------------------------------------------------


async def _undo_upgrade(engine: Engine, name: str, tell: Tell, clock: Clock) -> bool:
    errand = f"{name}{UNDOING}"
    tell(f"  {name}: the upgrade of its file is undone, if nothing was done in it since")
    try:
        await engine.create_errand(errand, of=f"{name}{NEXT}", command=UNDO)
        await engine.start(errand)
        return await _has_undone(engine, name, tell, clock)
    except EngineError as error:
        tell(f"  {error.message}")
        return False
    finally:
        await take_away(engine, errand)


async def _await_undoing_of_others(engine: Engine, name: str, tell: Tell, clock: Clock) -> None:
    """Whoever began it was killed, and the engine goes on with it: what it does to the file is not cut in the middle."""
    if await engine.life(f"{name}{UNDOING}") is not None:
        await _has_undone(engine, name, tell, clock)
        await take_away(engine, f"{name}{UNDOING}")


async def _has_undone(engine: Engine, name: str, tell: Tell, clock: Clock) -> bool:
    """When it has ended. It may still run when it has not within UNDO_SECONDS."""
    errand, begun = f"{name}{UNDOING}", clock.monotonic()
    while (life := await engine.life(errand)) is not None and life.running:
        if clock.monotonic() >= begun + UNDO_SECONDS:
            tell(f"  {name}: the undoing has not ended within {UNDO_SECONDS / 60:.0f} minutes, and is stopped")
            return False
        await clock.sleep(LOOK_SECONDS)
    async for line in engine.logs(errand, follow=False, tail=TAIL_LINES):
        tell(f"  {line}")
    return life is not None and life.exit_code == 0


# -- down and up ------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _down(engine: Engine, name: str) -> AsyncIterator[None]:
    """While something is done for which it has to be down; whatever becomes of that, it is started."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(EngineError):  # what failed first is raised
            await start_again(engine, name)
        raise
    await start_again(engine, name)


@contextlib.asynccontextmanager
async def told_when_down(engine: Engine, name: str, tell: Tell) -> AsyncIterator[None]:
    """When the engine refuses something in here, a person is told that the container is left down, or not well."""
    try:
        yield
    except EngineError:
        try:
            life = await engine.life(name)
        except EngineError:
            tell(
                f"  {name}: nobody knows whether it runs. Another `perdure apply` goes on from here, once the engine answers"
            )
        else:
            if life is not None and not life.well:
                tell(f"  {name}: it is {word_of(life)} now. Another `perdure apply` goes on from here")
        raise


async def start_again(engine: Engine, name: str) -> None:
    """Of one that somebody was about to stop. It may still run and be on its way down: what an engine was asked it goes on with,
    whoever asked is gone, and until then a start does nothing. So it is with one that its restart policy is about to start."""
    life = await engine.life(name)
    if life is None:
        return
    if life.running or life.restarting:
        await engine.stop(name)
    await engine.start(name)


async def take_away(engine: Engine, name: str) -> None:
    """Whether or not it is there."""
    if await _stop(engine, name):
        await engine.remove_container(name)


async def _stop(engine: Engine, name: str) -> bool:
    """Whether it is there."""
    if await engine.life(name) is None:
        return False
    await engine.stop(name)
    return True
