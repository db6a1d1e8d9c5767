"""What an attempt numbers and in which order it leaves: seqs from a reserved block, events after their commits.

Both belong to the event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from perdure.errors import StorageError
from perdure.events import Event, EventKind

EVENT_RESERVE = 1_000
"""The end of a block that only committed events may use, so that streamed text cannot exhaust it."""


class Seqs:
    """Numbers reserved for one attempt, given out in rising order."""

    def __init__(self, next_seq: int, end: int) -> None:
        self._next = next_seq
        self._end = end
        self._size = end - next_seq
        self._later: deque[tuple[int, int]] = deque()

    @property
    def last(self) -> int:
        """The last number given out (or the one before the block)."""
        return self._next - 1

    @property
    def end(self) -> int:
        """The first number after the last reserved block."""
        return self._later[-1][1] if self._later else self._end

    @property
    def left(self) -> int:
        return self._end - self._next + sum(end - start for start, end in self._later)

    @property
    def low(self) -> bool:
        """Less than a fifth of a block is left."""
        return self.left * 5 < self._size

    @property
    def spare_for_text(self) -> bool:
        return self.left > min(EVENT_RESERVE, self._size // 2)

    def take(self) -> int:
        """The next number. Raises StorageError when the writer stood still for a whole block."""
        if self._next >= self._end:
            if not self._later:
                raise StorageError("The database does not keep up: no event numbers are left for this turn.")
            self._next, self._end = self._later.popleft()
        self._next += 1
        return self._next - 1

    def extend(self, start: int, end: int) -> None:
        """Adds a block; one that follows directly just lengthens the last."""
        if not self._later and start == self._end:
            self._end = end
        else:
            self._later.append((start, end))


class Outlet:
    """Hands events on in seq order: each after its commit, streamed text once everything before it is out."""

    def __init__(self, publish: Callable[[Event], None], stream: Callable[[Event], None]) -> None:
        self._publish = publish
        self._stream = stream
        self._waiting: deque[Event] = deque()
        self._pending: set[int] = set()

    def hold(self, event: Event) -> None:
        """Takes an event's place in the order before its commit."""
        self._waiting.append(event)
        self._pending.add(event.seq)

    def text(self, event: Event) -> None:
        """A token: at once, or behind what waits for a commit."""
        if self._waiting:
            self._waiting.append(event)
        else:
            self._stream(event)

    def committed(self, events: Iterable[Event]) -> None:
        """These are durable: they leave, with all that waited for them alone."""
        for event in events:
            self._pending.discard(event.seq)
        while self._waiting and self._waiting[0].seq not in self._pending:
            event = self._waiting.popleft()
            if event.kind is EventKind.TOKEN:
                self._stream(event)
            else:
                self._publish(event)

    def discard(self, event: Event) -> None:
        """The event was not committed after all; its place is given up."""
        if event in self._waiting:
            self._waiting.remove(event)
        self.committed([event])

    def abandon(self, turn: str) -> None:
        """The attempt latched: its own events never leave; those of other turns that are durable do."""
        waiting, self._waiting = self._waiting, deque()
        for event in waiting:
            if event.turn != turn and event.seq not in self._pending:
                self._publish(event)
