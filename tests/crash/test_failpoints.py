"""A real server is killed at every named place, started again, and everything must come right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.failpoints import NAMES
from tests.crash.server import ForkServer
from tests.crash.trial import Plan, crossed, once_each, try_out

SOURCE = Path(__file__).parents[2] / "src" / "perdure"
LITERAL = re.compile(r"""failpoint\(\s*f?["']([a-z_.{}]+)["']""")

pytestmark = pytest.mark.asyncio(loop_scope="session")

passed: set[str] = set()
tried: set[str] = set()


def names_in_the_code() -> Iterator[str]:
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name != "failpoints.py":
            yield from LITERAL.findall(path.read_text())


async def test_the_code_calls_every_name_and_no_other() -> None:
    assert set(names_in_the_code()) == set(NAMES)


@pytest.mark.parametrize("plan", once_each(), ids=str)
async def test_a_kill_at_this_place_loses_and_repeats_nothing(plan: Plan, forks: ForkServer, tmp_path: Path) -> None:
    verdict = await try_out(plan, tmp_path, forks)
    passed.update(verdict.passed)
    tried.add(plan.failpoint)
    assert verdict.violations == [], f"{plan.replay}\n{verdict.server_log}"
    assert verdict.kills == len(plan.arms), f"the server was not killed at {plan.failpoint}\n{verdict.server_log}"


async def test_the_suite_reached_every_name() -> None:
    if tried != set(NAMES):
        pytest.skip("only with the whole suite")
    assert passed == set(NAMES)


@pytest.mark.proof
@pytest.mark.parametrize("plan", crossed(), ids=str)
async def test_a_kill_at_this_pass_in_this_scenario(plan: Plan, forks: ForkServer, tmp_path: Path) -> None:
    verdict = await try_out(plan, tmp_path, forks)
    assert verdict.violations == [], f"{plan.replay}\n{verdict.server_log}"


PAUSED = ("model_call.before", "task_writes.before", "step_checkpoint.before", "finish.before")


@pytest.mark.parametrize("name", PAUSED)
async def test_a_pause_past_the_lease_changes_nothing(name: str, forks: ForkServer, tmp_path: Path) -> None:
    verdict = await try_out(Plan(name, "four_step_job", "pause"), tmp_path, forks, PERDURE_LEASE_SECONDS="1")
    assert verdict.violations == [], verdict.server_log
