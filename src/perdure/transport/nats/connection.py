"""One process's connection to NATS: made at start, made again for ever, told to whoever listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Self

from perdure.config import Settings
from perdure.transport.base import Bell


class Disconnected(Exception):
    """NATS is not there now. What was to be sent was not sent, and is not kept to be sent later."""


class NotPermitted(Exception):
    """The server does not let these credentials use the subject."""


@dataclass(frozen=True, slots=True)
class Message:
    subject: str
    reply: str
    """Where an answer goes; empty: none is expected."""

    data: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Message], None]
"""Called on the loop, one message after the other, in the order of arrival. Must not block and must not raise."""


class Subscription:
    """Holds over reconnects until it is left."""

    async def leave(self) -> None:
        """Returns when the server sends no more, or is away."""
        raise NotImplementedError


class Connection:
    def __init__(self, settings: Settings, *, name: str, inbox: str) -> None:
        """`name`: how the server lists this process. `inbox`: of `Names.inbox`. Raises ConfigurationError for files and
        addresses that are not usable."""
        raise NotImplementedError

    async def start(self, *, wait_seconds: float = 3.0) -> None:
        """Connects, and goes on trying in the background when the server is not there within `wait_seconds`. Raises
        ConfigurationError, with what to do, when it is there and refuses (credentials, certificates)."""
        raise NotImplementedError

    async def close(self) -> None:
        """Sends what was handed over, at most a second, and leaves."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """True once every subscription of this process stands at the server."""
        raise NotImplementedError

    @property
    def generation(self) -> int:
        """How often it was connected: another number means that messages may have been missed in between."""
        raise NotImplementedError

    @property
    def problem(self) -> str | None:
        """Why it is not connected, or what the server does not permit, one sentence without secrets; None: all is well."""
        raise NotImplementedError

    def listen(self) -> AbstractContextManager[Bell]:
        """Rung at every change of `connected` and `generation`."""
        raise NotImplementedError

    async def until_connected(self, timeout_seconds: float | None = None) -> bool:
        """False on timeout."""
        raise NotImplementedError

    @property
    def max_bytes(self) -> int:
        """The largest data of one message that the server takes, room for headers kept free."""
        raise NotImplementedError

    @property
    def server(self) -> Mapping[str, str]:
        """`url` (without secrets), `version`, `name` of the server; empty while there is none."""
        raise NotImplementedError

    # -- messages -----------------------------------------------------------------------------------------------------

    async def publish(
        self, subject: str, data: bytes, *, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Hands over to the socket, in the order of the calls; waits only while the socket is full. Raises Disconnected, and
        TooLarge above the server's limit."""
        raise NotImplementedError

    async def ask(
        self, subject: str, data: bytes = b"", *, headers: Mapping[str, str] | None = None
    ) -> asyncio.Future[Message]:
        """Publishes with a reply subject; the future gets the first reply, Disconnected when the connection is lost before,
        NoResponders when nobody listens, NotPermitted. It has no deadline: cancel it to give up."""
        raise NotImplementedError

    async def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> Subscription:
        """Returns when the server knows of it; at once while the server is away (it is told at the next connect)."""
        raise NotImplementedError


class NoResponders(Exception):
    """Nobody listens on the subject now."""
