"""Whether another process serves an agent of this name: two would take each other's requests, each into a file of its own.

Every agent hears what is told on its own news subject. Who hears another that began later tells its own news at once, so that the
other, which began later, hears of it and gives up. Both are told; one goes on as if nothing had been.

Who starts asks first whether anybody is there: where nobody is NATS says so at once, and only where somebody is there is his
answer waited for, which may be late on a busy host."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from perdure.errors import ConfigurationError
from perdure.transport.nats.connection import Connection, Disconnected, Message, Subscription
from perdure.transport.nats.names import Names
from perdure.transport.nats.wire import SERVING, Malformed, News, decode_news

ANSWER_SECONDS = 2.0
"""For one that is there to make itself heard before requests are taken here. It may be paused; later is early enough to give
up, too."""

TOGETHER_SECONDS = 0.1
"""The same for one that starts at this very moment, so that neither found the other there."""

_log = structlog.get_logger("perdure.bridge")


class Namesake:
    """`displaced`: set when another process serves this agent, and began earlier."""

    def __init__(
        self,
        connection: Connection,
        names: Names,
        agent: str,
        *,
        boot: str,
        since: int,
        tell: Callable[[], Awaitable[None]],
    ) -> None:
        """`since`: when this process began, in milliseconds of the epoch. `tell`: tells its news."""
        self._connection, self._names, self._agent = connection, names, agent
        self._boot, self._since, self._tell = boot, since, tell
        self.displaced = asyncio.Event()
        self._met = ""
        self._heard = asyncio.Event()
        self._answer: asyncio.Task[None] | None = None
        self._subscriptions: list[Subscription] = []

    async def start(self) -> None:
        """Listens. While NATS is away the other one is heard once it is there."""
        self._subscriptions.append(await self._connection.subscribe(self._names.news(self._agent), self._hear))

    async def check(self) -> None:
        """Once the news of this process was told: raises ConfigurationError when another one answers to it. From here on who
        starts finds this one there."""
        alone = await self._is_alone()
        self._subscriptions.append(await self._connection.subscribe(self._names.presence(self._agent), _listen))
        if alone:
            await self._hear_others(TOGETHER_SECONDS)
        if self.displaced.is_set():
            raise self.refusal()

    async def _is_alone(self) -> bool:
        """False when somebody is there; then he was heard, or had the time to make himself heard."""
        try:
            nobody = await self._connection.ask(self._names.presence(self._agent))
        except Disconnected:
            return False
        # Whoever listens there says nothing there: he heard the news of this process, and answers with his own.
        await self._hear_others(ANSWER_SECONDS, nobody)
        return not nobody.cancel()

    async def _hear_others(self, seconds: float, *unless: asyncio.Future[Any]) -> None:
        heard = asyncio.ensure_future(self._heard.wait())
        try:
            waits: set[asyncio.Future[Any]] = {heard, *unless}
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            heard.cancel()

    def refusal(self) -> ConfigurationError:
        return ConfigurationError(
            f"Another process (boot {self._met}) serves the agent {self._agent!r} in the namespace {self._names.namespace!r} of "
            "this NATS, and began earlier. Stop that one, or start this one with another --agent-name or --namespace; what "
            "this database holds stays as it is."
        )

    async def stop(self) -> None:
        for subscription in self._subscriptions:
            await subscription.leave()
        if self._answer is not None:
            self._answer.cancel()
            await asyncio.gather(self._answer, return_exceptions=True)

    def _hear(self, message: Message) -> None:
        try:
            news = decode_news(message.data)
        except Malformed:
            return
        if news.boot == self._boot or news.state != SERVING or self.displaced.is_set():
            return
        self._heard.set()
        if news.boot != self._met:
            self._met = news.boot
            _log.error(
                "another_process_serves_this_agent", agent=self._agent, boot=news.boot, began_earlier=self._yields(news)
            )
        if self._yields(news):
            self.displaced.set()
        elif self._answer is None or self._answer.done():
            self._answer = asyncio.ensure_future(self._tell())

    def _yields(self, news: News) -> bool:
        """Never to one that does not say since when it is there."""
        return news.since > 0 and (news.since, news.boot) < (self._since, self._boot)


def _listen(_: Message) -> None:
    """That somebody listens is all there is to say."""
