"""A real server is killed at every place of a decision and of a call at work; a call that was started is not started again unasked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash.server import ForkServer
from tests.crash.trial import SOON, Plan, decisive, try_out

pytestmark = pytest.mark.asyncio(loop_scope="session")


def _marked(plan: Plan) -> Any:
    return pytest.param(plan, marks=pytest.mark.proof if plan.failpoint.endswith(".before") else ())


@pytest.mark.parametrize("plan", [_marked(plan) for plan in decisive()], ids=str)
async def test_a_kill_here_repeats_no_call_and_loses_no_decision(plan: Plan, forks: ForkServer, tmp_path: Path) -> None:
    verdict = await try_out(plan, tmp_path, forks)
    assert verdict.violations == [], f"{plan.replay}\n{verdict.server_log}"
    assert verdict.kills == len(plan.arms), f"the server was not killed at {plan.failpoint}\n{verdict.server_log}"


@pytest.mark.parametrize(
    "scenario", ["asked_otherwise", "asked_otherwise_after_a_failure", "asked_otherwise_after_a_repair"]
)
async def test_an_answer_that_was_used_is_not_taken_for_the_next_question(
    scenario: str, forks: ForkServer, tmp_path: Path
) -> None:
    """The task asks, is answered, and its process dies (or it fails) before it is done: then it asks something else."""
    verdict = await try_out(Plan("accept.before", scenario, "pass"), tmp_path, forks)
    assert verdict.violations == [], verdict.server_log


@pytest.mark.parametrize("name", ("tool_call.before", "tool_call.after", "tool_result.before", "tool_intent.after"))
async def test_a_call_at_work_whose_lease_runs_out_is_not_started_again_unasked(
    name: str, forks: ForkServer, tmp_path: Path
) -> None:
    verdict = await try_out(Plan(name, "charges", "pause"), tmp_path, forks, **SOON)
    assert verdict.violations == [], verdict.server_log
    assert verdict.pauses == 1, f"the server was not paused at {name}\n{verdict.server_log}"
