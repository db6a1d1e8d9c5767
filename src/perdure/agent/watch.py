"""One watcher's stream: what the journal holds after its cursor, then what happens, without a gap and without a repeat.

Subscribing comes first, so that nothing between the journal's last row and the first live event is lost. Events are
published in seq order after their commit: every row below the first queued event comes from the journal, all others
from the queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence

from perdure.errors import NotFound, NotReady
from perdure.events import Event, EventKind, Frame, Reset, ResetReason
from perdure.store.base import JournalReader
from perdure.transport.base import Subscription
from perdure.turns import ENDED, Turn

PAGE = 500


async def watch(
    store: JournalReader, live: Subscription, turn: Turn | None, conversation: str, after: int | None, *, follow: bool
) -> AsyncIterator[Frame]:
    """`turn`: the one to watch, read after `live` was subscribed. Ends with this turn's end unless `follow`; the end of
    another one (cancelled while it waited, or ended after the cursor) is told like any event. Raises
    SlowWatcher, and NotReady when the transport closed (the stream is then not at its end)."""
    async for frame in _Watch(store, live, conversation).frames(turn, after, follow=follow):
        yield frame
        if not follow and turn is not None and await _ends(store, turn, frame):
            return


async def _ends(store: JournalReader, turn: Turn, frame: Frame) -> bool:
    """Whether the turn has ended with this frame. It has not when a person resumed it since."""
    if not isinstance(frame, Event) or not frame.terminal or frame.turn != turn.id:
        return False
    try:
        return (await store.turn(turn.owner, turn.id)).status in ENDED
    except NotFound:
        return True


class _Watch:
    def __init__(self, store: JournalReader, live: Subscription, conversation: str) -> None:
        self._store = store
        self._live = live
        self._conversation = conversation
        self._queued: deque[Event] = deque()
        self._tokens: deque[Event] = deque(live.retained)
        self._seen = 0
        """The highest seq delivered or passed over."""

        self._reset_for = 0
        """The rewind that a reset was sent for before its row was met: that row is no second reset."""

    async def frames(self, turn: Turn | None, after: int | None, *, follow: bool) -> AsyncIterator[Frame]:
        if after is not None:
            async for frame in self._since(turn, after):
                yield frame
        elif turn is not None and turn.active:
            async for frame in self._recorded(turn.first_seq - 1, None):
                yield frame
        if turn is not None and turn.status in ENDED and (after is None or not follow):
            ending = await self._ending(turn)
            if ending is not None:
                self._seen = max(self._seen, ending.seq)  # it may be queued, too: it was committed while this began
                yield ending
        if not follow and (turn is None or turn.status in ENDED):
            return
        async for frame in self._going_on():
            yield frame

    # -- from the journal ---------------------------------------------------------------------------------------------

    async def _since(self, turn: Turn | None, after: int) -> AsyncIterator[Frame]:
        at = await self._store.turn_at(self._conversation, after)
        reset = await self._reset_at(at, after) if at is not None else _unknown(turn)
        start = after
        if reset is not None:
            yield reset
            begun = at if at is not None else turn
            start = begun.first_seq - 1 if begun is not None else after
        async for frame in self._recorded(start, None if at is None else at.id):
            yield frame

    async def _reset_at(self, at: Turn, after: int) -> Reset | None:
        """Whether a watcher that stands at `after` shows what is not so any more."""
        rewind = await self._store.rewound_after(at.id, after)
        if rewind is not None:
            self._reset_for = rewind.seq
            return _reset(rewind)
        if at.status in ENDED and await self._ending(at) is None:
            return _unknown(at)
        if at.active and await self._tokens_lost(at, after):
            return Reset(self._conversation, at.id, at.committed_seq, at.epoch, ResetReason.RECONNECTED)
        return None

    async def _tokens_lost(self, at: Turn, after: int) -> bool:
        """The cursor stands on a token that this process does not hold and that nothing committed has followed: it came
        from a process that is gone."""
        if any(token.seq == after for token in self._tokens):
            return False
        return not await self._store.events(self._conversation, after=after - 1, turn=at.id, limit=1)

    async def _recorded(self, after: int, cursor_turn: str | None) -> AsyncIterator[Frame]:
        """Rows above `after` and below the first queued event, with the retained tokens between them."""
        position, more = after, True
        self._tokens = deque(token for token in self._tokens if token.seq > after)
        while more:
            page = await self._store.events(self._conversation, after=position, limit=PAGE)
            more = len(page) == PAGE
            for row in page:
                if row.seq >= self._first_queued():
                    more = False
                    break
                for token in self._tokens_below(row.seq):
                    yield token
                async for frame in self._deliver(row, is_watched=row.turn == cursor_turn):
                    yield frame
                position = row.seq
        for token in self._tokens_below(self._first_queued()):
            yield token

    def _tokens_below(self, seq: float) -> Sequence[Event]:
        below: list[Event] = []
        while self._tokens and self._tokens[0].seq < seq:
            below.append(self._tokens.popleft())
        self._seen = max(self._seen, *(token.seq for token in below), 0)
        return below

    def _first_queued(self) -> float:
        if not self._queued:
            self._queued.extend(self._live.take())
        return self._queued[0].seq if self._queued else float("inf")

    async def _deliver(self, event: Event, *, is_watched: bool = True) -> AsyncIterator[Frame]:
        """A rewind becomes a reset with what is retained; for a turn that the watcher has seen nothing of, it is nothing."""
        self._seen = event.seq
        if event.kind is not EventKind.REWIND:
            yield event
        elif is_watched and event.seq > self._reset_for:
            self._tokens = deque(token for token in self._tokens if token.turn != event.turn or token.seq > event.seq)
            yield _reset(event)
            async for row in self._retained(event.turn, event.seq):
                yield row

    async def _retained(self, turn: str, below: int) -> AsyncIterator[Event]:
        position = 0
        while True:
            page = await self._store.events(self._conversation, after=position, turn=turn, limit=PAGE)
            for row in page:
                if row.seq >= below:
                    return
                if row.kind is not EventKind.REWIND:
                    yield row
            if len(page) < PAGE:
                return
            position = page[-1].seq

    async def _ending(self, turn: Turn) -> Event | None:
        """The last terminal event; None when retention has removed it."""
        ending: Event | None = None
        position = turn.committed_seq - 1
        while True:
            page = await self._store.events(self._conversation, after=position, turn=turn.id, limit=PAGE)
            ending = next((row for row in reversed(page) if row.terminal), ending)
            if len(page) < PAGE:
                return ending
            position = page[-1].seq

    # -- live ---------------------------------------------------------------------------------------------------------

    async def _going_on(self) -> AsyncIterator[Frame]:
        while True:
            if not self._queued:
                await self._fetch()
            event = self._queued.popleft()
            if event.seq <= self._seen:
                continue
            async for frame in self._deliver(event):
                yield frame

    async def _fetch(self) -> None:
        self._queued.extend(self._live.take())
        if self._queued:
            return
        await self._live.wait()
        self._queued.extend(self._live.take())
        if not self._queued:
            raise NotReady("The server is shutting down. Connect again with the last event's id.")


def _reset(rewind: Event) -> Reset:
    payload = rewind.payload
    return Reset(rewind.conversation, rewind.turn, int(payload["to_seq"]), rewind.attempt, str(payload["reason"]))


def _unknown(turn: Turn | None) -> Reset | None:
    if turn is None:
        return None
    return Reset(turn.conversation, turn.id, turn.first_seq - 1, turn.epoch, ResetReason.CURSOR_UNKNOWN)
