"""Waits for the end of every turn that this gateway gave to an agent, and assumes nothing: silence makes it ask."""

from __future__ import annotations

from collections.abc import Callable

from perdure.agent.directory import Asks, Directory
from perdure.agent.follower import Follower
from perdure.clock import Clock
from perdure.events import Unfollowed
from perdure.store.replica import Replica
from perdure.transport.local import LocalTransport

IDLE_SECONDS = 10.0
"""Without an event of a turn for so long its agent is asked what became of it."""


class Persister:
    def __init__(
        self,
        replica: Replica,
        follower: Follower,
        asks: Asks,
        directory: Directory,
        transport: LocalTransport,
        clock: Clock,
        *,
        deadline_seconds: float,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """`deadline_seconds`: `turn_deadline_seconds`; 0 for ever."""
        raise NotImplementedError

    async def start(self) -> None:
        """Goes on with every turn that was dispatched before."""
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError

    async def dispatched(self, agent: str, conversation: str, turn: str) -> None:
        """Kept when it returns: this gateway waits for the end of the turn, after a restart too. Also for one that is
        followed no more and that a person looks at again."""
        raise NotImplementedError

    def observe(self, conversation: str, observer: Callable[[Unfollowed], None]) -> Callable[[], None]:
        """Calls the observer, on the event loop, when a turn of the conversation is followed no more. Call what is returned
        to hear no more."""
        raise NotImplementedError
