"""Whether another process serves an agent of this name: two would take each other's requests, each into a file of its own.

Every agent hears what is told on its own news subject. Who hears another that began later tells its own news at once, so that the
other, which began later, hears of it and gives up. Both are told; one goes on as if nothing had been."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from perdure.errors import ConfigurationError
from perdure.transport.nats.connection import Connection, Message, Subscription
from perdure.transport.nats.names import Names
from perdure.transport.nats.wire import SERVING, Malformed, News, decode_news

ANSWER_SECONDS = 0.1
"""For the other one to make itself heard before requests are taken here. Later is early enough to give up, too."""

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
        self._answer: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Listens. While NATS is away the other one is heard once it is there."""
        self._subscription = await self._connection.subscribe(self._names.news(self._agent), self._hear)

    async def check(self) -> None:
        """Once the news of this process was told: raises ConfigurationError when another one answers to it."""
        if not self._connection.connected:
            return
        try:
            await asyncio.wait_for(self.displaced.wait(), ANSWER_SECONDS)
        except TimeoutError:
            return
        raise self.refusal()

    def refusal(self) -> ConfigurationError:
        return ConfigurationError(
            f"Another process (boot {self._met}) serves the agent {self._agent!r} in the namespace {self._names.namespace!r} of "
            "this NATS, and began earlier. Stop that one, or start this one with another --agent-name or --namespace; what "
            "this database holds stays as it is."
        )

    async def stop(self) -> None:
        if self._subscription is not None:
            await self._subscription.leave()
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
