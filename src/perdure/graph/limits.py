"""A limit on waiting inside one task, by an injected clock: for a tool's whole time, or for a model's silence."""

from __future__ import annotations

import asyncio
from types import TracebackType

from perdure.clock import Clock


class LimitExpired(Exception):
    """The body of a `TimeLimit` was ended because its time was over."""


class TimeLimit:
    """`async with TimeLimit(clock, seconds) as limit: …` ends the body with `LimitExpired` after that many seconds.

    `touch()` starts the time again, so that the limit counts silence only. The body is cancelled at its current await;
    a body in another thread runs on, and whoever started it must not use its late result.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self.seconds = seconds
        self._since = 0.0
        self._expired = False
        self._cancelling = 0

    def touch(self) -> None:
        self._since = self._clock.monotonic()

    async def __aenter__(self) -> TimeLimit:
        owner = asyncio.current_task()
        if owner is None:
            raise RuntimeError("TimeLimit needs a running task")
        self._owner = owner
        self._cancelling = owner.cancelling()
        self.touch()
        self._watch = asyncio.create_task(self._wait())
        return self

    async def _wait(self) -> None:
        while (left := self._since + self.seconds - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)
        self._expired = True
        self._owner.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.cancel()
        # A cancel from outside that came at the same time keeps its force: only our own one becomes LimitExpired.
        ours = self._expired and self._owner.uncancel() <= self._cancelling
        if ours and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise LimitExpired from error
