"""The tool storm: a server is killed while parallel calls of every effect class are between their effect and their record.

People send scripts (`scripted.py`) to three agents: the built-in graph (one task per call), a graph of one's own with
`perdure.ToolNode` (all calls of an answer in one task) and `create_agent` with the middleware. A desk decides the cards by what the
outside world says. After each kill it is noted which `once` calls are uncertain, and how long it takes until each is a card.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.crash import world
from tests.crash.desk import Desk
from tests.crash.journal import uncertain_calls, unfinished_turns
from tests.crash.oracle import violations
from tests.crash.people import Person, drop_someone, settle
from tests.crash.records import Expected, History
from tests.crash.scripted import DONE, write_script
from tests.crash.server import Launcher, Server
from tests.crash.storm import age_unclean_starts, ended_within, told
from tests.crash.trial import PROJECT

AGENTS = ("effects", "own", "made")
CLASSES = ("read", "keyed", "checkable", "once")
KILLS_PER_CYCLE = 25
PEOPLE = 4

PLACES = (
    "tool_intent",
    "tool_call",
    "tool_result",
    "task_writes",
    "step_checkpoint",
    "park",
    "decision",
    "repair",
    "claim",
)
"""Where a life is armed to die, beside the random moments."""

SHOWN_LIMIT_SECONDS = 60.0
"""Generous: what is promised are 5; the report says what it was."""


@dataclass(slots=True)
class ToolStormReport:
    seed: int
    kills: int = 0
    in_flight: int = 0
    """Kills that left at least one `once` call started and not recorded."""

    messages: int = 0
    starts: int = 0
    effects: int = 0
    repeats: int = 0
    """Requests that the outside recognised by their key."""

    cards: int = 0
    uncertain: int = 0
    slowest: float = 0.0
    """Seconds from the restarted server's readiness until all uncertain calls of the kill were cards, the longest."""

    measured: int = 0
    violations: list[str] = field(default_factory=list)

    @property
    def replay(self) -> str:
        return f"python -m tests.crash.proof --only tools --kills {max(self.kills, 1)} --seed {self.seed}"


async def tool_storm(folder: Path, launcher: Launcher, kills: int, seed: int, people: int = PEOPLE) -> ToolStormReport:
    """Cycles of a fresh server each until so many kills have hit; stops after the first cycle with violations."""
    report = ToolStormReport(seed)
    cycle = 0
    while report.kills < kills and not report.violations:
        place = folder / f"cycle-{cycle}"
        place.mkdir()
        server = Server(place, launcher, PROJECT)
        await _Cycle(server, Random(f"{seed}/tools/{cycle}"), report).run(
            min(KILLS_PER_CYCLE, kills - report.kills), people
        )
        cycle += 1
    return report


class _Cycle:
    def __init__(self, server: Server, luck: Random, report: ToolStormReport) -> None:
        self._server = server
        self._luck = luck
        self._report = report
        self._history = History(boots=server.boots)
        self._desk: Desk | None = None
        self._over = asyncio.Event()

    async def run(self, kills: int, people: int) -> None:
        report, server = self._report, self._server
        try:
            assert await server.start(), server.said()
            self._desk = Desk(server, self._history, Random(f"{self._luck.random()}/desk"), dawdles=True)
            async with asyncio.timeout(120 + 15 * kills), asyncio.TaskGroup() as group:
                for _ in range(people):
                    group.create_task(self._live(Random(self._luck.random())))
                await self._rage(kills)
                self._over.set()
                self._desk.dawdles = False
                alive = asyncio.create_task(self._keep_alive())
            await settle(server, self._history)
            alive.cancel()
            await self._desk.close()
            await self._end()
            found = await asyncio.to_thread(violations, self._history, server.database, server.effects)
        except (AssertionError, TimeoutError, ExceptionGroup) as problem:
            stand = f"turns not at rest: {unfinished_turns(server.database)}"
            found = [f"!: the cycle did not come to its end: {told(problem)}; {stand}", server.said()]
        finally:
            for watcher in self._history.watchers:
                await watcher.stop()
            await server.close()
        report.violations += found
        self._count()

    async def _live(self, luck: Random) -> None:
        while not self._over.is_set():
            person = Person(self._server, self._history, insists=True)
            agent = luck.choice(AGENTS)
            for _ in range(luck.choice((1, 1, 2))):
                steps = script(luck)
                expected = Expected(DONE, assistant_messages=len(steps) + 1)
                sent = await person.send(write_script(steps), expected, agent=agent)
                if luck.random() < 0.15:
                    await asyncio.sleep(luck.uniform(0, 0.6))
                    await person.cancel(sent)
                await person.ended(sent)
            await person.leave()

    async def _rage(self, kills: int) -> None:
        """Kills at random moments while tools are at work; after some, waits until what is uncertain is shown."""
        done = 0
        while done < kills:
            luck, server = self._luck, self._server
            self._sit()
            if luck.random() < 0.2:
                drop_someone(self._history, luck)
            await ended_within(server, luck.uniform(0.05, 0.9))
            await server.kill()
            done += 1
            self._report.kills += 1
            due = uncertain_calls(server.database)
            self._report.in_flight += bool(due)
            if done % 4 == 3:
                age_unclean_starts(server.database)
            armed = self._armed()
            await server.launch(armed)
            if due and not armed and luck.random() < 0.6:
                await self._await_cards(due)
            elif luck.random() < 0.7:
                await server.ready()

    def _sit(self) -> Desk:
        """The desk, still at work."""
        assert self._desk is not None
        self._desk.check()
        return self._desk

    async def _await_cards(self, due: set[str]) -> None:
        desk = self._sit()
        since = self._server.boots[-1].started_at
        if not await self._server.ready():
            return
        try:
            seconds = await desk.shown(due, since, time.time(), SHOWN_LIMIT_SECONDS)
        except TimeoutError:
            self._report.violations.append(f"V: not all of {sorted(due)} became cards within {SHOWN_LIMIT_SECONDS:g} s")
            return
        if seconds is not None:
            self._report.measured += 1
            self._report.slowest = max(self._report.slowest, seconds)

    def _armed(self) -> str:
        if self._luck.random() < 0.35:
            side = self._luck.choice(("before", "after"))
            return f"{self._luck.choice(PLACES)}.{side}:kill@{self._luck.randint(1, 9)}"
        return ""

    async def _keep_alive(self) -> None:
        """The storm is over, but the last life may carry its death with it."""
        while True:
            await self._server.ended(limit_seconds=3600)
            self._report.kills += 1
            await self._server.launch()

    async def _end(self) -> None:
        """A planned stop; when the last life dies of its armed place in it, one more life and a planned stop again."""
        if await self._server.stop() and self._server.boots[-1].how == "killed":
            self._report.kills += 1
            await self._server.start()
            await settle(self._server, self._history)
            await self._server.stop()
        assert self._server.boots[-1].how == "stopped", f"a planned stop ended as {self._server.boots[-1].how}"

    def _count(self) -> None:
        report = self._report
        report.messages += len(self._history.sent)
        phases = [each.phase for each in world.read(self._server.effects)]
        report.starts += phases.count("start")
        report.effects += phases.count("effect")
        report.repeats += phases.count("repeat")
        if self._desk is not None:
            report.cards += len(self._desk.sightings)
            report.uncertain += sum(1 for each in self._desk.sightings.values() if each.kind == "uncertain")


def script(luck: Random) -> list[list[tuple[str, str]]]:
    """Three parallel calls of each class, in one answer or in four; or gated calls beside others; or a mixture."""
    choice = luck.random()
    three = {name: [(name, f"{name}-{number}") for number in range(3)] for name in CLASSES}
    if choice < 0.35:
        return [luck.sample([call for name in CLASSES for call in three[name]], 12)]
    if choice < 0.6:
        return luck.sample([three[name] for name in CLASSES], 4)
    if choice < 0.8:
        return [[("gated", "x"), ("gated", "y"), ("read", "z")]]
    words = (*CLASSES, "gated", "broken", "once")
    return [
        [(luck.choice(words), f"{step}-{number}") for number in range(luck.randint(1, 4))]
        for step in range(luck.randint(1, 3))
    ]
