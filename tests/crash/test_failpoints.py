"""A real server is killed at every named place, started again, and everything must come right."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast
from unittest.mock import ANY

import pytest

from perdure.failpoints import NAMES, NATS_NAMES, PLACES
from tests.crash.oracle import violations
from tests.crash.people import Person, Supervisor, settle
from tests.crash.records import Expected, History
from tests.crash.server import ForkServer, Server
from tests.crash.trial import SOON, Plan, crossed, once_each, try_out

SOURCE = Path(__file__).parents[2] / "src" / "perdure"

pytestmark = pytest.mark.asyncio(loop_scope="session")

passed: set[str] = set()
tried: set[str] = set()


def names_in_the_code() -> Iterator[str]:
    """Arguments of all `failpoint(…)` calls. `failpoint(f"{place}.before")` stands for each place its function names."""
    for path in sorted(SOURCE.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and path.name != "failpoints.py":
                yield from _names_in(function)


def _names_in(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    nodes = list(ast.walk(function))
    words = {node.value for node in nodes if isinstance(node, ast.Constant) and node.value in PLACES}
    for node in nodes:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "failpoint"):
            continue
        name = node.args[0]
        if isinstance(name, ast.Constant):
            yield cast(str, name.value)
        elif isinstance(name, ast.JoinedStr) and isinstance(name.values[-1], ast.Constant):
            yield from (place + cast(str, name.values[-1].value) for place in words)


async def test_the_code_calls_every_name_and_no_other() -> None:
    assert set(names_in_the_code()) == set(NAMES) | set(NATS_NAMES)


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


async def test_a_turn_that_was_given_up_between_its_last_step_and_its_end_is_ended_by_a_resume(
    forks: ForkServer, tmp_path: Path
) -> None:
    server = Server(tmp_path, forks)
    history = History(boots=server.boots)
    person = Person(server, history)
    try:
        async with Supervisor(server, ["finish.before:kill"] * 4):
            given_up = Expected("hello there", assistant_messages=1, codes=frozenset({"ATTEMPTS_EXHAUSTED"}))
            sent = await person.send("/say hello there", given_up)
            assert (await person.failed(sent)).ending == {**_EXHAUSTED, "message": ANY}
            assert await person.resume(sent), "it says that it can be resumed, and cannot"
            assert (await person.failed(sent)).ending == {"event": "end", "status": "completed"}
            await settle(server, history)
        await server.stop()
        assert violations(history, server.database, server.effects) == []
    finally:
        await person.leave()
        await server.close()


_EXHAUSTED = {
    "event": "chat-error",
    "status": "failed",
    "code": "ATTEMPTS_EXHAUSTED",
    "reason": "attempts_exhausted",
}

PAUSED = ("model_call.before", "task_writes.before", "step_checkpoint.before", "finish.before")


@pytest.mark.parametrize("name", PAUSED)
async def test_a_pause_past_the_lease_changes_nothing(name: str, forks: ForkServer, tmp_path: Path) -> None:
    verdict = await try_out(Plan(name, "four_step_job", "pause"), tmp_path, forks, **SOON)
    assert verdict.violations == [], verdict.server_log
    assert verdict.pauses == 1, f"the server was not paused at {name}\n{verdict.server_log}"


FAILING = [replace(plan, action="error") for plan in once_each() if plan.failpoint != "task_writes.after"]
"""Nothing can fail once a task's writes are committed, and LangGraph would not hear of it before the turn is over."""


@pytest.mark.parametrize(
    "plan",
    [pytest.param(plan, marks=pytest.mark.proof if plan.failpoint.endswith(".before") else ()) for plan in FAILING],
    ids=str,
)
async def test_an_error_at_this_place_loses_and_repeats_nothing(plan: Plan, forks: ForkServer, tmp_path: Path) -> None:
    """What fails there may fail the turn, visibly: a person resumes it, and then everything must have come right."""
    verdict = await try_out(plan, tmp_path, forks, **SOON)
    assert verdict.violations == [], f"{plan.replay}\n{verdict.server_log}"
