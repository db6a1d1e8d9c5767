"""Live delivery inside one process. Everything here may be lost at any time: the journal has every committed event.

Bound to the event loop that uses it. Waiters sleep on a future and cost nothing while idle; nothing here polls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from perdure.events import Event, EventKind
from perdure.transport.base import SlowWatcher

MAX_QUEUED_EVENTS = 2_048
MAX_QUEUED_BYTES = 4_000_000
MAX_RETAINED_TOKENS = 10_000
MAX_RETAINED_BYTES = 1_000_000


class LocalTransport:
    """Hands events to the watchers of their conversation and keeps the unreplaced tokens of active turns.

    A watcher that leaves more than `max_queued_events` or `max_queued_bytes` unread is cut off; it never slows a turn.
    """

    def __init__(
        self,
        *,
        max_queued_events: int = MAX_QUEUED_EVENTS,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
        max_retained_tokens: int = MAX_RETAINED_TOKENS,
        max_retained_bytes: int = MAX_RETAINED_BYTES,
    ) -> None:
        self._queue_bounds = (max_queued_events, max_queued_bytes)
        self._retained_bounds = (max_retained_tokens, max_retained_bytes)
        self._watchers: dict[str, list[LocalSubscription]] = {}
        self._tokens: dict[str, RetainedTokens] = {}
        self._bells: dict[str, list[LocalBell]] = {}
        self._closed = False

    def publish(self, event: Event) -> None:
        """Call it on the loop, in seq order of the conversation."""
        self._retain(event)
        watchers = self._watchers.get(event.conversation)
        if watchers:
            size = payload_size(event.payload)
            for watcher in watchers:
                watcher.push(event, size)

    def _retain(self, event: Event) -> None:
        tokens = self._tokens.get(event.conversation)
        if event.kind is EventKind.TOKEN:
            if tokens is None or tokens.turn != event.turn:
                tokens = self._tokens[event.conversation] = RetainedTokens(event.turn, *self._retained_bounds)
            tokens.add(event)
        elif tokens is None or tokens.turn != event.turn:
            return
        elif event.kind is EventKind.MESSAGE:
            tokens.replace(event.payload["message"]["id"])
        elif event.kind is EventKind.REWIND or event.terminal:
            del self._tokens[event.conversation]

    @contextmanager
    def subscribe(self, conversation: str) -> Iterator[LocalSubscription]:
        subscription = LocalSubscription(self._tokens.get(conversation), *self._queue_bounds)
        if self._closed:
            subscription.close()
        self._watchers.setdefault(conversation, []).append(subscription)
        try:
            yield subscription
        finally:
            _leave(self._watchers, conversation, subscription)

    def forget(self, conversation: str) -> None:
        self._tokens.pop(conversation, None)
        for watcher in self._watchers.get(conversation, ()):
            watcher.forget()

    def watched(self) -> Collection[str]:
        """The conversations that somebody watches now."""
        return frozenset(self._watchers)

    def cut_off(self, conversation: str) -> None:
        """What follows in this conversation does not go on from what its watchers were told: they get what is queued, then
        have to come again with their cursor. Retained tokens are gone."""
        self._tokens.pop(conversation, None)
        for watcher in self._watchers.pop(conversation, ()):
            watcher.close()

    def ring(self, topic: str) -> None:
        for bell in self._bells.get(topic, ()):
            bell.ring()

    @contextmanager
    def listen(self, topic: str) -> Iterator[LocalBell]:
        bell = LocalBell()
        self._bells.setdefault(topic, []).append(bell)
        try:
            yield bell
        finally:
            _leave(self._bells, topic, bell)

    @property
    def watchers(self) -> int:
        """Open subscriptions now."""
        return sum(len(watchers) for watchers in self._watchers.values())

    def close(self) -> None:
        """Wakes every waiter for good: a subscription whose `wait` returns while `take` is empty has lost its transport."""
        self._closed = True
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.close()
        for topic in self._bells:
            self.ring(topic)


class RetainedTokens:
    """The unreplaced tokens of one turn. A message whose tokens pass the bound is given up: a watcher that comes later
    gets none of its text rather than text that starts in the middle, until the `message` event has it all."""

    __slots__ = ("_by_message", "_count", "_max_bytes", "_max_tokens", "_size", "given_up", "turn")

    def __init__(self, turn: str, max_tokens: int, max_bytes: int) -> None:
        self.turn = turn
        self.given_up: set[str] = set()
        self._by_message: dict[str, list[Event]] = {}
        self._max_tokens, self._max_bytes = max_tokens, max_bytes
        self._count = self._size = 0

    def add(self, event: Event) -> None:
        message = event.payload["message_id"]
        if message in self.given_up:
            return
        self._by_message.setdefault(message, []).append(event)
        self._count += 1
        self._size += len(event.payload["text"])
        if self._count > self._max_tokens or self._size > self._max_bytes:
            self.replace(message)
            self.given_up.add(message)

    def replace(self, message: str) -> None:
        """The message is committed: its tokens have done their work."""
        self.given_up.discard(message)
        for event in self._by_message.pop(message, ()):
            self._count -= 1
            self._size -= len(event.payload["text"])

    def snapshot(self) -> list[Event]:
        return sorted((event for events in self._by_message.values() for event in events), key=lambda event: event.seq)


class LocalSubscription:
    """One watcher's bounded queue. One consumer at a time."""

    __slots__ = (
        "_closed",
        "_ignored",
        "_max_bytes",
        "_max_events",
        "_queue",
        "_size",
        "_slow",
        "_waiter",
        "gone",
        "retained",
    )

    def __init__(self, tokens: RetainedTokens | None, max_events: int, max_bytes: int) -> None:
        self.retained: Sequence[Event] = tokens.snapshot() if tokens else ()
        self._ignored: set[str] | None = set(tokens.given_up) if tokens and tokens.given_up else None
        self._max_events, self._max_bytes = max_events, max_bytes
        self._queue: list[Event] | None = None
        self._size = 0
        self._slow = self._closed = self.gone = False
        self._waiter: asyncio.Future[None] | None = None

    def push(self, event: Event, size: int) -> None:
        if self._slow or self._ignores(event):
            return
        queue = self._queue = self._queue or []
        queue.append(event)
        self._size += size
        if len(queue) > self._max_events or self._size > self._max_bytes:
            self._slow, self._queue, self._size = True, None, 0
        _wake(self._waiter)

    def _ignores(self, event: Event) -> bool:
        return (
            self._ignored is not None and event.kind is EventKind.TOKEN and event.payload["message_id"] in self._ignored
        )

    def take(self) -> list[Event]:
        if self._slow:
            raise SlowWatcher
        taken, self._queue, self._size = self._queue, None, 0
        return taken or []

    async def wait(self) -> None:
        if self._queue or self._slow or self._closed:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def forget(self) -> None:
        self.gone = True
        self.close()

    def close(self) -> None:
        self._closed = True
        _wake(self._waiter)


class LocalBell:
    """Remembers one ring until somebody waits for it."""

    __slots__ = ("_rung", "_waiter")

    def __init__(self) -> None:
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self._rung = True
        _wake(self._waiter)

    async def wait(self, timeout_seconds: float | None = None) -> bool:
        if not self._rung:
            await self._sleep(timeout_seconds)
        rung, self._rung = self._rung, False
        return rung

    async def _sleep(self, timeout_seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        alarm = None if timeout_seconds is None else loop.call_later(timeout_seconds, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if alarm:
                alarm.cancel()


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _leave(members: dict[str, list[Any]], key: str, member: object) -> None:
    remaining = members.get(key, [])
    if member in remaining:  # it was not cut off
        remaining.remove(member)
        if not remaining:
            del members[key]


def payload_size(value: Any) -> int:
    """About the bytes a payload holds in memory as text."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict | Mapping):  # the first is found without asking the second, which is slow
        return sum(len(str(key)) + payload_size(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return sum(map(payload_size, value))
    return 8
