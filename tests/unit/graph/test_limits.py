from __future__ import annotations

import asyncio

import pytest

from perdure.graph.limits import LimitExpired, TimeLimit
from tests.unit.graph.conftest import SteppedClock


async def test_a_body_that_runs_past_its_time_is_ended(clock: SteppedClock) -> None:
    with pytest.raises(LimitExpired):
        async with TimeLimit(clock, 10):
            await asyncio.Event().wait()
    assert clock.passed == 10


async def test_a_touch_starts_the_time_again(clock: SteppedClock) -> None:
    with pytest.raises(LimitExpired):
        async with TimeLimit(clock, 10) as limit:
            await asyncio.sleep(0)
            clock.passed = 8
            limit.touch()
            await asyncio.Event().wait()
    assert clock.passed == 18


async def test_a_body_that_ends_in_time_leaves_nothing_behind(clock: SteppedClock) -> None:
    async with TimeLimit(clock, 10):
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cancel_from_outside_stays_a_cancel(clock: SteppedClock) -> None:
    entered = asyncio.Event()

    async def body() -> None:
        async with TimeLimit(clock, 1e9):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_bodys_own_error_passes(clock: SteppedClock) -> None:
    with pytest.raises(ValueError, match="mine"):
        async with TimeLimit(clock, 10):
            raise ValueError("mine")
