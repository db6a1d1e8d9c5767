"""Agent, NATS and gateway apart: an agent that is killed finishes its turn, the plan sees what was changed by hand."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from perdure.deploy.model import Kind, Subject
from perdure.deploy.status import standings
from tests.deploy.deployment import Deployment


@pytest.mark.proof
async def test_an_agent_that_is_killed_finishes_its_turn_and_hands_made_changes_are_named(
    deployment: Deployment,
) -> None:
    deployment.write(transport="nats", step="1")
    made = await deployment.apply()
    order = [action.name for action in made.actions if action.subject is Subject.CONTAINER]
    nats, agent, gateway = (f"perdure-{deployment.name}-{word}" for word in ("nats", "agent-worker", "gateway"))
    assert order == [nats, agent, gateway]
    assert (await deployment.plan()).actions == ()

    accepted = await deployment.say("do the four-step job")
    await deployment.until(accepted["turn"], lambda turn: len(turn["calls"]) >= 2)
    await deployment.engine._docker.containers.container(agent).kill(signal="SIGKILL")
    assert await deployment.engine.life(agent) is not None
    await deployment.engine.start(agent)  # engines start what was killed by hand no more
    await deployment.until(accepted["turn"], lambda turn: turn["status"] == "completed")
    effects = await deployment.effects(agent)
    assert len(effects) == len(set(effects)) == 4, effects

    # Nothing secret is where anybody may look.
    described = deployment.describe()
    told = f"{await deployment.real()}{await deployment.plan()}{deployment.said}"
    for value in (deployment.token, described.values.of[agent]["PERDURE_NATS_URL"].partition("@")[0]):
        assert value not in told
    for image in described.wanted.images:
        history = await deployment.engine._get(f"images/{image.reference}/history")
        assert deployment.token not in json.dumps(history)

    # What somebody changes behind the tool's back is named, and undone.
    await deployment.engine._ask(f"containers/{agent}/update", "POST", {"RestartPolicy": {"Name": "no"}})
    await deployment.engine.stop(gateway)
    changed = {action.name: action for action in (await deployment.plan()).actions}
    assert {name: action.kind for name, action in changed.items()} == {agent: Kind.UPDATE, gateway: Kind.UPDATE}
    assert [change.attribute for change in changed[agent].changes] == ["restart"]
    assert [change.attribute for change in changed[gateway].changes] == ["running"]
    await deployment.apply()
    assert (await deployment.plan()).actions == ()
    assert all(each.well for each in await standings(deployment.engine, described.wanted, await deployment.real()))


CRASHING = """
import os
for name in os.listdir("/proc"):
    if name.isdigit() and open(f"/proc/{name}/stat").read().rpartition(")")[2].split()[1] == "1":
        os.kill(int(name), 9)
"""
"""Kills what the container's init has started: the engine starts such a container again by itself."""


async def deed(deployment: Deployment, container: str, what: str) -> None:
    """What is not undone by the engine itself is undone by an apply, which finds it."""
    engine = deployment.engine
    if what == "restart":
        await engine.restart(container)
    elif what == "crash":
        await engine._run(container, ("python3", "-c", CRASHING))
    else:
        await engine._ask(f"containers/{container}/{what}", "POST")
        (action,) = (await deployment.plan()).actions
        assert (action.name, [change.attribute for change in action.changes]) == (container, ["running"])
        (standing,) = [
            each
            for each in await standings(engine, deployment.describe().wanted, await deployment.real())
            if each.container == container
        ]
        assert standing.state == ("paused" if what == "pause" else "down")
        await deployment.apply()


@pytest.mark.proof
async def test_whatever_is_done_to_a_container_by_hand_a_running_turn_ends_with_each_step_once(
    deployment: Deployment,
) -> None:
    deployment.write(transport="nats", step="1")
    await deployment.apply()
    nats, agent, gateway = (f"perdure-{deployment.name}-{word}" for word in ("nats", "agent-worker", "gateway"))
    said = []
    for container in (agent, gateway, nats):
        for what in ("restart", "crash", "kill", "stop", "pause"):
            accepted = await deployment.say("do the four-step job")
            said.append(accepted["conversation"])
            await deployment.until(accepted["turn"], lambda turn: len(turn["calls"]) >= 1)
            await deed(deployment, container, what)
            await deployment.until(accepted["turn"], lambda turn: turn["status"] == "completed")
            steps = await deployment.steps_done(agent)
            done = Counter(steps)
            assert set(done.values()) == {1}, (container, what, done)
            assert len(steps) == 4 * len(said), (container, what, steps)
    assert sorted(await deployment.conversations()) == sorted(said)
    assert (await deployment.plan()).actions == ()
