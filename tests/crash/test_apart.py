"""Agent, gateway and NATS in processes of their own: each is killed at every named place, and everything must come right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.failpoints import NATS_NAMES
from tests.crash.apart import GATEWAYS, apart_plans, try_apart
from tests.crash.apartstorm import apart_cycle
from tests.crash.server import ForkServer
from tests.crash.storm import storm
from tests.crash.trial import Plan

KILLS = int(os.environ.get("PERDURE_PROOF_KILLS", "50"))
SEED = int(os.environ.get("PERDURE_PROOF_SEED", "1"))

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("plan", apart_plans(), ids=str)
async def test_an_agent_or_a_gateway_killed_at_this_place_loses_and_repeats_nothing(
    plan: Plan, forks: ForkServer, tmp_path: Path
) -> None:
    verdict = await try_apart(plan, tmp_path, forks)
    assert verdict.violations == [], f"{plan}\n{verdict.server_log}"
    assert verdict.kills == len(plan.arms), f"nothing was killed at {plan.failpoint}\n{verdict.server_log}"


@pytest.mark.timeout(120 + 15 * KILLS)
async def test_random_blows_at_agent_gateway_and_nats_lose_and_repeat_nothing(
    forks: ForkServer, tmp_path: Path
) -> None:
    report = await storm(tmp_path, forks, KILLS, SEED, begin=apart_cycle)
    print(f"{report}")
    assert report.violations == []
    assert report.kills >= KILLS
    assert report.messages > KILLS / 5, "the storm left nobody time to speak: it proves nothing"


async def test_every_place_of_nats_is_tried() -> None:
    assert {plan.failpoint for plan in apart_plans()} >= set(NATS_NAMES)
    assert {name for name in NATS_NAMES if name.rpartition(".")[0] in GATEWAYS} <= set(NATS_NAMES)
