"""Which agents there are, what they told of themselves, and whether each can be asked now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from perdure.agent.base import AgentInfo
from perdure.clock import Clock
from perdure.replication import Reach
from perdure.store.replica import Replica

SILENT_SECONDS = 6.0
"""Without news for so long an agent is asked whether it is there."""

Observer = Callable[[str, Reach], None]
"""Told, on the event loop, each time an agent is met for the first time or its reach changes."""


class Asks(Protocol):
    """The client's side of the calls (`transport.nats.caller`)."""

    async def call(
        self,
        agent: str,
        method: str,
        params: Mapping[str, Any],
        *,
        within_seconds: float,
        request_id: str | None = None,
    ) -> Any:
        """The result. Raises AgentUnavailable when none came, and what the agent raised."""
        ...

    async def discover(self, *, within_seconds: float) -> Sequence[Mapping[str, Any]]:
        """The descriptions (as of `agent/describe`) of all agents that answer within that time."""
        ...


class Directory:
    """Open it before anything is asked. What it knows outlives this process in the replica."""

    def __init__(self, replica: Replica, asks: Asks, clock: Clock, *, default: str | None = None) -> None:
        """`default`: the agent of new conversations, where the setting was given."""
        raise NotImplementedError

    async def open(self) -> None:
        """Agents known from before, all of them `disconnected` until `connected`."""
        raise NotImplementedError

    async def close(self) -> None: ...

    async def connected(self) -> None:
        """NATS is there (again): asks who is there. Returns when the first answers are in."""
        raise NotImplementedError

    def disconnected(self) -> None:
        """NATS is lost: nobody can be asked."""
        raise NotImplementedError

    def heard(self, agent: str, news: Mapping[str, Any]) -> None:
        """News of an agent, each of them a sign of life: `{position, boot, state: serving|leaving, deleted?}`."""
        raise NotImplementedError

    def unanswered(self, agent: str) -> None:
        """A call had no answer in its time: the agent is asked now whether it is there."""
        raise NotImplementedError

    def agents(self) -> Sequence[AgentInfo]:
        """By name."""
        raise NotImplementedError

    def reach(self, agent: str) -> Reach:
        """Of an agent that nobody has heard of: `unreachable`."""
        raise NotImplementedError

    def description(self, agent: str) -> Mapping[str, Any] | None:
        """What it told of itself last (`agent/describe`)."""
        raise NotImplementedError

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Call what is returned to hear no more."""
        raise NotImplementedError
