from __future__ import annotations

import asyncio

import pytest

from perdure.deploy.calm import undisturbed


async def test_work_is_done_however_often_whoever_waits_is_cancelled() -> None:
    begun, go, done = asyncio.Event(), asyncio.Event(), list[str]()

    async def work() -> None:
        begun.set()
        await go.wait()
        done.append("all")

    waiting = asyncio.create_task(undisturbed(work()))
    await begun.wait()
    for _ in range(3):
        waiting.cancel()
        await asyncio.sleep(0)
        assert not waiting.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert done == ["all"]


async def test_what_the_work_returns_or_raises_comes_out() -> None:
    async def work(number: int) -> int:
        return 6 // number

    assert await undisturbed(work(2)) == 3
    with pytest.raises(ZeroDivisionError):
        await undisturbed(work(0))
