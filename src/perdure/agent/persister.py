"""Waits for the end of every turn that this gateway gave to an agent, and assumes nothing: silence makes it ask.

What an agent says of a turn only decides whether to go on waiting. A turn has ended when the copy shows its end.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import structlog

from perdure.agent.directory import Asks, Directory
from perdure.agent.follower import Follower
from perdure.clock import Clock
from perdure.errors import AgentUnavailable, NotFound, PerdureError
from perdure.events import Event, Unfollowed
from perdure.failpoints import failpoint
from perdure.replication import Dispatch, Reach
from perdure.store.replica import Replica
from perdure.turns import ENDED, CardState

IDLE_SECONDS = 10.0
"""Without an event of a turn for so long its agent is asked what became of it."""

ASK_SECONDS = 2.0

Observer = Callable[[Unfollowed], None]

_log = structlog.get_logger("perdure.agent")


class Said(StrEnum):
    """What an agent answers to `responses/turnStatus`."""

    RUNNING = "running"
    PARKED = "parked"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    NOTHING = "nothing"
    """It did not answer, or not in words that are known here."""


@dataclass(slots=True)
class _Wait:
    dispatch: Dispatch
    began: float
    """On the monotonic clock; how long it was waited for before that is `before`."""

    before: float
    parked: float
    """Seconds that the agent confirmed as parked."""

    counted_until: datetime
    """What was parked before is counted."""

    counted_before: float
    """Of the parked time, what an earlier process of this gateway counted."""

    was_parked: bool = False
    """When it was asked last."""

    asking: bool = False
    """To be asked without waiting for silence."""

    woken: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Persister:
    def __init__(
        self,
        replica: Replica,
        follower: Follower,
        *,
        asks: Asks,
        directory: Directory,
        clock: Clock,
        deadline_seconds: float,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """`deadline_seconds`: `turn_deadline_seconds`; 0 for ever."""
        self._replica = replica
        self._follower = follower
        self._asks = asks
        self._directory = directory
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._idle_seconds = idle_seconds
        self._waits: dict[str, _Wait] = {}
        self._unfollowed: set[str] = set()
        """Followed no more, not known to have ended: a later end still concludes them."""

        self._observers: defaultdict[str, list[Observer]] = defaultdict(list)
        self._concluding: set[asyncio.Task[None]] = set()
        self._unobserve: list[Callable[[], None]] = []

    async def start(self) -> None:
        """Goes on with every turn that was dispatched before."""
        self._unobserve = [self._follower.observe(self._heard), self._directory.observe(self._reached)]
        for dispatch in await self._replica.dispatches():
            self._wait_for(dispatch, asking=True)

    async def stop(self) -> None:
        for unobserve in self._unobserve:
            unobserve()
        tasks = [wait.task for wait in self._waits.values() if wait.task is not None] + list(self._concluding)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def waiting(self) -> int:
        """How many turns it waits for."""
        return len(self._waits)

    async def dispatched(self, agent: str, conversation: str, turn: str) -> None:
        """Kept when it returns: this gateway waits for the end of the turn, after a restart too. Also for one that is
        followed no more and that a person looks at again."""
        if turn in self._waits or self._directory.is_gone(agent):
            return
        dispatch = Dispatch(turn, conversation, agent, self._clock.now())
        failpoint("dispatch.before")
        await self._replica.dispatched(dispatch)
        failpoint("dispatch.after")
        if turn not in self._waits and not self._directory.is_gone(agent):
            self._unfollowed.discard(turn)
            self._wait_for(dispatch)

    def forget(self, agent: str) -> None:
        """Waits for no turn of this agent any more, and tells nobody. What was kept of its turns must be gone."""
        for turn, wait in list(self._waits.items()):
            if wait.dispatch.agent == agent:
                del self._waits[turn]
                if wait.task is not None:
                    wait.task.cancel()
                    self._concluding.add(wait.task)
                    wait.task.add_done_callback(self._concluding.discard)

    def observe(self, conversation: str, observer: Observer) -> Callable[[], None]:
        """Calls the observer, on the event loop, when a turn of the conversation is followed no more. Call what is returned
        to hear no more."""
        observers = self._observers[conversation]
        observers.append(observer)

        def leave() -> None:
            observers.remove(observer)
            if not observers and self._observers.get(conversation) is observers:
                del self._observers[conversation]

        return leave

    # -- what happens ----------------------------------------------------------------------------------------------------

    def _heard(self, event: Event) -> None:
        wait = self._waits.get(event.turn)
        if wait is not None:
            wait.woken.set()
        elif event.terminal and event.turn in self._unfollowed:
            self._unfollowed.discard(event.turn)
            task = asyncio.create_task(self._conclude(event.turn))
            self._concluding.add(task)
            task.add_done_callback(self._concluding.discard)

    def _reached(self, agent: str, reach: Reach) -> None:
        """Who was away may have ended what it had: it is asked now."""
        if reach is Reach.REACHABLE:
            for wait in self._waits.values():
                if wait.dispatch.agent == agent:
                    wait.asking = True
                    wait.woken.set()

    # -- one turn --------------------------------------------------------------------------------------------------------

    def _wait_for(self, dispatch: Dispatch, *, asking: bool = False) -> None:
        before = max(0.0, (self._clock.now() - dispatch.dispatched_at).total_seconds())
        wait = _Wait(
            dispatch,
            began=self._clock.monotonic(),
            before=before,
            parked=dispatch.parked_seconds,
            counted_until=dispatch.dispatched_at,
            counted_before=dispatch.parked_seconds,
            asking=asking,
        )
        self._waits[dispatch.turn] = wait
        wait.task = asyncio.create_task(self._until_its_end(wait), name=f"perdure-wait-{dispatch.turn}")

    async def _until_its_end(self, wait: _Wait) -> None:
        turn = wait.dispatch.turn
        try:
            while not await self._is_over_by_now(wait):
                if not wait.asking:
                    wait.asking = await self._was_quiet(wait)
        finally:
            if self._waits.get(turn) is wait:
                del self._waits[turn]

    async def _is_over_by_now(self, wait: _Wait) -> bool:
        turn, asking = wait.dispatch.turn, wait.asking
        try:
            return await self._is_over(wait)
        except PerdureError as error:
            _log.info("turn_not_looked_at", turn=turn, error=error.message)
        except Exception:
            _log.exception("waiting_broke", turn=turn)
        wait.asking = False
        # What cannot be found out does not stop the clock: the deadline is a promise to those who watch.
        return asking and not wait.was_parked and self._is_given_up(wait)

    async def _is_over(self, wait: _Wait) -> bool:
        """Whether nobody has to wait any more."""
        dispatch = wait.dispatch
        wait.woken.clear()
        if await self._has_ended(dispatch.turn):
            await self._conclude(dispatch.turn)
            return True
        if not wait.asking:
            return False
        wait.asking = False
        said = await self._asked(wait)
        if await self._has_ended(dispatch.turn):
            await self._conclude(dispatch.turn)
            return True
        if said is Said.UNKNOWN:
            await self._follower.lose(dispatch.agent, dispatch.conversation, dispatch.turn)
            await self._conclude(dispatch.turn)
            return True
        return said is not Said.PARKED and self._is_given_up(wait)

    async def _was_quiet(self, wait: _Wait) -> bool:
        """Returns True when nothing of the turn was heard for `idle_seconds`, or the deadline is there; False as soon as
        something was."""
        seconds = self._idle_seconds
        if self._deadline_seconds and not self._is_late(wait):
            seconds = min(seconds, self._left(wait))
        alarm = asyncio.ensure_future(self._clock.sleep(seconds))
        woken = asyncio.ensure_future(wait.woken.wait())
        try:
            await asyncio.wait({alarm, woken}, return_when=asyncio.FIRST_COMPLETED)
            return not woken.done() or wait.asking
        finally:
            alarm.cancel()
            woken.cancel()

    async def _has_ended(self, turn: str) -> bool:
        try:
            return (await self._replica.turn(None, turn)).status in ENDED
        except NotFound:
            return False

    async def _conclude(self, turn: str) -> None:
        await self._replica.concluded(turn)

    # -- asking ----------------------------------------------------------------------------------------------------------

    async def _asked(self, wait: _Wait) -> Said:
        dispatch = wait.dispatch
        try:
            answer = await self._asks.call(
                dispatch.agent, "responses/turnStatus", {"turn_id": dispatch.turn}, within_seconds=ASK_SECONDS
            )
            said = Said(answer["state"])
            if said is not Said.UNKNOWN and await self._lacks(dispatch, said, answer.get("last_seq")):
                await self._follower.refresh(dispatch.agent, dispatch.conversation)
        except AgentUnavailable:
            self._directory.unanswered(dispatch.agent)
            return Said.NOTHING
        except (KeyError, TypeError, ValueError, AttributeError):
            _log.warning("turn_status_not_understood", agent=dispatch.agent, turn=dispatch.turn)
            return Said.NOTHING
        except PerdureError as error:  # it has no room, or speaks as another version does; or the copy fails
            _log.warning("turn_status_not_had", agent=dispatch.agent, turn=dispatch.turn, error=error.message)
            return Said.NOTHING
        was_parked, wait.was_parked = wait.was_parked, said is Said.PARKED
        if said is Said.PARKED:
            await self._count_parked(wait, confirmed=was_parked)
        return said

    async def _lacks(self, dispatch: Dispatch, said: Said, last_seq: object) -> bool:
        """Whether the agent has told more than is here."""
        held = await self._replica.last_seq(dispatch.conversation)
        if held is None or not isinstance(last_seq, int) or last_seq > held:
            return True
        return said in {Said.DONE, Said.FAILED}

    async def _count_parked(self, wait: _Wait, *, confirmed: bool) -> None:
        """The time in which it was parked for certain: since its last question was opened, as the agent tells it, or since it
        was `confirmed` before."""
        now = self._clock.now()
        opened = await self._opened_at(wait.dispatch.turn) or (wait.counted_until if confirmed else now)
        seconds = (now - max(opened, wait.counted_until)).total_seconds() - wait.counted_before
        wait.counted_until, wait.counted_before = now, 0.0
        if seconds > 0:
            wait.parked += seconds
            await self._replica.parked_for(wait.dispatch.turn, seconds)

    async def _opened_at(self, turn: str) -> datetime | None:
        with suppress(NotFound):
            opened = [
                card.opened_at for card in await self._replica.cards(None, turn) if card.state is CardState.OPENED
            ]
            return max(opened, default=None)
        return None

    # -- the deadline ----------------------------------------------------------------------------------------------------

    def _left(self, wait: _Wait) -> float:
        waited = wait.before + self._clock.monotonic() - wait.began
        return self._deadline_seconds - (waited - wait.parked)

    def _is_late(self, wait: _Wait) -> bool:
        return bool(self._deadline_seconds) and self._left(wait) <= 0

    def _is_given_up(self, wait: _Wait) -> bool:
        """Past the deadline it is followed no more."""
        if not self._is_late(wait):
            return False
        dispatch = wait.dispatch
        self._unfollowed.add(dispatch.turn)
        _log.info("turn_followed_no_more", turn=dispatch.turn, seconds=self._deadline_seconds)
        notice = Unfollowed(dispatch.conversation, dispatch.turn, self._deadline_seconds)
        for observer in list(self._observers.get(dispatch.conversation, ())):
            observer(notice)
        return True
