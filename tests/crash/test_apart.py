"""Agent, gateway and NATS in processes of their own: each is killed at every named place, and everything must come right."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from perdure.failpoints import NATS_NAMES, NATS_PLACES
from tests.crash.apart import GATEWAYS, apart_crossed, apart_plans, try_apart
from tests.crash.apartstorm import apart_cycles
from tests.crash.journal import read_journal
from tests.crash.server import ForkServer
from tests.crash.storm import storm
from tests.crash.trial import SOON, Plan
from tests.crash.zombie import take_over
from tests.servers.nats_server import binaries

KILLS = int(os.environ.get("PERDURE_PROOF_KILLS", "50"))
SEED = int(os.environ.get("PERDURE_PROOF_SEED", "1"))

pytestmark = pytest.mark.asyncio(loop_scope="session")


SHORT = frozenset({"claim", "step_checkpoint", "tool_result", "park", "finish", "recover"})
"""Places of the engine that every `make test` tries behind a gateway, too; `make proof` tries all of them."""


def _marked(plan: Plan) -> Any:
    place = plan.failpoint.rpartition(".")[0]
    return pytest.param(plan, marks=() if place in {*NATS_PLACES, *SHORT} else pytest.mark.proof)


@pytest.mark.parametrize("plan", [_marked(plan) for plan in apart_plans()], ids=str)
async def test_an_agent_or_a_gateway_killed_at_this_place_loses_and_repeats_nothing(
    plan: Plan, forks: ForkServer, tmp_path: Path
) -> None:
    verdict = await try_apart(plan, tmp_path, forks)
    assert verdict.violations == [], f"{plan}\n{verdict.server_log}"
    assert verdict.kills == len(plan.arms), f"nothing was killed at {plan.failpoint}\n{verdict.server_log}"


async def test_an_agent_that_wakes_when_its_turn_was_taken_is_refused_what_it_writes_and_claims_anew(
    forks: ForkServer, tmp_path: Path
) -> None:
    """In an agent's file nobody else writes; here somebody does, as another worker would. What it wakes with is the write of
    the turn's end. See also test_zombie."""
    taken: list[int] = []
    plan = Plan("finish.before", "four_step_job", "pause")
    verdict = await try_apart(plan, tmp_path, forks, lambda database: taken.append(take_over(database)), **SOON)
    assert verdict.violations == [], verdict.server_log
    assert taken == [1], f"the agent did not lose its turn\n{verdict.server_log}"
    journal = read_journal(tmp_path / "perdure.db")
    ((old, *later),) = journal.attempts.values()
    assert (old["outcome"], [attempt["outcome"] for attempt in later]) == ("died", ["completed"])
    late = [row["seq"] for row in journal.events if row["attempt"] == old["number"] and row["at"] > old["ended_at"]]
    assert late == [], "the attempt that had lost its turn wrote on"


async def test_an_agent_that_wakes_past_its_lease_ends_its_turn_once(forks: ForkServer, tmp_path: Path) -> None:
    plan = Plan("step_checkpoint.before", "four_step_job", "pause")
    verdict = await try_apart(plan, tmp_path, forks, lambda database: None, **SOON)
    assert verdict.violations == [], verdict.server_log
    assert verdict.pauses == 1, f"the agent was not paused\n{verdict.server_log}"


@pytest.mark.timeout(120 + 15 * KILLS)
async def test_random_blows_at_agent_gateway_and_nats_lose_and_repeat_nothing(
    forks: ForkServer, tmp_path: Path
) -> None:
    await weathered(tmp_path, forks, KILLS, "current")


@pytest.mark.proof
@pytest.mark.timeout(120 + 15 * KILLS)
async def test_random_blows_around_another_version_of_nats(forks: ForkServer, tmp_path: Path) -> None:
    await weathered(tmp_path, forks, KILLS, "other")


async def weathered(folder: Path, forks: ForkServer, kills: int, version: str) -> None:
    binary = binaries()[version]
    if binary is None:
        pytest.skip("NO SECOND VERSION of nats-server here: make .venv/nats-other.stamp")
    report = await storm(folder, forks, kills, SEED, begin=apart_cycles(binary))
    print(f"{report}")
    assert report.violations == []
    assert report.kills >= kills
    assert report.messages > kills / 5, "the storm left nobody time to speak: it proves nothing"


@pytest.mark.proof
@pytest.mark.parametrize("plan", apart_crossed(), ids=str)
async def test_a_kill_at_this_pass_in_this_scenario_apart(plan: Plan, forks: ForkServer, tmp_path: Path) -> None:
    verdict = await try_apart(plan, tmp_path, forks)
    assert verdict.violations == [], f"{plan}\n{verdict.server_log}"


async def test_every_place_of_nats_is_tried() -> None:
    assert {plan.failpoint for plan in apart_plans()} >= set(NATS_NAMES)
    assert {name.rpartition(".")[0] for name in NATS_NAMES} >= GATEWAYS
