"""A successor that was started although nobody knows whether the copy of the data was whole."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from typing import IO

import pytest

from perdure.clock import SystemClock
from perdure.deploy import applying, carrying
from perdure.deploy.carrying import Content
from perdure.deploy.model import TOKEN_NAME
from perdure.deploy.planner import plan
from perdure.deploy.project import Description
from perdure.deploy.settling import BothHaveData, settle
from tests.unit.deploy.conftest import Describe, realized
from tests.unit.deploy.mortal_engine import Died, MortalEngine

SERVER = "perdure-perdure-server"
NEXT, MARK, WHOLE = f"{SERVER}.next", f"{SERVER}.carrying", f"{SERVER}.carried"
VOLUME = "perdure-agent-shop-data"
TURNS = "data/turns"


def examine(archive: IO[bytes]) -> Content:
    """The lines of a text are the turns of a database."""
    archive.seek(0)
    with tarfile.open(fileobj=archive) as tar:
        texts = {each.name: found.read().decode() for each in tar if (found := tar.extractfile(each)) is not None}
    ids = texts.get(TURNS, "")
    return Content(texts, {TURNS: {"turns": len(ids.split())}}, {TURNS: ids})


@pytest.fixture
def description(described: Describe, monkeypatch: pytest.MonkeyPatch) -> Description:
    monkeypatch.setattr(carrying, "examine", examine)
    return described("[deploy]\n")


async def apply(engine: MortalEngine, description: Description) -> None:
    real = await engine.read(description.wanted)
    await settle(engine, real, lambda line: None, SystemClock())
    await applying.apply(
        plan(description.wanted, await engine.read(description.wanted)),
        description.wanted,
        description.values,
        engine,
        secrets={TOKEN_NAME: "secret"},
        tell=lambda line: None,
        clock=SystemClock(),
    )


async def killed(description: Description, verb: str) -> MortalEngine:
    """In the carry, right before this verb; then somebody starts what is there."""
    real = realized(description)
    (server,) = real.containers
    bare = replace(server, mounts=tuple(each for each in server.mounts if each.target != "/data"))
    volumes = tuple(each for each in real.volumes if each.name != VOLUME)

    def made() -> MortalEngine:
        engine = MortalEngine(replace(real, containers=(bare,), volumes=volumes))
        engine.held[SERVER].layer = {TURNS: "one two"}
        return engine

    whole, engine = made(), made()
    await apply(whole, description)
    engine.dies_at = whole.verbs.index(verb)
    with pytest.raises(Died):
        await apply(engine, description)
    engine.dies_at = None
    assert {SERVER, NEXT} <= engine.held.keys() and MARK in engine.volumes
    engine.held[SERVER].running = False
    await engine.start(NEXT)
    return engine


@pytest.mark.parametrize(
    "died", [f"begin to put into {VOLUME}", f"volume {WHOLE}"], ids=["nothing copied", "all copied"]
)
async def test_a_copy_in_which_nothing_was_done_goes_and_the_old_one_has_everything(
    description: Description, died: str
) -> None:
    engine = await killed(description, died)
    await settle(engine, await engine.read(description.wanted), lambda line: None, SystemClock())
    assert engine.held.keys() == {SERVER} and engine.held[SERVER].running
    assert engine.held[SERVER].layer == {TURNS: "one two"}
    assert VOLUME not in engine.volumes and MARK not in engine.volumes
    await apply(engine, description)
    assert engine.data_of(SERVER) == {TURNS: "one two"}
    assert engine.held[SERVER].container.data is not None


@pytest.mark.parametrize("accepted", ["three", "three four", "one two three"])
async def test_when_both_have_data_nothing_goes_and_a_person_is_told_what_to_do(
    description: Description, accepted: str
) -> None:
    """Also where it is as much as the old one has."""
    engine = await killed(description, f"begin to put into {VOLUME}")
    engine.volumes[VOLUME][1][TURNS] = accepted
    for _ in range(2):
        with pytest.raises(BothHaveData, match=rf"docker rm {NEXT}; .* docker volume rm {MARK} && docker start {NEXT}"):
            await apply(engine, description)
        assert not engine.held[SERVER].running and not engine.held[NEXT].running
        assert engine.held[SERVER].layer == {TURNS: "one two"}
        assert engine.volumes[VOLUME][1] == {TURNS: accepted}


async def test_what_a_person_is_told_goes_on_with_either(description: Description) -> None:
    engine = await killed(description, f"begin to put into {VOLUME}")
    engine.volumes[VOLUME][1][TURNS] = "three"
    with pytest.raises(BothHaveData):
        await apply(engine, description)
    await engine.remove_container(NEXT)
    await apply(engine, description)
    assert engine.data_of(SERVER) == {TURNS: "one two"}

    engine = await killed(description, f"volume {WHOLE}")
    engine.volumes[VOLUME][1][TURNS] = "one two three"
    with pytest.raises(BothHaveData):
        await apply(engine, description)
    await engine.remove_volume(MARK)
    await engine.start(NEXT)
    await apply(engine, description)
    assert engine.data_of(SERVER) == {TURNS: "one two three"}


@pytest.mark.parametrize("died", [f"start {NEXT}", f"remove volume {MARK}"])
async def test_a_copy_that_is_known_to_be_whole_is_believed_and_what_was_done_there_since_stays(
    description: Description, died: str
) -> None:
    engine = await killed(description, died)
    engine.volumes[VOLUME][1][TURNS] = "one two three"
    await apply(engine, description)
    assert engine.held.keys() == {SERVER} and engine.held[SERVER].running
    assert engine.data_of(SERVER) == {TURNS: "one two three"}
    assert not {MARK, WHOLE} & engine.volumes.keys()
