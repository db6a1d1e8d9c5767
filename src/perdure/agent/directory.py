"""Which agents there are, what they told of themselves, and whether each can be asked now.

News are signs of life. An agent that is silent for `SILENT_SECONDS`, or that left a call without an answer, is asked whether it
is there, and is unreachable when it does not say so; its next news make it reachable again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog

from perdure.agent.base import AgentInfo
from perdure.agent.codec import from_json, to_json
from perdure.agent.description import Description
from perdure.clock import Clock
from perdure.errors import AgentInUse, AgentUnavailable, NotFound, PerdureError
from perdure.replication import Reach
from perdure.store.replica import Replica
from perdure.transport.nats.wire import LEAVING, News

SILENT_SECONDS = 6.0
"""Without news for so long an agent is asked whether it is there."""

ANSWER_SECONDS = 1.0
"""How long it has for the answer."""

FRESH_SECONDS = 10.0
"""What an agent told of its model and its servers is asked again after so long."""

MAX_ASKED = 64
"""Agents that are asked at once because somebody sent news in a name that is not known."""

_TICK_SECONDS = 1.0

Observer = Callable[[str, Reach], None]
"""Told, on the event loop, each time an agent is met for the first time, its reach changes, or it is forgotten (`unreachable`)."""

_log = structlog.get_logger("perdure.agent")


class Asks(Protocol):
    """The client's side of the calls (`transport.nats.caller`)."""

    async def call(
        self,
        agent: str,
        method: str,
        params: Mapping[str, Any],
        *,
        within_seconds: float,
        request_id: str | None = None,
    ) -> Any:
        """The result. Raises AgentUnavailable when none came, and what the agent raised."""
        ...

    def discover(self, *, within_seconds: float) -> AsyncIterator[Any]:
        """The description (as of `agent/describe`) of each agent that answers within that time, as it comes."""
        ...


@dataclass(slots=True)
class _Known:
    description: Description
    reach: Reach
    heard_at: float
    """On the monotonic clock: the last sign of life, and the last answer."""

    described_at: float


class Directory:
    """Open it before anything is asked. What it knows outlives this process in the replica."""

    def __init__(
        self,
        replica: Replica,
        asks: Asks,
        clock: Clock,
        *,
        default: str | None = None,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """`default`: the agent of new conversations, where the setting was given. `answer_seconds`: for one that is asked whether
        it is there."""
        self._replica = replica
        self._asks = asks
        self._clock = clock
        self._default = default
        self._answer_seconds = answer_seconds
        self._known: dict[str, _Known] = {}
        self._observers: list[Observer] = []
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._connected = False
        self._surveyed = asyncio.Event()
        """Who is there has been asked, and had the time to answer: now, or before this process."""

        self._deciding = asyncio.Lock()
        """Held by who makes an agent known, and by who forgets one."""

        self._forgettings = 0
        self._gone: dict[str, int] = {}
        """Agents that are being forgotten, or were and have not been met since → which forgetting it was. What was asked before
        it makes nobody known."""

    async def open(self) -> None:
        """Agents known from before, all of them `disconnected` until `connected`."""
        for name, document in (await self._replica.known_agents()).items():
            with suppress(PerdureError):  # of a version whose form is no longer known: it is met again
                self._known[name] = _Known(from_json(Description, document), Reach.DISCONNECTED, 0.0, 0.0)
                self._surveyed.set()
        self._spawn(self._look_after())

    async def close(self) -> None:
        for task in (tasks := [*self._tasks, *self._asking.values()]):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- what happens --------------------------------------------------------------------------------------------------

    async def connected(self) -> None:
        """NATS is there (again): asks who is there. Returns at once; observers hear of each answer."""
        self._connected = True
        for name in self._known:
            self._ask(name)
        self._spawn(self._discover())

    def disconnected(self) -> None:
        """NATS is lost: nobody can be asked."""
        self._connected = False
        for name in self._known:
            self._set(name, Reach.DISCONNECTED)

    def heard(self, agent: str, news: News) -> None:
        """Each of them is a sign of life."""
        known = self._known.get(agent)
        if news.state == LEAVING:
            if known is not None:
                self._set(agent, Reach.UNREACHABLE)
            return
        if known is None or known.description.boot != news.boot:
            self._ask(agent)
        if known is not None:
            self.answered(agent)

    def answered(self, agent: str) -> None:
        """A call had an answer."""
        known = self._known.get(agent)
        if known is not None and self._connected and agent not in self._gone:
            known.heard_at = self._clock.monotonic()
            self._set(agent, Reach.REACHABLE)

    def unanswered(self, agent: str) -> None:
        """A call had no answer in its time: the agent is asked now whether it is there."""
        if agent in self._known:
            self._ask(agent)

    # -- who was taken away --------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def forgetting(self, agent: str) -> AsyncIterator[None]:
        """Makes the agent unknown once the body, which throws away its copy, has done so; from the first line of the body until
        the agent is met anew `is_gone` holds. It is asked once more before. Raises AgentInUse for one that can be asked,
        AgentUnavailable while NATS is lost; NotFound of the body says that nothing is held of it."""
        if agent in self._known and self._connected:
            await self._describe(agent)
        async with self._deciding:
            self._check_away(agent)
            before = self._gone.get(agent)
            self._forgettings += 1
            self._gone[agent] = self._forgettings
            try:
                yield
            except BaseException as error:
                del self._gone[agent]
                if before is not None:
                    self._gone[agent] = before
                if isinstance(error, NotFound):
                    self._known.pop(agent, None)
                raise
            self._known.pop(agent, None)
        _log.info("agent_forgotten", agent=agent)
        self._tell(agent, Reach.UNREACHABLE)

    def _check_away(self, agent: str) -> None:
        reach = self.reach(agent)
        if not self._connected or reach is Reach.DISCONNECTED:
            raise AgentUnavailable(
                f"This server has lost NATS: nobody can tell whether the agent {agent!r} is there. Nothing was forgotten. Try again "
                "when NATS is back."
            )
        if reach is Reach.REACHABLE:
            raise AgentInUse(
                f"The agent {agent!r} is there: it would be met again at once. Stop it first, then forget it."
            )

    def is_gone(self, agent: str) -> bool:
        """Whether it is being forgotten, or was and has not been met since: then nothing of it may be kept."""
        return agent in self._gone

    # -- what is known -------------------------------------------------------------------------------------------------

    def agents(self) -> Sequence[AgentInfo]:
        """By name. What was wrong with one that cannot be asked may be so no longer: it is not told."""
        default = self.default
        return [
            replace(
                known.description.agent,
                name=name,
                default=name == default,
                problems=known.description.agent.problems if known.reach is Reach.REACHABLE else (),
                reach=known.reach,
            )
            for name, known in sorted(self._known.items())
        ]

    @property
    def default(self) -> str | None:
        """The agent of new conversations that name none: the only one, else the one that the setting names. Until it is
        `surveyed` one that was met may not be the only one."""
        only = len(self._known) == 1 and self._surveyed.is_set()
        return next(iter(self._known)) if only else self._default

    async def surveyed(self) -> None:
        """Returns when whoever is there has had the time to say so."""
        await self._surveyed.wait()

    @property
    def is_connected(self) -> bool:
        """To NATS."""
        return self._connected

    def reach(self, agent: str) -> Reach:
        """Of an agent that nobody has heard of: `unreachable`."""
        known = self._known.get(agent)
        return Reach.UNREACHABLE if known is None else known.reach

    def reaches(self) -> Mapping[str, Reach]:
        return {name: known.reach for name, known in sorted(self._known.items())}

    def description(self, agent: str) -> Description | None:
        """What it told of itself last."""
        known = self._known.get(agent)
        return None if known is None else known.description

    def __contains__(self, agent: str) -> bool:
        return agent in self._known

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Call what is returned to hear no more."""
        self._observers.append(observer)
        return lambda: self._observers.remove(observer)

    # -- asking --------------------------------------------------------------------------------------------------------

    async def _look_after(self) -> None:
        while True:
            await self._clock.sleep(_TICK_SECONDS)
            now = self._clock.monotonic()
            for name, known in self._known.items():
                if known.reach is not Reach.REACHABLE:
                    continue
                if now - known.heard_at > SILENT_SECONDS or now - known.described_at > FRESH_SECONDS:
                    self._ask(name)

    async def _discover(self) -> None:
        asked = self._forgettings
        try:
            async for document in self._asks.discover(within_seconds=ANSWER_SECONDS):
                await self._meet_one(document, asked)
        except PerdureError as error:
            _log.warning("agents_not_discovered", error=error.message)
            if isinstance(error, AgentUnavailable):
                return  # asked again when NATS is back
        except Exception:
            _log.exception("agents_not_discovered")
        self._surveyed.set()

    def _ask(self, agent: str) -> None:
        """Asks for a description, one question to an agent at a time. Names that nobody answers to are not asked without end."""
        if len(self._asking) >= MAX_ASKED and agent not in self._known:
            return
        if self._connected and agent not in self._asking:
            task = self._asking[agent] = asyncio.create_task(self._describe(agent), name=f"perdure-describe-{agent}")
            task.add_done_callback(lambda _: self._asking.pop(agent, None))

    async def _describe(self, agent: str) -> None:
        asked_at, asked = self._clock.monotonic(), self._forgettings
        try:
            document = await self._asks.call(agent, "agent/describe", {}, within_seconds=self._answer_seconds)
            await self._meet(agent, from_json(Description, document), asked)
        except AgentUnavailable:
            known = self._known.get(agent)
            if known is not None and self._connected and known.heard_at <= asked_at:
                self._set(agent, Reach.UNREACHABLE)
        except PerdureError as error:
            _log.warning("agent_not_described", agent=agent, error=error.message)
        except Exception:
            _log.exception("agent_not_described", agent=agent)

    async def _meet_one(self, document: Any, asked: int) -> None:
        try:
            description = from_json(Description, document)
        except PerdureError as error:
            _log.warning("agent_not_understood", error=error.message)
            return
        await self._meet(description.agent.name, description, asked)

    async def _meet(self, agent: str, description: Description, asked: int) -> None:
        """`asked`: how many had been forgotten when it was asked."""
        async with self._deciding:
            if self._gone.get(agent, 0) > asked:
                return  # what it said before is no sign of life; its news are
            now = self._clock.monotonic()
            known = self._known.get(agent)
            if known is None or not _same(known.description, description):
                await self._replica.keep_agent(agent, to_json(Description, description))
            self._gone.pop(agent, None)
            if known is None:
                known = self._known[agent] = _Known(description, Reach.UNREACHABLE, now, now)
            known.description, known.described_at = description, now
            if self._connected:
                self.answered(agent)
            else:
                self._set(agent, Reach.DISCONNECTED)

    def _set(self, agent: str, reach: Reach) -> None:
        known = self._known[agent]
        if known.reach is reach:
            return
        known.reach = reach
        _log.info("agent_reach", agent=agent, reach=reach)
        self._tell(agent, reach)

    def _tell(self, agent: str, reach: Reach) -> None:
        for observer in list(self._observers):
            observer(agent, reach)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _same(known: Description, told: Description) -> bool:
    """But for what changes all the time."""
    return replace(known, position=0) == replace(told, position=0)
