"""The kill storm: people use a server that is killed at random moments, stopped, armed to die, and cut off from its clients.

A storm is cycles of a fresh server each; the oracle judges after every cycle. One seed decides all choices (the scheduler of
the machine decides the rest, so a replay tries the same storm, not the same instants).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import apsw

from perdure.failpoints import NAMES
from tests.crash.journal import opened, unfinished_turns
from tests.crash.oracle import violations
from tests.crash.people import Person, drop_someone, settle
from tests.crash.records import History
from tests.crash.scenarios import CALM as KNOWN
from tests.crash.scenarios import SCENARIOS
from tests.crash.server import Launcher, Server

CALM = tuple(name for name in KNOWN if name not in {"handed_over", "killed_once"})
"""Scenarios without a death of their own: the storm brings enough."""

OF_ONE_AGENT = ("plain_answer", "four_step_job", "three_at_once", "tool_error", "cancel_then_more")
"""Scenarios that can follow each other in one conversation."""

KILLS_PER_CYCLE = 25
PEOPLE = 5


@dataclass(slots=True)
class StormReport:
    seed: int
    kills: int = 0
    stops: int = 0
    drops: int = 0
    messages: int = 0
    frames: int = 0
    violations: list[str] = field(default_factory=list)

    @property
    def replay(self) -> str:
        return f"python -m tests.crash.proof --only storm --kills {max(self.kills, 1)} --seed {self.seed}"


async def storm(
    folder: Path,
    launcher: Launcher,
    kills: int,
    seed: int,
    *,
    people: int = PEOPLE,
    begin: Callable[[Path, Launcher, Random, StormReport], Cycle] | None = None,
) -> StormReport:
    """Cycles until so many kills have hit; stops after the first cycle with violations. `begin`: a cycle in an empty folder."""
    report = StormReport(seed)
    cycle = 0
    while report.kills < kills and not report.violations:
        luck = Random(f"{seed}/{cycle}")
        place = folder / f"cycle-{cycle}"
        place.mkdir()
        one = begin(place, launcher, luck, report) if begin else Cycle(Server(place, launcher), luck, report)
        await one.run(min(KILLS_PER_CYCLE, kills - report.kills), people)
        cycle += 1
    return report


class Cycle:
    calm: Sequence[str] = CALM
    """What people do."""

    def __init__(self, server: Server, luck: Random, report: StormReport) -> None:
        self._server = server
        self._luck = luck
        self._report = report
        self._history = History(boots=server.boots)
        self._over = asyncio.Event()

    async def run(self, kills: int, people: int) -> None:
        report, calm = self._report, None
        try:
            await self._server.start()
            async with asyncio.timeout(120 + 10 * kills), asyncio.TaskGroup() as group:
                for number in range(people):
                    group.create_task(self._live(Random(f"{self._luck.random()}/{number}")))
                await self._rage(kills)
                self._over.set()
                calm = asyncio.create_task(self._keep_alive())
            await settle(self._server, self._history)
            calm.cancel()
            await self._end()
            found = await self._judge()
        except (AssertionError, TimeoutError, ExceptionGroup) as problem:
            found = [f"!: the cycle did not come to its end: {told(problem)}; {self._standing()}", self._server.said()]
        finally:
            if calm is not None:
                calm.cancel()
            for watcher in self._history.watchers:
                await watcher.stop()
            await self._server.close()
        report.violations += found
        report.messages += len(self._history.sent)
        report.frames += sum(len(seen.frames) for seen in self._history.seen)

    async def _judge(self) -> list[str]:
        return await asyncio.to_thread(violations, self._history, self._server.database, self._server.effects)

    def _standing(self) -> str:
        """Where everybody stood when the time was over."""
        server = self._server
        lives = [f"{boot.pid} {boot.how or 'lives'}" for boot in server.boots[-3:]]
        return f"last lives: {lives}; turns not at rest: {unfinished_turns(server.database)}"

    async def _live(self, luck: Random) -> None:
        """One person after another, a new conversation or a longer one each time, until the storm is over."""
        while not self._over.is_set():
            person = Person(self._server, self._history, insists=True)
            for name in luck.choice([[luck.choice(self.calm)], luck.choices(OF_ONE_AGENT, k=2)]):
                await SCENARIOS[name](person)
            await person.leave()

    async def _rage(self, kills: int) -> None:
        done = 0
        while done < kills:
            luck, server = self._luck, self._server
            if luck.random() < 0.3:
                self._report.drops += drop_someone(self._history, luck)
            await ended_within(server, luck.uniform(0.02, 0.7))
            if server.alive and luck.random() < 0.1:
                await server.stop()
                self._report.stops += 1
            else:
                await server.kill()
                done += 1
                self._report.kills += 1
            if done % 4 == 3:
                age_unclean_starts(server.database)
            await server.launch(self._armed())
            if luck.random() < 0.6:
                await server.ready()

    async def _end(self) -> None:
        """A planned stop; when the last life dies of its armed place in it, one more life and a planned stop again."""
        if await self._server.stop() and self._server.boots[-1].how == "killed":
            self._report.kills += 1
            await self._server.start()
            await settle(self._server, self._history)
            await self._server.stop()
        assert self._server.boots[-1].how == "stopped", f"a planned stop ended as {self._server.boots[-1].how}"

    async def _keep_alive(self) -> None:
        """The storm is over, but the last life may carry its death with it."""
        while True:
            await self._server.ended(limit_seconds=3600)
            self._report.kills += 1
            await self._server.launch()

    def _armed(self) -> str:
        """Now and then the next life carries its own death, at a place that random moments seldom hit."""
        if self._luck.random() < 0.2:
            return f"{self._luck.choice(NAMES)}:kill@{self._luck.randint(1, 4)}"
        return ""


async def ended_within(server: Server, seconds: float) -> None:
    with suppress(TimeoutError):
        await server.ended(seconds)


def age_unclean_starts(database: Path) -> None:
    """A storm has more deaths in five minutes than the server tolerates before it stops re-driving: as if they were older."""
    if not database.exists():
        return
    connection = opened(database, writing=True)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        if connection.pragma("user_version"):
            connection.execute("UPDATE boots SET started_at = started_at - 3600000000 WHERE ended_at IS NULL")
    finally:
        connection.close()


def told(problem: BaseException) -> str:
    if isinstance(problem, BaseExceptionGroup):
        return "; ".join(told(each) for each in problem.exceptions)
    return f"{type(problem).__name__} {problem}"


def summary(reports: Sequence[StormReport]) -> str:
    return ", ".join(f"seed {report.seed}: {report.kills} kills, {report.messages} messages" for report in reports)
