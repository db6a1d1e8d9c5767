"""NATS and the agents behind it, in a test's hand: real journals, real copies, and a way between them that the test steers."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from perdure.agent.base import AgentInfo
from perdure.agent.codec import to_json
from perdure.agent.description import Description
from perdure.agent.directory import Directory
from perdure.agent.follower import Follower
from perdure.agent.streams import Streams
from perdure.bridge.speech import Speech
from perdure.errors import AgentUnavailable, NotFound, NotReady, StorageError
from perdure.events import Event, EventKind, Frame, Gone, Reset
from perdure.replication import Position
from perdure.store.sqlite.replica import SQLiteReplica, open_replica
from perdure.store.sqlite.store import SQLiteStore
from perdure.testing import FakeClock
from perdure.transport.base import Bell, SlowWatcher
from perdure.transport.local import LocalTransport
from perdure.transport.nats.live import EventHeard, Gap, GapReason, Heard, NewsHeard, TokenHeard
from perdure.transport.nats.names import Address
from perdure.transport.nats.stream import Stored
from perdure.transport.nats.wire import EventMessage, News, event_to_json, rows_to_json
from perdure.turns import ENDED, Limits, TurnStatus
from tests.conformance.conftest import sqlite_journal
from tests.conformance.journal import Heard as Remembered
from tests.conformance.journal import Journal

STATEFUL = frozenset({EventKind.APPROVAL, EventKind.REWIND, EventKind.END, EventKind.CHAT_ERROR})


async def eventually(true: Callable[[], bool | Awaitable[bool]]) -> None:
    """Looks again whenever the loop has done something else."""
    async with asyncio.timeout(60):
        while not (found if isinstance(found := true(), bool) else await found):
            await asyncio.sleep(0.002)


class Outgoing(Remembered):
    """What a store tells: to the agent's own watchers at once, and to be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.local = LocalTransport()
        self.unsent: deque[Event] = deque()

    def publish(self, event: Event) -> None:
        super().publish(event)
        self.local.publish(event)
        self.unsent.append(event)

    def ring(self, topic: str) -> None:
        self.local.ring(topic)


class Station:
    """An agent: its journal, and what it sends of it when it is told to."""

    def __init__(self, air: Air, name: str, folder: Path) -> None:
        self.air = air
        self.name = name
        self.folder = folder
        self.boot = 1
        self.silent = False
        """Asked, it does not answer."""

        self.sent: dict[str, int] = {}
        self.asked: list[str] = []
        self._turn: dict[str, str] = {}
        self._speech: dict[str, Speech] = {}
        self.journal: Journal
        self.out: Outgoing

    async def open(self, limits: Limits | None = None) -> Station:
        self.folder.mkdir(exist_ok=True)
        self.journal = sqlite_journal(self.folder, limits or Limits())
        self.out = self.journal.heard = Outgoing()
        named = self.journal.name
        self.journal.name = lambda kind: f"{self.name}-{named(kind)}"  # type: ignore[method-assign]
        self.journal.accept = partial(self.journal.accept, agent=self.name)  # type: ignore[method-assign]
        self.journal.claim = partial(self.journal.claim, {self.name: None})  # type: ignore[method-assign]
        await self.journal.start()
        return self

    @property
    def store(self) -> SQLiteStore:
        return cast(SQLiteStore, self.journal.store)

    async def close(self) -> None:
        await self.store.close()

    async def start_again(self) -> None:
        """Its process dies, with all that was streamed and not sent; another one starts, and sends what was committed."""
        await self.journal._vanish(self.store)
        self.out = self.journal.heard = Outgoing()
        await self.journal.start()
        self.boot += 1
        self._speech.clear()
        for conversation in (await self.store.conversations(None, limit=200)).items:
            sent = self.sent.get(conversation.id, 0)
            self.out.unsent += await self.store.events(conversation.id, after=sent)

    async def send(self, *, all_text: bool = True, no_text: bool = False) -> None:
        """Everything that happened since, in order, text merged as the publisher does. `no_text`: it was said while the agent
        could not send."""
        unsent, self.out.unsent = self.out.unsent, deque()
        for event in unsent:
            speech = self._speech.setdefault(event.conversation, Speech())
            if event.kind is EventKind.TOKEN:
                speech.add(event, keep=not no_text)
                continue
            speech.committed(event)
            for token in speech.before(event.seq):
                self.air.hear(TokenHeard(self.name, token))
            await self._send_event(event)
        for speech in self._speech.values() if all_text else ():
            for token in speech.all(0.0):
                self.air.hear(TokenHeard(self.name, token))

    async def _send_event(self, event: Event) -> None:
        message = await self.message(event, self.sent.get(event.conversation, 0))
        self.sent[event.conversation] = event.seq
        self._turn[event.conversation] = event.turn
        self.air.keep(self.name, message)
        self.air.hear(EventHeard(self.name, message))

    async def message(self, event: Event, previous: int) -> EventMessage:
        with_rows = event.kind in STATEFUL or event.turn != self._turn.get(event.conversation)
        rows = await self.store.journal_rows(Position(), turns=[event.turn]) if with_rows else None
        if rows is not None:
            assert rows.turns, "a turn of its own"
        return EventMessage(event, previous, rows)

    async def news(self) -> None:
        position = await self.store.last_change(None)
        self.air.hear(NewsHeard(self.name, News(position, f"boot-{self.boot}")))

    async def answer(self, method: str, params: Mapping[str, Any]) -> Any:
        self.asked.append(method)
        store = self.store
        if method == "agent/describe":
            info = AgentInfo(self.name, "message", None, False)
            return to_json(Description, Description(info, "1", store.journal, f"boot-{self.boot}"))
        if method == "journal/read":
            after = Position(params.get("journal", ""), params.get("change", 0), params.get("audit", 0))
            turns, conversations = params.get("turns", ()), params.get("conversations", ())
            rows = await store.journal_rows(
                after, limit=params.get("limit", 200), turns=turns, conversations=conversations
            )
            return rows_to_json(rows)
        if method == "responses/turnStatus":
            return await self.status(params["turn_id"])
        await store.conversation(None, params["conversation"])
        if method == "events/read":
            limit = params["limit"]
            found = await store.events(params["conversation"], after=params["after"], limit=limit + 1)
            return {"events": [event_to_json(event) for event in found[:limit]], "more": len(found) > limit}
        assert method == "tokens/read", method
        with self.out.local.subscribe(params["conversation"]) as live:
            return {"events": [event_to_json(event) for event in live.retained if event.seq > params["after"]]}

    async def status(self, turn: str) -> Any:
        try:
            found = await self.store.turn(None, turn)
        except NotFound:
            return {"state": "unknown"}
        if found.status is TurnStatus.PARKED:
            state = "parked"
        elif found.status in ENDED:
            state = "done" if found.status in {TurnStatus.COMPLETED, TurnStatus.CANCELLED} else "failed"
        else:
            state = "running"
        last = await self.store.journal_rows(Position(), turns=[turn])
        return {"state": state, "last_seq": last.last_seqs[found.conversation]}


class Air:
    """Stands for the connection, the feed, the stream and the caller of one gateway."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stations: dict[str, Station] = {}
        self.connected = True
        self.generation = 1
        self.queue: list[Heard] = []
        self.stored: list[Stored] = []
        self.identity_now: str | None = "stream-1"
        self.bells = LocalTransport()
        self._wake = asyncio.Event()

    async def station(self, name: str) -> Station:
        made = self.stations[name] = await Station(self, name, self.folder / name).open()
        return made

    async def close(self) -> None:
        for station in self.stations.values():
            await station.close()

    # -- what the test does -----------------------------------------------------------------------------------------------

    def hear(self, heard: Heard) -> None:
        if self.connected:
            self.queue.append(heard)
            self._wake.set()

    @contextmanager
    def holding(self) -> Iterator[list[Heard]]:
        """What is sent meanwhile does not arrive; it is in the list."""
        held: list[Heard] = []
        hear, self.hear = self.hear, held.append  # type: ignore[method-assign, assignment]
        try:
            yield held
        finally:
            self.hear = hear  # type: ignore[method-assign]

    def keep(self, agent: str, message: EventMessage) -> None:
        address = Address("turns", agent, message.event.turn)
        self.stored.append(Stored(len(self.stored) + 1, address, message))

    def lose(self) -> None:
        self.connected = False
        self.hear_gap(GapReason.DISCONNECTED)
        self.bells.ring("link")

    def find(self) -> None:
        self.connected = True
        self.generation += 1
        self.bells.ring("link")

    def hear_gap(self, reason: GapReason) -> None:
        self.queue.append(Gap(reason))
        self._wake.set()

    def wipe(self) -> None:
        """The store of the stream is lost."""
        self.stored.clear()
        self.identity_now = f"stream-{self.generation + 1}-again"

    # -- Link ---------------------------------------------------------------------------------------------------------------

    def listen(self) -> AbstractContextManager[Bell]:
        return self.bells.listen("link")

    # -- Feed ---------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._wake.clear()

    async def stop(self) -> None:
        self._wake.set()

    def take(self) -> Sequence[Heard]:
        taken, self.queue = self.queue, []
        self._wake.clear()
        return taken

    async def wait(self) -> None:
        await self._wake.wait()

    # -- Stream -------------------------------------------------------------------------------------------------------------

    async def identity(self) -> str | None:
        return self.identity_now

    async def last_seq(self) -> int:
        return len(self.stored)

    async def read(self, after: int) -> AsyncIterator[Sequence[Stored]]:
        for begin in range(after, len(self.stored), 7):
            yield self.stored[begin : begin + 7]

    # -- Asks ---------------------------------------------------------------------------------------------------------------

    async def call(
        self,
        agent: str,
        method: str,
        params: Mapping[str, Any],
        *,
        within_seconds: float,
        request_id: str | None = None,
    ) -> Any:
        station = self.stations.get(agent)
        await asyncio.sleep(0)
        if station is None or station.silent or not self.connected:
            raise AgentUnavailable(f"{agent} does not answer")
        return json.loads(json.dumps(await station.answer(method, params)))

    async def discover(self, *, within_seconds: float) -> AsyncIterator[Any]:
        for name in list(self.stations):
            with suppress(AgentUnavailable):
                yield await self.call(name, "agent/describe", {}, within_seconds=within_seconds)


@dataclass
class Gateway:
    """A gateway's process without HTTP. `open` again: it was restarted."""

    air: Air
    path: Path
    clock: FakeClock = field(default_factory=FakeClock)
    serving: asyncio.Event = field(default_factory=asyncio.Event)

    async def open(self) -> Gateway:
        self.local = LocalTransport()
        self.replica: SQLiteReplica = await open_replica(self.path, notify=self.local, clock=self.clock)
        self.directory = Directory(self.replica, self.air, self.clock)
        await self.directory.open()
        self.follower = Follower(
            self.replica,
            self.local,
            self.air,
            self.air,
            self.air,
            asks=self.air,
            directory=self.directory,
            clock=self.clock,
        )
        self.streams = Streams(self.replica, self.local)
        await self.follower.start()
        self.serving.set()
        return self

    async def close(self) -> None:
        self.serving.clear()
        await self.follower.stop()
        await self.directory.close()
        self.local.close()
        await self.replica.close()

    async def holds(self, station: Station) -> bool:
        """Whether the copy is the journal, events and summaries alike."""
        journal = station.store
        page = await journal.conversations(None, limit=200)
        copied = await self.replica.conversations(None, limit=200, agent=station.name)
        if {each.id: each for each in page.items} != {each.id: each for each in copied.items}:
            return False
        for conversation in page.items:
            if await journal.events(conversation.id) != await self.replica.events(conversation.id):
                return False
            turns = await journal.turns(None, limit=200, conversation=conversation.id)
            kept = await self.replica.turns(None, limit=200, conversation=conversation.id)
            if [(turn.id, turn.status) for turn in turns.items] != [(turn.id, turn.status) for turn in kept.items]:
                return False
        return True


class Watcher:
    """Somebody who watches a conversation through the gateway, and comes again with the cursor when cut off."""

    def __init__(self, gateway: Gateway, station: Station, conversation: str, *, after: int | None = None) -> None:
        self.gateway = gateway
        self.station = station
        self.conversation = conversation
        self.frames: list[Frame | Gone] = []
        self.cursor = after
        self.times = 0
        self.task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while not any(isinstance(frame, Gone) for frame in self.frames):
            await self.gateway.serving.wait()
            self.times += 1
            with suppress(NotReady, SlowWatcher, StorageError):
                await self.gateway.follower.attend(self.station.name, self.conversation)
                async for frame in self.gateway.streams.frames(None, self.conversation, self.cursor, follow=True):
                    self.frames.append(frame)
                    if isinstance(frame, Event):
                        self.cursor = frame.seq
            await asyncio.sleep(0)

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def violations(self) -> list[str]:
        """A seq twice without a reset between, or text with a hole. Pieces of text are `<0>`, `<1>`, … of each message."""
        found: list[str] = []
        seen: dict[str, set[int]] = {}
        text: dict[tuple[str, int, str], str] = {}
        for frame in self.frames:
            if isinstance(frame, Reset):
                seen[frame.turn] = set()
                text = {key: said for key, said in text.items() if key[0] != frame.turn}
            elif isinstance(frame, Event):
                if frame.seq in seen.setdefault(frame.turn, set()):
                    found.append(f"seq {frame.seq} twice")
                seen[frame.turn].add(frame.seq)
                if frame.kind is EventKind.TOKEN:
                    key = (frame.turn, frame.attempt, frame.payload["message_id"])
                    text[key] = text.get(key, "") + frame.payload["text"]
        for key, said in text.items():
            pieces = said.count("<")
            if said != "".join(f"<{number}>" for number in range(pieces)):
                found.append(f"text with a hole in {key}: {said}")
        return found
