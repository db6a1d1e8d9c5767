"""One agent followed: its journal's copy first, the watchers second. One task does all of it, so that nothing overtakes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import structlog

from perdure.agent.foreign import Ownership, Refused, check_event
from perdure.agent.gaps import Gaps
from perdure.agent.line import MAX_LINES, Line, Lines, Next
from perdure.agent.lost import Lost
from perdure.agent.syncing import Syncing
from perdure.agent.telling import Batch, Telling
from perdure.clock import Clock
from perdure.errors import AgentUnavailable
from perdure.events import Event
from perdure.replication import NAMED, JournalRows
from perdure.store.replica import Replica
from perdure.transport.local import LocalTransport, payload_size
from perdure.transport.nats.wire import EventMessage
from perdure.turns import ENDED

MAX_QUEUED = 4_096
MAX_QUEUED_BYTES = 16_000_000
MAX_BATCH = 256
PATIENCE_SECONDS = 1.0
"""Before something that broke, or was not answered, is tried again unasked."""


_NOT_KEPT = "What the agent told could not be kept. It is tried again."

_log = structlog.get_logger("perdure.agent")


class Following:
    """Give it what the agent sends (`hear`, `news`); ask it for what is missing (`attach`, `refresh`, `replay`).

    Live events are taken while each follows the one before it. Where one does not, the agent is asked for what lies between;
    while it cannot be asked the conversation is held back: its watchers wait."""

    def __init__(
        self,
        agent: str,
        replica: Replica,
        transport: LocalTransport,
        gaps: Gaps,
        clock: Clock,
        *,
        told: Callable[[Event], None],
        unfilled: Callable[[str], None],
    ) -> None:
        """`told`: called with each committed event after it went to watchers. `unfilled`: with the agent's name when something
        is missing that it cannot be asked for."""
        self.agent = agent
        self._replica = replica
        self._transport = transport
        self._gaps = gaps
        self._clock = clock
        self._unfilled = unfilled
        self._ownership = Ownership(replica, agent)
        self._lost = Lost(replica, transport, clock, self._ownership)
        self._lines = Lines()
        self._telling = Telling(agent, replica, transport, self._lines, self._lost, told=told, unfit=self.interrupted)
        self._syncing = Syncing(
            agent,
            replica,
            transport,
            gaps,
            self._ownership,
            lost=self._lost,
            lines=self._lines,
            telling=self._telling,
            drain=self._drain,
            fill=self._fill,
        )
        self._queue: deque[tuple[EventMessage | Event, int]] = deque()
        self._queued_bytes = 0
        self._replays: deque[tuple[Sequence[EventMessage], asyncio.Future[None]]] = deque()
        self._asked: dict[str, asyncio.Future[None]] = {}
        self._attaching: list[asyncio.Future[None]] = []
        self._generation = 0
        self._attached = -1
        """The generation of the feed in which the copy was brought up to date."""

        self._news_position = -1
        self._synced = -1
        self._boot = ""
        self._deleted: set[str] = set()
        self._patient_until = 0.0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._left = ""
        """Why it is followed no more."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"perdure-follow-{self.agent}")

    async def stop(self, why: str = "This server is shutting down.") -> None:
        """Nothing of the agent is taken from here on; who waits, or asks now, is told why."""
        self._left = why
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for waiter in [*self._asked.values(), *self._attaching]:
            _settle(waiter, AgentUnavailable(why))
        for _, done in self._replays:
            _settle(done)

    def _check_followed(self) -> None:
        if self._left:
            raise AgentUnavailable(self._left)

    # -- what comes in -------------------------------------------------------------------------------------------------

    def hear(self, message: EventMessage | Event) -> None:
        """A committed event as it was sent, or a token. Never waits."""
        size = _size(message)
        if len(self._queue) >= MAX_QUEUED or self._queued_bytes + size > MAX_QUEUED_BYTES:
            _log.warning("agent_sends_too_fast", agent=self.agent, dropped=len(self._queue))
            self.interrupted()
        self._queue.append((message, size))
        self._queued_bytes += size
        self._wake.set()

    def interrupted(self) -> None:
        """Messages may be missing from here on: what is not taken yet is thrown away, the agent is asked for all of it."""
        self._queue.clear()
        self._queued_bytes = 0
        self._generation += 1
        self._wake.set()

    def news(self, position: int, boot: str, deleted: Iterable[str]) -> None:
        self._news_position = position
        self._deleted.update(deleted)
        if len(self._deleted) > MAX_LINES or (self._boot and boot != self._boot):
            self._deleted.clear()
            self._generation += 1
        self._boot = boot
        self._patient_until = 0.0
        self._wake.set()

    async def attach(self) -> None:
        """Brings the copy to where the journal is now. Raises AgentUnavailable."""
        self._check_followed()
        waiter = _future()
        self._attaching.append(waiter)
        self._patient_until = 0.0
        self._wake.set()
        await waiter

    async def refresh(self, conversation: str) -> None:
        """Brings one conversation up to date. Raises AgentUnavailable."""
        self._check_followed()
        asked = self._asked.get(conversation)
        if asked is None:
            asked = self._asked[conversation] = _future()
            self._wake.set()
        await asyncio.shield(asked)

    async def replay(self, messages: Sequence[EventMessage]) -> None:
        """Events from the stream, for an agent that cannot be asked. Returns when they are taken, or not needed any more. Raises
        AgentUnavailable when they could not be kept."""
        if self._left:
            return
        done = _future()
        self._replays.append((messages, done))
        self._wake.set()
        await asyncio.shield(done)

    async def lose(self, conversation: str, turn: str) -> None:
        """The agent does not know this turn: where the copy still does, its watchers are told that it is lost."""
        if turn in await self._ownership.unended(conversation):
            await self._lost.say(conversation, turn, self._lines.told_of(conversation))
            self._lines.drop(conversation)
            self._transport.cut_off(conversation)

    @property
    def is_attached(self) -> bool:
        """Whether the copy was brought up to date since messages may have been missing last."""
        return self._attached == self._generation

    def is_whole(self, conversation: str) -> bool:
        """Whether nothing is missing that was sent of this conversation until now."""
        line = self._lines.get(conversation)
        return line is not None and line.sure == self._generation == self._attached and not self._queue

    async def is_new(self, conversation: str) -> bool:
        """Whether nothing of it was committed when the copy was brought up to date: all that came since was sent to us."""
        if not self.is_attached or self._lines.get(conversation) is not None:
            return False
        return await self._replica.last_seq(conversation) == 0

    # -- the task ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._work()
            except Exception:
                _log.exception("following_broke", agent=self.agent)
                self.interrupted()
                await self._clock.sleep(PATIENCE_SECONDS)

    async def _work(self) -> None:
        unasked = not self.is_attached and self._is_patient() and not self._replays
        if self._attaching or unasked:
            await self._attach()
        await self._drain()
        while self._asked:
            await self._answer(*self._asked.popitem())
        while self._replays:
            await self._take_replay(*self._replays.popleft())
        if self.is_attached and (self._news_position != self._synced or self._deleted):
            await self._follow_news()
        if self._queue or self._attaching:
            self._wake.set()

    async def _take_replay(self, messages: Sequence[EventMessage], done: asyncio.Future[None]) -> None:
        error: Exception | None = AgentUnavailable(_NOT_KEPT)
        try:
            await self._replay(messages)
            error = None
        finally:
            _settle(done, error)

    async def _answer(self, conversation: str, asked: asyncio.Future[None]) -> None:
        error: Exception | None = AgentUnavailable(_NOT_KEPT)
        try:
            await self._fill(conversation)
            error = None
        except AgentUnavailable as unavailable:
            error = unavailable
        finally:
            _settle(asked, error)

    def _is_patient(self) -> bool:
        """Whether the agent may be asked, for all that is known."""
        return self._clock.monotonic() >= self._patient_until

    def _hold_back(self) -> None:
        """Something is missing, and the agent does not answer. It is asked again at its next sign of life: its news, its reach."""
        self._patient_until = self._clock.monotonic() + PATIENCE_SECONDS
        self._attached = -1

    # -- the journal as a whole ------------------------------------------------------------------------------------------

    async def _attach(self) -> None:
        waiters, self._attaching = self._attaching, []
        generation = self._generation
        error: Exception | None = AgentUnavailable(_NOT_KEPT)
        try:
            await self._syncing.sync()
            for conversation in await self._watched():
                await self._fill(conversation)
            self._attached, error = generation, None
        except AgentUnavailable as unavailable:
            self._hold_back()
            if not waiters:  # they hear it; told once more, who reads the stream next would read it again for ever
                self._unfilled(self.agent)
            error = unavailable
        finally:
            for waiter in waiters:
                _settle(waiter, error)

    async def _watched(self) -> list[str]:
        """What is watched now and not known to be whole."""
        return [
            conversation
            for conversation in sorted(self._transport.watched())
            if await self._ownership.owns(conversation) and not self._is_sure(conversation)
        ]

    def _is_sure(self, conversation: str) -> bool:
        line = self._lines.get(conversation)
        return line is not None and line.sure == self._generation

    async def _follow_news(self) -> None:
        position, deleted = self._news_position, sorted(self._deleted)
        try:
            if position != (await self._replica.position(self.agent)).change:
                await self._syncing.sync()
        except AgentUnavailable:
            self._hold_back()
            self._unfilled(self.agent)
            return
        self._synced = position
        self._deleted.difference_update(deleted)
        gone = [conversation for conversation in deleted if await self._ownership.owns(conversation)]
        if gone:
            held = await self._replica.position(self.agent)
            await self._telling.commit([], JournalRows(held.journal, NAMED, held, deleted=gone))

    # -- one conversation ----------------------------------------------------------------------------------------------

    async def _fill(self, conversation: str) -> None:
        """Rows, events and text that are missing here. Raises AgentUnavailable."""
        if await self._ownership.owns(conversation) is False:
            return
        generation = self._generation
        held = await self._replica.last_seq(conversation)
        turns = await self._ownership.unended(conversation)
        async for missing in self._gaps.missing(conversation, held or 0, turns):
            rows = await self._ownership.own(missing.rows)
            if conversation not in {row["id"] for row in rows.conversations}:
                await self._forget_unknown(conversation, rows)
                return
            self._lines.of(conversation, held or 0)
            await self._telling.commit(missing.events, replace(rows, after=NAMED))
        line = self._lines.of(conversation, held or 0)
        line.holds(await self._replica.last_seq(conversation) or 0)
        line.sure = generation

    async def _forget_unknown(self, conversation: str, rows: JournalRows) -> None:
        """The agent's journal does not hold it (any more)."""
        held = await self._replica.position(self.agent)
        if rows.journal != held.journal or not await self._ownership.owns(conversation):
            return
        await self._lost.remember([conversation], self._lines.told_of)
        await self._telling.commit([], JournalRows(held.journal, NAMED, held, deleted=[conversation]))

    # -- live ----------------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Takes what is queued now."""
        while self._queue:
            batch = Batch()
            while self._queue and len(batch.items) < MAX_BATCH:
                message, size = self._queue.popleft()
                self._queued_bytes -= size
                await self._guarded(message, batch, live=True)
            await self._telling.flush(batch)

    async def _replay(self, messages: Sequence[EventMessage]) -> None:
        batch = Batch()
        for message in messages:
            await self._guarded(message, batch, live=False)
        await self._telling.flush(batch)

    async def _guarded(self, message: EventMessage | Event, batch: Batch, *, live: bool) -> None:
        event = message if isinstance(message, Event) else message.event
        try:
            if isinstance(message, Event):
                check_event(message)
                await self._take_token(message, batch)
            else:
                await self._take_event(message, batch, live=live)
        except Refused as error:
            _log.warning(
                "event_refused", agent=self.agent, conversation=event.conversation, turn=event.turn, why=str(error)
            )
        except AgentUnavailable:
            self._hold_back()
            self._unfilled(self.agent)

    async def _take_event(self, message: EventMessage, batch: Batch, *, live: bool) -> None:
        event = message.event
        line = await self._known_line(event.conversation)
        if line is not None and event.seq <= line.held:
            return
        if message.reference:
            await self._ask(event.conversation, batch, live=live)
            return
        check_event(event)
        rows = await self._rows(message, line)
        if rows is None and (line is None or event.terminal or not await self._is_of(event, line)):
            await self._ask(event.conversation, batch, live=live)
            return
        if line is None:
            line = self._lines.of(event.conversation, 0)
        if line.event_is(event, message.previous) is Next.ASK:
            await self._ask(event.conversation, batch, live=live)
            line = await self._known_line(event.conversation) or self._lines.of(event.conversation, 0)
        if message.previous > line.held:
            self._attached = -1
        elif event.seq > line.held:
            batch.add(event, rows)
            line.took(event)
            line.sure = self._generation

    async def _ask(self, conversation: str, batch: Batch, *, live: bool) -> bool:
        """Whether the agent was asked, and nothing of the conversation is missing now."""
        await self._telling.flush(batch)
        if not live:
            return False
        if not self._is_patient():
            self._attached = -1
            return False
        await self._fill(conversation)
        return True

    async def _rows(self, message: EventMessage, line: Line | None) -> JournalRows | None:
        """Those of the message, as far as they may be applied with its event."""
        rows = message.rows
        if rows is None:
            return None
        event = message.event
        if self._syncing.journal and rows.journal != self._syncing.journal:
            self.interrupted()
            raise Refused("it is of another journal")
        rows = await self._ownership.own(rows)
        turn = next((row for row in rows.turns if row["id"] == event.turn), None)
        if turn is None or turn["conversation"] != event.conversation:
            raise Refused("the agent does not own this turn of this conversation")
        ahead = turn.get("status") in ENDED and not event.terminal
        if ahead and line is not None and await self._is_of(event, line):
            return None  # the end brings its own: a turn that reads as ended has its end
        return replace(rows, after=NAMED)

    async def _is_of(self, event: Event, line: Line) -> bool:
        """Whether the event's turn is held; refused when it is another conversation's."""
        if event.turn in line.turns:
            return True
        place = await self._ownership.place(event.turn)
        if place not in {None, event.conversation}:
            raise Refused("the turn is of another conversation")
        return place is not None

    async def _known_line(self, conversation: str) -> Line | None:
        line = self._lines.get(conversation)
        if line is not None:
            return line
        owns = await self._ownership.owns(conversation)
        if owns is False:
            raise Refused("the conversation is another agent's")
        if owns is None:
            return None
        return self._lines.of(conversation, await self._replica.last_seq(conversation) or 0)

    async def _take_token(self, token: Event, batch: Batch) -> None:
        line = await self._known_line(token.conversation)
        if line is None or not await self._is_of(token, line):
            return  # its turn comes with its first event, or when the agent is asked
        following = line.token_is(token)
        if following is Next.ASK:
            asked = await self._ask(token.conversation, batch, live=True)
            line = self._lines.of(token.conversation, 0)
            # Unasked it stays untold: events before it may not have come, and a watcher that saw it would pass them over.
            following = Next.TELL if asked and line.fits(token, watched=True) else Next.KNOWN
        if following is Next.TELL:
            batch.add(token, None)
            line.said(token)


def _size(message: EventMessage | Event) -> int:
    if isinstance(message, Event):
        return payload_size(message.payload)
    rows = message.rows
    told = () if rows is None else (*rows.conversations, *rows.turns, *rows.attempts, *rows.cards, *rows.calls)
    return payload_size(message.event.payload) + payload_size(told)


def _future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


def _settle(waiter: asyncio.Future[None] | None, error: Exception | None = None) -> None:
    if waiter is None or waiter.done():
        return
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(error)
        waiter.exception()  # nobody may wait for it any more
