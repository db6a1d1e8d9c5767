"""What tests of Perdure, and of agents that run on it, need: a clock that only the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta


class FakeClock:
    """A `perdure.clock.Clock` that stands still until it is advanced. Wall time may be set apart from it (`jump`)."""

    def __init__(self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._monotonic = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """Returns when the clock was advanced by that much."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (self._monotonic + seconds, waiter)
        self._sleepers.append(entry)
        try:
            await waiter
        finally:
            if entry in self._sleepers:
                self._sleepers.remove(entry)

    def advance(self, seconds: float) -> None:
        """Moves both clocks forward and wakes the sleepers that are due, the earliest first."""
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds
        for due, waiter in sorted(self._sleepers, key=lambda entry: entry[0]):
            if due <= self._monotonic and not waiter.done():
                waiter.set_result(None)

    def jump(self, seconds: float) -> None:
        """Steps wall time alone, forward or back, as a corrected system clock does."""
        self._now += timedelta(seconds=seconds)

    @property
    def sleeping(self) -> int:
        """How many sleeps wait for the clock now."""
        return len(self.pending)

    @property
    def pending(self) -> Sequence[float]:
        """Seconds that each of these sleeps has left, the shortest first."""
        return sorted(due - self._monotonic for due, waiter in self._sleepers if not waiter.done())
