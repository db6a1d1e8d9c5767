"""Keeps the leases of this process's attempts, from threads of its own: a blocked event loop loses no lease.

Trust ends before the lease does and is counted from when the renewal *began*, on the monotonic clock: a renewal that was
slow, or a wall clock that stepped, never lets an attempt believe in a lease that another process may have seen expire.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta

import structlog

from perdure.clock import Clock
from perdure.store.base import LeasedAttempt

TRUST = 0.8
"""The share of a lease after which it is no longer relied on."""

RENEWALS_AT_ONCE = 4

log = structlog.get_logger("perdure.engine")


@dataclass(slots=True)
class _Held:
    attempt: LeasedAttempt
    lost: Callable[[], object]
    trusted_until: float
    """Monotonic seconds."""

    renewal: Future[bool] | None = None


class LeaseKeeper:
    """`hold` each claimed attempt, `drop` it when it ended. `lost` is called once, from a thread of the keeper's."""

    def __init__(self, clock: Clock, lease_seconds: float) -> None:
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._held: dict[int, _Held] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._renewals: ThreadPoolExecutor | None = None

    def start(self) -> None:
        self._renewals = ThreadPoolExecutor(RENEWALS_AT_ONCE, thread_name_prefix="perdure-renewal")
        self._thread = threading.Thread(target=self._keep, name="perdure-leases", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Waits for nothing but the keeper's own thread: a renewal that hangs in the disk must not hold up a shutdown."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        if self._renewals is not None:
            self._renewals.shutdown(wait=False, cancel_futures=True)

    def hold(self, attempt: LeasedAttempt, claimed_at: float, lost: Callable[[], object]) -> None:
        """`claimed_at`: monotonic seconds, taken before the claim."""
        with self._lock:
            self._held[id(attempt)] = _Held(attempt, lost, self._trust_from(claimed_at))

    def drop(self, attempt: LeasedAttempt) -> None:
        with self._lock:
            self._held.pop(id(attempt), None)

    def _keep(self) -> None:
        while not self._stopping.wait(self._until_trust_ends(self._all())):
            try:
                self.renew_all()
            except Exception:  # without this thread every lease would lapse, one turn after the other
                log.exception("a round of renewals broke; leases are renewed in the next one")
                self._stopping.wait(self._lease_seconds / 3)

    def _all(self) -> list[_Held]:
        with self._lock:
            return list(self._held.values())

    def _until_trust_ends(self, held: Iterable[_Held]) -> float:
        """Seconds until one of them cannot be trusted any more; no longer than to the next round."""
        now = self._clock.monotonic()
        return max(0.0, min([self._lease_seconds / 3, *(each.trusted_until - now for each in held)]))

    def renew_all(self) -> None:
        """One round: renews every held lease, gives up those that cannot be trusted any more: without a wait where the renewal
        hangs since the round before. A process that was paused finds trust over, and believes the renewal that it begins now."""
        now = self._clock.monotonic()
        for each in self._all():
            if each.trusted_until <= now and each.renewal is not None and not each.renewal.done():
                self._give_up_untrusted(each)
        held = self._all()
        trusted = [each for each in held if each.trusted_until > now]
        renewals = [renewal for each in held if (renewal := self._renew(each)) is not None]
        wait(renewals, timeout=self._until_trust_ends(trusted))
        for each in held:
            self._give_up_untrusted(each)

    def _renew(self, held: _Held) -> Future[bool] | None:
        if self._renewals is None or (held.renewal is not None and not held.renewal.done()):
            return held.renewal
        held.renewal = self._renewals.submit(self._renew_one, held)
        return held.renewal

    def _renew_one(self, held: _Held) -> bool:
        began = self._clock.monotonic()
        expires_at = self._clock.now() + timedelta(seconds=self._lease_seconds)
        if not held.attempt.renew(expires_at):
            held.trusted_until = float("-inf")
            return False
        held.trusted_until = self._trust_from(began)
        return True

    def _give_up_untrusted(self, held: _Held) -> None:
        renewal = held.renewal
        if renewal is not None and renewal.done() and (error := renewal.exception()) is not None:
            log.warning("a lease could not be renewed", turn=held.attempt.turn.id, error=str(error))
        if held.trusted_until > self._clock.monotonic():
            return
        with self._lock:
            known = self._held.pop(id(held.attempt), None)
        if known is not None:
            log.error("a lease was lost", turn=held.attempt.turn.id, attempt=held.attempt.number)
            held.lost()

    def _trust_from(self, began: float) -> float:
        return began + TRUST * self._lease_seconds
