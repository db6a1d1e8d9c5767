"""`perdure apply` killed in its middle, at every step that changes something at the engine: the next one ends it, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Sequence

import httpx2
import pytest

from perdure.failpoints import DEPLOY_PLACES
from tests.deploy.deployment import WAIT_SECONDS, Deployment

REPLACED = (
    "create_volume@1",  # of secrets
    "put_in@1",
    "create_container@1",  # the successor
    "stop@1",
    "start@1",
    "stop@2",  # of the old one, which is down
    "remove_container@1",
    "rename_container@1",
)
"""Verb and pass of what an apply does that replaces a container, in its order."""

CARRIED = (
    "create_volume@1",  # for the data
    "create_volume@2",
    "put_in@1",
    "create_container@1",
    "create_volume@3",  # the mark
    "stop@1",
    "put_in@2",  # the copy
    "create_volume@4",  # that it is whole
    "start@1",
    "remove_volume@1",  # the mark
    "remove_volume@2",  # that it is whole
    "stop@2",
    "remove_container@1",
    "rename_container@1",
)
"""The same where data is carried into a volume."""


def places(passes: Sequence[str], in_ci: str = "") -> list[object]:
    """Both sides of each; all but one for the proof alone."""
    named = [f"{each}.{side}" for each in passes for side in ("before", "after")]
    return [pytest.param(each, marks=() if each == in_ci else pytest.mark.proof) for each in named]


def armed(place: str, action: str) -> str:
    """`start@1.before` → the failpoint."""
    verb, _, rest = place.partition("@")
    number, _, side = rest.partition(".")
    return f"deploy.{verb}.{side}:{action}@{number}"


async def busy(deployment: Deployment) -> tuple[str, list[str]]:
    """One turn that has ended and one that runs: the running one, and both conversations."""
    hello = await deployment.say("hello")
    await deployment.until(hello["turn"], lambda turn: turn["status"] == "completed")
    job = await deployment.say("do the four-step job")
    await deployment.until(job["turn"], lambda turn: len(turn["calls"]) >= 1)
    return job["turn"], sorted([hello["conversation"], job["conversation"]])


async def ended_well(deployment: Deployment, turn: str, conversations: list[str]) -> None:
    code, told = await deployment.command("apply", "--yes")
    assert code == 0, told
    await deployment.until(turn, lambda found: found["status"] == "completed")
    assert sorted(await deployment.conversations()) == conversations
    steps = await deployment.steps_done(f"perdure-{deployment.name}-server")
    assert Counter(label for label, _ in steps) == dict.fromkeys(("one", "two", "three", "four"), 1), steps
    assert (await deployment.plan()).actions == ()
    assert await deployment.leftovers() == []


@pytest.mark.parametrize("place", places(REPLACED))
async def test_an_apply_that_is_killed_under_a_running_turn_is_ended_by_the_next(
    deployment: Deployment, place: str
) -> None:
    await deployment.keep_image()
    deployment.write(step="2")
    await deployment.apply()
    turn, conversations = await busy(deployment)
    deployment.write(step="0.2")

    code, told = await deployment.command("apply", "--yes", failpoints=armed(place, "kill"))

    assert code == -signal.SIGKILL, told
    await ended_well(deployment, turn, conversations)


@pytest.mark.parametrize("place", places(CARRIED, in_ci="put_in@2.after"))
async def test_an_apply_that_is_killed_while_it_carries_data_is_ended_by_the_next(
    deployment: Deployment, place: str
) -> None:
    await deployment.keep_image()
    deployment.write(step="2")
    await deployment.apply_bare()
    turn, conversations = await busy(deployment)
    deployment.write(step="0.2")

    code, told = await deployment.command("apply", "--yes", failpoints=armed(place, "kill"))

    assert code == -signal.SIGKILL, told
    await ended_well(deployment, turn, conversations)


@pytest.mark.proof
async def test_an_apply_that_is_killed_while_the_old_one_drains_under_a_running_turn(deployment: Deployment) -> None:
    """The engine goes on with what it was asked, so the old one is about to go down when the next apply begins."""
    await deployment.keep_image()
    deployment.write(step="2")
    await deployment.apply()
    turn, conversations = await busy(deployment)
    deployment.write(step="0.2")
    first = await deployment.start_command("apply", "--yes")
    assert first.stdout is not None
    async with asyncio.timeout(WAIT_SECONDS):
        while b"drains and stops" not in await first.stdout.readline():
            pass
        while await ready(deployment):
            pass
    first.kill()
    await first.communicate()
    await ended_well(deployment, turn, conversations)


@pytest.mark.proof
async def test_an_apply_that_is_asked_to_end_puts_the_old_one_back_first(deployment: Deployment) -> None:
    """And is not cut short by being asked again."""
    await deployment.keep_image()
    deployment.write(step="2")
    await deployment.apply()
    turn, conversations = await busy(deployment)
    deployment.write(step="0.2")
    first = await deployment.start_command("apply", "--yes")
    assert first.stdout is not None
    said = b""
    async with asyncio.timeout(WAIT_SECONDS):
        while b"drains and stops" not in said:
            said += await first.stdout.readline()
        first.send_signal(signal.SIGTERM)
        while b"is put back" not in said:
            said += await first.stdout.readline()
        first.send_signal(signal.SIGTERM)
        rest, _ = await first.communicate()
    assert first.returncode == 128 + signal.SIGTERM, (said + rest).decode()
    assert b"another `perdure apply` goes on from there" in rest
    async with asyncio.timeout(WAIT_SECONDS):
        while not await ready(deployment):
            await asyncio.sleep(0.2)
    await ended_well(deployment, turn, conversations)


async def ready(deployment: Deployment) -> bool:
    try:
        return (await deployment.request("GET", "/api/readyz")).status_code == 200
    except httpx2.TransportError:
        return False


@pytest.mark.proof
async def test_two_that_change_one_deployment_do_not_mix(deployment: Deployment) -> None:
    """One stands still in its middle, its old container down: nobody else settles or destroys under it."""
    await deployment.keep_image()
    deployment.write(step="0.2")
    await deployment.apply()
    deployment.write(step="0.3")
    first = await deployment.start_command("apply", "--yes", failpoints=armed("start@1.before", "pause"))
    try:
        await stands_still(first.pid)
        for words in (("apply", "--yes"), ("destroy", "--yes"), ("restart",)):
            code, told = await deployment.command(*words)
            assert (code, f"process {first.pid}" in told) == (1, True), told
        first.send_signal(signal.SIGCONT)
        said, _ = await first.communicate()
        assert first.returncode == 0, said.decode()
    finally:
        if first.returncode is None:
            first.kill()
            await first.wait()
    assert (await deployment.plan()).actions == ()
    assert await deployment.leftovers() == []


async def stands_still(pid: int) -> None:
    """A stopped process tells its parent."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(WAIT_SECONDS):
        await loop.run_in_executor(None, os.waitid, os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


def test_every_place_of_a_deployment_is_one_at_which_something_is_killed() -> None:
    """What these applies do not pass are verbs of other actions: each is one call, and the next plan shows it undone."""
    passed = {f"deploy.{each.partition('@')[0]}" for each in (*REPLACED, *CARRIED)}
    single = {"make_image", "create_network", "remove_network", "connect", "disconnect", "update_container"}
    after_failures = {"empty_volume", "create_errand"}
    assert passed | {f"deploy.{each}" for each in single | after_failures} == set(DEPLOY_PLACES)
