"""Who waits until a turn ends or parks, woken by what the journal says of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from perdure.errors import NotReady
from perdure.turns import ENDED, TurnStatus

MAX_WAITING = 1_000

RESTING = ENDED | {TurnStatus.PARKED}


class Resting:
    """Bound to the event loop. Costs nothing while nobody waits."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._count = 0
        self._closed = False

    @contextmanager
    def waiting(self, turn: str) -> Iterator[asyncio.Event]:
        """Set once the turn has come to rest, or nothing more will be said; look at it before the first wait. Raises NotReady
        when too many wait."""
        if self._closed:
            raise NotReady("This agent is shutting down. Ask what became of the turn with `responses/turnStatus`.")
        if self._count >= MAX_WAITING:
            raise NotReady("Too many requests wait for the end of a turn. Use `responses/createDetached`.")
        rested = asyncio.Event()
        self._waiting.setdefault(turn, set()).add(rested)
        self._count += 1
        try:
            yield rested
        finally:
            self._count -= 1
            others = self._waiting[turn]
            others.discard(rested)
            if not others:
                del self._waiting[turn]

    def told(self, turn: str, status: str) -> None:
        if status in RESTING:
            for rested in self._waiting.get(turn, ()):
                rested.set()

    def close(self) -> None:
        """Everybody who waits is woken for good."""
        self._closed = True
        for each in self._waiting.values():
            for rested in each:
                rested.set()
