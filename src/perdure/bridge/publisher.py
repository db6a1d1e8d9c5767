"""What the journal has committed, carried to the stream: in order, again after every failure, without a word to the turns.

The journal is the queue. What is told here is only that a conversation has something new; its events are read from the
journal when they are sent, so nothing of them is held while NATS is away, and nothing is sent that is not committed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any, Protocol

import structlog

from perdure.bridge.context import Journal
from perdure.bridge.lane import Lane
from perdure.bridge.tail import Tail
from perdure.clock import Clock
from perdure.errors import PerdureError
from perdure.events import Event, EventKind
from perdure.failpoints import FailpointError, failpoint
from perdure.replication import JournalRows, Position
from perdure.transport.nats.connection import Connection, Disconnected
from perdure.transport.nats.stream import MAX_AGE_SECONDS, StreamMissing
from perdure.transport.nats.wire import EventMessage

PAGE = 100
MAX_UNDER_WAY = 512
"""Events that were sent and not acknowledged, of all conversations."""

REFILLS = 4
"""Conversations that are sent again at once after the stream was lost, beside those in which something happens."""

LIVE_SECONDS = 60.0
"""A conversation in which something happened so recently does not wait for its turn among those."""

MAX_LANES = 5_000
KEEP_SECONDS = 1.0
CHECK_SECONDS = 5.0
"""How often the stream is asked whether it is still the same one: it can be lost while the connection holds."""

FIRST_DELAY_SECONDS, LAST_DELAY_SECONDS = 0.1, 5.0

STATEFUL = frozenset({EventKind.APPROVAL, EventKind.REWIND, EventKind.END, EventKind.CHAT_ERROR})
"""Beside the first of each turn: what goes with the rows that it changed."""

THE_WAY = (Disconnected, StreamMissing, TimeoutError, FailpointError)
"""What fails for every event; anything else is refused for one."""

_log = structlog.get_logger("perdure.bridge")


class Stream(Protocol):
    """`transport.nats.stream.EventStream`, as far as it is needed."""

    async def ensure(self) -> str: ...

    async def identity(self) -> str | None: ...

    async def last_seq(self) -> int: ...

    async def publish(self, agent: str, message: EventMessage) -> asyncio.Future[int]: ...


class Tokens(Protocol):
    """`transport.nats.live.Tidings`, as far as it is needed."""

    async def token(self, event: Event) -> None: ...


class Publisher:
    """Made before the store tells anything; `start`, then `stop`, on the event loop of the store."""

    def __init__(
        self, agent: str, journal: Journal, stream: Stream, tokens: Tokens, *, connection: Connection, clock: Clock
    ) -> None:
        self._agent = agent
        self._journal = journal
        self._stream = stream
        self._tokens = tokens
        self._connection = connection
        self._clock = clock
        self._lanes: OrderedDict[str, Lane] = OrderedDict()
        self._refill: deque[str] = deque()
        self._under_way = asyncio.Semaphore(MAX_UNDER_WAY)
        self._resolving = asyncio.Lock()
        self._identity: str | None = None
        self._open = False
        self._generation = -1
        self._doubt = asyncio.Event()
        self._failures = 0
        """In a row, without an acknowledgement between them."""

        self._tail = Tail()
        self._acked: dict[str, int] = {}
        self._keeping: dict[str, int] = {}
        self._any_acked = asyncio.Event()
        self._held_up: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._house: list[asyncio.Task[None]] = []
        self.problem: str | None = None
        """Why events stay in the journal now."""

    # -- what happens -------------------------------------------------------------------------------------------------

    def publish(self, event: Event) -> None:
        """See `Outward`."""
        lane = self._lanes.get(event.conversation)
        if lane is None:
            lane = self._lanes[event.conversation] = Lane(event.conversation)
            if event.seq == 1:
                lane.know(0)
        self._lanes.move_to_end(event.conversation)
        lane.touched = asyncio.get_running_loop().time()
        if event.kind is EventKind.TOKEN:
            lane.speech.add(event, keep=self._open)
        else:
            lane.wanted = max(lane.wanted, event.seq)
            lane.speech.committed(event)
        self._wake(lane)

    # -- start and stop -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._house = [
            asyncio.create_task(self._keep_open(), name="perdure-publisher"),
            asyncio.create_task(self._keep_positions(), name="perdure-published"),
        ]

    async def stop(self, within_seconds: float) -> None:
        """Sends what is left while the time allows."""
        try:
            async with asyncio.timeout(within_seconds):
                await self._settled()
        except TimeoutError:
            _log.warning("events_left", conversations=sum(not lane.idle for lane in self._lanes.values()))
        self._close()
        tasks = [*self._house, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._keep()

    async def _settled(self) -> None:
        """Returns when all is sent and acknowledged, at once while it cannot be."""
        while self._open:
            waiting: list[asyncio.Future[int] | asyncio.Task[None]] = list(self._tasks)
            waiting += [future for lane in self._lanes.values() for _, future in lane.under_way]
            if not waiting:
                return
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)  # what they left is taken in by their callbacks

    # -- the stream ---------------------------------------------------------------------------------------------------

    async def _keep_open(self) -> None:
        """Opens the way whenever there is a connection, and again whenever something is in doubt."""
        delay = FIRST_DELAY_SECONDS
        with self._connection.listen() as bell:
            while True:
                if not self._connection.connected:
                    self._close()
                elif not self._open or self._generation != self._connection.generation:
                    delay = FIRST_DELAY_SECONDS if await self._opened() else min(delay * 2, LAST_DELAY_SECONDS)
                elif not await self._same():
                    self._close()
                    continue
                unopened = self._connection.connected and not self._open
                await self._rest(bell.wait, delay if unopened else CHECK_SECONDS)

    async def _rest(self, rung: Callable[[float], Awaitable[bool]], seconds: float) -> None:
        """Until the connection changed, something failed, or the time is over."""
        waits = {asyncio.ensure_future(rung(seconds)), asyncio.ensure_future(self._doubt.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        if self._doubt.is_set():
            self._doubt.clear()
            await asyncio.sleep(min(FIRST_DELAY_SECONDS * 2**self._failures, LAST_DELAY_SECONDS))

    async def _opened(self) -> bool:
        """Finds out what the stream lacks, and begins to send it."""
        self._close()
        generation = self._connection.generation
        try:
            identity = await self._stream.ensure()
            if identity != self._identity:
                for lane in self._lanes.values():
                    lane.forget()
                self._identity = identity
                self._acked.clear()
                self._tail.forget()
            lost = self._tail.lost(await self._stream.last_seq())
            self._go_back(lost)
            lacking = {**await self._lacking(), **lost}
        except Exception as error:
            self._tell(error)
            return False
        self._generation, self._open, self.problem = generation, True, None
        self._held_up.clear()
        for conversation, published in lacking.items():
            lane = self._lanes.setdefault(conversation, Lane(conversation))
            lane.refill = True
            lane.know(published)
        live_since = asyncio.get_running_loop().time() - LIVE_SECONDS
        for lane in self._lanes.values():
            lane.resting = False
            if lane.refill and lane.touched < live_since:
                self._refill.append(lane.conversation)
            else:
                self._wake(lane)
        for _ in range(min(REFILLS, len(self._refill))):
            self._begin(self._refilled())
        return True

    def _go_back(self, lost: Mapping[str, int]) -> None:
        """The stream has lost its end, which it had acknowledged."""
        if lost:
            _log.warning("stream_lost_its_end", conversations=len(lost))
        for conversation in lost:
            self._acked.pop(conversation, None)
            if conversation in self._lanes:
                self._lanes[conversation].forget()

    def _close(self) -> None:
        """Nothing is sent until it is opened again; then everything that was not acknowledged."""
        self._open = False
        self._refill.clear()
        for lane in self._lanes.values():
            lane.again()
            lane.speech.drop()

    async def _same(self) -> bool:
        try:
            return await self._stream.identity() == self._identity
        except Exception as error:
            self._tell(error)
            return False

    async def _lacking(self) -> Mapping[str, int]:
        assert self._identity is not None
        since = self._clock.now() - timedelta(seconds=MAX_AGE_SECONDS)
        return await self._journal.unpublished(self._identity, since)

    def _tell(self, error: Exception) -> None:
        if isinstance(error, Disconnected):
            told = "NATS is away."
        elif isinstance(error, StreamMissing):
            told = f"NATS has no stream for events, and none can be made: {str(error).rstrip('.')}. Is JetStream on?"
        else:
            told = f"Events cannot be published: {str(error) or 'NATS did not acknowledge one in time.'}"
        if told != self.problem:
            _log.warning("events_not_published", problem=told, exc_info=not isinstance(error, Disconnected))
        self.problem = told

    # -- lanes --------------------------------------------------------------------------------------------------------

    def _wake(self, lane: Lane) -> None:
        if self._open and lane.task is None and not lane.resting and (lane.behind or lane.speech.waiting):
            lane.task = self._begin(self._travel(lane))

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _refilled(self) -> None:
        while self._refill:
            lane = self._lanes.get(self._refill.popleft())
            if lane is not None:
                self._wake(lane)
                if lane.task is not None:
                    await asyncio.wait([lane.task])

    async def _travel(self, lane: Lane) -> None:
        """Sends what there is. Where the way itself fails all is in doubt until it is opened again."""
        try:
            while self._open and not lane.resting and (lane.behind or lane.speech.waiting):
                if lane.behind:
                    await self._send_events(lane)
                elif not await self._send_speech(lane):
                    break
        except Exception as error:
            self._failed(lane, error)
        finally:
            lane.task = None
        self._tidy()

    def _after(self, seconds: float, lane: Lane) -> None:
        if lane.timer is None:
            lane.timer = asyncio.get_running_loop().call_later(seconds, self._later, lane)

    async def _send_speech(self, lane: Lane) -> bool:
        """False when it is too early: then it goes on by itself."""
        loop = asyncio.get_running_loop()
        seconds = lane.speech.due_in(loop.time())
        if seconds > 0:
            self._after(seconds, lane)
            return False
        for token in lane.speech.all(loop.time()):
            await self._tokens.token(token)
        return True

    def _later(self, lane: Lane) -> None:
        lane.timer, lane.resting = None, False
        self._held_up.discard(lane.conversation)
        self._wake(lane)

    async def _send_events(self, lane: Lane) -> None:
        if lane.acked is None:
            await self._find(lane)
            return
        now, wanted, everything = lane.round, lane.wanted, lane.refill
        page = await self._journal.events(lane.conversation, after=lane.sent, limit=PAGE)
        for event in page:
            if event.seq > wanted and not everything:
                break
            for token in lane.speech.before(event.seq):
                await self._tokens.token(token)
            if lane.round != now or not await self._send(lane, event):
                return
        if len(page) < PAGE and lane.round == now:
            lane.looked, lane.refill = max(lane.looked, wanted), False

    async def _find(self, lane: Lane) -> None:
        """Where a conversation stands that was quiet when the way was opened."""
        async with self._resolving:
            now = lane.round
            lacking = await self._lacking() if lane.acked is None else {}
            if lane.round != now or lane.acked is not None:
                return
            for each in self._lanes.values():
                if each.acked is None and each.conversation in lacking:
                    each.know(lacking[each.conversation])
            if lane.acked is None:
                lane.know(0)

    async def _send(self, lane: Lane, event: Event) -> bool:
        """False when the lane went back meanwhile: then this event comes again."""
        now, previous = lane.round, lane.sent
        rows = await self._rows(event) if event.kind in STATEFUL or event.turn != lane.turn else None
        await self._under_way.acquire()
        future: asyncio.Future[int] | None = None
        try:
            if lane.round != now:
                return False
            failpoint("publish.before")
            future = await self._stream.publish(self._agent, EventMessage(event, previous, rows))
        finally:
            if future is None:
                self._under_way.release()
        future.add_done_callback(lambda done: self._answered(lane, done, previous))
        if lane.round != now:
            return False
        lane.sent, lane.turn = event.seq, event.turn
        lane.under_way.append((event.seq, future))
        return True

    async def _rows(self, event: Event) -> JournalRows:
        """Of its turn and conversation, as they are now."""
        return await self._journal.journal_rows(Position(), turns=[event.turn])

    def _answered(self, lane: Lane, future: asyncio.Future[int], previous: int) -> None:
        self._under_way.release()
        error = None if future.cancelled() else future.exception()
        try:
            failpoint("publish.after")
        except FailpointError as fault:
            error = fault
        if isinstance(error, Exception):
            if any(future is each for _, each in lane.under_way):
                self._failed(lane, error)
            return
        self._failures = 0
        if not self._held_up:
            self.problem = None
        if not future.cancelled():
            self._tail.acknowledged(future.result(), lane.conversation, previous)
        if lane.settle() and lane.acked is not None:
            self._acked[lane.conversation] = lane.acked
            self._any_acked.set()

    def _failed(self, lane: Lane, error: Exception) -> None:
        if not self._open:
            return
        self._tell(error)
        if isinstance(error, THE_WAY):
            self._failures += 1
            self._close()
            self._doubt.set()
        else:
            lane.again()
            lane.speech.drop()
            lane.resting = True
            self._held_up.add(lane.conversation)
            self._after(LAST_DELAY_SECONDS, lane)

    # -- what the journal keeps of it ---------------------------------------------------------------------------------

    async def _keep_positions(self) -> None:
        while True:
            await self._any_acked.wait()
            await self._clock.sleep(KEEP_SECONDS)
            self._any_acked.clear()
            await self._keep()

    async def _keep(self) -> None:
        """Losing it is harmless: what was sent is sent again, and known by its id."""
        acked, identity = self._acked, self._identity
        if not acked or identity is None:
            return
        self._acked, self._keeping = {}, acked
        try:
            await self._journal.published(identity, acked)
        except PerdureError as error:
            _log.warning("positions_not_kept", error=error.message)
        except Exception:
            _log.exception("positions_not_kept")
        finally:
            self._keeping = {}

    def _tidy(self) -> None:
        """Forgets conversations in which nothing happens, the longest quiet ones first."""
        if len(self._lanes) <= MAX_LANES:
            return
        for lane in list(self._lanes.values())[: 1 + MAX_LANES // 10]:
            if lane.idle and lane.conversation not in self._acked and lane.conversation not in self._keeping:
                del self._lanes[lane.conversation]
