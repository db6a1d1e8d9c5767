"""Claims due turns and drives them, within the limits of this process, until it is drained.

Wakes by the `queue` bell, by the time a delayed turn falls due and by the sweep; never by polling. Approvals that nobody
decides in time are denied when their time is over. A turn with two attempts without progress may be the one that kills the
process: it is driven alone, so that its neighbours do not pay. What a person must tell of its calls is asked before that, at
once and beside others: to ask, nothing of the turn has to run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import structlog

from perdure.clock import Clock
from perdure.config import Settings
from perdure.effects import OnUncertain
from perdure.engine.drive import Drive
from perdure.engine.lease import LeaseKeeper
from perdure.engine.recovery import Recovery
from perdure.errors import PerdureError
from perdure.graph.containment import contain
from perdure.graph.load import HostedGraph
from perdure.store.base import LeasedAttempt, Store
from perdure.transport.base import Transport

SUSPECT_PATIENCE_SECONDS = 60.0
"""How long new turns still start while a suspect waits for this process to become quiet."""

SHORTEST_LOOK_SECONDS = 1.0
"""For a turn that is due already and may not start: another one of its agent must end first, and rings then."""

CUT_SECONDS = 5.0
"""How long work that was cut may take to end; what ignores its cancel (a node that swallows it) is left behind."""

LONGEST_SLEEP_SECONDS = 3600.0
"""A wall clock that steps is noticed after so long."""

log = structlog.get_logger("perdure.engine")


class Worker:
    """`start` once the server answers; `drain` ends it."""

    def __init__(
        self, store: Store, transport: Transport, agents: Mapping[str, HostedGraph], settings: Settings, clock: Clock
    ) -> None:
        self._store = store
        self._transport = transport
        self._agents = agents
        self._settings = settings
        self._clock = clock
        self._drives: dict[asyncio.Task[None], Drive] = {}
        self._alone: Drive | None = None
        self._suspect_since: float | None = None
        self._cancels = 0
        self._draining = False
        self._expiring = asyncio.Event()
        self._claiming: asyncio.Task[None] | None = None
        self._others: list[asyncio.Task[None]] = []
        self._keeper = LeaseKeeper(clock, settings.lease_seconds)
        self._recovery = Recovery(store, agents, clock, self.held)

    # -- what others may know -----------------------------------------------------------------------------------------

    def held(self) -> Collection[str]:
        """Turns that are driven by this process now."""
        return {drive.attempt.turn.id for drive in self._drives.values()}

    @property
    def running(self) -> int:
        return len(self._drives)

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def safe_mode(self) -> bool:
        return self._recovery.safe_mode

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Moves the orphans on once, then claims, sweeps and listens until `drain`."""
        contain(asyncio.get_running_loop())
        self._keeper.start()
        await self._recovery.sweep()
        self._claiming = asyncio.create_task(_guarded(self._claim_loop))
        self._others = [asyncio.create_task(_guarded(loop)) for loop in self._loops()]

    def _loops(self) -> Sequence[Callable[[], Awaitable[None]]]:
        return (self._sweep_loop, self._cancel_loop, self._expiry_loop)

    async def drain(self, deadline_seconds: float) -> None:
        """No new claims; running turns are handed back between two supersteps, at the deadline wherever they are."""
        self._draining = True
        self._transport.ring("queue")
        await _end_all(self._others)
        for drive in self._drives.values():
            drive.drain()
        await self._wait_for_drives(deadline_seconds)
        for drive in self._drives.values():
            drive.stop()
        await self._wait_for_drives(CUT_SECONDS)
        await self._abandon()
        self._keeper.stop()

    async def _wait_for_drives(self, seconds: float) -> None:
        """Until all have ended, or so long. A claim under way first becomes a drive, so that its turn is handed back."""
        alarm = asyncio.create_task(self._clock.sleep(seconds))
        while not alarm.done():
            waited = {*self._drives, *([self._claiming] if self._claiming and not self._claiming.done() else [])}
            if not waited:
                break
            await asyncio.wait({alarm, *waited}, return_when=asyncio.FIRST_COMPLETED)
        await _end_all([alarm])

    async def _abandon(self) -> None:
        """What did not end when it was cut: its lease lapses, and the next start finds an orphan."""
        for task, drive in self._drives.items():
            log.error("a turn did not stop; it is left to its lease", turn=drive.attempt.turn.id)
            drive.lose()
            task.cancel()
        if self._claiming is not None:
            await _end_all([self._claiming])

    # -- claiming -----------------------------------------------------------------------------------------------------

    async def _claim_loop(self) -> None:
        with self._transport.listen("queue") as bell:
            while not self._draining:
                await bell.wait(await self._claim_due())

    async def _claim_due(self) -> float:
        """Starts what may start now. Seconds until it must look again without being rung."""
        try:
            await self._claim_all()
            return await self._next_look()
        except PerdureError as error:
            log.error("turns cannot be claimed now", error=error.message)
        except Exception:
            log.exception("claiming broke; it is tried again")
        return self._settings.sweep_seconds

    async def _claim_all(self) -> None:
        while not self._draining:
            suspects = await self._suspects_due()
            if suspects and await self._claim(suspects=True, asking=True):
                continue
            if suspects and self._alone is None and not self._drives and await self._claim(suspects=True):
                return
            if self._gate_closed() or not self._has_room() or not await self._claim(suspects=False):
                return

    async def _suspects_due(self) -> int:
        """Also notes since when one has waited. In safe mode none is driven."""
        due = 0 if self.safe_mode else await self._store.suspects_due(self._agents, self._clock.now())
        if not due:
            self._suspect_since = None
        elif self._suspect_since is None:
            self._suspect_since = self._clock.monotonic()
        return due

    def _gate_closed(self) -> bool:
        """Whether ordinary turns must wait, so that this process becomes quiet for a suspect."""
        if self._alone is not None or self._draining:
            return True
        since = self._suspect_since
        return since is not None and self._clock.monotonic() - since >= SUSPECT_PATIENCE_SECONDS

    def _has_room(self) -> bool:
        return len(self._drives) < self._settings.max_running

    async def _claim(self, *, suspects: bool, asking: bool = False) -> bool:
        cancels = self._cancels
        began, now = self._clock.monotonic(), self._clock.now()
        attempt = await self._store.claim(
            agents={
                name: agent.settings.max_running for name, agent in self._agents.items() if not asking or _asks(agent)
            },
            suspects=suspects,
            now=now,
            lease_expires_at=now + timedelta(seconds=self._settings.lease_seconds),
            asking=asking,
        )
        if attempt is None:
            return False
        self._start(attempt, began, alone=suspects and not asking)
        if cancels != self._cancels:  # a cancel that came between the claim and here found no drive
            await self._pass_on_cancels()
        return True

    def _start(self, attempt: LeasedAttempt, claimed_at: float, *, alone: bool) -> None:
        agent = self._agents[attempt.turn.agent]
        drive = Drive(
            attempt,
            agent,
            self._store,
            self._clock,
            progressed=lambda: self._cleared(drive),
            tool_timeout_seconds=self._settings.tool_timeout_seconds,
        )
        self._keeper.hold(attempt, claimed_at, partial(asyncio.get_running_loop().call_soon_threadsafe, drive.lose))
        if alone:
            self._alone, self._suspect_since = drive, None
            log.warning("driven alone after attempts without progress", turn=attempt.turn.id, attempt=attempt.number)
        task = asyncio.create_task(_told(drive), name=f"drive {attempt.turn.id}")
        self._drives[task] = drive
        task.add_done_callback(self._ended)

    def _cleared(self, drive: Drive) -> None:
        """A suspect that committed something is none any more."""
        if self._alone is drive:
            self._alone = None
            self._transport.ring("queue")

    def _ended(self, task: asyncio.Task[None]) -> None:
        drive = self._drives.pop(task)
        self._keeper.drop(drive.attempt)
        if self._alone is drive:
            self._alone = None
        if any(each.gate is not None and each.gate.expires_seconds is not None for each in drive.parked):
            self._expiring.set()
        self._transport.ring("queue")

    async def _next_look(self) -> float:
        """Whoever waits for room or for a quiet process is rung when a drive ends; a suspect may have to ask before."""
        longest = self._settings.sweep_seconds
        crowded = not self._has_room() or self._gate_closed()
        if crowded and (self._draining or self.safe_mode):
            return longest
        due = await self._store.next_due(self._agents, suspects=crowded)
        if due is None:
            return longest
        return min(longest, max((due - self._clock.now()).total_seconds(), SHORTEST_LOOK_SECONDS))

    # -- sweeping, expiry and cancels ---------------------------------------------------------------------------------

    async def _sweep_loop(self) -> None:
        while True:
            await self._clock.sleep(self._settings.sweep_seconds)
            try:
                await self._recovery.sweep()
            except PerdureError as error:
                log.error("the sweep for orphans failed; it is tried again", error=error.message)
            except Exception:
                log.exception("the sweep broke; it is tried again")

    async def _expiry_loop(self) -> None:
        while True:
            self._expiring.clear()
            await self._wait_for_expiry(await self._expire())

    async def _expire(self) -> float | None:
        """Denies what nobody decided in time. Seconds until the next approval is over, None when none is bounded."""
        try:
            due = await self._store.expire(self._clock.now())
        except PerdureError as error:
            log.error("approvals cannot be looked through now", error=error.message)
            return self._settings.sweep_seconds
        except Exception:
            log.exception("the expiry of approvals broke; it is tried again")
            return self._settings.sweep_seconds
        return None if due is None else max((due - self._clock.now()).total_seconds(), 0.0)

    async def _wait_for_expiry(self, seconds: float | None) -> None:
        """So long, or until a turn waits for an approval that is bounded in time."""
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(self._expiring.wait())]
        if seconds is not None:
            waits.append(asyncio.create_task(self._clock.sleep(min(seconds, LONGEST_SLEEP_SECONDS))))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end_all(waits)

    async def _cancel_loop(self) -> None:
        with self._transport.listen("cancel") as bell:
            again: float | None = None
            while True:
                await bell.wait(again)
                self._cancels += 1
                again = None if await self._pass_on_cancels() else self._settings.sweep_seconds

    async def _pass_on_cancels(self) -> bool:
        """False when the database could not be asked."""
        try:
            requested = await self._store.cancel_requested(self.held())
        except PerdureError as error:
            log.error("cancel requests cannot be read now", error=error.message)
            return False
        except Exception:
            log.exception("reading cancel requests broke; it is tried again")
            return False
        for drive in self._drives.values():
            if drive.attempt.turn.id in requested:
                drive.cancel()
        return True


def _asks(agent: HostedGraph) -> bool:
    return agent.policy.on_uncertain is OnUncertain.ASK


async def _told(drive: Drive) -> None:
    """Runs a drive. What even its last resort did not foresee is logged; the turn is left to its lease and the sweep."""
    try:
        await drive.run()
    except Exception:
        log.exception("a drive broke; the turn is left to its lease", turn=drive.attempt.turn.id)


async def _guarded(loop: Callable[[], Awaitable[None]]) -> None:
    """A loop that ends is a fault nobody would notice: it is told as loudly as possible."""
    try:
        await loop()
    except Exception:
        log.critical("an engine loop ended; this server must be started again", exc_info=True)
        raise


async def _end_all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
