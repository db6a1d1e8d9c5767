"""The store, the engine and the agent port in this process, over a file system layer of the test's choosing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from langchain_core.tools import tool

from perdure import call_key, effect
from perdure.agent.local import LocalAgents
from perdure.clock import Clock
from perdure.config import AgentSettings, Settings
from perdure.engine.worker import Worker
from perdure.events import Event, EventKind
from perdure.graph.load import load_agents
from perdure.store.sqlite.database import SYNCHRONOUS
from perdure.store.sqlite.store import open_store
from perdure.transport.local import LocalTransport
from perdure.turns import Card, CardState, DecisionKind, Limits, Person, RequestKey, Turn, TurnStatus, Verdict
from tests.crash.powerloss import RecordingVFS

OWNER = Person("owner", "owner")
GRAPHS = Path(__file__).parent / "graphs"
SPEED = 10


reached: list[Callable[[str], None]] = []
"""Told of each call of `pay`, by its key, before it goes on."""


@effect("once")
@tool
async def pay(amount: int) -> str:
    """Pays."""
    for tell in reached:
        tell(call_key() or "")
    return f"{amount} paid"


class FastClock:
    """The system's clock, running `SPEED` times as fast: leases, delays and sweeps pass sooner, nothing else changes."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._start = datetime.now(UTC)

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return (self._loop.time() - self._begun) * SPEED

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / SPEED)


class MarkingTransport(LocalTransport):
    """Writes every event that it is told of into the layer's log: told means promised."""

    def __init__(self, vfs: RecordingVFS) -> None:
        super().__init__()
        self._vfs = vfs

    def publish(self, event: Event) -> None:
        if event.kind is not EventKind.TOKEN:
            self._vfs.mark(("event", event.conversation, event.seq, str(event.kind), event.turn))
        super().publish(event)


class Embedded:
    def __init__(self, port: LocalAgents, vfs: RecordingVFS) -> None:
        self._port = port
        self._vfs = vfs

    async def send(self, text: str, *, agent: str = "demo", conversation: str | None = None) -> tuple[str, str]:
        """Conversation and turn, once the message is durable; the promise is marked in the layer's log."""
        accepted = await self._port.start(
            OWNER,
            input={"message": text},
            conversation=conversation,
            agent=agent,
            when_busy="enqueue",
            request_key=RequestKey(uuid4().hex, ""),
        )
        self._vfs.mark(("accepted", accepted.conversation, accepted.turn))
        return accepted.conversation, accepted.turn

    async def answer_all(self, conversation: str, turn: str) -> None:
        """Decides every open card: answers a question with its side, approves, and says of an uncertain call that it happened."""
        detail = await self._port.turn(OWNER, turn)
        cards = [card for card in detail.cards if card.state is CardState.OPENED]
        await self._port.answer(OWNER, conversation, {card.interrupt_id: _verdict(card) for card in cards})
        for card in cards:
            self._vfs.mark(("decided", conversation, card.id))

    async def cancel(self, turn: str) -> None:
        await self._port.cancel(OWNER, turn)

    async def at_rest(self, turn: str, limit_seconds: float = 60.0) -> Turn:
        """The turn once it has ended or is parked."""
        async with asyncio.timeout(limit_seconds):
            while True:
                found = (await self._port.turn(OWNER, turn)).turn
                if found.ended_at is not None or found.status is TurnStatus.PARKED:
                    return found
                await asyncio.sleep(0.01)

    async def answer_of(self, conversation: str) -> str:
        """The last message of the conversation."""
        return str((await self._port.conversation(OWNER, conversation)).messages[-1]["content"])

    async def turns(self) -> list[Turn]:
        page = await self._port.turns(OWNER, limit=200, cursor=None, status=None, agent=None)
        return list(page.items)


def _verdict(card: Card) -> Verdict:
    if card.kind == "approval":
        return Verdict(DecisionKind.APPROVE)
    if card.kind == "uncertain":
        return Verdict(DecisionKind.HAPPENED, result="paid")
    return Verdict(DecisionKind.ANSWER, value=card.request["side"])


@asynccontextmanager
async def embedded(
    database: Path, vfs: RecordingVFS, *, synchronous: str = SYNCHRONOUS, clock: Clock | None = None
) -> AsyncIterator[Embedded]:
    """A running engine on the database; drained and closed at the end."""
    clock = clock or FastClock()
    demo = AgentSettings("demo")
    parked = AgentSettings("parked", graph="./parked.py:graph", base=GRAPHS)
    paying = AgentSettings("paying", tools=("tests.crash.embedded:pay",), needs_approval=("pay",))
    settings = Settings(
        database=database, agents=(demo, parked, paying), default_agent="demo", lease_seconds=6, sweep_seconds=3
    )
    transport = MarkingTransport(vfs)
    agents = {hosted.name: hosted for hosted in await load_agents(settings, clock)}
    store = await open_store(
        database, clock=clock, limits=Limits(), notify=transport, synchronous=synchronous, vfs=vfs.name
    )
    worker = Worker(store, transport, agents, settings, clock)
    await worker.start()
    reached[:] = [lambda key: vfs.mark(("started", "", key))]
    try:
        yield Embedded(LocalAgents(store, transport, agents, "demo"), vfs)
    finally:
        await worker.drain(20)
        transport.close()
        await store.close()
