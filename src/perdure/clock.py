"""The only source of now. Time is an argument everywhere else; tests move `perdure.testing.FakeClock`."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Wall time, aware UTC: for display, leases between processes and retention."""
        ...

    def monotonic(self) -> float:
        """Seconds that never step back: for waits inside one process."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Waits without blocking the loop."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
