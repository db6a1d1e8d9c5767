"""The agent's side of NATS: answers requests, publishes what was committed, tells that it is there."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.agent.base import AgentPort
from perdure.bridge.bridged import Bridged
from perdure.bridge.context import Context, Journal
from perdure.bridge.herald import Herald
from perdure.bridge.methods.table import table
from perdure.bridge.namesake import Namesake
from perdure.bridge.publisher import Publisher
from perdure.bridge.resting import MAX_WAITING, Resting
from perdure.clock import Clock
from perdure.transport.nats.answerer import Answerer
from perdure.transport.nats.connection import Connection
from perdure.transport.nats.live import Tidings
from perdure.transport.nats.names import Names
from perdure.transport.nats.stream import EventStream

MAX_WORKING = 256
"""Requests answered at once, beside those that only wait for the end of a turn."""

ANSWERS_SECONDS = 2.0
"""Of the time to stop: for requests under way."""


class Bridge:
    """Order: `Bridge(...)` before the worker starts; `start` once this process's health check answers and before orphans are
    released; `leave` when the drain begins; `stop` after the drain, so that the hand-over of turns is published, too."""

    def __init__(
        self,
        connection: Connection,
        names: Names,
        agent: str,
        agents: AgentPort,
        *,
        store: Journal,
        transport: Bridged,
        clock: Clock,
        version: str = "",
        max_message_bytes: int = 1_000_000,
    ) -> None:
        """`connection`: made, started and closed by the caller; it may be away at any time. `agent`: the one agent served here.
        `transport`: what `store` notifies. Raises BadRequest for a name that is no word of a subject."""
        names.requests(agent)
        self._connection = connection
        self._transport = transport
        self._leaving = False
        self._resting = Resting()
        context = Context(
            agent=agent,
            names=names,
            agents=agents,
            journal=store,
            transport=transport,
            resting=self._resting,
            boot=store.owner_name.rpartition(":")[2],
            version=version,
            max_message_bytes=max_message_bytes,
            leaving=lambda: self._leaving,
            since=int(clock.now().timestamp() * 1000),
        )
        tidings = Tidings(connection, names, agent)
        self._stream = EventStream(connection, names)
        self.publisher = Publisher(agent, store, self._stream, tidings, connection=connection, clock=clock)
        self._herald = Herald(context, tidings, connection, clock)
        self.namesake = Namesake(
            connection, names, agent, boot=context.boot, since=context.since, tell=self._herald.tell
        )
        self._answerer = Answerer(
            connection, names, agent, table(context), clock=clock, max_concurrent=MAX_WORKING + MAX_WAITING
        )
        transport.attach(self.publisher)

    async def start(self) -> None:
        """Subscribes and begins to publish, connected or not. Raises ConfigurationError when another process serves this
        agent; later that shows as `namesake.displaced`."""
        await self.namesake.start()
        await self._herald.start()
        await self._herald.tell()
        await self.namesake.check()
        self.publisher.start()
        await self._answerer.start()

    async def leave(self) -> None:
        """Says so to the gateways. New turns, decisions and the like are refused from now on; reads are answered on."""
        if not self._leaving:
            self._leaving = True
            self._resting.close()
            await self._herald.tell()

    async def stop(self, within_seconds: float = 5.0) -> None:
        """Publishes what is still to be published, as far as the time allows (the rest is published after the next start)."""
        await self.leave()
        await self.publisher.stop(within_seconds)
        self._transport.attach(None)
        await self._answerer.stop(within_seconds=ANSWERS_SECONDS)
        await self.namesake.stop()
        await self._herald.stop()

    def problems(self) -> Sequence[str]:
        """Why what happens here is not told to others now, one sentence each."""
        found = dict.fromkeys([self._connection.problem, self.publisher.problem, self._stream.problem])
        return [problem for problem in found if problem is not None]
