"""The Agent port over NATS as a gateway has it, and the agent behind it: both in this process, a real NATS between them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from perdure.agent.calls import Times
from perdure.agent.directory import Directory
from perdure.agent.follower import Follower
from perdure.agent.local import LocalAgents
from perdure.agent.persister import Persister
from perdure.agent.remote import RemoteAgents
from perdure.bridge.bridge import Bridge
from perdure.bridge.bridged import Bridged
from perdure.clock import SystemClock
from perdure.config import Settings
from perdure.engine.worker import Worker
from perdure.graph.load import HostedGraph
from perdure.replication import Reach
from perdure.store.sqlite.replica import SQLiteReplica, open_replica
from perdure.store.sqlite.store import SQLiteStore, open_store
from perdure.transport.local import LocalTransport
from perdure.transport.nats.caller import Caller
from perdure.transport.nats.connection import Connection
from perdure.transport.nats.live import Feed
from perdure.transport.nats.names import Names
from perdure.transport.nats.stream import EventStream
from perdure.turns import Limits
from tests.servers.process import LIMIT_SECONDS

ANSWER_SECONDS = 5.0
"""More than an agent that is there ever needs to say so; one that is gone without a word is given up within the limit."""

UNHURRIED = Times(read=LIMIT_SECONDS, lookup=LIMIT_SECONDS, refresh=LIMIT_SECONDS)


@dataclass
class Place:
    """A namespace of its own on a NATS that others use too."""

    settings: Settings
    names: Names = field(default_factory=lambda: Names(f"t{secrets.token_hex(6)}", "default"))

    async def connect(self, stack: AsyncExitStack, name: str) -> Connection:
        connection = Connection(self.settings, name=name, inbox=self.names.inbox(name))
        stack.push_async_callback(connection.close)
        await connection.start(wait_seconds=LIMIT_SECONDS)
        return connection


@dataclass
class AgentApart:
    """An agent's process."""

    agents: LocalAgents
    store: SQLiteStore
    transport: Bridged
    worker: Worker
    bridge: Bridge


@asynccontextmanager
async def agent_apart(place: Place, path: Path, agent: HostedGraph) -> AsyncIterator[AgentApart]:
    clock, settings = SystemClock(), Settings(sweep_seconds=0.5)
    async with AsyncExitStack() as stack:
        bridged = Bridged(LocalTransport())
        store = await open_store(path, clock=clock, limits=Limits(), notify=bridged)
        stack.push_async_callback(store.close)
        hosted = {agent.name: agent}
        worker = Worker(store, bridged, hosted, settings, clock)
        agents = LocalAgents(store, bridged, hosted, agent.name, draining=lambda: worker.draining)
        connection = await place.connect(stack, "agent")
        stack.callback(bridged.close)
        bridge = Bridge(
            connection, place.names, agent.name, agents, store=store, transport=bridged, clock=clock, version="test"
        )
        stack.push_async_callback(bridge.stop)
        await bridge.start()
        stack.push_async_callback(worker.drain, 0.0)
        await worker.start()
        yield AgentApart(agents, store, bridged, worker, bridge)


@dataclass
class GatewayApart:
    """A gateway's process without its HTTP server."""

    agents: RemoteAgents
    replica: SQLiteReplica
    transport: LocalTransport
    directory: Directory
    follower: Follower
    persister: Persister

    async def reaches(self, agent: str, reach: Reach = Reach.REACHABLE) -> None:
        """Until the directory says so, and the copy is brought up to date of an agent that is there."""
        seen = asyncio.Event()
        stop = self.directory.observe(lambda name, told: seen.set())
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                while self.directory.reach(agent) is not reach:
                    seen.clear()
                    await seen.wait()
                if reach is Reach.REACHABLE:
                    await self.follower.attach(agent)
        finally:
            stop()


@asynccontextmanager
async def gateway_apart(
    place: Place,
    path: Path,
    *,
    default: str | None = None,
    answer_seconds: float = ANSWER_SECONDS,
    deadline_seconds: float = 900.0,
) -> AsyncIterator[GatewayApart]:
    """One whose people are patient: a slow agent is no absent one."""
    clock, local = SystemClock(), LocalTransport()
    async with AsyncExitStack() as stack:
        replica = await open_replica(path, notify=local, clock=clock, version="test")
        stack.push_async_callback(replica.close)
        connection = await place.connect(stack, "gateway")
        asks = Caller(connection, place.names)
        directory = Directory(replica, asks, clock, default=default, answer_seconds=answer_seconds)
        await directory.open()
        stack.push_async_callback(directory.close)
        follower = Follower(
            replica,
            local,
            connection,
            Feed(connection, place.names),
            EventStream(connection, place.names),
            asks=asks,
            directory=directory,
            clock=clock,
            attend_seconds=LIMIT_SECONDS,
            refresh_seconds=LIMIT_SECONDS,
        )
        persister = Persister(
            replica, follower, asks=asks, directory=directory, clock=clock, deadline_seconds=deadline_seconds
        )
        agents = RemoteAgents(
            replica,
            local,
            asks,
            directory,
            waiting=persister,
            feed=follower,
            wait_seconds=LIMIT_SECONDS,
            times=UNHURRIED,
        )
        await follower.start()
        stack.push_async_callback(follower.stop)
        await persister.start()
        stack.push_async_callback(persister.stop)
        stack.callback(local.close)
        yield GatewayApart(agents, replica, local, directory, follower, persister)
