"""What every implementation of the Agent port is tried with: one agent on a real journal, whatever stands before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.agent.base import AgentPort
from perdure.events import Event, Frame, Gone, ListsReset, Reached, Reset, Unfollowed
from perdure.store.sqlite.store import SQLiteStore
from perdure.transport.base import Transport
from perdure.turns import (
    ENDED,
    Accepted,
    Card,
    CardState,
    Change,
    DecisionKind,
    Person,
    RequestKey,
    Role,
    TurnStatus,
    Verdict,
)
from tests.conformance.apart import Place, agent_apart, gateway_apart
from tests.servers.nats_server import NatsServer
from tests.unit.engine.graphs import World
from tests.unit.engine.graphs import agent as scripted
from tests.unit.engine.house import hosted, open_house

PATIENCE_SECONDS = 60.0
RESTING = ENDED | {TurnStatus.PARKED}

ME = Person("me", "me", Role.USER)
OTHER = Person("other", "other", Role.USER)
OPERATOR = Person("boss", "boss", Role.OPERATOR)
ADMIN = Person("admin", "local", Role.OPERATOR, admin=True)


@dataclass
class Port:
    """The port under test, the transport whose `changes` tells of news there, and what is behind it."""

    agents: AgentPort
    transport: Transport
    world: World
    journal: SQLiteStore
    """The agent's own."""

    async def send(
        self,
        text: str,
        conversation: str | None = None,
        *,
        person: Person = ME,
        agent: str | None = None,
        busy: str = "reject",
        key: RequestKey | None = None,
        discard: bool = False,
    ) -> Accepted:
        return await self.agents.start(
            person,
            input={"message": text},
            conversation=conversation,
            agent=agent,
            when_busy=busy,
            request_key=key,
            discard_pending=discard,
        )

    async def until(self, accepted: Accepted, *statuses: TurnStatus) -> None:
        """The turn rests, or is in one of these states, as the port tells it."""
        wanted = frozenset(statuses) or RESTING
        await self.comes(lambda: self._is_in(accepted.turn, wanted))

    async def _is_in(self, turn: str, wanted: frozenset[TurnStatus]) -> bool:
        return (await self.agents.turn(OPERATOR, turn)).turn.status in wanted

    async def comes(self, condition: Callable[[], Any]) -> None:
        """Until an awaited condition holds; asked again at each news."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            with self.transport.listen("changes") as bell:
                while not await condition():
                    await bell.wait()

    async def done(self, text: str, conversation: str | None = None, **more: Any) -> Accepted:
        accepted = await self.send(text, conversation, **more)
        await self.until(accepted)
        return accepted

    async def parked(self, text: str = "call ask", **more: Any) -> tuple[Accepted, Card]:
        """A turn that asks one question."""
        accepted = await self.done(text, **more)
        detail = await self.agents.turn(OPERATOR, accepted.turn)
        (card,) = [card for card in detail.cards if card.state is CardState.OPENED]
        return accepted, card

    async def said(self, accepted: Accepted, person: Person = ME) -> list[str]:
        transcript = await self.agents.conversation(person, accepted.conversation)
        return [f"{each['role']}: {each['content']}" for each in transcript.messages]

    async def frames(
        self, conversation: str, *, after: int | None = None, follow: bool = False, person: Person = ME
    ) -> list[Frame | Gone | Unfollowed]:
        """To the end of the stream."""
        stream = await self.agents.follow(person, conversation, after=after, follow=follow)
        async with asyncio.timeout(PATIENCE_SECONDS):
            return [frame async for frame in stream]

    @asynccontextmanager
    async def watching(
        self, conversation: str, *, after: int | None = None, follow: bool = True, person: Person = ME
    ) -> AsyncIterator[Watcher]:
        watcher = Watcher(await self.agents.follow(person, conversation, after=after, follow=follow))
        try:
            yield watcher
        finally:
            await watcher.leave()


class Watcher:
    """Reads a stream in the background and keeps all of it."""

    def __init__(self, stream: AsyncIterator[Any]) -> None:
        self.frames: list[Any] = []
        self._news = asyncio.Event()
        self._reading = asyncio.create_task(self._read(stream))

    async def _read(self, stream: AsyncIterator[Any]) -> None:
        try:
            async for frame in stream:
                self.frames.append(frame)
                self._news.set()
        finally:
            await stream.aclose()  # type: ignore[attr-defined]
            self._news.set()

    async def until(self, condition: Callable[[Sequence[Any]], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition(self.frames):
                assert not self._reading.done(), f"it has ended with {self.frames}: {self._reading}"
                self._news.clear()
                await self._news.wait()

    async def to_the_end(self) -> list[Any]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._reading
        return self.frames

    async def leave(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


def events(frames: Sequence[Any]) -> list[Event]:
    return [frame for frame in frames if isinstance(frame, Event)]


def shown(frames: Sequence[Any]) -> list[Frame]:
    """Without what ends a stream."""
    return [frame for frame in frames if isinstance(frame, Event | Reset)]


def committed(frames: Sequence[Any]) -> list[Event]:
    return [event for event in events(frames) if event.kind != "token"]


def answer(value: Any) -> Verdict:
    return Verdict(DecisionKind.ANSWER, value=value)


async def changes(stream: AsyncIterator[Any], count: int) -> list[Change | ListsReset]:
    """The next so many, without what is told of agents that may be away; then the stream is left."""
    found: list[Change | ListsReset] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for change in stream:
            if not isinstance(change, Reached):
                found.append(change)
            if len(found) == count:
                break
    await stream.aclose()  # type: ignore[attr-defined]
    return found


# -- implementations --------------------------------------------------------------------------------------------------


class SharedNats:
    """Started by the first test that needs it; each has a prefix of its own there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: NatsServer | None = None

    async def running(self) -> NatsServer:
        if self._server is None:
            # What is asked of the store here is not that it outlives a power cut.
            self._server = await NatsServer(self._folder, sync_interval="2m").start()
        return self._server

    def close(self) -> None:
        if self._server is not None:
            self._server.kill()


@asynccontextmanager
async def local(folder: Path, nats: SharedNats) -> AsyncIterator[Port]:
    world = World()
    async with open_house(folder / "agent.db", hosted("agent", scripted(world))) as house:
        yield Port(house.agents, house.transport, world, house.store)


@asynccontextmanager
async def remote(folder: Path, nats: SharedNats) -> AsyncIterator[Port]:
    world, place = World(), Place((await nats.running()).settings())
    async with (
        agent_apart(place, folder / "agent.db", hosted("agent", scripted(world))) as apart,
        gateway_apart(place, folder / "gateway.db", default="agent", answer_seconds=PATIENCE_SECONDS) as gateway,
    ):
        await gateway.reaches("agent")
        yield Port(gateway.agents, gateway.transport, world, apart.store)


IMPLEMENTATIONS: dict[str, Callable[[Path, SharedNats], AbstractAsyncContextManager[Port]]] = {
    "local": local,
    "remote": remote,
}
"""Every implementation runs the same suite: a folder of its own, and where a NATS is, if it needs one."""
