"""One process's connection to NATS: made at start, made again for ever, told to whoever listens.

Nothing is kept to be sent later: a request that arrives after its caller has given up would surprise both.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

import structlog
from nats import errors

from perdure.config import Settings
from perdure.errors import ConfigurationError, TooLarge
from perdure.transport.base import Bell
from perdure.transport.local import LocalBell
from perdure.transport.nats.access import access_of
from perdure.transport.nats.exchange import (
    Disconnected,
    Handler,
    Listener,
    Message,
    NoResponders,
    NotPermitted,
    Replies,
    Subscription,
    seen,
)
from perdure.transport.nats.line import Line, Refused, Unreachable, dial

__all__ = [
    "Connection",
    "Disconnected",
    "Handler",
    "Listener",
    "Message",
    "NoResponders",
    "NotPermitted",
    "Replies",
    "Subscription",
    "seen",
]

FIRST_WAIT_SECONDS = 0.1
MAX_WAIT_SECONDS = 1.0
PULSE_SECONDS = 5.0
"""How often a connection that seems to stand is asked, and how long it may take to answer."""

HEADER_BYTES = 1_024
DEFAULT_MAX_PAYLOAD = 1_048_576
MAX_UNSENT_BYTES = 2_000_000
PERMISSIONS = "docs/nats.md lists what each role needs (Permissions)"

_VIOLATION = re.compile(r"permissions violation for (?P<what>publish|subscription) to \"(?P<subject>[^\"]+)\"")

log = structlog.get_logger("perdure.nats")


class Connection:
    def __init__(self, settings: Settings, *, name: str, inbox: str) -> None:
        """`name`: how the server lists this process. `inbox`: of `Names.inbox`. Raises ConfigurationError for files and
        addresses that are not usable."""
        self._access = access_of(settings)
        self._servers = list(self._access.servers)
        self._name, self._inbox = name, inbox
        self._line: Line | None = None
        self._rising: Line | None = None
        """One whose server was told every subscription and has not confirmed them: what arrives by it is answered by it."""

        self._generation = 0
        self._max_payload = DEFAULT_MAX_PAYLOAD
        self._bells: list[LocalBell] = []
        self._subscriptions: list[Subscription] = [Subscription(f"{inbox}.*", self._hear_reply, self._forget)]
        self._replies: dict[str, Replies] = {}
        self._asked = 0
        self._outage: str | None = None
        self._violations: dict[str, None] = {}
        self._refused: asyncio.Future[str] | None = None
        self._life: asyncio.Task[None] | None = None

    async def start(self, *, wait_seconds: float = 3.0) -> None:
        """Connects, and goes on trying in the background when the server is not there within `wait_seconds`. Raises
        ConfigurationError, with what to do, when it is there and refuses (credentials, certificates)."""
        self._refused = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live(), name="nats connection")
        connected = asyncio.create_task(self.until_connected(wait_seconds))
        try:
            first: set[asyncio.Future[Any]] = {connected, self._refused, self._life}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if self._life.done():
                await self._life
            if self._refused.done() and not self.connected:
                await self.close()
                raise ConfigurationError(self._refused.result())
        finally:
            connected.cancel()
            self._refused = None

    async def close(self) -> None:
        """Sends what was handed over, waiting a second at most, and leaves."""
        if self._life is None:
            return
        line = self._line
        if line is not None:
            try:
                await asyncio.wait_for(self._flushed(line), 1.0)
            except (TimeoutError, Disconnected):
                log.debug("not everything was sent before the connection was closed")
        life, self._life = self._life, None
        while not life.done():  # a cancel is lost where it meets the end of a wait (wait_for, before Python 3.12)
            life.cancel()
            await asyncio.wait({life}, timeout=0.1)
        seen(life)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """True once every subscription of this process stands at the server."""
        return self._line is not None

    @property
    def generation(self) -> int:
        """How often it was connected: another number means that messages may have been missed in between."""
        return self._generation

    @property
    def problem(self) -> str | None:
        """Why it is not connected, or what the server does not permit, one sentence without secrets; None: all is well."""
        if self._outage is not None:
            return self._outage
        return next(iter(self._violations), None)

    @contextmanager
    def _listen(self) -> Iterator[LocalBell]:
        bell = LocalBell()
        self._bells.append(bell)
        try:
            yield bell
        finally:
            self._bells.remove(bell)

    def listen(self) -> AbstractContextManager[Bell]:
        """Rung at every change of `connected` and `generation`."""
        return self._listen()

    async def until_connected(self, timeout_seconds: float | None = None) -> bool:
        """False on timeout."""
        with self._listen() as bell:
            try:
                async with asyncio.timeout(timeout_seconds):
                    while not self.connected:
                        await bell.wait()
            except TimeoutError:
                return self.connected
        return True

    @property
    def max_bytes(self) -> int:
        """The largest data of one message that the server takes, room for headers kept free."""
        return max(self._max_payload - HEADER_BYTES, 1)

    @property
    def server(self) -> Mapping[str, str]:
        """`url` (without secrets), `version`, `server_name`; empty while there is none."""
        return self._line.server_facts if self._line else {}

    # -- messages -----------------------------------------------------------------------------------------------------

    async def publish(
        self, subject: str, data: bytes, *, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Hands over to the socket, in the order of the calls; waits only while the socket is full. Raises Disconnected, and
        TooLarge above the server's limit."""
        if len(data) > self.max_bytes:
            raise TooLarge(f"A message of {len(data):,} bytes; NATS takes {self.max_bytes:,} (its `max_payload`).")
        line = self._line or self._rising
        if line is not None and line.pending_data_size > MAX_UNSENT_BYTES:
            await self._flushed(line)
        if line is None or line.lost.done():
            raise Disconnected(self._outage or "NATS is not connected.")
        try:
            await line.publish(subject, data, reply=reply, headers=dict(headers) if headers else None)
        except (errors.Error, OSError) as error:
            raise Disconnected(str(error)) from error

    async def converse(
        self, subject: str, data: bytes, listener: Listener, *, headers: Mapping[str, str] | None = None
    ) -> Replies:
        """Publishes with a reply subject of its own; `listener` gets every reply until the answer is closed. Raises as
        `publish` does."""
        self._asked += 1
        token = str(self._asked)
        replies = self._replies[token] = Replies(self._replies, token, subject.lower(), listener)
        try:
            await self.publish(subject, data, reply=f"{self._inbox}.{token}", headers=headers)
        except BaseException:
            replies.close()
            raise
        return replies

    async def ask(
        self, subject: str, data: bytes = b"", *, headers: Mapping[str, str] | None = None
    ) -> asyncio.Future[Message]:
        """Publishes with a reply subject; the future gets the first reply, or fails with Disconnected when the connection is
        lost before, NoResponders when nobody listens, NotPermitted. It has no deadline: cancel it to give up."""
        answered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def hear(reply: Message | Exception) -> None:
            if answered.done():
                return
            if isinstance(reply, Exception):
                answered.set_exception(reply)
            else:
                answered.set_result(reply)

        answered.add_done_callback(seen)
        replies = await self.converse(subject, data, hear, headers=headers)
        answered.add_done_callback(lambda _: replies.close())
        return answered

    def new_inbox(self) -> str:
        """A subject below this process's inbox for a subscription of its own."""
        self._asked += 1
        return f"{self._inbox}.{self._asked}.direct"

    async def subscribe(
        self, subject: str, handler: Handler, *, queue: str = "", on_loss: Callable[[], None] | None = None
    ) -> Subscription:
        """Returns when the server knows of it; at once while the server is away (it is told at the next connect).
        `on_loss`: called whenever the connection was lost, so that messages may be missing from there on."""
        subscription = Subscription(subject, handler, self._forget, queue=queue, on_loss=on_loss)
        self._subscriptions.append(subscription)
        line = self._line
        if line is not None:
            try:
                await subscription.attach(line)
                await self._flushed(line)
            except (Disconnected, errors.Error, OSError) as error:
                log.debug("the connection was lost while subscribing", subject=subject, error=str(error))
        return subscription

    def _forget(self, subscription: Subscription) -> None:
        """It is not made again at the next connect."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def _hear_reply(self, message: Message) -> None:
        replies = self._replies.get(message.subject.rpartition(".")[2])
        if replies is None:
            return
        if message.status == "503" and not message.data:
            replies.tell(NoResponders(f"Nobody listens on {replies.subject}."))
        else:
            replies.tell(message)

    async def _flushed(self, line: Line) -> None:
        """Returns when the server has all that was handed over. Raises Disconnected."""
        pong = asyncio.ensure_future(line.flush(2**20))
        try:
            await asyncio.wait({pong, line.lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            pong.cancel()
            await asyncio.gather(pong, return_exceptions=True)
        if line.lost.done():
            raise Disconnected(self._outage or "The connection to NATS was lost.")

    # -- life ---------------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        wait = FIRST_WAIT_SECONDS
        while self._life is not None:
            try:
                stood = await self._one_life()
            except Exception:  # whatever it was: without this loop the process would be cut off for good
                log.exception("the connection to NATS failed in a way that nobody thought of; trying again")
                stood = False
            if stood:
                wait = FIRST_WAIT_SECONDS
            else:
                await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311  (spreads clients, hides nothing)
                wait = min(wait * 2, MAX_WAIT_SECONDS)

    async def _one_life(self) -> bool:
        """One line, from its dial to its loss. Whether it stood in between."""
        line = await self._dial()
        if line is None:
            return False
        try:
            return await self._stand(line)
        finally:
            await self._lose(line)

    async def _dial(self) -> Line | None:
        try:
            return await dial(
                self._access, list(self._servers), name=self._name, inbox=self._inbox, on_error=self._hear_error
            )
        except Unreachable as error:
            self._tell_outage(str(error))
        except (Refused, ConfigurationError) as error:
            self._tell_outage(str(error))
            if self._refused is not None and not self._refused.done():
                self._refused.set_result(str(error))
        return None

    async def _stand(self, line: Line) -> bool:
        """From the dial to the loss. Whether it was connected in between."""
        try:
            while missing := [each for each in self._subscriptions if each.line is not line]:
                for subscription in missing:
                    await subscription.attach(line)
                self._rising, self._max_payload = line, line.max_payload
                await asyncio.wait_for(self._flushed(line), PULSE_SECONDS)
        except (TimeoutError, Disconnected, errors.Error, OSError) as error:
            self._tell_outage(f"NATS hung up while it was told the subscriptions: {error}.")
            return False
        self._come_up(line)
        while not line.lost.done():
            await self._pulse(line)
        return True

    def _come_up(self, line: Line) -> None:
        self._line, self._rising, self._outage = line, None, None
        self._generation += 1
        self._violations.clear()
        discovered = {f"{each.scheme}://{each.netloc}" for each in line.discovered_servers}
        self._servers = [*self._access.servers, *sorted(discovered - set(self._access.servers))]
        log.info("connected to NATS", **line.server_facts)
        self._ring()

    async def _pulse(self, line: Line) -> None:
        """Waits; then the server must answer, or the line counts as lost."""
        await asyncio.wait({line.lost}, timeout=PULSE_SECONDS)
        if line.lost.done():
            return
        try:
            await asyncio.wait_for(self._flushed(line), PULSE_SECONDS)
        except (TimeoutError, Disconnected, errors.Error, OSError):
            line.hang_up()

    async def _lose(self, line: Line) -> None:
        line.hang_up()
        self._rising = None
        if self._line is line:
            self._line = None
            self._tell_outage(f"The connection to NATS at {', '.join(self._access.servers)} was lost.")
            self._ring()
            for subscription in self._subscriptions:
                if subscription.on_loss is not None:
                    subscription.on_loss()
        for replies in list(self._replies.values()):
            replies.close()
            replies.tell(Disconnected(self._outage or "The connection to NATS was lost."))
        await line.close()

    def _tell_outage(self, text: str) -> None:
        if text != self._outage and self._life is not None:
            log.warning("NATS is not connected; trying again", problem=text)
        self._outage = text

    def _ring(self) -> None:
        for bell in self._bells:
            bell.ring()

    async def _hear_error(self, error: Exception) -> None:
        """What the server or the library says of a connection that stands."""
        violation = _VIOLATION.search(str(error).lower())
        if violation:
            self._violated(violation["what"], violation["subject"])
        elif isinstance(error, errors.SlowConsumerError) and self._line is not None:
            log.error("messages came faster than they were taken: connecting anew", subject=error.subject)
            self._line.hang_up()
        elif not isinstance(error, errors.Error | OSError):
            log.error("a message was not handled", exc_info=error)
        elif not isinstance(error, errors.UnexpectedEOF):  # the loss of the line says that
            log.warning("NATS reports an error", error=str(error) or type(error).__name__)

    def _violated(self, what: str, subject: str) -> None:
        told = f"NATS does not permit {what} to `{subject}` with these credentials; {PERMISSIONS}."
        if told not in self._violations and len(self._violations) < 100:
            self._violations[told] = None
            log.error("NATS does not permit a subject", what=what, subject=subject, see=PERMISSIONS)
        if what == "publish":
            for replies in [each for each in self._replies.values() if each.subject == subject]:
                replies.close()
                replies.tell(NotPermitted(told))
