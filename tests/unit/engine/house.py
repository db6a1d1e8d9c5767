"""Store, transport, worker and agent port of one process, on a real database file, with ways to watch and to die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from inspect import isawaitable
from pathlib import Path
from typing import Any

from langgraph.types import StateSnapshot

from perdure.agent.local import LocalAgents
from perdure.clock import Clock, SystemClock
from perdure.config import AgentSettings, Settings
from perdure.engine.hosting import host
from perdure.engine.worker import Worker
from perdure.events import Event, Fold, Frame, Gone
from perdure.graph.load import HostedGraph
from perdure.graph.policy import tool_policy
from perdure.store.sqlite.store import SQLiteStore, open_store
from perdure.testing import FakeClock
from perdure.transport.local import LocalTransport
from perdure.turns import (
    ENDED,
    Accepted,
    Card,
    CardState,
    DecisionKind,
    Limits,
    Person,
    Role,
    Turn,
    TurnStatus,
    Verdict,
)
from tests.unit.engine import graphs
from tests.unit.engine.graphs import AnyGraph

OWNER = "me"
ME = Person("me", "me", Role.USER)
PATIENCE_SECONDS = graphs.PATIENCE_SECONDS
RESTING = ENDED | {TurnStatus.PARKED}


async def eventually(true: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (await found if isawaitable(found := true()) else found):
            await asyncio.sleep(0.001)


class CountedWorker(Worker):
    """Tells how often it has looked for what may start now. On a clock that stands still it keeps no leases: the keeper
    counts real seconds, and an advance in the middle of a renewal would be a lease that was lost."""

    begun = 0
    ended = 0

    async def start(self) -> None:
        await super().start()
        if isinstance(self._clock, FakeClock):
            self._keeper.stop()

    async def _claim_due(self) -> float:
        self.begun += 1
        try:
            return await super()._claim_due()
        finally:
            self.ended += 1


class House:
    """One process. `die` leaves everything as a killed process does; `open_house` on the same path is the next one."""

    def __init__(
        self,
        store: SQLiteStore,
        transport: LocalTransport,
        agents: Mapping[str, HostedGraph],
        settings: Settings,
        clock: Clock,
    ) -> None:
        self.store = store
        self.transport = transport
        self.hosted = agents
        self.settings = settings
        self.worker = CountedWorker(store, transport, agents, settings, clock)
        self.agents = LocalAgents(store, transport, agents, next(iter(agents)), draining=lambda: self.worker.draining)

    async def send(
        self,
        input: str | Mapping[str, Any],
        conversation: str | None = None,
        *,
        agent: str | None = None,
        busy: str = "reject",
    ) -> Accepted:
        given = {"message": input} if isinstance(input, str) else {"input": input}
        return await self.agents.start(
            ME,
            input=given,
            conversation=conversation,
            agent=agent,
            when_busy=busy,
            request_key=None,
        )

    async def answer(self, accepted: Accepted, answers: Mapping[str, Any]) -> None:
        """Answers to the graph's own questions, by interrupt id."""
        said = {name: Verdict(DecisionKind.ANSWER, value=value) for name, value in answers.items()}
        await self.agents.answer(ME, accepted.conversation, said)

    async def waiting(self, accepted: Accepted) -> list[Card]:
        """The open cards, oldest first, those of one park in the order of what they ask about."""
        cards = [card for card in await self.store.cards(OWNER, accepted.turn) if card.state is CardState.OPENED]
        return sorted(cards, key=lambda card: card.opened_at)

    async def decide(self, card: Card, decision: str, **said: Any) -> None:
        await self.agents.decide(ME, card.id, Verdict(DecisionKind(decision), **said))

    async def turn(self, accepted: Accepted) -> Turn:
        return await self.store.turn(OWNER, accepted.turn)

    async def until(self, accepted: Accepted, *statuses: TurnStatus) -> Turn:
        """Waits for a status (any that rests without work when none is named)."""
        wanted = frozenset(statuses) or RESTING
        async with asyncio.timeout(PATIENCE_SECONDS):
            with self.transport.listen("changes") as bell:
                while (turn := await self.turn(accepted)).status not in wanted:
                    await bell.wait()
        return turn

    async def looked(self) -> None:
        """Returns when the worker has looked once more, from the beginning, for what may start: what is queued now, stays so
        until something changes; and what was claimed before is driven."""
        begun = self.worker.begun
        self.transport.ring("queue")
        await eventually(lambda: self.worker.ended > begun)

    async def heard(self, *texts: str) -> None:
        """Returns when this is what the models that still speak were heard to say, each its own: they are ahead of who hears."""
        (drive,) = self.worker._drives.values()
        await eventually(lambda: drive._relay and sorted(each.text for each in drive._relay.spoken()) == sorted(texts))

    async def stored(self, accepted: Accepted, tasks: int = 1) -> None:
        """Returns when so many tasks of the step that is under way have stored their results."""

        async def true() -> bool:
            return sum(task.result is not None for task in (await self.state(accepted)).tasks) == tasks

        await eventually(true)

    async def state(self, accepted: Accepted) -> StateSnapshot:
        found = await self.store.conversation(OWNER, accepted.conversation)
        graph = host(self.hosted[found.agent], self.store.reader())
        return await graph.aget_state({"configurable": {"thread_id": accepted.conversation}})

    async def messages(self, accepted: Accepted) -> list[str]:
        transcript = await self.agents.conversation(ME, accepted.conversation)
        return [f"{each['role']}: {each['content']}" for each in transcript.messages]

    async def journal(self, accepted: Accepted) -> list[Event]:
        return list(await self.store.events(accepted.conversation))

    async def frames(self, accepted: Accepted, after: int | None = None, *, follow: bool = False) -> list[Frame]:
        stream = await self.agents.follow(ME, accepted.conversation, after=after, follow=follow)
        async with asyncio.timeout(PATIENCE_SECONDS):
            return [frame async for frame in stream if not isinstance(frame, Gone)]

    async def outcomes(self, accepted: Accepted) -> list[str]:
        return [str(each.outcome) for each in await self.store.attempts(OWNER, accepted.turn)]

    async def die(self) -> None:
        """Drives stop where they are and write nothing; turns stay `running` for the next process to find."""
        for drive in self.worker._drives.values():
            drive.lose()
        tasks = [*self.worker._drives, *self.worker._others]
        if self.worker._claiming is not None:
            tasks.append(self.worker._claiming)
        for task in tasks:
            if task not in self.worker._drives:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.worker._keeper.stop()
        self.transport.close()
        await self.store.close()


def hosted(name: str, graph: AnyGraph, **settings: Any) -> HostedGraph:
    kind = "message" if "messages" in graph.channels else "json"
    own = AgentSettings(name, graph="own.py:graph", **settings)
    return HostedGraph(name, own, graph, kind, policy=tool_policy(own))


async def make_house(
    path: Path,
    *agents: HostedGraph,
    clock: Clock | None = None,
    limits: Limits | None = None,
    start: bool = True,
    **settings: Any,
) -> House:
    own = clock or SystemClock()
    transport = LocalTransport()
    store = await open_store(path, clock=own, limits=limits or Limits(), notify=transport)
    chosen = replace(Settings(sweep_seconds=0.5), **settings)
    house = House(store, transport, {agent.name: agent for agent in agents}, chosen, own)
    if start:
        await house.worker.start()
    return house


@asynccontextmanager
async def open_house(path: Path, *agents: HostedGraph, **more: Any) -> AsyncIterator[House]:
    house = await make_house(path, *agents, **more)
    try:
        yield house
    finally:
        await house.worker.drain(0.0)
        house.transport.close()
        await house.store.close()


def folded(frames: list[Frame]) -> Any:
    """What a watcher shows: comparable."""
    fold = Fold().apply_all(frames)
    return {
        turn: (shown.messages, shown.tokens, shown.traces, shown.approvals, shown.ending)
        for turn, shown in fold.turns.items()
    }
