from __future__ import annotations

from datetime import UTC, datetime

import pytest

from perdure.errors import StorageError
from perdure.events import Event, EventKind
from perdure.store.sqlite.outlet import EVENT_RESERVE, Outlet, Seqs


def event(seq: int, kind: EventKind = EventKind.TRACE, turn: str = "turn") -> Event:
    return Event(seq, "thread", turn, 1, kind, datetime(2030, 1, 1, tzinfo=UTC), {})


class Told:
    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.outlet = Outlet(self._take, self._take)

    def _take(self, event: Event) -> None:
        self.seqs.append(event.seq)


def test_events_leave_in_order_whatever_order_their_commits_come_in() -> None:
    told = Told()
    first, second, third = event(1), event(2), event(3)
    for held in (first, second, third):
        told.outlet.hold(held)
    told.outlet.text(event(4, EventKind.TOKEN))
    told.outlet.committed([second, third])
    assert told.seqs == []
    told.outlet.committed([first])
    assert told.seqs == [1, 2, 3, 4]


def test_text_with_nothing_before_it_leaves_at_once() -> None:
    told = Told()
    told.outlet.text(event(1, EventKind.TOKEN))
    assert told.seqs == [1]


def test_a_place_given_up_holds_nobody_back() -> None:
    told = Told()
    given_up = event(1)
    told.outlet.hold(given_up)
    told.outlet.text(event(2, EventKind.TOKEN))
    told.outlet.discard(given_up)
    assert told.seqs == [2]


def test_an_abandoned_outlet_tells_only_what_is_durable_of_other_turns() -> None:
    told = Told()
    own, lent = event(1), event(2, turn="other")
    told.outlet.hold(own)
    told.outlet.hold(lent)
    told.outlet.text(event(3, EventKind.TOKEN))
    told.outlet.committed([lent])
    told.outlet.abandon("turn")
    assert told.seqs == [2]


def test_numbers_go_on_in_the_next_block() -> None:
    seqs = Seqs(1, 4)
    assert [seqs.take(), seqs.take()] == [1, 2]
    seqs.extend(10, 12)
    assert [seqs.take() for _ in range(3)] == [3, 10, 11]
    assert (seqs.last, seqs.end, seqs.left) == (11, 12, 0)
    with pytest.raises(StorageError):
        seqs.take()


def test_the_end_of_a_block_is_kept_for_events() -> None:
    seqs = Seqs(1, 10_001)
    for _ in range(10_000 - EVENT_RESERVE):
        assert seqs.spare_for_text
        seqs.take()
    assert seqs.low
    assert not seqs.spare_for_text
    assert seqs.take() == 10_001 - EVENT_RESERVE
