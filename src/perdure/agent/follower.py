"""A gateway's copy of its agents' journals, and what its watchers are told: the copy first, the watchers second."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog

from perdure.agent.directory import Asks, Directory
from perdure.agent.feed import Feed, Link, Stream
from perdure.agent.following import Following
from perdure.agent.gaps import Gaps
from perdure.clock import Clock
from perdure.errors import AgentUnavailable, PerdureError
from perdure.events import Event
from perdure.failpoints import failpoint
from perdure.replication import Reach, StreamPosition
from perdure.store.replica import Replica
from perdure.transport.local import LocalTransport
from perdure.transport.nats.connection import Disconnected
from perdure.transport.nats.live import EventHeard, Gap, Heard, NewsHeard, TokenHeard
from perdure.transport.nats.stream import Stored, StreamError
from perdure.transport.nats.wire import EventMessage

ATTEND_SECONDS = 1.0
"""How long a person waits at most for what may be missing, before what is here is shown."""

REFRESH_SECONDS = 1.5
"""And how long for the end of a turn with all before it."""

FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 1.0, 30.0
"""Before the stream, which could not be read, is tried again."""

MAX_AGENTS = 1_000
"""Names that are heard of; beyond that only those that were met."""

Observer = Callable[[Event], None]

_log = structlog.get_logger("perdure.agent")


class Follower:
    """Rows before events, events before watchers; no hole, no repeat. One task for each agent: a slow or dead one holds up
    nobody else. The agents are asked for what is missing; those that cannot be, the stream."""

    def __init__(
        self,
        replica: Replica,
        transport: LocalTransport,
        link: Link,
        feed: Feed,
        stream: Stream,
        *,
        asks: Asks,
        directory: Directory,
        clock: Clock,
        attend_seconds: float = ATTEND_SECONDS,
        refresh_seconds: float = REFRESH_SECONDS,
    ) -> None:
        """It alone takes from `feed`; it tells `directory` of news and of the connection (`link`)."""
        self._replica = replica
        self._transport = transport
        self._link = link
        self._feed = feed
        self._stream = stream
        self._asks = asks
        self._directory = directory
        self._clock = clock
        self._attend_seconds, self._refresh_seconds = attend_seconds, refresh_seconds
        self._agents: dict[str, Following] = {}
        self._observers: list[Observer] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._unfilled: set[str] = set()
        self._catching_up: asyncio.Task[None] | None = None
        self._unobserve: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Follows from now on. Returns at once, connected or not."""
        self._unobserve = self._directory.observe(self._reached)
        for agent in self._directory.reaches():
            self._following(agent)
        await self._feed.start()
        self._spawn(self._hear())
        self._spawn(self._look_at_link())

    async def stop(self) -> None:
        self._unobserve()
        for task in (tasks := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._feed.stop()
        for following in self._agents.values():
            await following.stop()

    # -- what others ask ------------------------------------------------------------------------------------------------

    async def attach(self, agent: str) -> None:
        """Brings the copy to where the agent's journal is now. Raises AgentUnavailable when it does not answer."""
        await self._following(agent).attach()

    async def attend(self, agent: str, conversation: str) -> None:
        """A person is about to watch this conversation: what is committed and streamed of it is fetched when it is not here.
        Returns soon, whether the agent answers or not."""
        if self._directory.is_gone(agent):
            return
        following = self._following(agent)
        if following.is_whole(conversation) or self._directory.reach(agent) is not Reach.REACHABLE:
            return
        if await following.is_new(conversation):
            return
        with suppress(AgentUnavailable):
            await self._within(self._attend_seconds, following.refresh(conversation), agent)

    async def refresh(self, agent: str, conversation: str) -> None:
        """Asks the agent for what this copy lacks of the conversation: rows, events, text that streams. Raises
        AgentUnavailable."""
        await self._within(self._refresh_seconds, self._following(agent).refresh(conversation), agent)

    async def lose(self, agent: str, conversation: str, turn: str) -> None:
        """The agent says that it does not know the turn: the copy is compared with its journal, and who watches is told
        (`TURN_LOST`). Raises AgentUnavailable."""
        following = self._following(agent)
        await following.attach()
        await following.refresh(conversation)
        await following.lose(conversation, turn)

    @asynccontextmanager
    async def without(self, agent: str) -> AsyncIterator[None]:
        """Follows the agent no more, from the first line of the body until it is met anew; where the body fails, on as before.
        The directory must say that it is gone."""
        following = self._agents.pop(agent, None)
        if following is not None:
            await following.stop(_forgotten(agent))
        try:
            yield
        except BaseException:
            if following is not None:
                self._follow(agent)
            raise

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Calls it, on the event loop, with each committed event that is new here. Call what is returned to hear no more."""
        self._observers.append(observer)
        return lambda: self._observers.remove(observer)

    async def _within(self, seconds: float, work: Coroutine[Any, Any, None], agent: str) -> None:
        """Time is the clock's: gives up when it has passed; the work itself goes on."""
        doing = asyncio.ensure_future(work)
        alarm = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({doing, alarm}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise AgentUnavailable(f"The agent {agent!r} does not answer now. Try again in a moment.")
            doing.result()
        finally:
            alarm.cancel()
            doing.cancel()

    # -- what comes in --------------------------------------------------------------------------------------------------

    async def _hear(self) -> None:
        while True:
            await self._feed.wait()
            for heard in self._feed.take():
                try:
                    self._route(heard)
                except Exception:
                    _log.exception("not_heard", heard=type(heard).__name__)

    def _route(self, heard: Heard) -> None:
        if isinstance(heard, Gap):
            for following in self._agents.values():
                following.interrupted()
        elif heard.agent in self._agents or heard.agent in self._directory or len(self._agents) < MAX_AGENTS:
            self._hand_over(heard)

    def _hand_over(self, heard: EventHeard | TokenHeard | NewsHeard) -> None:
        if self._directory.is_gone(heard.agent):
            # What was on its way when it was forgotten must not begin a copy that nobody ends.
            if isinstance(heard, NewsHeard):
                self._directory.heard(heard.agent, heard.news)
            return
        following = self._following(heard.agent)
        match heard:
            case EventHeard(_, message):
                following.hear(message)
            case TokenHeard(_, event):
                following.hear(event)
            case NewsHeard(agent, news):
                self._directory.heard(agent, news)
                following.news(news.position, news.boot, news.deleted)

    def _following(self, agent: str) -> Following:
        """Raises AgentUnavailable for one that is forgotten."""
        if self._directory.is_gone(agent):
            raise AgentUnavailable(_forgotten(agent))
        return self._agents.get(agent) or self._follow(agent)

    def _follow(self, agent: str) -> Following:
        following = self._agents[agent] = Following(
            agent,
            self._replica,
            self._transport,
            Gaps(self._asks, agent),
            self._clock,
            told=self._told,
            unfilled=self._is_unfilled,
        )
        following.start()
        return following

    def _told(self, event: Event) -> None:
        for observer in list(self._observers):
            observer(event)

    # -- the connection, the stream ----------------------------------------------------------------------------------------

    async def _look_at_link(self) -> None:
        with self._link.listen() as bell:
            generation: int | None = None
            while True:
                if not self._link.connected:
                    if generation is not None:
                        self._directory.disconnected()
                    generation = None
                elif self._link.generation != generation:
                    generation = self._link.generation
                    await self._directory.connected()
                    self._catch_up(set(self._agents))
                await bell.wait()

    def _reached(self, agent: str, reach: Reach) -> None:
        self._transport.ring("changes")
        if reach is Reach.REACHABLE:
            self._spawn(self._try_to_attach(agent))
        elif reach is Reach.UNREACHABLE and agent in self._agents and not self._agents[agent].is_attached:
            self._catch_up({agent})

    async def _try_to_attach(self, agent: str) -> None:
        with suppress(AgentUnavailable):
            await self.attach(agent)

    def _is_unfilled(self, agent: str) -> None:
        if self._directory.reach(agent) is not Reach.REACHABLE and self._link.connected:
            self._catch_up({agent})

    def _catch_up(self, agents: Collection[str]) -> None:
        self._unfilled.update(agents)
        if self._catching_up is None:
            self._catching_up = self._spawn(self._catch_up_all())

    async def _catch_up_all(self) -> None:
        """Until nobody lacks what the stream holds. Once NATS is lost the next connection begins with all of them."""
        pause = FIRST_PAUSE_SECONDS
        try:
            while self._unfilled and self._link.connected:
                agents, generation = set(self._unfilled), self._link.generation
                self._unfilled.clear()
                if await self._has_caught_up(agents):
                    pause = FIRST_PAUSE_SECONDS
                    continue
                self._unfilled |= agents & self._agents.keys()
                if self._link.generation == generation:
                    await self._rest(pause)
                    pause = min(2 * pause, LAST_PAUSE_SECONDS)
        finally:
            self._catching_up = None

    async def _has_caught_up(self, agents: Collection[str]) -> bool:
        try:
            await self._catch_up_with(agents)
        except (Disconnected, StreamError) as error:
            _log.info("stream_not_read", error=str(error))
        except PerdureError as error:
            _log.warning("stream_not_copied", error=error.message)
        except Exception:
            _log.exception("stream_not_copied")
        else:
            return True
        return False

    async def _rest(self, seconds: float) -> None:
        """So long, or until the connection changes."""
        with self._link.listen() as bell:
            waits = {asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(bell.wait())}
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()

    async def _catch_up_with(self, agents: Collection[str]) -> None:
        """Each agent is asked for its journal; what those who do not answer have sent is read from the stream."""
        identity = await self._stream.identity()
        end = 0 if identity is None else await self._stream.last_seq()
        attached = await asyncio.gather(*(self.attach(agent) for agent in agents), return_exceptions=True)
        away = {agent for agent, result in zip(agents, attached, strict=True) if result is not None}
        if identity is None:
            return
        position = await self._replica.stream_position()
        known = position is not None and position.stream == identity and position.seq <= end
        if away:
            await self._replay(position.seq if known and position is not None else 0, away)
        if set(self._agents) <= set(agents):
            failpoint("follow.apply.before")
            await self._replica.record([], stream=StreamPosition(identity, end))
            failpoint("follow.apply.after")

    async def _replay(self, after: int, agents: Collection[str]) -> None:
        async for batch in self._stream.read(after):
            still = self._agents.keys() & agents
            await asyncio.gather(
                *(self._agents[agent].replay(messages) for agent, messages in _of(still, batch).items())
            )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("following_ended", error=repr(task.exception()))


def _of(agents: Collection[str], batch: Sequence[Stored]) -> dict[str, list[EventMessage]]:
    found: defaultdict[str, list[EventMessage]] = defaultdict(list)
    for stored in batch:
        if stored.address.agent in agents:
            found[stored.address.agent].append(stored.message)
    return found


def _forgotten(agent: str) -> str:
    return f"The agent {agent!r} was forgotten here. It is met anew when it comes back."
