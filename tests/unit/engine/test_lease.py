"""Leases are kept from threads, and given up before another process may take them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from perdure.engine.lease import TRUST, LeaseKeeper
from perdure.errors import StorageError
from perdure.store.base import LeasedAttempt
from perdure.testing import FakeClock

LEASE = 300.0


class Renewable:
    """The part of an attempt that the keeper uses."""

    number = 1

    class turn:
        id = "T1"

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[datetime] = []

    def renew(self, lease_expires_at: datetime) -> bool:
        self.asked.append(lease_expires_at)
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, Exception):
            raise answer
        return answer


class Scene:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.keeper = LeaseKeeper(self.clock, LEASE)
        self.lost: list[Any] = []

    def hold(self, attempt: Renewable) -> Renewable:
        leased = cast("LeasedAttempt", attempt)
        self.keeper.hold(leased, self.clock.monotonic(), lambda: self.lost.append(attempt))
        return attempt


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    scene.keeper.start()
    yield scene
    scene.keeper.stop()


def test_every_round_renews_for_a_whole_lease_from_now(scene: Scene) -> None:
    attempt = scene.hold(Renewable())
    scene.clock.advance(1)
    scene.keeper.renew_all()
    assert attempt.asked[-1] == scene.clock.now() + timedelta(seconds=LEASE)
    assert scene.lost == []


def test_a_lease_that_is_ours_no_more_is_told_once(scene: Scene) -> None:
    attempt = scene.hold(Renewable(False))
    scene.keeper.renew_all()
    scene.keeper.renew_all()
    assert scene.lost == [attempt]


def test_renewals_that_fail_are_borne_until_trust_ends(scene: Scene) -> None:
    attempt = scene.hold(Renewable(*[StorageError("disk")] * 5))
    scene.clock.advance(TRUST * LEASE - 0.1)
    scene.keeper.renew_all()
    assert scene.lost == []
    scene.clock.advance(0.2)
    scene.keeper.renew_all()
    assert scene.lost == [attempt]


def test_trust_is_counted_from_the_beginning_of_a_slow_renewal(scene: Scene) -> None:
    attempt = Renewable()
    renew = attempt.renew

    def slowly(lease_expires_at: datetime) -> bool:
        scene.clock.advance(LEASE)
        return renew(lease_expires_at)

    attempt.renew = slowly  # type: ignore[method-assign]
    scene.hold(attempt)
    scene.keeper.renew_all()
    assert scene.lost == [attempt]


def test_a_step_of_the_wall_clock_changes_no_trust(scene: Scene) -> None:
    scene.hold(Renewable(StorageError("disk")))
    scene.clock.jump(-3600)
    scene.keeper.renew_all()
    scene.clock.jump(7200)
    scene.keeper.renew_all()
    assert scene.lost == []


def test_what_has_ended_is_not_renewed(scene: Scene) -> None:
    attempt = scene.hold(Renewable())
    scene.keeper.drop(cast("LeasedAttempt", attempt))
    asked = len(attempt.asked)
    scene.keeper.renew_all()
    assert len(attempt.asked) == asked


def test_a_renewal_that_hangs_does_not_keep_the_lost_lease_from_being_told() -> None:
    scene = Scene()
    scene.keeper = LeaseKeeper(scene.clock, 0.03)
    told, hang = threading.Event(), threading.Event()
    attempt = Renewable()

    def never(lease_expires_at: datetime) -> bool:
        hang.wait()
        return True

    attempt.renew = never  # type: ignore[method-assign]
    scene.keeper.hold(cast("LeasedAttempt", attempt), scene.clock.monotonic(), told.set)
    scene.keeper.start()
    scene.clock.advance(1)
    try:
        assert told.wait(60)
    finally:
        hang.set()
        scene.keeper.stop()


def test_a_renewal_that_hangs_is_told_when_trust_ends_and_not_a_round_later() -> None:
    scene = Scene()
    scene.keeper = LeaseKeeper(scene.clock, 3_000.0)
    told, begun, hang = threading.Event(), threading.Event(), threading.Event()
    attempt = Renewable()

    def never(lease_expires_at: datetime) -> bool:
        begun.set()
        hang.wait()
        return True

    attempt.renew = never  # type: ignore[method-assign]
    trusted_for = 0.01  # seconds more, of a lease whose rounds are a quarter of an hour apart
    claimed_at = scene.clock.monotonic() - TRUST * 3_000.0 + trusted_for
    scene.keeper.hold(cast("LeasedAttempt", attempt), claimed_at, told.set)
    scene.keeper.start()
    try:
        assert begun.wait(60)
        scene.clock.advance(1)
        assert told.wait(60)
    finally:
        hang.set()
        scene.keeper.stop()


def test_a_process_that_was_paused_believes_the_renewal_that_it_begins_then() -> None:
    scene = Scene()
    scene.keeper = LeaseKeeper(scene.clock, 3_000.0)
    attempt, other = Renewable(), Renewable()
    begun, allowed = threading.Event(), threading.Event()
    renew = attempt.renew

    def slowly(lease_expires_at: datetime) -> bool:
        begun.set()
        allowed.wait(60)
        return renew(lease_expires_at)

    attempt.renew = slowly  # type: ignore[method-assign]
    scene.keeper.start()
    try:
        scene.hold(attempt)
        scene.hold(other)
        scene.clock.advance(6_000.0)
        round_ = threading.Thread(target=scene.keeper.renew_all)
        round_.start()
        assert begun.wait(60)
        threading.Timer(0.05, allowed.set).start()
        round_.join(60)
        assert scene.lost == []
    finally:
        allowed.set()
        scene.keeper.stop()


def test_a_round_that_breaks_does_not_end_the_rounds() -> None:
    scene = Scene()
    scene.keeper = LeaseKeeper(scene.clock, 0.03)
    told = threading.Event()

    def breaks() -> None:
        raise RuntimeError("the loop is closed")

    scene.keeper.hold(cast("LeasedAttempt", Renewable(False)), scene.clock.monotonic(), breaks)
    scene.keeper.start()
    try:
        other = Renewable(True, False)
        scene.keeper.hold(cast("LeasedAttempt", other), scene.clock.monotonic(), told.set)
        assert told.wait(60)
    finally:
        scene.keeper.stop()
