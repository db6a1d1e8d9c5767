"""Live delivery to watchers; never the truth. Losing all of it loses nothing: the journal has every committed event."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from perdure.events import Event


class Subscription(Protocol):
    """The live events of one conversation from the moment of subscribing, in order, bounded."""

    @property
    def retained(self) -> Sequence[Event]:
        """The unreplaced tokens of the active turn at the moment of subscribing, by seq (snapshot, no gap to live)."""
        ...

    @property
    def gone(self) -> bool:
        """Whether the conversation was deleted: what `take` has is the last of it."""
        ...

    def take(self) -> list[Event]:
        """Everything queued now, without waiting. Raises SlowWatcher once the bound was passed."""
        ...

    async def wait(self) -> None:
        """Returns when `take` has something, the bound was passed, the conversation is gone or the transport closes."""
        ...


class Bell(Protocol):
    """A wake-up: tells that something may have happened, never what."""

    async def wait(self, timeout_seconds: float | None = None) -> bool:
        """True when rung since the last wait, False on timeout."""
        ...


class SlowWatcher(Exception):
    """The watcher read slower than events came; it must reconnect with its cursor."""


class Transport(Protocol):
    def publish(self, event: Event) -> None:
        """Hands a committed event, or a token, to the watchers of its conversation. Called in seq order. Never blocks."""
        ...

    def subscribe(self, conversation: str) -> AbstractContextManager[Subscription]: ...

    def forget(self, conversation: str) -> None:
        """Tells the watchers of a deleted conversation that nothing follows."""
        ...

    def ring(self, topic: str) -> None:
        """Wakes everyone who listens on a topic: `queue` (a turn may be claimable), `changes` (a summary was written)."""
        ...

    def listen(self, topic: str) -> AbstractContextManager[Bell]: ...
