from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from perdure.deploy.engine import Life
from perdure.deploy.health import LOOK_SECONDS, STANDS_SECONDS, NotWell, is_well, still_runs, until_well
from perdure.deploy.model import HealthCheck, Real
from perdure.testing import FakeClock
from tests.unit.deploy.mortal_engine import MortalEngine

CHECK = HealthCheck(("CMD", "true"), interval_seconds=15, timeout_seconds=5, start_period_seconds=60, retries=3)
STARTING = Life("id", running=True, health="starting", check=CHECK)
RUNNING = Life("id", running=True, health="none")
ENDED = Life("id", running=False, health="starting", exit_code=3, check=CHECK)


class Told(MortalEngine):
    """An engine that tells these lives, the last of them for ever, and answers checks so."""

    def __init__(self, *lives: Life | None, answers: Sequence[bool | None] = ()) -> None:
        super().__init__(Real("perdure"))
        self.lives, self.answers, self.asked = list(lives), list(answers), 0

    async def life(self, name: str) -> Life | None:
        return self.lives.pop(0) if len(self.lives) > 1 else self.lives[0]

    async def passes(self, name: str, check: HealthCheck) -> bool | None:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Passing(FakeClock):
    """Whoever waits finds that the time has passed."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


async def test_the_check_is_run_until_it_passes_without_waiting_for_the_engines_own() -> None:
    clock, engine = Passing(), Told(STARTING, answers=[False, False, True])
    begun = clock.monotonic()
    await until_well(engine, "x", clock)
    assert engine.asked == 3
    assert clock.monotonic() - begun < CHECK.interval_seconds


async def test_a_check_that_hangs_is_left_to_the_engine() -> None:
    healthy = replace(STARTING, health="healthy")
    engine = Told(*[STARTING] * 5, healthy, answers=[None])
    await until_well(engine, "x", Passing())
    assert engine.asked == 1


async def test_without_a_check_it_is_well_when_it_has_stood_for_some_seconds() -> None:
    clock = Passing()
    begun = clock.monotonic()
    await until_well(Told(RUNNING), "x", clock)
    assert clock.monotonic() - begun >= STANDS_SECONDS


@pytest.mark.parametrize(
    "later", [replace(RUNNING, running=False), replace(RUNNING, restarts=1), replace(RUNNING, since="later")]
)
async def test_without_a_check_whoever_ends_meanwhile_begins_anew(later: Life) -> None:
    clock = Passing()
    begun = clock.monotonic()
    await until_well(Told(*[RUNNING] * 4, replace(later, restarting=True), RUNNING), "x", clock)
    assert clock.monotonic() - begun > STANDS_SECONDS + LOOK_SECONDS * 4


async def test_one_that_ends_again_and_again_is_never_well() -> None:
    ended = replace(RUNNING, running=False, restarting=True, exit_code=1)
    lives = [replace(life, restarts=number) for number in range(4) for life in (RUNNING, RUNNING, ended)]
    with pytest.raises(NotWell, match="it has ended 3 times"):
        await until_well(Told(*lives), "x", Passing())


async def test_one_that_was_well_and_is_down_is_said() -> None:
    await still_runs(Told(RUNNING), "x")
    with pytest.raises(NotWell, match="was well, and is down now"):
        await still_runs(Told(ENDED), "x")


@pytest.mark.parametrize(
    ("life", "why"),
    [
        (None, "it is gone"),
        (ENDED, r"it has ended \(exit code 3\)"),
        (replace(ENDED, restarting=True, restarts=3), r"it has ended 3 times \(exit code 3\)"),
        (replace(STARTING, health="unhealthy", said="refused"), r"its health check fails \(refused\)"),
        (STARTING, "it is still starting"),
        (replace(STARTING, check=None), "it is still starting"),
        (replace(ENDED, restarting=True), "it is still down"),
        (replace(ENDED, started=False), "it is still down"),
    ],
)
async def test_one_that_will_not_become_well_is_said_with_its_last_lines(life: Life | None, why: str) -> None:
    engine = Told(life, answers=[False])
    with pytest.raises(NotWell, match=why) as caught:
        await until_well(engine, "x", Passing())
    assert ("last of x" in caught.value.message) == (life is not None)


async def test_one_that_was_well_before_is_not_waited_for_once_it_has_ended() -> None:
    restarted = replace(ENDED, restarting=True, restarts=1)
    with pytest.raises(NotWell, match=r"it has ended again \(exit code 3\)"):
        await until_well(Told(restarted), "x", Passing(), restarts_borne=1)


async def test_one_that_the_engine_has_not_checked_yet_is_asked() -> None:
    assert await is_well(Told(STARTING, answers=[True]), "x", STARTING)
    assert not await is_well(Told(STARTING, answers=[False]), "x", STARTING)
    assert not await is_well(Told(ENDED, answers=[True]), "x", ENDED)
    unhealthy = replace(STARTING, health="unhealthy")  # also of one that was paused a moment ago
    assert await is_well(Told(unhealthy, answers=[True]), "x", unhealthy)
    assert not await is_well(Told(unhealthy, answers=[False]), "x", unhealthy)
