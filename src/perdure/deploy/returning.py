"""The old container again, after its successor failed: whether it is well, and an upgrade of its file undone when that keeps it from it.

A successor that started has upgraded the file at /data, and the old program refuses a newer one. Its own image puts the copy back that it
made before (`perdure restore --undo-upgrade`), which it refuses once something was done in the upgraded file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from perdure.clock import Clock
from perdure.deploy.engine import Engine, EngineError, Tell
from perdure.deploy.health import LOOK_SECONDS, TAIL_LINES, NotWell, until_well
from perdure.deploy.model import Container, Role
from perdure.deploy.settling import take_away

UNDO = ("restore", "--undo-upgrade")
_WITH_JOURNAL = frozenset({Role.SERVER, Role.AGENT})


async def stand_again(
    engine: Engine, successor: Container, values: Mapping[str, str], tell: Tell, clock: Clock
) -> None:
    """The old one of the same name was well before and is started. Tells how it is; raises only for an engine that refuses."""
    name = successor.name
    if await _well(engine, successor, tell, clock):
        return
    if successor.role in _WITH_JOURNAL and successor.data is not None:
        await engine.stop(name)  # nobody else may hold the file
        undone = await _undo_upgrade(engine, successor, values, tell, clock)
        await engine.start(name)
        if undone and await _well(engine, successor, tell, clock):
            return
    tell(
        f"  {name}: it does not run. Its data is whole. Mend what kept the new one from being well, and apply again: turns go on there"
    )


async def _well(engine: Engine, container: Container, tell: Tell, clock: Clock) -> bool:
    try:
        await until_well(engine, container.name, clock, restarts_borne=1)  # nothing it waits for is new to it
    except NotWell as error:
        tell(f"  {error.message}")
        return False
    tell(f"  {container.name}: runs as before, and is well")
    return True


async def _undo_upgrade(
    engine: Engine, successor: Container, values: Mapping[str, str], tell: Tell, clock: Clock
) -> bool:
    """In a container without our labels: no plan knows it, and the next one of its name takes its place."""
    name = f"{successor.name}.undo"
    once = replace(successor, labels={}, command=UNDO, ports=(), health=None, restart="no")
    tell(f"  {successor.name}: the upgrade of its file is undone, if nothing was done in it since")
    await take_away(engine, name)
    try:
        await engine.create_container(once, values, name=name)
        await engine.start(name)
        while (life := await engine.life(name)) is not None and life.running:
            await clock.sleep(LOOK_SECONDS)
        async for line in engine.logs(name, follow=False, tail=TAIL_LINES):
            tell(f"  {line}")
        return life is not None and life.exit_code == 0
    except EngineError as error:
        tell(f"  {error.message}")
        return False
    finally:
        await take_away(engine, name)
