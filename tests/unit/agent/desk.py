"""A gateway's port before an agent whose methods are asked without NATS: real store, real copy, answers that a test withholds."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure.agent.codec import from_json, to_json
from perdure.agent.directory import Directory
from perdure.agent.remote import RemoteAgents
from perdure.bridge.context import Context
from perdure.bridge.methods.table import table
from perdure.bridge.resting import Resting
from perdure.clock import SystemClock
from perdure.errors import AgentUnavailable
from perdure.events import Event, Unfollowed
from perdure.replication import JournalRows, Position
from perdure.store.sqlite.replica import SQLiteReplica, open_replica
from perdure.transport.local import LocalTransport
from perdure.transport.nats.names import Names
from perdure.transport.nats.wire import decode, encode
from perdure.turns import Accepted
from tests.conformance.apart import UNHURRIED
from tests.servers.process import LIMIT_SECONDS
from tests.unit.engine.graphs import World
from tests.unit.engine.graphs import agent as scripted
from tests.unit.engine.house import ME, House, hosted, make_house

IN_VAIN_SECONDS = 0.6
"""For who waits for nothing: long enough to ask a second time."""


@dataclass
class DeskAsks:
    """Implements `Asks` over the methods of houses by the agent's name."""

    methods: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    refusing: dict[str, Exception] = field(default_factory=dict)
    """Method → what is raised instead of an answer."""

    calls: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)
    before: Callable[[str, str], None] = lambda agent, method: None
    """Called with each request before it is answered."""

    async def call(
        self,
        agent: str,
        method: str,
        params: Mapping[str, Any],
        *,
        within_seconds: float,
        request_id: str | None = None,
    ) -> Any:
        assert within_seconds > 0
        self.before(agent, method)
        sent = decode(encode(dict(params)))
        self.calls.append((agent, method, sent))
        await asyncio.sleep(0)
        if agent in self.away or agent not in self.methods:
            raise AgentUnavailable(f"Agent {agent} is away.")
        if method in self.refusing:
            raise self.refusing[method]
        asked = self.methods[agent][method]
        return decode(encode(await asked.handle(asked.params.model_validate(sent))))

    async def discover(self, *, within_seconds: float) -> AsyncIterator[Any]:
        for agent in self.methods:
            if agent not in self.away:
                yield await self.call(agent, "agent/describe", {}, within_seconds=within_seconds)

    def asked(self, method: str) -> int:
        return sum(each == method for _, each, _ in self.calls)


@dataclass
class DeskFeed:
    """Implements `Feed`: what the follower does, when it is asked and at no other time."""

    asks: DeskAsks
    replica: SQLiteReplica
    transport: LocalTransport
    attended: list[str] = field(default_factory=list)

    async def attend(self, agent: str, conversation: str) -> None:
        self.attended.append(conversation)
        if agent not in self.asks.away:
            await self.refresh(agent, conversation)

    async def refresh(self, agent: str, conversation: str) -> None:
        held = to_json(Position, await self.replica.position(agent))
        rows = from_json(JournalRows, await self.asks.call(agent, "journal/read", held, within_seconds=1))
        after = await self.replica.last_seq(conversation) or 0
        asked = {"conversation": conversation, "after": after}
        found = await self.asks.call(agent, "events/read", asked, within_seconds=1)
        events = [from_json(Event, document) for document in found["events"]]
        for event in await self.replica.record(events, rows=[(agent, rows)]):
            self.transport.publish(event)

    @asynccontextmanager
    async def without(self, agent: str) -> AsyncIterator[None]:
        yield


@dataclass
class DeskWaiting:
    """Implements `Waiting`."""

    dispatches: list[tuple[str, str, str]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    observers: dict[str, list[Callable[[Unfollowed], None]]] = field(default_factory=lambda: defaultdict(list))

    async def dispatched(self, agent: str, conversation: str, turn: str) -> None:
        self.dispatches.append((agent, conversation, turn))

    def forget(self, agent: str) -> None:
        self.forgotten.append(agent)

    def observe(self, conversation: str, observer: Callable[[Unfollowed], None]) -> Callable[[], None]:
        self.observers[conversation].append(observer)
        return lambda: self.observers[conversation].remove(observer)


@dataclass
class Desk:
    port: RemoteAgents
    asks: DeskAsks
    replica: SQLiteReplica
    transport: LocalTransport
    directory: Directory
    feed: DeskFeed
    waiting: DeskWaiting
    houses: dict[str, House]
    worlds: dict[str, World]
    draining: bool = False

    @property
    def house(self) -> House:
        return next(iter(self.houses.values()))

    @property
    def world(self) -> World:
        return next(iter(self.worlds.values()))

    async def send(self, text: str, conversation: str | None = None, *, agent: str | None = None) -> Accepted:
        return await self.port.start(
            ME, input={"message": text}, conversation=conversation, agent=agent, when_busy="reject", request_key=None
        )

    async def behind(self, text: str) -> Accepted:
        """A turn that the agent did by itself: the copy has not heard of it."""
        accepted = await self.house.send(text)
        await self.house.until(accepted)
        return accepted

    async def copied(self, accepted: Accepted) -> None:
        """The copy holds all of the conversation."""
        agent = next(iter(self.houses))
        asked = {"turns": [accepted.turn]}
        rows = from_json(JournalRows, await self.asks.call(agent, "journal/read", asked, within_seconds=1))
        events = await self.house.store.events(accepted.conversation)
        await self.replica.record(events, rows=[(agent, rows)])

    async def lose(self, agent: str = "agent") -> None:
        """The agent does not answer any more, and the directory knows."""
        self.asks.away.add(agent)
        gone = asyncio.Event()
        stop = self.directory.observe(lambda name, reach: gone.set())
        self.directory.unanswered(agent)
        await asyncio.wait_for(gone.wait(), LIMIT_SECONDS)
        stop()


@asynccontextmanager
async def open_desk(
    folder: Path, *names: str, default: str | None = None, met: bool = True, wait_seconds: float = LIMIT_SECONDS
) -> AsyncIterator[Desk]:
    names = names or ("agent",)
    local, clock = LocalTransport(), SystemClock()
    asks = DeskAsks()
    houses: dict[str, House] = {}
    worlds: dict[str, World] = {}
    replica = await open_replica(folder / "gateway.db", notify=local, clock=clock)
    directory = Directory(replica, asks, clock, default=default)
    try:
        for name in names:
            worlds[name] = World()
            houses[name] = await make_house(folder / f"{name}.db", hosted(name, scripted(worlds[name])))
            asks.methods[name] = table(_context(name, houses[name]))
        await directory.open()
        if met:
            await _meet(directory, names)
        feed, waiting = DeskFeed(asks, replica, local), DeskWaiting()
        desk: Desk
        port = RemoteAgents(
            replica,
            local,
            asks,
            directory,
            waiting=waiting,
            feed=feed,
            wait_seconds=wait_seconds,
            times=UNHURRIED,
            draining=lambda: desk.draining,
        )
        desk = Desk(port, asks, replica, local, directory, feed, waiting, houses, worlds)
        yield desk
    finally:
        await directory.close()
        for house in houses.values():
            await house.worker.drain(0.0)
            house.transport.close()
            await house.store.close()
        local.close()
        await replica.close()


async def _meet(directory: Directory, names: tuple[str, ...]) -> None:
    met = asyncio.Event()
    stop = directory.observe(lambda name, reach: met.set() if set(names) <= set(directory.reaches()) else None)
    await directory.connected()
    await asyncio.wait_for(met.wait(), LIMIT_SECONDS)
    stop()


def _context(name: str, house: House) -> Context:
    return Context(
        agent=name,
        names=Names("perdure", "default"),
        agents=house.agents,
        journal=house.store,
        transport=house.transport,
        resting=Resting(),
        boot="boot",
        version="1",
        max_message_bytes=100_000,
        leaving=lambda: False,
    )
