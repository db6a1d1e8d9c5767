"""What a gateway needs of NATS to follow agents: what they send live, and the stream that kept their events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from perdure.replication import StreamPosition


class Sent(StrEnum):
    """The second word of a subject: what a message is."""

    TURNS = "turns"
    TOKENS = "tokens"
    NEWS = "news"


@dataclass(frozen=True, slots=True)
class Message:
    """As it came: the words of its subject, and its bytes. Foreign input; nothing of it is checked but the subject's form."""

    sent: Sent
    agent: str
    turn: str
    """Empty for news."""

    data: bytes
    stream: StreamPosition | None = None
    """Where it stands in the stream, when it was read from there."""


class Link(StrEnum):
    """What became of the connection. The first thing a live feed tells is how it is now."""

    CONNECTED = "connected"
    LOST = "lost"
    """Whatever was sent since is not coming."""

    OVERRUN = "overrun"
    """The connection holds, but messages were thrown away because they came faster than they were taken."""


class Live(Protocol):
    """Messages of all agents of the namespace from the moment of subscribing, each agent's in the order it sent them."""

    async def receive(self) -> Message | Link:
        """The next one. Raises NotReady once it is closed for good."""
        ...


class StreamReader(Protocol):
    """The stream of committed events (`{prefix}-turns`)."""

    async def end(self) -> StreamPosition | None:
        """Its identity and the last message in it (0: none); None when there is no stream. Raises NotReady without NATS."""
        ...

    def read(
        self, after: StreamPosition | None, upto: StreamPosition, agents: Collection[str]
    ) -> AsyncIterator[Message]:
        """The messages of these agents after a position (None, or one of another stream: from its beginning) and up to the
        other, in order. Raises NotReady when NATS goes away meanwhile."""
        ...
