"""The agent's side of NATS: answers requests, publishes what was committed, tells that it is there."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.agent.base import AgentPort
from perdure.bridge.bridged import Bridged
from perdure.bridge.context import Journal
from perdure.clock import Clock
from perdure.transport.nats.connection import Connection
from perdure.transport.nats.names import Names


class Bridge:
    """Order: `Bridge(...)` before the worker starts; `start` once this process's health check answers and before orphans are
    released; `leave` when the drain begins; `stop` after the drain, so that the hand-over of turns is published, too."""

    def __init__(
        self,
        connection: Connection,
        names: Names,
        agent: str,
        agents: AgentPort,
        store: Journal,
        transport: Bridged,
        clock: Clock,
        *,
        version: str = "",
        max_message_bytes: int = 1_000_000,
    ) -> None:
        """`connection`: made, started and closed by the caller; it may be away at any time. `agent`: the one agent served here.
        `transport`: what `store` notifies. Raises BadRequest for a name that is no word of a subject."""
        raise NotImplementedError

    async def start(self) -> None:
        """Subscribes and begins to publish; returns at once, connected or not."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Says so to the gateways. New turns, decisions and the like are refused from now on; reads are answered on."""
        raise NotImplementedError

    async def stop(self, within_seconds: float = 5.0) -> None:
        """Publishes what is still to be published, as far as the time allows (the rest is published after the next start)."""
        raise NotImplementedError

    def problems(self) -> Sequence[str]:
        """Why what happens here is not told to others now, one sentence each."""
        raise NotImplementedError
