"""The client's side of JSON-RPC: calls to agents, with a deadline."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from perdure.transport.nats.connection import Connection
from perdure.transport.nats.names import Names


class Caller:
    """One per process."""

    def __init__(self, connection: Connection, names: Names) -> None:
        raise NotImplementedError

    async def start(self) -> None:
        """Call it once; the connection may be away."""
        raise NotImplementedError

    async def call(
        self,
        agent: str,
        method: str,
        params: Mapping[str, Any],
        *,
        within_seconds: float,
        request_id: str | None = None,
    ) -> Any:
        """The result. While nobody listens or the connection is away it is tried again until the time is over. Raises the
        very error that the agent raised (by its code), AgentUnavailable when no reply came within the time (whether the
        request arrived is not known: say the same with the same `request_id` or idempotency key), TooLarge for params that
        do not fit into a message."""
        raise NotImplementedError

    def discover(self, *, within_seconds: float) -> AsyncIterator[Any]:
        """What each agent of the namespace tells of itself (`agent/describe`), as they come, until the time is over. Raises
        AgentUnavailable when NATS is away all the time."""
        raise NotImplementedError
