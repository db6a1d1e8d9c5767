"""What agents publish as it comes: the gateway's feed; and a Transport over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from perdure.events import Event
from perdure.transport.nats.connection import Connection
from perdure.transport.nats.names import Names
from perdure.transport.nats.wire import EventMessage, News

MAX_QUEUED_MESSAGES = 20_000
MAX_QUEUED_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class TokenHeard:
    agent: str
    event: Event


@dataclass(frozen=True, slots=True)
class EventHeard:
    agent: str
    message: EventMessage


@dataclass(frozen=True, slots=True)
class NewsHeard:
    agent: str
    news: News


class GapReason(StrEnum):
    DISCONNECTED = "disconnected"
    OVERFLOW = "overflow"
    """They were read slower than they came: the queue was emptied."""


@dataclass(frozen=True, slots=True)
class Gap:
    """At this place of the feed messages may be missing."""

    reason: GapReason


Heard = TokenHeard | EventHeard | NewsHeard | Gap


class Feed:
    """Everything that the agents of a namespace publish, in the order of arrival (events and tokens of one agent in the order
    in which it sent them), bounded. One consumer. Malformed messages are logged and passed over."""

    def __init__(
        self,
        connection: Connection,
        names: Names,
        *,
        max_queued_messages: int = MAX_QUEUED_MESSAGES,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
    ) -> None:
        raise NotImplementedError

    async def start(self) -> None:
        """Listens, from the next connect on when the connection is away."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Wakes who waits."""
        raise NotImplementedError

    def take(self) -> Sequence[Heard]:
        """Everything queued now, without waiting."""
        raise NotImplementedError

    async def wait(self) -> None:
        """Returns when `take` has something, or the feed was stopped."""
        raise NotImplementedError


class Tidings:
    """Sends what is never stored: tokens and news. While NATS is away they are dropped."""

    def __init__(self, connection: Connection, names: Names, agent: str) -> None:
        raise NotImplementedError

    async def token(self, event: Event) -> None:
        """In the order of the calls, also among the events that the same connection publishes."""
        raise NotImplementedError

    async def news(self, news: News) -> None:
        raise NotImplementedError
