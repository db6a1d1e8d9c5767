"""One trial: a fresh server, people who use it, deaths on the way, and the oracle's verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perdure.failpoints import PLACES
from tests.crash.client import Refused
from tests.crash.journal import leased_until
from tests.crash.oracle import violations
from tests.crash.people import Person, Supervisor, settle
from tests.crash.records import History
from tests.crash.scenarios import DECIDING, KILLED, MAIN, SCENARIOS
from tests.crash.server import HERE, Launcher, Server

SPECIAL = {
    "park": "parked_graph",
    "decision": "parked_graph",
    "repair": "cancel_then_more",
    "cancel": "cancel_then_more",
    "release": "handed_over",
    "recover": "killed_once",
    "resume": "failed_then_resumed",
    "tool_intent": "four_step_job",
    "tool_call": "three_at_once",
    "tool_result": "three_at_once",
    "task_writes": "three_at_once",
    "model_call": "four_step_job",
    "step_checkpoint": "four_step_job",
}
"""The scenario that reaches each place best; the plain answer where none is named."""

DECISIONS = {
    "approved_services": ("claim", "tool_intent", "tool_call", "tool_result", "task_writes", "park", "decision"),
    "approved_in_one_task": ("tool_intent", "tool_call", "tool_result", "task_writes", "park", "decision"),
    "approved_by_middleware": ("tool_call", "tool_result", "park", "decision"),
    "charges": ("tool_intent", "tool_call", "tool_result", "task_writes", "step_checkpoint"),
    "charges_in_one_task": ("tool_intent", "tool_call", "tool_result", "task_writes", "step_checkpoint"),
    "uncertain_charge": ("claim", "recover", "tool_intent", "park", "decision"),
    "uncertain_in_one_task": ("claim", "park", "decision", "task_writes"),
    "uncertain_then_cancelled": ("park", "cancel", "repair", "finish"),
    "asked_otherwise_after_a_repair": ("repair", "park", "decision"),
    "limited_then_resumed": ("resume", "finish"),
    "expired_approval": ("park", "claim"),
}
"""Scenarios of decisions and uncertain calls, and the places that each is killed at: on both sides of each place by `make proof`,
behind it by every `make test`."""

PROJECT = {"PERDURE_PROJECT": str(HERE / "graphs" / "effects.toml")}
"""The agents of the scenarios of decisions."""


LIMIT_SECONDS = 120.0
SOON = {"PERDURE_LEASE_SECONDS": "3", "PERDURE_SWEEP_SECONDS": "0.5"}
"""A lease that a paused server loses soon, and one that works does not lose because its machine is slow."""

"""Generous: a trial takes two or three seconds, more on a busy machine."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`action` (`pass`: nothing) at the `nth` pass of `failpoint`, in the server's first or (for recovery) second life."""

    failpoint: str
    scenario: str
    action: str = "kill"
    nth: int = 1

    @property
    def arms(self) -> list[str]:
        if self.action == "pass":
            return [""]
        armed = f"{self.failpoint}:{self.action}@{self.nth}"
        return ["", armed] if self.scenario in KILLED else [armed]

    def __str__(self) -> str:
        return f"{self.scenario}-{self.failpoint}-{self.action}@{self.nth}"

    @property
    def replay(self) -> str:
        """The command that repeats this trial alone."""
        return f"python -m tests.crash.proof --only {self}"


@dataclass(slots=True)
class Verdict:
    violations: list[str] = field(default_factory=list)
    kills: int = 0
    pauses: int = 0
    passed: set[str] = field(default_factory=set)
    server_log: str = ""


def parse_plan(text: str) -> Plan:
    """The plan whose `str` this is. Raises ValueError for anything else."""
    scenario, failpoint, rest = text.split("-")
    action, _, nth = rest.partition("@")
    if scenario not in SCENARIOS:
        raise ValueError(f"unknown scenario {scenario!r}; known: {', '.join(SCENARIOS)}")
    return Plan(failpoint, scenario, action, int(nth or 1))


def once_each() -> list[Plan]:
    """Every failpoint once, in the scenario that reaches it."""
    return [
        Plan(f"{place}.{side}", SPECIAL.get(place, "plain_answer")) for place in PLACES for side in ("before", "after")
    ]


def decisive(passes: Sequence[int] = (1,)) -> list[Plan]:
    """Every failpoint of decisions and of calls at work, before and after, at these passes."""
    return [
        Plan(f"{place}.{side}", scenario, nth=nth)
        for scenario, places in DECISIONS.items()
        for place in places
        for side in ("before", "after")
        for nth in passes
    ]


def crossed(passes: Sequence[int] = (1, 2, 3, 5)) -> list[Plan]:
    """Every failpoint × the four main scenarios and its own × several passes."""
    plans = []
    for place in PLACES:
        for scenario in dict.fromkeys((*MAIN, SPECIAL.get(place, "plain_answer"), "killed_once")):
            plans += [Plan(f"{place}.{side}", scenario, nth=nth) for side in ("before", "after") for nth in passes]
    return plans


async def try_out(plan: Plan, folder: Path, launcher: Launcher, **environment: str) -> Verdict:
    """Runs one plan on a fresh server in an empty folder."""
    return await try_on(Server(folder, launcher, {**project_of(plan), **environment}), plan)


def project_of(plan: Plan) -> Mapping[str, str]:
    return PROJECT if plan.scenario in DECIDING else {}


async def try_on(server: Server, plan: Plan, asleep: Callable[[Path], object] = lambda _: None) -> Verdict:
    """Runs one plan on a server that was not started yet, and closes it. `asleep`: is given the database of a server that a
    plan paused, its leases over, before it wakes."""
    history = History(boots=server.boots)
    verdict = Verdict()
    waking = asyncio.create_task(_wake_late(server, history, asleep)) if plan.action == "pause" else None
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            await _use(server, history, plan)
        verdict.violations = await asyncio.to_thread(violations, history, server.database, server.effects)
    except Refused as problem:
        verdict.violations = [f"L: a stream of an accepted turn was refused: {problem}"]
    except (AssertionError, TimeoutError) as problem:
        verdict.violations = [f"!: the scenario did not come to its end: {type(problem).__name__} {problem}"]
    finally:
        if waking is not None:
            waking.cancel()
        for watcher in history.watchers:
            await watcher.stop()
        await server.close()
    verdict.pauses = history.pauses
    verdict.kills, verdict.passed, verdict.server_log = server.kills, server.failpoints_passed(), server.said()
    return verdict


async def _wake_late(server: Server, history: History, asleep: Callable[[Path], object]) -> None:
    """Continues a paused server once the database says that every lease of it has run out."""
    while not server.paused:
        await asyncio.sleep(0.02)
    while leased_until(server.database) > time.time():
        await asyncio.sleep(0.02)
    history.pauses += 1
    asleep(server.database)
    server.unpause()


async def _use(server: Server, history: History, plan: Plan) -> None:
    injected = plan.action == "error"
    person = Person(server, history, insists=injected)
    history.pauses += (
        injected  # an attempt whose end could not be written is found by its lease, with the process alive
    )
    async with Supervisor(server, plan.arms):
        await SCENARIOS[plan.scenario](person)
        await settle(server, history)
    code = await server.stop()
    if code:
        # The armed place lies in the planned stop itself: one more life, then a clean stop.
        await server.start()
        await settle(server, history)
        code = await server.stop()
    assert code == 0, f"a planned stop ended with {code}"
