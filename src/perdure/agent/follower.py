"""A gateway's copy of its agents' journals, and what its watchers are told: the copy first, the watchers second."""

from __future__ import annotations

from perdure.agent.directory import Asks, Directory
from perdure.agent.feed import Live, StreamReader
from perdure.clock import Clock
from perdure.store.replica import Replica
from perdure.transport.local import LocalTransport


class Follower:
    """Rows before events, events before watchers; no hole, no repeat. One task for each agent: a slow or dead one holds up
    nobody else."""

    def __init__(
        self,
        replica: Replica,
        transport: LocalTransport,
        live: Live,
        stream: StreamReader,
        asks: Asks,
        directory: Directory,
        clock: Clock,
    ) -> None:
        """It alone takes from `live`; it tells `directory` of news and of the connection."""
        raise NotImplementedError

    async def start(self) -> None:
        """Follows from now on. Returns at once, connected or not."""
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError

    async def attach(self, agent: str) -> None:
        """Brings the copy to where the agent's journal is now. Raises AgentUnavailable when it does not answer."""
        raise NotImplementedError

    async def attend(self, agent: str, conversation: str) -> None:
        """A person is about to watch this conversation: what is committed and streamed of it is fetched when it is not here.
        Returns soon, whether the agent answers or not."""
        raise NotImplementedError

    async def refresh(self, agent: str, conversation: str) -> None:
        """Asks the agent for what this copy lacks of the conversation: rows, events, text that streams. Raises
        AgentUnavailable."""
        raise NotImplementedError
