from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from perdure.deploy import applying
from perdure.deploy.engine import EngineError, EngineUnreachable, Life
from perdure.deploy.health import NotWell
from perdure.deploy.model import TOKEN_NAME, Container, Mount
from perdure.deploy.planner import plan
from perdure.deploy.project import Description
from perdure.deploy.returning import UNDO_SECONDS
from perdure.deploy.settling import settle
from perdure.testing import FakeClock
from tests.unit.deploy.conftest import Describe, realized
from tests.unit.deploy.mortal_engine import Died, MortalEngine

SERVER = "perdure-perdure-server"
NEXT, UNDO = f"{SERVER}.next", f"{SERVER}.undo"
WELL = "runs as before, and is well"
REFUSED = "no space left on device"


class Passing(FakeClock):
    """Whoever waits finds that the time has passed."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


class UpgradingEngine(MortalEngine):
    """The successor upgrades the file at /data and is not well; the old one is well with the old file alone. An undoing takes a while,
    and goes on when whoever began it has died."""

    def __init__(self, description: Description) -> None:
        real = realized(description)
        super().__init__(
            replace(real, containers=tuple(replace(each, image_id="sha256:before") for each in real.containers))
        )
        self.unwell.add(NEXT)
        self.upgrades = True
        self.upgraded = False
        self.used = False
        """Something was done in the upgraded file: it is not given up."""

        self.old_is_broken = False
        self.hangs = False
        self.undid: list[Container] = []
        self.cut = 0
        """How often an undoing was stopped in its middle."""

        self.refuses: Callable[[int], bool] = lambda verb: False
        """Whether the engine refuses its so-manieth verb."""

        self.refused = False
        self._asked = self._looks = 0

    def _verb(self, what: str) -> None:
        self._asked += 1
        if self.refuses(self._asked - 1):
            self.refused = True
            raise EngineError(REFUSED)
        super()._verb(what)

    def _refuse_two(self, name: str) -> None:
        others = {each for each in (SERVER, NEXT, UNDO) if each != name and each in self.held}
        assert not any(self.held[each].running for each in others), "one at a time has the file"

    async def start(self, name: str) -> None:
        if name == SERVER and NEXT in self.held and self.held[NEXT].running and self.refused:
            raise EngineError("port is already allocated")
        await super().start(name)
        self._refuse_two(name)
        if name == NEXT:
            self.upgraded = self.upgrades
        if name == UNDO:
            self._looks = 3
            self.undid.append(self.held[name].container)

    async def stop(self, name: str, seconds: int | None = None) -> None:
        self.cut += name == UNDO and self.held[name].running
        await super().stop(name, seconds)

    async def life(self, name: str) -> Life | None:
        found = await super().life(name)
        if found is None:
            return None
        if name == SERVER and found.running and (self.upgraded or self.old_is_broken):
            return replace(found, health="unhealthy")
        if name == UNDO and found.running and not self.hangs:
            self._looks -= 1
            if not self._looks:
                self.held[name].running, self.upgraded = False, self.upgraded and self.used
        return replace(found, exit_code=78) if name == UNDO and self.used else found


@pytest.fixture
def description(described: Describe) -> Description:
    return described("[deploy]\n")


async def apply(engine: MortalEngine, description: Description, clock: FakeClock | None = None) -> list[str]:
    """What was told until it failed, as it must."""
    said: list[str] = []
    with pytest.raises(NotWell, match=r"\.next did not become well"):
        await begin(engine, description, said, clock)
    assert list(engine.held) == [SERVER], "nothing is left beside it"
    assert engine.held[SERVER].running
    return said


async def begin(
    engine: MortalEngine, description: Description, said: list[str] | None = None, clock: FakeClock | None = None
) -> None:
    said = [] if said is None else said
    made = plan(description.wanted, await engine.read(description.wanted))
    await applying.apply(
        made,
        description.wanted,
        description.values,
        engine,
        secrets={TOKEN_NAME: "secret"},
        tell=said.append,
        clock=clock or Passing(),
    )


async def settled(engine: MortalEngine, description: Description, said: list[str] | None = None) -> list[str]:
    said = [] if said is None else said
    await settle(engine, await engine.read(description.wanted), said.append, Passing())
    return said


def as_before(engine: UpgradingEngine, where: str = "") -> None:
    assert list(engine.held) == [SERVER], f"nothing is left beside it {where}"
    assert engine.held[SERVER].running, where
    assert engine.held[SERVER].container.image_id == "sha256:before", where
    assert not engine.upgraded, where
    assert not engine.cut, f"an undoing was cut in its middle {where}"


async def verbs_of(description: Description) -> list[str]:
    """What an apply does at the engine that comes to nothing."""
    engine = UpgradingEngine(description)
    await apply(engine, description)
    return engine.verbs


async def killed(description: Description, verb: str, more: Mapping[str, object] | None = None) -> UpgradingEngine:
    """Right after this verb, at the first time."""
    engine = UpgradingEngine(description)
    for name, value in (more or {}).items():
        setattr(engine, name, value)
    engine.dies_at = (await verbs_of(description)).index(verb) + 1
    with pytest.raises(Died):
        await begin(engine, description)
    engine.dies_at = None
    return engine


async def test_an_upgrade_is_undone_for_the_old_container_to_run_again(description: Description) -> None:
    engine = UpgradingEngine(description)

    said = await apply(engine, description)

    as_before(engine)
    assert said[-1].endswith(WELL)
    (undo,) = engine.undid
    wanted = description.wanted.container(SERVER)
    assert wanted is not None
    assert (undo.image, undo.data, undo.command) == (wanted.image, wanted.data, ("restore", "--undo-upgrade"))


async def test_what_was_done_since_the_upgrade_is_kept_and_the_way_on_is_told(description: Description) -> None:
    engine = UpgradingEngine(description)
    engine.used = True

    said = await apply(engine, description)

    assert engine.upgraded
    assert f"  last of {UNDO}" in said, "what the program said of it"
    assert "apply again" in said[-1]


async def test_an_old_container_that_is_well_is_left_alone(description: Description) -> None:
    engine = UpgradingEngine(description)
    engine.upgrades = False

    said = await apply(engine, description)

    assert engine.undid == []
    assert said[-1].endswith(WELL)


async def test_an_old_container_that_was_not_well_before_is_just_started_again(description: Description) -> None:
    engine = UpgradingEngine(description)
    engine.old_is_broken = True

    await apply(engine, description)

    assert engine.undid == []


async def test_an_undoing_that_does_not_end_is_stopped_and_counts_as_none(description: Description) -> None:
    engine, clock = UpgradingEngine(description), Passing()
    engine.hangs = True

    said = await apply(engine, description, clock)

    assert clock.monotonic() >= UNDO_SECONDS
    assert engine.cut == 1
    assert f"  {SERVER}: the undoing has not ended within 30 minutes, and is stopped" in said
    assert "it does not run" in said[-1]


# -- of an apply that was killed --------------------------------------------------------------------------------------


async def test_the_next_apply_undoes_the_upgrade_of_a_successor_that_is_not_well(description: Description) -> None:
    engine = await killed(description, f"start {NEXT}")

    said = await settled(engine, description)

    as_before(engine)
    (undo,) = engine.undid
    assert undo.command == ("restore", "--undo-upgrade")
    assert said[-1].endswith(WELL)


async def test_the_next_apply_leaves_an_old_one_alone_that_is_well(description: Description) -> None:
    engine = await killed(description, f"start {NEXT}", {"upgrades": False})

    said = await settled(engine, description)

    as_before(engine)
    assert engine.undid == []
    assert said[-1].endswith(WELL)


async def test_the_next_apply_tells_when_something_was_done_in_the_upgraded_file(description: Description) -> None:
    engine = await killed(description, f"start {NEXT}", {"used": True})

    said = await settled(engine, description)

    assert engine.upgraded
    assert list(engine.held) == [SERVER]
    assert engine.held[SERVER].running
    assert f"  last of {UNDO}" in said, "what the program said of it"
    assert "apply again" in said[-1]


@pytest.mark.parametrize("why", ["it never started", "it has data of its own"])
async def test_the_next_apply_undoes_nothing_of_a_successor_that_upgraded_no_file_of_the_old_one(
    description: Description, why: str
) -> None:
    begun = why != "it never started"
    engine = await killed(description, f"start {NEXT}" if begun else f"stop {SERVER}", {"old_is_broken": True})
    if begun:
        successor = engine.held[NEXT]
        successor.container = replace(successor.container, mounts=(Mount("/data", "another"),))

    await settled(engine, description)

    assert engine.undid == []
    assert list(engine.held) == [SERVER]
    assert engine.held[SERVER].running


async def test_wherever_an_apply_that_comes_to_nothing_is_killed_the_next_one_puts_the_old_container_back(
    description: Description,
) -> None:
    verbs = await verbs_of(description)
    assert {f"create {UNDO}", f"start {UNDO}", f"remove {UNDO}", f"remove {NEXT}"} <= set(verbs)
    for point in range(len(verbs)):
        engine = UpgradingEngine(description)
        engine.dies_at = point
        with pytest.raises(Died):
            await begin(engine, description)
        engine.dies_at = None

        await settled(engine, description)

        as_before(engine, f"killed at {verbs[point]}")


async def test_wherever_the_next_apply_is_killed_too_the_third_puts_the_old_container_back(
    description: Description,
) -> None:
    whole = await killed(description, f"start {NEXT}")
    begun = len(whole.verbs)
    await settled(whole, description)
    for point in range(begun, len(whole.verbs)):
        engine = await killed(description, f"start {NEXT}")
        engine.dies_at = point
        with pytest.raises(Died):
            await settled(engine, description)
        engine.dies_at = None

        await settled(engine, description)

        as_before(engine, f"killed at {whole.verbs[point]}")


async def test_an_undoing_that_is_left_without_its_successor_goes(description: Description) -> None:
    """By somebody who removed that by hand."""
    engine = await killed(description, f"start {UNDO}")
    engine.held.pop(NEXT)

    await settled(engine, description)

    as_before(engine)


async def test_an_undoing_of_others_that_does_not_end_is_stopped_and_begun_again(description: Description) -> None:
    engine = await killed(description, f"start {UNDO}", {"hangs": True})

    said = await settled(engine, description)

    assert engine.cut == 2
    assert sum("and is stopped" in line for line in said) == 2
    assert list(engine.held) == [SERVER]


# -- an engine that refuses -------------------------------------------------------------------------------------------


def down_is_told(engine: UpgradingEngine, said: list[str], where: str) -> None:
    if not engine.held[SERVER].running or engine.upgraded:
        words = ("it is down now", "it is unhealthy now", "it does not run", "nobody knows whether it runs")
        assert any(word in line for word in words for line in said), where


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "from then on"])
async def test_whatever_the_engine_refuses_after_a_failure_the_old_one_runs_or_is_told_to_be_down(
    description: Description, for_good: bool
) -> None:
    verbs = await verbs_of(description)
    for point in range(verbs.index(f"stop {SERVER}"), len(verbs)):
        engine, said, where = UpgradingEngine(description), list[str](), f"refused at {verbs[point]}"
        engine.refuses = refusing(point, for_good=for_good)
        with pytest.raises(EngineError):
            await begin(engine, description, said)

        down_is_told(engine, said, where)
        engine.refuses = refusing(None)
        await settled(engine, description)
        if (
            NEXT not in engine.held and engine.upgraded
        ):  # it was told, and what undoes is gone: the new version is the way on
            assert any("apply again" in line for line in said), where
        else:
            as_before(engine, where)


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "from then on"])
async def test_whatever_the_engine_refuses_to_the_next_apply_the_old_one_runs_or_is_told_to_be_down(
    description: Description, for_good: bool
) -> None:
    whole = await killed(description, f"start {NEXT}")
    begun = len(whole.verbs)
    await settled(whole, description)
    for point in range(begun, len(whole.verbs)):
        engine, said, where = await killed(description, f"start {NEXT}"), list[str](), f"at {whole.verbs[point]}"
        asked = engine._asked
        engine.refuses = refusing(asked + point - begun, for_good=for_good)
        try:
            await settled(engine, description, said)
        except EngineError:
            said.append("raised")

        down_is_told(engine, said, where)


@pytest.mark.parametrize("verb", [f"look {UNDO}", f"create {UNDO}", f"start {UNDO}", f"remove {UNDO}"])
async def test_what_the_engine_refuses_while_the_old_one_is_down_for_it_keeps_nobody_from_starting_it(
    description: Description, verb: str
) -> None:
    """At its last time."""
    verbs = await verbs_of(description)
    point = len(verbs) - 1 - verbs[::-1].index(verb)
    engine = UpgradingEngine(description)
    engine.refuses = refusing(point)

    with pytest.raises(EngineError):
        await begin(engine, description)

    assert engine.held[SERVER].running


def refusing(point: int | None, *, for_good: bool = False) -> Callable[[int], bool]:
    return lambda verb: point is not None and (verb >= point if for_good else verb == point)


async def test_what_failed_first_is_raised_and_what_failed_after_it_is_told(description: Description) -> None:
    engine, said = UpgradingEngine(description), list[str]()

    async def remove(name: str) -> None:
        raise EngineUnreachable("The Docker engine does not answer.")

    engine.remove_container = remove  # type: ignore[method-assign]
    with pytest.raises(NotWell, match=r"\.next did not become well"):
        await begin(engine, description, said)
    assert "  The Docker engine does not answer." in said


async def test_an_engine_that_cannot_run_the_undoing_hides_no_first_error(description: Description) -> None:
    engine = UpgradingEngine(description)

    async def create(name: str, *, of: str, command: object) -> None:
        raise EngineError(REFUSED)

    engine.create_errand = create  # type: ignore[method-assign]
    said = await apply(engine, description)

    assert f"  {REFUSED}" in said
    assert engine.upgraded
