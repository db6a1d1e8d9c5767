"""Agent, gateway and NATS in processes of their own: each is killed at every named place, and everything must come right."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.failpoints import NATS_NAMES
from tests.crash.apart import GATEWAYS, apart_plans, try_apart
from tests.crash.server import ForkServer
from tests.crash.trial import Plan

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("plan", apart_plans(), ids=str)
async def test_an_agent_or_a_gateway_killed_at_this_place_loses_and_repeats_nothing(
    plan: Plan, forks: ForkServer, tmp_path: Path
) -> None:
    verdict = await try_apart(plan, tmp_path, forks)
    assert verdict.violations == [], f"{plan}\n{verdict.server_log}"
    assert verdict.kills == len(plan.arms), f"nothing was killed at {plan.failpoint}\n{verdict.server_log}"


async def test_every_place_of_nats_is_tried() -> None:
    assert {plan.failpoint for plan in apart_plans()} >= set(NATS_NAMES)
    assert {name for name in NATS_NAMES if name.rpartition(".")[0] in GATEWAYS} <= set(NATS_NAMES)
