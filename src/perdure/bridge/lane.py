"""One conversation on its way to the stream: how far it got, and what a model says in between. Pure; no I/O."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from perdure.bridge.speech import Speech


@dataclass(slots=True)
class Lane:
    """Seqs only: the events themselves are in the journal, and read from there, in order, when it is their turn."""

    conversation: str
    acked: int | None = None
    """The stream has everything up to here. None: not known yet."""

    sent: int = 0
    """Handed to the stream; the next event names it as the one before it."""

    wanted: int = 0
    """The journal has events up to here that are to be sent."""

    refill: bool = False
    """Everything that the journal has is to be sent, told here or not."""

    looked: int = 0
    """The journal was read up to here: what is not in it (a rewind dropped it) is not coming."""

    round: int = 0
    """Another one: it went back since, and whoever was sending for it stops."""

    touched: float = float("-inf")
    """When something happened in it last, on the loop's clock."""

    resting: bool = False
    """Its next event was refused: it is tried again later."""

    turn: str = ""
    """Of the event that was sent last."""

    speech: Speech = field(default_factory=Speech)
    under_way: deque[tuple[int, asyncio.Future[int]]] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def behind(self) -> bool:
        return self.refill or self.acked is None or self.wanted > max(self.sent, self.looked)

    @property
    def idle(self) -> bool:
        """Nothing of it is on its way: it may be forgotten, the journal knows the rest."""
        return self.task is None and self.timer is None and not self.under_way and not self.behind

    def know(self, published: int) -> None:
        """The stream has everything up to this seq, by the journal's own account (which may be late)."""
        self.acked = max(self.acked or 0, published)
        self.again()

    def again(self) -> None:
        """Goes back to the first event that the stream is not known to have."""
        self.round += 1
        self.sent = self.acked or 0
        self.looked = 0
        self.turn = ""
        self.under_way.clear()

    def forget(self) -> None:
        """The stream is another one."""
        self.acked = None
        self.again()

    def settle(self) -> bool:
        """Takes in what was acknowledged, in order. Whether that moved it."""
        before = self.acked
        while self.under_way and self.under_way[0][1].done():
            seq, future = self.under_way[0]
            if future.cancelled() or future.exception() is not None:
                break
            self.acked = seq
            self.under_way.popleft()
        return self.acked != before
