"""What a gateway needs of NATS to follow agents: the connection's state, what agents send live, the stream that kept it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from perdure.transport.base import Bell
from perdure.transport.nats.live import Heard
from perdure.transport.nats.stream import Stored


class Link(Protocol):
    """The connection (`transport.nats.connection`)."""

    @property
    def connected(self) -> bool: ...

    @property
    def generation(self) -> int:
        """Another number: it was made again, and messages may have been missed in between."""
        ...

    def listen(self) -> AbstractContextManager[Bell]:
        """Rung at every change."""
        ...


class Feed(Protocol):
    """What all agents of the namespace send (`transport.nats.live`): each agent's in the order it sent them; where messages
    may be missing stands a `Gap`. One consumer."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def take(self) -> Sequence[Heard]: ...

    async def wait(self) -> None: ...


class Stream(Protocol):
    """The stream of committed events (`transport.nats.stream`). Raises Disconnected and StreamError."""

    async def identity(self) -> str | None: ...

    async def last_seq(self) -> int: ...

    def read(self, after: int) -> AsyncIterator[Sequence[Stored]]:
        """Of this namespace, oldest first, until caught up."""
        ...
