"""One container, one volume: from nothing to a turn that outlives restarts, a missing volume, a removal."""

from __future__ import annotations

import pytest

from perdure.deploy.docker import DockerEngine
from perdure.deploy.engine import EngineUnreachable
from perdure.deploy.model import Kind, Subject
from perdure.errors import BadRequest
from tests.deploy.deployment import Deployment


async def test_a_deployment_is_made_from_nothing_and_a_second_plan_is_empty(deployment: Deployment) -> None:
    deployment.write(step="3")
    await deployment.apply()

    assert (await deployment.request("GET", "/api/readyz")).json()["status"] == "ready"
    assert (await deployment.plan()).actions == ()

    # A turn goes on in the container that is restarted in one step and killed in the next, and every step happened once.
    accepted = await deployment.say("do the four-step job")
    server = f"perdure-{deployment.name}-server"
    await deployment.until(accepted["turn"], lambda turn: len(turn["calls"]) >= 2)
    await deployment.engine.restart(server)
    await deployment.until(accepted["turn"], lambda turn: len(turn["calls"]) >= 3)
    await deployment.engine._docker.containers.container(server).kill(signal="SIGKILL")
    await deployment.engine.start(server)  # engines start what was killed by hand no more
    ended = await deployment.until(accepted["turn"], lambda turn: turn["status"] == "completed")
    assert len(ended["attempts"]) == 3
    effects = await deployment.effects(server)
    assert len(effects) == len(set(effects)) == 4, effects

    # Removed and made again, it has the same conversations; only the project's name takes them.
    gone = await deployment.destroy()
    assert gone.kept == (f"perdure-{deployment.name}-agent-worker-data",)
    await deployment.apply()
    assert await deployment.conversations() == [accepted["conversation"]]
    with pytest.raises(BadRequest):
        await deployment.destroy(purge="perdure")
    purged = await deployment.destroy(purge=deployment.name)
    assert (purged.purged, purged.kept) == (gone.kept, ())
    assert (await deployment.real()).volumes == ()


@pytest.mark.proof  # CI does the same with a death in the middle, see test_killed.py
async def test_a_missing_volume_is_planned_and_attached_with_what_the_container_had(deployment: Deployment) -> None:
    container = await deployment.apply_bare()
    accepted = await deployment.say("hello")
    await deployment.until(accepted["turn"], lambda turn: turn["status"] == "completed")

    made = await deployment.apply()

    (replaced,) = [each for each in made.actions if each.subject is Subject.CONTAINER]
    assert replaced.kind is Kind.REPLACE
    assert replaced.carry_data is not None
    assert await deployment.conversations() == [accepted["conversation"]]
    real = (await deployment.real()).container(container.name)
    assert real is not None
    assert real.data == container.data
    assert (await deployment.plan()).actions == ()


async def test_an_engine_that_is_away_is_an_error() -> None:
    with pytest.raises(EngineUnreachable):
        async with DockerEngine("unix:///nonexistent/docker.sock"):
            pass
