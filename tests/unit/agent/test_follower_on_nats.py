"""The follower between real parts: an agent that works, people who watch, and a NATS that dies under them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from perdure.agent.streams import Streams
from perdure.errors import NotReady, StorageError
from perdure.events import Event, EventKind, Fold, FoldedTurn, Frame, Gone, Reset
from perdure.store.sqlite.replica import SQLiteReplica
from perdure.store.sqlite.store import SQLiteStore
from perdure.transport.base import SlowWatcher
from perdure.turns import ENDED, NewTurn
from tests.conformance.apart import AgentApart, GatewayApart, Place, agent_apart, gateway_apart
from tests.servers.nats_server import NatsServer, unhurried
from tests.unit.agent.air import eventually
from tests.unit.engine.graphs import World
from tests.unit.engine.graphs import agent as scripted
from tests.unit.engine.house import hosted

AGENT = "agent"
CONVERSATIONS = 3


class Scene:
    """One agent under load, one gateway on its file."""

    def __init__(self, server: NatsServer, folder: Path) -> None:
        self.server = server
        self.place = Place(server.settings())
        self._folder = folder
        self._numbers = itertools.count(1)
        self._at_agent, self._at_gateway = AsyncExitStack(), AsyncExitStack()
        self.agent: AgentApart
        self.gateway: GatewayApart
        self.serving = asyncio.Event()
        self.sending: list[asyncio.Task[None]] = []
        self.stopping = False

    async def start_agent(self) -> None:
        apart = agent_apart(self.place, self._folder / "agent.db", hosted(AGENT, scripted(World())))
        self.agent = await self._at_agent.enter_async_context(apart)

    async def start_gateway(self) -> None:
        apart = gateway_apart(self.place, self._folder / "gateway.db")
        self.gateway = await self._at_gateway.enter_async_context(apart)
        self.serving.set()

    async def stop_gateway(self) -> None:
        self.serving.clear()
        await self._at_gateway.aclose()

    async def close(self) -> None:
        for task in self.sending:
            task.cancel()
        await asyncio.gather(*self.sending, return_exceptions=True)
        await self.stop_gateway()
        await self._at_agent.aclose()

    async def send(self, conversation: str | None) -> str:
        """A turn of some steps; the conversation's id. It is given to the agent itself: no gateway waits for it."""
        number = next(self._numbers)
        accepted = await self.agent.store.accept(
            NewTurn(
                turn_id=f"{number:032x}",
                owner="anna",
                agent=AGENT,
                input={"message": f"call a b {number}" if number % 2 else f"hello {number}"},
                conversation=conversation,
                new_conversation_id=f"conversation-{number}",
                title=str(number),
            )
        )
        return accepted.conversation

    async def keep_busy(self, conversation: str) -> None:
        while not self.stopping:
            with self.agent.transport.listen("changes") as bell:
                last = await self.agent.store.last_turn(None, conversation)
                if last is None or last.status in ENDED:
                    await self.send(conversation)
                await bell.wait(5.0)

    async def happens(self, count: int) -> None:
        """So many turns more were ended at the agent."""
        target = await self._ended() + count

        async def reached() -> bool:
            return await self._ended() >= target

        await eventually(reached)

    async def _ended(self) -> int:
        counts = await self.agent.store.turn_counts(None)
        return sum(number for status, number in counts.items() if status in ENDED)

    async def rests(self) -> bool:
        counts = await self.agent.store.turn_counts(None)
        return all(number == 0 for status, number in counts.items() if status not in ENDED)

    async def is_copied(self) -> bool:
        store, replica = self.agent.store, self.gateway.replica
        theirs = (await store.conversations(None, limit=50)).items
        if {each.id: each for each in theirs} != {
            each.id: each for each in (await replica.conversations(None, limit=50)).items
        }:
            return False
        for conversation in theirs:
            if await all_events(store, conversation.id) != await all_events(replica, conversation.id):
                return False
        return await store.turn_counts(None) == await replica.turn_counts(None)


async def all_events(store: SQLiteStore | SQLiteReplica, conversation: str) -> list[Event]:
    """However many there are: a page of them has an end."""
    found: list[Event] = []
    while page := await store.events(conversation, after=found[-1].seq if found else 0):
        found += page
    return found


class Person:
    """Watches one conversation, and comes again with the last id whenever the stream breaks off."""

    def __init__(self, scene: Scene, conversation: str) -> None:
        self.scene = scene
        self.conversation = conversation
        self.frames: list[Frame] = []
        self.cursor: int | None = None
        self.task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await self.scene.serving.wait()
            gateway = self.scene.gateway
            try:
                await gateway.follower.attend(AGENT, self.conversation)
                streams = Streams(gateway.replica, gateway.transport)
                async for frame in streams.frames(None, self.conversation, self.cursor, follow=True):
                    assert not isinstance(frame, Gone)
                    self.frames.append(frame)
                    if isinstance(frame, Event):
                        self.cursor = frame.seq
            except (NotReady, SlowWatcher, StorageError):
                await asyncio.sleep(0)

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def twice(self) -> list[int]:
        """Seqs that came again without a reset between."""
        seen: dict[str, set[int]] = {}
        found: list[int] = []
        for frame in self.frames:
            if isinstance(frame, Reset):
                seen[frame.turn] = set()
            elif frame.kind is not EventKind.TOKEN:
                if frame.seq in seen.setdefault(frame.turn, set()):
                    found.append(frame.seq)
                seen[frame.turn].add(frame.seq)
        return found

    async def shows_the_journal(self) -> bool:
        """Of every turn since the first that was seen whole. Raises what ended the watching."""
        if self.task.done():
            self.task.result()
        expected = Fold().apply_all(await all_events(self.scene.agent.store, self.conversation)).turns
        shown = Fold().apply_all(self.frames).turns
        later = list(expected)[list(expected).index(next(iter(shown))) + 1 :] if shown else ["nothing yet"]
        return all(_shown(shown.get(turn)) == _shown(expected.get(turn)) for turn in later)


def _shown(turn: FoldedTurn | None) -> object:
    return None if turn is None else (turn.messages, turn.tokens, turn.traces, turn.approvals, turn.ending)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    unhurried(monkeypatch)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    server = await NatsServer(tmp_path / "nats", sync_interval="2m").start()
    made = Scene(server, tmp_path)
    await made.start_agent()
    await made.start_gateway()
    yield made
    await made.close()
    server.kill()


async def _under_load(scene: Scene, rounds: int) -> None:
    conversations = [await scene.send(None) for _ in range(CONVERSATIONS)]
    await eventually(scene.rests)
    await eventually(scene.is_copied)
    people = [Person(scene, conversation) for conversation in conversations]
    scene.sending = [asyncio.create_task(scene.keep_busy(conversation)) for conversation in conversations]
    for _ in range(rounds):
        await scene.happens(CONVERSATIONS)
        scene.server.kill()
        await scene.happens(1)
        await scene.server.start()
        await scene.happens(CONVERSATIONS)
        await scene.server.restart(wipe=True)
        await scene.happens(CONVERSATIONS)
        await scene.stop_gateway()
        await scene.happens(CONVERSATIONS)
        await scene.start_gateway()
        await scene.happens(CONVERSATIONS)
    scene.stopping = True
    await asyncio.gather(*scene.sending)
    await eventually(scene.rests)
    await eventually(scene.is_copied)
    for person in people:
        await eventually(person.shows_the_journal)
        assert person.twice() == []
        await person.leave()


async def test_a_nats_that_dies_and_is_wiped_and_a_gateway_that_starts_again_lose_and_repeat_nothing(
    scene: Scene,
) -> None:
    await _under_load(scene, 1)


@pytest.mark.proof
@pytest.mark.timeout(1200)
async def test_they_do_not_in_the_long_run(scene: Scene) -> None:
    await _under_load(scene, 20)
