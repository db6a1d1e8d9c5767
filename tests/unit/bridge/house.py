"""An agent's process without NATS: real store, worker and port, its events told to a publisher; and a stream that a test steers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from perdure.bridge.bridged import Bridged
from perdure.bridge.context import Context
from perdure.bridge.herald import Herald
from perdure.bridge.methods.table import table
from perdure.bridge.resting import Resting
from perdure.clock import SystemClock
from perdure.config import Settings
from perdure.events import Event, EventKind
from perdure.graph.load import HostedGraph
from perdure.store.sqlite.store import open_store
from perdure.transport.local import LocalTransport
from perdure.transport.nats.connection import Connection, Disconnected
from perdure.transport.nats.names import Names
from perdure.transport.nats.stream import StreamError
from perdure.transport.nats.wire import EventMessage, News
from perdure.turns import Limits
from tests.servers.process import LIMIT_SECONDS
from tests.unit.engine.house import House

NAMES = Names("perdure", "default")
AGENT = "own"


class AgentHouse(House):
    """`bridged` is what a publisher is attached to."""

    bridged: Bridged


async def make_agent_house(path: Path, *agents: HostedGraph, **settings: Any) -> AgentHouse:
    bridged = Bridged(LocalTransport())
    store = await open_store(path, clock=SystemClock(), limits=Limits(), notify=bridged)
    chosen = replace(Settings(sweep_seconds=0.5), **settings)
    hosted = {agent.name: agent for agent in agents}
    house = AgentHouse(store, cast(LocalTransport, bridged), hosted, chosen, SystemClock())
    house.bridged = bridged
    return house


@asynccontextmanager
async def open_agent_house(path: Path, *agents: HostedGraph, **settings: Any) -> AsyncIterator[AgentHouse]:
    house = await make_agent_house(path, *agents, **settings)
    await house.worker.start()
    try:
        yield house
    finally:
        await house.worker.drain(0.0)
        house.transport.close()
        await house.store.close()


async def eventually(true: Callable[[], bool | Awaitable[bool]]) -> None:
    """Looks again whenever the loop has done something else."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while not (found if isinstance(found := true(), bool) else await found):
            await asyncio.sleep(0.005)


# -- asking without NATS ----------------------------------------------------------------------------------------------


class Silent:
    """Stands for what sends news, and for its connection."""

    connected = True

    def __init__(self) -> None:
        self.told: list[News] = []

    async def news(self, news: News) -> None:
        self.told.append(news)


class Desk:
    """All methods of one house, asked as they are over NATS: JSON in, JSON out."""

    def __init__(self, house: AgentHouse, **more: Any) -> None:
        self.resting = Resting()
        self.leaving = False
        context = Context(
            agent=AGENT,
            names=NAMES,
            agents=house.agents,
            journal=house.store,
            transport=house.transport,
            resting=self.resting,
            boot="boot",
            version="1",
            leaving=lambda: self.leaving,
            **{"max_message_bytes": 100_000, **more},
        )
        self.methods = table(context)
        self.silent = Silent()
        self.herald = Herald(context, self.silent, cast(Connection, self.silent), SystemClock())

    async def ask(self, name: str, **params: Any) -> Any:
        method = self.methods[name]
        async with asyncio.timeout(LIMIT_SECONDS):
            return await method.handle(method.params.model_validate(params))


@asynccontextmanager
async def open_desk(house: AgentHouse, **more: Any) -> AsyncIterator[Desk]:
    desk = Desk(house, **more)
    await desk.herald.start()
    try:
        yield desk
    finally:
        await desk.herald.stop()


# -- a stream that a test steers --------------------------------------------------------------------------------------


class Line:
    """Stands for the connection."""

    def __init__(self) -> None:
        self.bells = LocalTransport()
        self.connected = True
        self.generation = 1

    def listen(self) -> Any:
        return self.bells.listen("line")

    def lose(self) -> None:
        self.connected = False
        self.bells.ring("line")

    def find(self) -> None:
        self.connected = True
        self.generation += 1
        self.bells.ring("line")


@dataclass
class Sent:
    message: EventMessage
    done: asyncio.Future[int]


@dataclass
class SteeredStream:
    """Keeps what was published, acknowledges it at once or when the test says so, and tokens in the order of all."""

    line: Line = field(default_factory=Line)
    name: str = "turns@1"
    acknowledges: bool = True
    fails: Exception | None = None
    refuses: str | None = None
    """A conversation whose events the stream does not take."""

    held: list[EventMessage] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    order: list[Event] = field(default_factory=list)
    """Events and tokens, as they left."""

    gate: asyncio.Event | None = None
    """Set it to let publishing go on."""

    async def ensure(self) -> str:
        self._check()
        return self.name

    async def identity(self) -> str | None:
        self._check()
        return self.name

    async def last_seq(self) -> int:
        self._check()
        return len(self.held)

    async def publish(self, agent: str, message: EventMessage) -> asyncio.Future[int]:
        self._check()
        if self.gate is not None:
            await self.gate.wait()
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.sent.append(Sent(message, done))
        self.order.append(message.event)
        if message.event.conversation == self.refuses:
            done.set_exception(StreamError("no"))
        elif self.fails is not None:
            done.set_exception(self.fails)
        elif self.acknowledges:
            self.keep(self.sent[-1])
        return done

    def keep(self, sent: Sent) -> None:
        """As the stream does: a message it had is acknowledged and not kept twice."""
        known = {(each.event.conversation, each.event.seq) for each in self.held}
        if (sent.message.event.conversation, sent.message.event.seq) not in known:
            self.held.append(sent.message)
        sent.done.set_result(len(self.held))

    async def token(self, event: Event) -> None:
        self.order.append(event)

    def _check(self) -> None:
        if not self.line.connected:
            raise Disconnected("gone")

    def lose(self) -> None:
        """The line is lost, and what was not acknowledged with it."""
        self.line.lose()
        for each in self.sent:
            if not each.done.done():
                each.done.set_exception(Disconnected("gone"))

    def wipe(self) -> None:
        self.name = f"turns@{int(self.name.partition('@')[2]) + 1}"
        self.held.clear()


def applied(messages: list[EventMessage]) -> Mapping[str, list[Event]]:
    """What a consumer that reads the stream from its beginning holds: each seq once, rewinds applied."""
    held: dict[str, dict[int, Event]] = {}
    for message in messages:
        event = message.event
        mine = held.setdefault(event.conversation, {})
        if event.seq in mine:
            continue
        mine[event.seq] = event
        if event.kind is EventKind.REWIND:
            dropped = [
                seq
                for seq, each in mine.items()
                if each.turn == event.turn
                and event.payload["to_seq"] < seq < event.seq
                and each.kind is not EventKind.REWIND
            ]
            for seq in dropped:
                del mine[seq]
    return {conversation: [mine[seq] for seq in sorted(mine)] for conversation, mine in held.items()}
