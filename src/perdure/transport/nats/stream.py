"""The JetStream stream of committed events: a copy of what journals hold, which may vanish at any time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from perdure.transport.nats.connection import Connection
from perdure.transport.nats.names import Address, Names
from perdure.transport.nats.wire import EventMessage

DUPLICATE_WINDOW_SECONDS = 120.0
MAX_AGE_SECONDS = 7 * 86_400.0


class StreamError(Exception):
    """JetStream refused. What it said."""


class StreamMissing(StreamError):
    """There is no stream (its store was lost), or no JetStream. `ensure` makes it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An event as the stream holds it."""

    seq: int
    """Of the stream."""

    address: Address
    message: EventMessage


class EventStream:
    def __init__(self, connection: Connection, names: Names, *, max_age_seconds: float = MAX_AGE_SECONDS) -> None:
        raise NotImplementedError

    async def ensure(self) -> str:
        """Makes the stream, or brings its configuration in line, and returns its identity: name and the instant it was made.
        Raises Disconnected, StreamError (StreamMissing without JetStream)."""
        raise NotImplementedError

    async def identity(self) -> str | None:
        """Of the stream as it is; None: there is none. Raises Disconnected, StreamError."""
        raise NotImplementedError

    async def publish(self, agent: str, message: EventMessage) -> asyncio.Future[int]:
        """Sends it (by reference when it is too large for a message), in the order of the calls; the future gets its seq in
        the stream when the server has it, also when it had it before. It fails with Disconnected, StreamMissing,
        StreamError, TimeoutError (10 s): whether it arrived is not known then, sending it again is safe."""
        raise NotImplementedError

    def read(self, after: int) -> AsyncIterator[Sequence[Stored]]:
        """What this namespace has after a seq of the stream, oldest first, in batches, until caught up. Malformed messages
        are logged and passed over. Raises Disconnected, StreamError."""
        raise NotImplementedError

    async def last_seq(self) -> int:
        """Of the whole stream; 0: it is empty."""
        raise NotImplementedError

    async def last(self, agent: str, turn: str) -> Stored | None:
        """The last event of a turn; None: the stream has none."""
        raise NotImplementedError
