"""The Agent port over NATS: agents in processes of their own, read from a copy of their journals, written to by calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from perdure.agent.directory import Asks, Directory
from perdure.events import Unfollowed
from perdure.store.replica import Replica
from perdure.transport.local import LocalTransport


class Waiting(Protocol):
    """Who waits for the ends of turns (`agent.persister`)."""

    async def dispatched(self, agent: str, conversation: str, turn: str) -> None:
        """Kept when it returns: this gateway waits for the end of the turn, after a restart too. Also for one that is
        followed no more and that a person looks at again."""
        ...

    def observe(self, conversation: str, observer: Callable[[Unfollowed], None]) -> Callable[[], None]:
        """Calls the observer, on the event loop, when a turn of the conversation is followed no more. Call what is returned
        to hear no more."""
        ...


class Feed(Protocol):
    """Who keeps the copy up to date (`agent.follower`)."""

    async def attend(self, agent: str, conversation: str) -> None:
        """A person is about to watch this conversation: what is committed and streamed of it is fetched when it is not here.
        Returns soon, whether the agent answers or not."""
        ...


class RemoteAgents:
    """Implements `AgentPort`."""

    def __init__(
        self,
        replica: Replica,
        transport: LocalTransport,
        asks: Asks,
        directory: Directory,
        waiting: Waiting,
        *,
        wait_seconds: float,
        default: str | None,
        draining: Callable[[], bool] = lambda: False,
    ) -> None:
        """`wait_seconds`: for an agent that does not answer (`agent_wait_seconds`). `default`: the agent of new conversations,
        where the setting was given."""
        raise NotImplementedError
