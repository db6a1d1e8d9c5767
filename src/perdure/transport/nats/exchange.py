"""What goes over a connection to NATS: messages, subscriptions that outlive a line, the replies to one request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from nats import errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as LineSubscription

from perdure.transport.nats.line import Line

LEAVE_SECONDS = 5.0

log = structlog.get_logger("perdure.nats")


class Disconnected(Exception):
    """NATS is not there now. What was to be sent was not sent, and is not kept to be sent later."""


class NotPermitted(Exception):
    """The server does not let these credentials use the subject."""


class NoResponders(Exception):
    """Nobody listens on the subject now."""


@dataclass(frozen=True, slots=True)
class Message:
    subject: str
    reply: str
    """Where an answer goes; empty: none is expected."""

    data: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def status(self) -> str | None:
        """Of a message by the server itself (`503`: nobody listens, `404`: nothing there)."""
        return self.headers.get("Status")


Handler = Callable[[Message], None]
"""Called on the loop, one message after the other, in the order of arrival. Must not block and must not raise."""

Listener = Callable[[Message | Exception], None]
"""Gets replies; or, as the last, NoResponders, Disconnected or NotPermitted."""


class Subscription:
    """Holds over reconnects until it is left."""

    def __init__(
        self,
        subject: str,
        handler: Handler,
        forget: Callable[[Subscription], None],
        *,
        queue: str = "",
        on_loss: Callable[[], None] | None = None,
    ) -> None:
        self.subject, self.queue, self.on_loss = subject, queue, on_loss
        self._handler, self._forget = handler, forget
        self.line: Line | None = None
        """The one whose server knows of it."""

        self._on_line: LineSubscription | None = None

    async def attach(self, line: Line) -> None:
        self.line = line
        self._on_line = await line.subscribe(self.subject, queue=self.queue, cb=self._hear)

    async def _hear(self, message: Msg) -> None:
        self._handler(Message(message.subject, message.reply, message.data, message.headers or {}))

    async def leave(self) -> None:
        """Returns when the server sends no more and what it sent was handled, or at once when it is away."""
        self._forget(self)
        line, on_line, self.line = self.line, self._on_line, None
        if line is None or on_line is None or line.lost.done():
            return
        try:
            await asyncio.wait_for(on_line.drain(), LEAVE_SECONDS)  # type: ignore[no-untyped-call]
        except (TimeoutError, errors.Error, OSError):
            log.debug("a subscription was left while its connection was lost", subject=self.subject)


def seen(future: asyncio.Future[Any]) -> None:
    """Its failure is nobody's fault when nobody waits for it any more."""
    if not future.cancelled():
        future.exception()


class Replies:
    """The replies to one request, until it is closed."""

    __slots__ = ("_listener", "_open", "_token", "subject")

    def __init__(self, open_: dict[str, Replies], token: str, subject: str, listener: Listener) -> None:
        self.subject = subject
        self._open, self._token, self._listener = open_, token, listener

    def tell(self, reply: Message | Exception) -> None:
        self._listener(reply)

    def close(self) -> None:
        self._open.pop(self._token, None)
