from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from perdure.clock import SystemClock
from perdure.deploy import applying
from perdure.deploy.carrying import CarryFailed
from perdure.deploy.engine import EngineError, Life, NameTaken
from perdure.deploy.health import NotWell
from perdure.deploy.model import TOKEN_NAME, Container, Kind, Limits, Real, Wanted
from perdure.deploy.planner import plan
from perdure.deploy.project import Description
from perdure.deploy.settling import settle
from tests.unit.deploy.conftest import Describe, realized
from tests.unit.deploy.mortal_engine import Died, Files, MortalEngine

SERVER = "perdure-perdure-server"
VOLUME = "perdure-agent-shop-data"
DATA: Files = {"data/notes.txt": "what was said", "data/more.txt": "and more"}


@pytest.fixture
def description(described: Describe) -> Description:
    return described("[deploy]\n")


def changed(real: Real, **attributes: object) -> Real:
    """Somebody has done this to the server by hand."""
    return replace(
        real,
        containers=tuple(replace(each, **attributes) if each.name == SERVER else each for each in real.containers),  # type: ignore[arg-type]
    )


def without_volume(description: Description) -> MortalEngine:
    """The server keeps its data in itself."""
    real = realized(description)
    server = real.container(SERVER)
    assert server is not None
    engine = MortalEngine(
        replace(
            changed(real, mounts=tuple(each for each in server.mounts if each.target != "/data")),
            volumes=tuple(each for each in real.volumes if each.name != VOLUME),
        )
    )
    engine.held[SERVER].layer = dict(DATA)
    return engine


async def apply(engine: MortalEngine, description: Description) -> None:
    """As the command line does it."""

    def tell(line: str) -> None:
        return None

    await settle(engine, await engine.read(description.wanted), tell, SystemClock())
    made = plan(description.wanted, await engine.read(description.wanted))
    await applying.apply(
        made,
        description.wanted,
        description.values,
        engine,
        secrets={TOKEN_NAME: "secret"},
        tell=tell,
        clock=SystemClock(),
    )


def server_of(engine: MortalEngine) -> Container:
    assert list(engine.held) == [SERVER], "nothing is left beside it"
    assert engine.held[SERVER].running
    return engine.held[SERVER].container


async def test_the_data_of_a_container_without_a_volume_is_carried_into_one(description: Description) -> None:
    engine = without_volume(description)

    await apply(engine, description)

    data = server_of(engine).data
    assert data is not None
    assert data.source == VOLUME
    assert engine.data_of(SERVER) == DATA
    assert plan(description.wanted, await engine.read(description.wanted)).empty


async def test_wherever_an_apply_is_killed_the_next_one_ends_it_and_nothing_is_lost(description: Description) -> None:
    whole = without_volume(description)
    await apply(whole, description)

    for point in range(len(whole.verbs)):
        engine = without_volume(description)
        engine.dies_at = point
        with pytest.raises(Died):
            await apply(engine, description)
        assert DATA in (
            *(engine.data_of(name) for name, held in engine.held.items() if held.started),
            *(files for _, files in engine.volumes.values()),
        ), f"lost at {whole.verbs[point]}"
        engine.dies_at = None

        await apply(engine, description)
        await apply(engine, description)

        assert server_of(engine).data is not None, whole.verbs[point]
        assert engine.data_of(SERVER) == DATA, whole.verbs[point]


@pytest.mark.parametrize("empty_volume", [False, True], ids=["a volume is made", "an empty one is there"])
async def test_wherever_the_apply_after_a_killed_one_is_killed_too_the_third_ends_it(
    description: Description, empty_volume: bool
) -> None:
    def begun() -> MortalEngine:
        engine = without_volume(description)
        if empty_volume:
            (volume,) = [each for each in description.wanted.volumes if each.name == VOLUME]
            engine.volumes[VOLUME] = (volume, {})
        return engine

    whole = begun()
    await apply(whole, description)
    for first in range(len(whole.verbs)):
        second = first % 3  # every third pair: all of them tell nothing more
        while True:
            engine = begun()
            engine.dies_at = first
            with pytest.raises(Died):
                await apply(engine, description)
            engine.dies_at = first + second
            try:
                await apply(engine, description)
            except Died:
                engine.dies_at = None
                await apply(engine, description)
            where = f"killed at {whole.verbs[first]}, then {second} later"
            assert server_of(engine).data is not None, where
            assert engine.data_of(SERVER) == DATA, where
            assert [name for name in engine.volumes if name.endswith((".carrying", ".carried"))] == [], where
            if engine.dies_at is not None:
                break
            second += 3


async def test_a_failure_leaves_a_volume_that_was_there_as_empty_as_it_was(description: Description) -> None:
    engine = without_volume(description)
    (volume,) = [each for each in description.wanted.volumes if each.name == VOLUME]
    engine.volumes[VOLUME] = (volume, {})
    engine.unwell.add(f"{SERVER}.next")
    with pytest.raises(NotWell):
        await apply(engine, description)
    assert engine.volumes[VOLUME][1] == {}
    assert engine.data_of(SERVER) == DATA
    engine.unwell.clear()
    await apply(engine, description)
    assert engine.data_of(SERVER) == DATA


async def test_a_successor_that_runs_and_is_not_well_does_not_keep_the_next_apply(description: Description) -> None:
    engine = MortalEngine(changed(realized(description), user="0"))
    engine.unwell.add(f"{SERVER}.next")
    engine.dies_at = 1 + next(n for n, verb in enumerate(await _verbs(description)) if verb == f"start {SERVER}.next")
    with pytest.raises(Died):
        await apply(engine, description)
    assert engine.held[f"{SERVER}.next"].running
    engine.dies_at = None
    with pytest.raises(NotWell):  # of its own successor
        await apply(engine, description)
    engine.unwell.clear()
    await apply(engine, description)
    assert server_of(engine).user != "0"


async def _verbs(description: Description) -> list[str]:
    engine = MortalEngine(changed(realized(description), user="0"))
    await apply(engine, description)
    return engine.verbs


@pytest.mark.parametrize("carries", [True, False])
async def test_who_comes_second_touches_nothing_of_the_first(description: Description, carries: bool) -> None:
    """Another apply, on another machine, has made its successor since this one's plan."""
    engine = without_volume(description) if carries else MortalEngine(changed(realized(description), user="0"))
    made = plan(description.wanted, await engine.read(description.wanted))
    (server,) = description.wanted.containers
    await engine.create_container(server, {}, name=f"{SERVER}.next")
    before = dict(engine.held)
    with pytest.raises(EngineError, match="is taken"):
        await applying.apply(
            made,
            description.wanted,
            description.values,
            engine,
            secrets={},
            tell=lambda line: None,
            clock=SystemClock(),
        )
    assert engine.held == before
    assert engine.held[SERVER].running


async def test_a_container_of_others_with_the_successors_name_is_said_with_the_way_out(
    description: Description,
) -> None:
    """Waiting would not help: no apply of ours settles what is not of the project."""
    engine = MortalEngine(changed(realized(description), user="0"))
    (server,) = description.wanted.containers
    real = await engine.read(description.wanted)

    async def read(wanted: Wanted) -> Real:
        return real

    engine.read = read  # type: ignore[method-assign]  # an engine is asked for what has the label or a wanted name
    await engine.create_container(replace(server, labels={}), {}, name=f"{SERVER}.next")
    with pytest.raises(NameTaken, match=rf"docker rm -f {SERVER}\.next; then apply again"):
        await apply(engine, description)
    assert engine.held.keys() == {SERVER, f"{SERVER}.next"}
    assert engine.held[SERVER].running


async def test_a_copy_whose_container_is_gone_is_kept_and_said(description: Description) -> None:
    whole = without_volume(description)
    await apply(whole, description)
    engine = without_volume(description)
    engine.dies_at = 1 + next(n for n, verb in enumerate(whole.verbs) if verb.startswith("put data/notes"))
    with pytest.raises(Died):
        await apply(engine, description)
    engine.dies_at, told = None, list[str]()
    for name in list(engine.held):
        del engine.held[name]
    engine.volumes[VOLUME][1]["data/notes.txt"] = "half"
    await settle(engine, await engine.read(description.wanted), told.append, SystemClock())
    assert engine.volumes[VOLUME][1]["data/notes.txt"] == "half"
    assert any("may not be whole" in line for line in told)


async def test_a_successor_that_does_not_become_well_is_taken_away_and_the_old_one_runs_again(
    description: Description,
) -> None:
    engine = without_volume(description)
    engine.unwell.add(f"{SERVER}.next")

    with pytest.raises(NotWell, match=r"last of perdure-perdure-server\.next"):
        await apply(engine, description)

    assert server_of(engine).data is None
    assert engine.data_of(SERVER) == DATA
    assert VOLUME not in engine.volumes

    engine.unwell.clear()
    await apply(engine, description)
    assert engine.data_of(SERVER) == DATA


class Brief(MortalEngine):
    """The successor ends as soon as it was found well."""

    async def life(self, name: str) -> Life | None:
        life = await super().life(name)
        if name == f"{SERVER}.next" and life is not None and life.running:
            self.held[name].running = False
        return life


async def test_the_old_one_is_removed_only_for_a_successor_that_still_runs(description: Description) -> None:
    engine = Brief(changed(realized(description), user="0"))
    with pytest.raises(NotWell, match="was well, and is down now"):
        await apply(engine, description)
    assert server_of(engine).user == "0"


class Draining(MortalEngine):
    """Whoever asks it first to stop the server is interrupted; the engine goes on with what it was asked."""

    asked = leaving = False

    async def stop(self, name: str, seconds: int | None = None) -> None:
        if name == SERVER and not self.asked:
            self.asked = self.leaving = True
            raise asyncio.CancelledError
        await super().stop(name, seconds)
        self.leaving = self.leaving and name != SERVER

    def drained(self) -> None:
        if self.leaving:
            self.held[SERVER].running = False


async def test_an_apply_that_is_interrupted_while_the_old_one_drains_leaves_it_running(
    description: Description,
) -> None:
    engine = Draining(changed(realized(description), user="0"))

    with pytest.raises(asyncio.CancelledError):
        await apply(engine, description)
    engine.drained()

    assert engine.held.keys() == {SERVER}
    assert engine.held[SERVER].running


async def test_a_copy_that_differs_is_not_used(description: Description) -> None:
    engine = without_volume(description)
    engine.corrupts = True

    with pytest.raises(CarryFailed, match="is not what was copied"):
        await apply(engine, description)

    assert server_of(engine).data is None
    assert engine.data_of(SERVER) == DATA
    assert VOLUME not in engine.volumes


async def test_a_volume_that_holds_something_is_never_overwritten(description: Description) -> None:
    engine = without_volume(description)
    (volume,) = [each for each in description.wanted.volumes if each.name == VOLUME]
    engine.volumes[VOLUME] = (volume, {"data/notes.txt": "of somebody else"})

    with pytest.raises(CarryFailed, match="docker volume rm"):
        await apply(engine, description)

    assert server_of(engine).data is None
    assert engine.volumes[VOLUME][1] == {"data/notes.txt": "of somebody else"}
    assert f"stop {SERVER}" not in engine.verbs


async def test_one_that_was_down_is_not_started_when_its_successor_fails(description: Description) -> None:
    engine = MortalEngine(changed(realized(description), running=False, user="0"))
    engine.unwell.add(f"{SERVER}.next")

    with pytest.raises(NotWell):
        await apply(engine, description)

    assert not engine.held[SERVER].running


async def test_one_that_never_was_well_is_not_left_behind(description: Description) -> None:
    engine = MortalEngine(replace(realized(description), containers=()))
    engine.unwell.add(SERVER)

    with pytest.raises(NotWell):
        await apply(engine, description)

    assert engine.held == {}


async def test_a_limit_is_changed_in_place_and_taken_away_by_a_replacement(description: Description) -> None:
    (server,) = description.wanted.containers
    limited = replace(server, limits=Limits(memory_bytes=1_000_000_000))
    engine = MortalEngine(realized(description))

    await apply(engine, replace(description, wanted=replace(description.wanted, containers=(limited,))))
    assert f"update {SERVER}" in engine.verbs
    assert f"create {SERVER}.next" not in engine.verbs
    assert server_of(engine).limits == limited.limits

    await apply(engine, description)
    assert f"create {SERVER}.next" in engine.verbs
    assert server_of(engine).limits == Limits()


async def test_what_is_gone_since_the_plan_is_said(description: Description) -> None:
    engine = MortalEngine(changed(realized(description), user="0"))
    made = plan(description.wanted, await engine.read(description.wanted))
    assert [action.kind for action in made.actions] == [Kind.REPLACE]
    engine.held.clear()

    with pytest.raises(EngineError, match="Make another plan"):
        await applying.apply(
            made,
            description.wanted,
            description.values,
            engine,
            secrets={},
            tell=lambda line: None,
            clock=SystemClock(),
        )
