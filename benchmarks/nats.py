"""Figures of agent, gateway and NATS in three processes, beside the same agent embedded in the same go."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.meters import Figure
from benchmarks.served import PROJECT
from tests.crash.apart import Apart
from tests.crash.client import Watcher
from tests.crash.fold import View
from tests.crash.records import read_effects
from tests.crash.server import ForkServer, Server

FIRST_TOKENS = 60
AT_ONCE = 100
LAPS = 3
SAY = f"/say {'hello there ' * 50}"
"""Long enough to be heard while it is said."""

JOB = "please do the four-step job"
WHOLE_ANSWER = "All four steps are done: one, two, three, four."


@asynccontextmanager
async def both(folder: Path, **environment: str) -> AsyncIterator[tuple[Server, Apart]]:
    """The same agent on the same code, embedded and apart; started in the same way."""
    forks = await ForkServer().open()
    settings = {"PERDURE_PROJECT": str(PROJECT), "PERDURE_MAX_RUNNING": "200", **environment}
    (folder / "embedded").mkdir(parents=True)
    (folder / "apart").mkdir()
    embedded = Server(folder / "embedded", forks, settings)
    apart = Apart(folder / "apart", forks, settings)
    try:
        for server in (embedded, apart):
            assert await server.start(), server.said()
        yield embedded, apart
    finally:
        await embedded.close()
        await apart.close_all()
        await forks.close()


async def first_token(folder: Path) -> list[Figure]:
    """From the request to the first word of the answer on the client's stream, in turns."""
    async with both(folder) as sides:
        for side in sides:
            for _ in range(5):
                await _first_word(side)
        took: list[list[float]] = [[], []]
        for _ in range(FIRST_TOKENS):
            for side, seconds in zip(sides, took, strict=True):
                seconds.append(await _first_word(side))
    embedded, apart = (statistics.median(each) * 1e3 for each in took)
    ratio = apart / embedded
    return [
        Figure(
            "first token, agent on NATS / embedded",
            f"{apart:.0f} ms",
            f"{embedded:.0f} ms",
            f"{ratio:.2f}",
            "≤ 1.5 ×",
            ratio <= 1.5,
        )
    ]


async def _first_word(server: Server) -> float:
    begun = time.perf_counter()
    reply = await server.api.insist("POST", "/api/chat", {"message": SAY, "agent": "demo"})
    watcher = Watcher(server.api, reply.body["conversation"], follow=False)
    await watcher.until(lambda _: any(frame.event == "token" for frame in watcher.seen.frames))
    seconds = time.perf_counter() - begun
    await watcher.turn_ended(reply.body["turn"])
    await watcher.stop()
    return seconds


async def in_flight(folder: Path) -> list[Figure]:
    """A hundred jobs of four steps on one agent at once, each with a client that follows it to its end."""
    async with both(folder, PERDURE_DEMO_STEP_SECONDS="0.5") as sides:
        took = [0.0, 0.0]
        for side in sides:
            await _job(side)
        for _ in range(LAPS):
            for number, side in enumerate(sides):
                begun = time.perf_counter()
                answers = await asyncio.gather(*(_job(side) for _ in range(AT_ONCE)))
                took[number] += time.perf_counter() - begun
                assert answers == [WHOLE_ANSWER] * AT_ONCE, f"not all were completed: {set(answers)}"
    embedded, apart = (LAPS * AT_ONCE / seconds for seconds in took)
    return [
        Figure(
            f"{AT_ONCE} four-step jobs at once, all completed, on NATS / embedded",
            f"{apart:.1f}/s",
            f"{embedded:.1f}/s",
            f"{apart / embedded:.2f}",
            "all completed",
            True,
        )
    ]


async def _job(server: Server) -> str | None:
    reply = await server.api.insist("POST", "/api/chat", {"message": JOB, "agent": "demo"})
    watcher = Watcher(server.api, reply.body["conversation"], follow=False)
    view = await watcher.turn_ended(reply.body["turn"], limit_seconds=300)
    await watcher.stop()
    return view.answer


async def comes_back(folder: Path) -> list[Figure]:
    """What a client waits for after the agent was killed, from its readiness; and after NATS was, from its start."""
    async with both(folder, PERDURE_DEMO_STEP_SECONDS="0.4") as (_, apart):
        killed = [await _after_kill(apart) for _ in range(LAPS)]
        restarted = [await _after_restart(apart) for _ in range(LAPS)]
    return [
        _seconds("agent killed: first new event after it is ready", killed, 1.0),
        _seconds("NATS restarted: what was missed is on the client's stream", restarted, 3.0),
    ]


def _seconds(name: str, took: list[float], target: float) -> Figure:
    worst = max(took)
    told = f"{statistics.median(took):.2f} s (worst {worst:.2f})"
    return Figure(name, told, target=f"≤ {target:g} s", reached=worst <= target)


async def _after_kill(server: Apart) -> float:
    watcher, turn = await _at_work(server)
    await server.kill()
    heard = _at(watcher, lambda _: any(frame.data.get("attempt") == 2 for frame in watcher.seen.frames if frame.id))
    await server.start()
    ready = time.perf_counter()
    seconds = max(await heard - ready, 0.0)
    await watcher.turn_ended(turn)
    await watcher.stop()
    return seconds


async def _after_restart(server: Apart) -> float:
    """The agent goes on meanwhile: what a step did is waiting when NATS is back."""
    watcher, turn = await _at_work(server)
    server.nats.kill()
    done, seen = len(read_effects(server.effects)), len(watcher.seen.frames)
    async with asyncio.timeout(60):
        while len(read_effects(server.effects)) <= done + 1:
            await asyncio.sleep(0.01)
    heard = _at(watcher, lambda _: any(frame.id for frame in watcher.seen.frames[seen:]))
    await server.nats.start()
    ready = time.perf_counter()
    seconds = max(await heard - ready, 0.0)
    await watcher.turn_ended(turn)
    await watcher.stop()
    return seconds


async def _at_work(server: Apart) -> tuple[Watcher, str]:
    """A watched job in its first step."""
    reply = await server.api.insist("POST", "/api/chat", {"message": JOB, "agent": "demo"})
    watcher, turn = Watcher(server.api, reply.body["conversation"]), str(reply.body["turn"])
    await watcher.until(lambda view: any(trace["phase"] == "call" for trace in view.turn(turn).traces))
    return watcher, turn


def _at(watcher: Watcher, condition: Callable[[View], bool]) -> asyncio.Task[float]:
    """When the condition came true, on the performance clock."""

    async def wait() -> float:
        await watcher.until(condition)
        return time.perf_counter()

    return asyncio.create_task(wait())
