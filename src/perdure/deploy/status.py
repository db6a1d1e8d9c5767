"""How a deployment is, what it says, and its restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from perdure.clock import Clock, SystemClock
from perdure.deploy.engine import Engine, EngineError, Life, Tell
from perdure.deploy.health import is_well, until_well
from perdure.deploy.model import LABEL_NAME, LABEL_PROJECT, Container, Port, Real, Wanted
from perdure.deploy.naming import NEXT, UNDOING
from perdure.errors import NotFound


@dataclass(frozen=True, slots=True)
class Standing:
    """One container. `state`: `healthy`, `unhealthy`, `starting`, `running` (without a health check), `restarting`, `paused`,
    `down`, `missing` (wanted, and not there). `since`: RFC 3339, empty when it is missing."""

    container: str
    role: str
    name: str
    state: str
    since: str = ""
    restarts: int = 0
    exit_code: int | None = None
    """Of one that is down."""

    addresses: tuple[str, ...] = ()
    data: str | None = None
    """The volume or folder at its /data."""

    wanted: bool = True

    @property
    def well(self) -> bool:
        return self.state in {"healthy", "running"}


async def standings(engine: Engine, wanted: Wanted, real: Real) -> Sequence[Standing]:
    """Wanted ones in the order of their start, then what else has the project's label."""
    names = [each.name for each in wanted.containers]
    others = [
        each.name
        for each in real.containers
        if each.name not in names and each.labels.get(LABEL_PROJECT) == wanted.project
    ]
    return [await _standing(engine, name, wanted, real) for name in (*names, *others)]


async def _standing(engine: Engine, name: str, wanted: Wanted, real: Real) -> Standing:
    intended, found = wanted.container(name), real.container(name)
    known = found or intended
    assert known is not None, "it is one of them"
    life = None if found is None else await engine.life(name)
    word = known.labels.get(LABEL_NAME, name)
    if found is None or life is None:
        return Standing(name, known.role, word, "missing", wanted=intended is not None)
    return Standing(
        container=name,
        role=known.role,
        name=word,
        state=await _state(engine, name, life),
        since=life.since,
        restarts=life.restarts,
        exit_code=None if life.running else life.exit_code,
        addresses=tuple(_address(port) for port in found.ports),
        data=None if found.data is None else found.data.source,
        wanted=intended is not None,
    )


async def _state(engine: Engine, name: str, life: Life) -> str:
    if life.restarting:
        return "restarting"
    if life.paused:
        return "paused"
    if not life.running:
        return "down"
    if life.health == "none":
        return "running"
    return "healthy" if await is_well(engine, name, life) else life.health


def _address(port: Port) -> str:
    address = port.address or "0.0.0.0"  # noqa: S104 -- what the engine does with an empty one
    return f"http://[{address}]:{port.host_port}" if ":" in address else f"http://{address}:{port.host_port}"


def chosen(real: Real, words: Sequence[str], *, successors: bool = False) -> Sequence[Container]:
    """Containers of the project by their full name, the name of an agent or service, or a role; without words all of them.
    `successors`: also those that are about to take another's place, or undo what such a one did. Raises NotFound for a word that names none."""
    ours = [each for each in real.containers if each.labels.get(LABEL_PROJECT) == real.project]
    ours = [each for each in ours if successors or not each.name.endswith((NEXT, UNDOING))]
    found: dict[str, Container] = {}
    for word in words:
        matches = [each for each in ours if word in {each.name, each.role, each.labels.get(LABEL_NAME)}]
        if not matches:
            known = ", ".join(each.name for each in ours) or "none"
            raise NotFound(f"{word!r} is no container of the project {real.project!r}. There are: {known}.")
        found |= {each.name: each for each in matches}
    return list(found.values()) if words else ours


async def logs(
    engine: Engine, containers: Sequence[Container], *, follow: bool, tail: int | None, tell: Tell
) -> AsyncIterator[tuple[str, str]]:
    """(container, line), each container's in its order. Following ends when all of them have ended; of each that is told."""
    if not follow:
        for container in containers:
            async for line in engine.logs(container.name, follow=False, tail=tail):
                yield container.name, line
        return
    lines: asyncio.Queue[_Said] = asyncio.Queue(maxsize=1_000)
    readers = [asyncio.create_task(_follow(engine, each.name, tail, lines, tell)) for each in containers]
    try:
        going = len(readers)
        while going:
            said = await lines.get()
            if isinstance(said, EngineError):
                raise said
            if said is None:
                going -= 1
            else:
                yield said
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


_Said = tuple[str, str] | EngineError | None
"""A line of a container; why one cannot be read; None: one has ended."""


async def _follow(engine: Engine, name: str, tail: int | None, lines: asyncio.Queue[_Said], tell: Tell) -> None:
    try:
        async for line in engine.logs(name, follow=True, tail=tail):
            await lines.put((name, line))
        tell(f"{name} {await _end_of(engine, name)}. To go on with whoever has its name then: perdure logs -f {name}")
    except EngineError as error:
        await lines.put(error)
    else:
        await lines.put(None)


async def _end_of(engine: Engine, name: str) -> str:
    life = await engine.life(name)
    if await engine.life(f"{name}{NEXT}") is not None:
        return "is being replaced"
    if life is None:
        return "is gone"
    return "was started again, or replaced" if life.running else f"has ended (exit code {life.exit_code})"


async def restart(engine: Engine, containers: Sequence[Container], *, tell: Tell, clock: Clock | None = None) -> None:
    """One after the other, each with its drain, each well before the next. Running turns go on in the restarted container.
    Raises NotWell."""
    for container in containers:
        tell(f"~ container {container.name} (drains, then starts again)")
        await engine.restart(container.name)
        await until_well(engine, container.name, clock or SystemClock())
