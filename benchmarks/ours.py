"""Perdure's side: the store, the engine and the agent port in this process, everything but HTTP.

A turn here is what a client of the port gets: accepted durably, claimed, driven, finished, and followed to its end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langgraph.graph.state import StateGraph

from perdure.agent.local import LocalAgents
from perdure.clock import SystemClock
from perdure.config import AgentSettings, Settings
from perdure.engine.worker import Worker
from perdure.graph.load import HostedGraph
from perdure.store.sqlite.store import open_store
from perdure.transport.local import LocalTransport
from perdure.turns import Limits, Person

ASKER = Person("bench", "bench")


class Ours:
    def __init__(self, port: LocalAgents, path: Path) -> None:
        self._port = port
        self._conversations: dict[str, str] = {}
        self.path = path

    async def turn(self, thread: str, text: str) -> None:
        """`thread` is the caller's name; the conversation behind it is made by the first turn."""
        accepted = await self._port.start(
            ASKER,
            input={"message": text},
            conversation=self._conversations.get(thread),
            agent=None,
            when_busy="reject",
            request_key=None,
        )
        self._conversations[thread] = accepted.conversation
        last = None
        async for frame in await self._port.follow(ASKER, accepted.conversation, after=None, follow=False):
            last = frame
        assert last is not None and last.wire().get("status") == "completed", last

    def size(self) -> int:
        """Call it after the store was closed: the WAL is in the file then."""
        return self.path.stat().st_size


@asynccontextmanager
async def open_ours(path: Path, graph: StateGraph[Any, Any, Any, Any]) -> AsyncIterator[Ours]:
    clock, transport = SystemClock(), LocalTransport()
    agent = AgentSettings("agent")
    settings = Settings(database=path, agents=(agent,))
    agents = {"agent": HostedGraph("agent", agent, graph.compile(), "message")}
    store = await open_store(path, clock=clock, limits=Limits(), notify=transport)
    worker = Worker(store, transport, agents, settings, clock)
    await worker.start()
    try:
        yield Ours(LocalAgents(store, transport, agents, "agent"), path)
    finally:
        await worker.drain(5)
        transport.close()
        await store.close()
