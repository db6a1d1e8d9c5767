from __future__ import annotations

from dataclasses import replace

import pytest

from perdure.clock import SystemClock
from perdure.deploy import applying
from perdure.deploy.engine import EngineError, Life
from perdure.deploy.health import NotWell
from perdure.deploy.model import TOKEN_NAME, Container
from perdure.deploy.planner import plan
from perdure.deploy.project import Description
from tests.unit.deploy.conftest import Describe, realized
from tests.unit.deploy.mortal_engine import MortalEngine

SERVER = "perdure-perdure-server"
NEXT, UNDO = f"{SERVER}.next", f"{SERVER}.undo"


class UpgradingEngine(MortalEngine):
    """The successor upgrades the file at /data and is not well; the old one is well with the old file alone."""

    def __init__(self, description: Description) -> None:
        real = realized(description)
        super().__init__(
            replace(real, containers=tuple(replace(each, image_id="sha256:before") for each in real.containers))
        )
        self.unwell.add(NEXT)
        self.upgraded = False
        self.used = False
        """Something was done in the upgraded file: it is not given up."""

        self.old_is_broken = False
        self.undid: list[Container] = []

    async def start(self, name: str) -> None:
        await super().start(name)
        if name == NEXT:
            self.upgraded = True
        if name == UNDO:
            assert not self.held[SERVER].running, "one at a time has the file"
            self.held[name].running = False
            self.undid.append(self.held[name].container)
            self.upgraded = self.used

    async def life(self, name: str) -> Life | None:
        found = await super().life(name)
        if found is None:
            return None
        if name == SERVER and found.running and (self.upgraded or self.old_is_broken):
            return replace(found, health="unhealthy")
        return replace(found, exit_code=78) if name == UNDO and self.used else found


@pytest.fixture
def description(described: Describe) -> Description:
    return described("[deploy]\n")


async def apply(engine: MortalEngine, description: Description) -> list[str]:
    """What was told until it failed, as it must."""
    said: list[str] = []
    made = plan(description.wanted, await engine.read(description.wanted))
    with pytest.raises(NotWell, match=r"\.next did not become well"):
        await applying.apply(
            made,
            description.wanted,
            description.values,
            engine,
            secrets={TOKEN_NAME: "secret"},
            tell=said.append,
            clock=SystemClock(),
        )
    assert list(engine.held) == [SERVER], "nothing is left beside it"
    assert engine.held[SERVER].running
    return said


async def test_an_upgrade_is_undone_for_the_old_container_to_run_again(description: Description) -> None:
    engine = UpgradingEngine(description)

    said = await apply(engine, description)

    assert not engine.upgraded
    assert said[-1].endswith("runs as before, and is well")
    (undo,) = engine.undid
    wanted = description.wanted.container(SERVER)
    assert wanted is not None
    assert (undo.image, undo.data, undo.command) == (wanted.image, wanted.data, ("restore", "--undo-upgrade"))
    assert (undo.ports, undo.restart, undo.labels) == ((), "no", {}), "it serves nothing, and no plan knows it"


async def test_what_was_done_since_the_upgrade_is_kept_and_the_way_on_is_told(description: Description) -> None:
    engine = UpgradingEngine(description)
    engine.used = True

    said = await apply(engine, description)

    assert engine.upgraded
    assert f"  last of {UNDO}" in said, "what the program said of it"
    assert "apply again" in said[-1]


async def test_an_old_container_that_is_well_is_left_alone(description: Description) -> None:
    engine = UpgradingEngine(description)

    async def start(name: str) -> None:
        await MortalEngine.start(engine, name)

    engine.start = start  # type: ignore[method-assign]  # a successor that upgrades nothing
    said = await apply(engine, description)

    assert engine.undid == []
    assert said[-1].endswith("runs as before, and is well")


async def test_an_old_container_that_was_not_well_before_is_just_started_again(description: Description) -> None:
    engine = UpgradingEngine(description)
    engine.old_is_broken = True

    await apply(engine, description)

    assert engine.undid == []


async def test_an_engine_that_cannot_run_the_undoing_hides_no_first_error(description: Description) -> None:
    engine = UpgradingEngine(description)

    async def create(container: Container, values: object, *, name: str) -> None:
        if name == UNDO:
            raise EngineError("no space left on device")
        await MortalEngine.create_container(engine, container, {}, name=name)

    engine.create_container = create  # type: ignore[method-assign]
    said = await apply(engine, description)

    assert "  no space left on device" in said
    assert engine.upgraded
