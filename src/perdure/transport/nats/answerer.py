"""The agent's side of JSON-RPC: a table of methods behind the agent's subject."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from perdure.clock import Clock
from perdure.transport.nats.connection import Connection
from perdure.transport.nats.names import Names

P = TypeVar("P", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Method(Generic[P]):
    """`params`: a model with `extra="forbid"`. `handle` gets it valid and returns JSON; what it raises of PerdureError goes
    to the client, anything else stays in the log."""

    params: type[P]
    handle: Callable[[P], Awaitable[Any]]


class Answerer:
    """Answers for one agent. Each request is its own task; over `max_concurrent` it is told NotReady. A request that comes
    again (same id of at least 16 characters, same content) joins the first or gets its remembered reply for five minutes."""

    def __init__(
        self,
        connection: Connection,
        names: Names,
        agent: str,
        methods: Mapping[str, Method[Any]],
        *,
        clock: Clock,
        max_concurrent: int = 256,
    ) -> None:
        """`agent/describe` of `methods` also answers discovery."""
        raise NotImplementedError

    async def start(self) -> None:
        """From now on requests arrive; while the connection is away, from its next connect on."""
        raise NotImplementedError

    async def stop(self, *, within_seconds: float) -> None:
        """Takes no more requests, waits for those under way, cuts the rest (they are told NotReady)."""
        raise NotImplementedError
