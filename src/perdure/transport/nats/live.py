"""What agents publish as it comes: the gateway's feed, what an agent sends that is never stored, and a Transport of both."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Self, TypeVar

import structlog

from perdure.errors import TooLarge
from perdure.events import Event, EventKind
from perdure.transport.base import Bell
from perdure.transport.base import Subscription as WatcherSubscription
from perdure.transport.local import LocalTransport
from perdure.transport.nats.connection import Connection, Disconnected, Message, Subscription
from perdure.transport.nats.names import Address, Names
from perdure.transport.nats.stream import EventStream
from perdure.transport.nats.wire import (
    EventMessage,
    Malformed,
    News,
    decode_event,
    decode_news,
    decode_token,
    encode_news,
    encode_token,
)

MAX_QUEUED_MESSAGES = 20_000
MAX_QUEUED_BYTES = 64_000_000

T = TypeVar("T")

log = structlog.get_logger("perdure.nats")


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
        self._connection, self._names = connection, names
        self._bounds = (max_queued_messages, max_queued_bytes)
        self._queue: list[Heard] = []
        self._size = 0
        self._something = asyncio.Event()
        self._stopped = False
        self._subscriptions: list[Subscription] = []

    async def start(self) -> None:
        """Listens, from the next connect on when the connection is away."""
        self._subscriptions = [
            await self._connection.subscribe(self._names.live, self._hear, on_loss=self._lose),
            await self._connection.subscribe(self._names.all_news, self._hear),
        ]

    async def stop(self) -> None:
        """Wakes who waits."""
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            await subscription.leave()
        self._stopped = True
        self._something.set()

    @property
    def stopped(self) -> bool:
        return self._stopped

    def take(self) -> Sequence[Heard]:
        """Everything queued now, without waiting."""
        taken, self._queue, self._size = self._queue, [], 0
        if not self._stopped:
            self._something.clear()
        return taken

    async def wait(self) -> None:
        """Returns when `take` has something, or the feed was stopped."""
        await self._something.wait()

    def _hear(self, message: Message) -> None:
        try:
            heard = self._read(message)
        except Malformed as error:
            log.warning("a message cannot be read", subject=message.subject, problem=str(error))
            return
        max_messages, max_bytes = self._bounds
        self._size += len(message.data)
        if len(self._queue) >= max_messages or self._size > max_bytes:
            self._queue, self._size = [Gap(GapReason.OVERFLOW)], len(message.data)
        self._push(heard)

    def _lose(self) -> None:
        self._push(Gap(GapReason.DISCONNECTED))

    def _push(self, heard: Heard) -> None:
        self._queue.append(heard)
        self._something.set()

    def _read(self, message: Message) -> Heard:
        match self._names.parse(message.subject):
            case Address("turns", agent, turn):
                event = decode_event(message.data)
                return EventHeard(agent, _own(event, event.event.turn, turn))
            case Address("tokens", agent, turn):
                token = decode_token(message.data)
                return TokenHeard(agent, _own(token, token.turn, turn))
            case Address("news", agent):
                return NewsHeard(agent, decode_news(message.data))
        raise Malformed("it is on a subject of nobody")


def _own(heard: T, told: str, turn: str | None) -> T:
    if told != turn:
        raise Malformed("its turn is not that of its subject")
    return heard


class Tidings:
    """Sends what is never stored: tokens and news. While NATS is away they are dropped."""

    def __init__(self, connection: Connection, names: Names, agent: str) -> None:
        self._connection, self._names, self._agent = connection, names, agent
        names.news(agent)

    async def token(self, event: Event) -> None:
        """In the order of the calls, also among the events that the same connection publishes."""
        await self._send(self._names.tokens(self._agent, event.turn), encode_token(event))

    async def news(self, news: News) -> None:
        await self._send(self._names.news(self._agent), encode_news(news))

    async def _send(self, subject: str, data: bytes) -> None:
        try:
            await self._connection.publish(subject, data)
        except (Disconnected, TooLarge) as error:
            log.debug("not sent", subject=subject, problem=str(error))


class NatsTransport:
    """A Transport for processes that share nothing but NATS: what one publishes for `agent`, the watchers of all get.

    Committed events go to the stream as well, but nobody waits for that: whoever needs it kept has an outbox."""

    def __init__(
        self,
        connection: Connection,
        names: Names,
        agent: str,
        *,
        boot: str,
        position: Callable[[], int],
        local: LocalTransport | None = None,
        max_outgoing: int = MAX_QUEUED_MESSAGES,
    ) -> None:
        """`position`: of the agent's journal, now. `local`: who watches here."""
        self._local = local or LocalTransport()
        self._feed = Feed(connection, names)
        self._tidings = Tidings(connection, names, agent)
        self._stream = EventStream(connection, names)
        self._agent, self._boot, self._position = agent, boot, position
        self._previous: dict[str, int] = {}
        self._outgoing: deque[Event | News] = deque(maxlen=max_outgoing)
        self._something = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._feed.start()
        self._tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._receive())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._feed.stop()
        self._local.close()

    # -- Transport ----------------------------------------------------------------------------------------------------

    def publish(self, event: Event) -> None:
        self._put(event)

    def subscribe(self, conversation: str) -> AbstractContextManager[WatcherSubscription]:
        return self._local.subscribe(conversation)

    def forget(self, conversation: str) -> None:
        self._previous.pop(conversation, None)
        self._put(News(self._position(), self._boot, deleted=(conversation,)))

    def ring(self, topic: str) -> None:
        self._put(News(self._position(), self._boot, bells=(topic,)))

    def listen(self, topic: str) -> AbstractContextManager[Bell]:
        return self._local.listen(topic)

    # -- out and in ---------------------------------------------------------------------------------------------------

    def _put(self, item: Event | News) -> None:
        self._outgoing.append(item)
        self._something.set()

    async def _send(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            while self._outgoing:
                await self._send_one(self._outgoing.popleft())

    async def _send_one(self, item: Event | News) -> None:
        if isinstance(item, News):
            await self._tidings.news(item)
        elif item.kind is EventKind.TOKEN:
            await self._tidings.token(item)
        else:
            try:
                await self._stream.publish(self._agent, EventMessage(item, self._before(item)))
            except Disconnected as error:
                log.debug("an event was not sent", seq=item.seq, problem=str(error))

    def _before(self, event: Event) -> int:
        """Where the one before is not known, a seq at which whoever has less looks for what is missing."""
        previous = self._previous.get(event.conversation, event.seq - 1)
        if event.terminal:
            self._previous.pop(event.conversation, None)
        else:
            self._previous[event.conversation] = event.seq
        return previous

    async def _receive(self) -> None:
        while not self._feed.stopped:
            await self._feed.wait()
            for heard in self._feed.take():
                self._hand_on(heard)

    def _hand_on(self, heard: Heard) -> None:
        match heard:
            case TokenHeard(event=event):
                self._local.publish(event)
            case EventHeard(message=message) if not message.reference:
                self._local.publish(message.event)
            case NewsHeard(news=news):
                for conversation in news.deleted:
                    self._local.forget(conversation)
                for topic in news.bells:
                    self._local.ring(topic)
            case EventHeard(message=message):
                self._local.cut_off(message.event.conversation)
            case Gap():
                for conversation in self._local.watched():
                    self._local.cut_off(conversation)
