"""The transport of an agent that publishes: all that happens goes to this process's watchers first, and to the publisher."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import structlog

from perdure.events import Event
from perdure.transport.base import Bell, Subscription
from perdure.transport.local import LocalTransport

_log = structlog.get_logger("perdure.bridge")


class Outward(Protocol):
    """Who carries on what happened. Called on the event loop; returns at once."""

    def publish(self, event: Event) -> None:
        """A committed event, or a token; in seq order of the conversation."""
        ...


class Bridged:
    """Implements `Transport` and `Notify`: a `LocalTransport` whose events are published too, from `attach` on."""

    def __init__(self, local: LocalTransport) -> None:
        self.local = local
        self._outward: Outward | None = None

    def attach(self, outward: Outward | None) -> None:
        """What was committed before is found in the journal."""
        self._outward = outward

    def publish(self, event: Event) -> None:
        self.local.publish(event)
        if self._outward is None:
            return
        try:
            self._outward.publish(event)
        except Exception:
            # The turn that committed this must not hear of it; the journal has the event.
            _log.exception("event_not_published", conversation=event.conversation, seq=event.seq)

    def subscribe(self, conversation: str) -> AbstractContextManager[Subscription]:
        return self.local.subscribe(conversation)

    def forget(self, conversation: str) -> None:
        self.local.forget(conversation)

    def ring(self, topic: str) -> None:
        self.local.ring(topic)

    def listen(self, topic: str) -> AbstractContextManager[Bell]:
        return self.local.listen(topic)

    @property
    def watchers(self) -> int:
        return self.local.watchers

    def close(self) -> None:
        self.local.close()
