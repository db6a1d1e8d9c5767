"""The fence and the latch of an attempt: every write behind the first, nothing after the second.

The first write that fails or finds the turn in other hands latches the attempt: what was enqueued behind it is refused on
the writer's thread already, what comes later is refused at once, and the drive is told to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import apsw
from langgraph.checkpoint.base import BaseCheckpointSaver

from perdure.clock import Clock
from perdure.errors import LeaseLost, StorageError, StorageFull
from perdure.events import Event
from perdure.store.base import Notify
from perdure.store.sqlite.authority import Authority
from perdure.store.sqlite.calls import CallBook
from perdure.store.sqlite.claims import Claimed
from perdure.store.sqlite.journal import QUERIES, publish
from perdure.store.sqlite.outlet import Outlet
from perdure.store.sqlite.rows import micros
from perdure.store.sqlite.writer import Writer

T = TypeVar("T")

SaverFactory = Callable[[Authority], BaseCheckpointSaver[str]]


@dataclass(frozen=True, slots=True)
class AttemptTools:
    """What every attempt of a store works with."""

    writer: Writer
    clock: Clock
    notify: Notify
    saver: SaverFactory
    over: Callable[[Fenced], None]
    """Told when the attempt gives out no more numbers: it ended or latched."""


class Fenced:
    """An attempt as far as it may write: until it ends, latches, or loses its turn."""

    def __init__(self, claimed: Claimed, tools: AttemptTools) -> None:
        self.turn = claimed.turn
        self.number = claimed.turn.epoch
        self.asking = claimed.asking
        self._tools = tools
        self._loop = asyncio.get_running_loop()
        self._outlet = Outlet(lambda event: publish(tools.notify, event), tools.notify.publish)
        self._book = CallBook(claimed.turn, claimed.calls, claimed.repeats)
        self._began = tools.clock.monotonic()
        self._error: BaseException | None = None
        self._ended = False
        self._on_latch: list[Callable[[], object]] = []

    @property
    def latched(self) -> BaseException | None:
        return self._error

    @property
    def live(self) -> bool:
        return self._error is None and not self._ended

    def on_latch(self, call: Callable[[], object]) -> None:
        """Runs `call` once on the loop when the attempt latches; soon, when it has latched already."""
        self._on_latch.append(call)
        if self._error is not None:
            self._loop.call_soon(self._tell_latch)

    def renew(self, lease_expires_at: datetime) -> bool:
        if not self.live:
            return False
        ours = self._tools.writer.call(
            lambda connection: QUERIES.run(
                connection,
                "lease_renew",
                id=self.turn.id,
                epoch=self.turn.epoch,
                lease_expires_at=micros(lease_expires_at),
                working=self._worked(),
            )
        )
        if not ours and not self._ended:
            self._latch(LeaseLost(conversation=self.turn.conversation, turn=self.turn.id))
        return bool(ours)

    def _worked(self) -> int:
        """Microseconds since the claim, by a clock that nobody sets."""
        return int((self._tools.clock.monotonic() - self._began) * 1_000_000)

    @property
    def _unstorable(self) -> bool:
        """Latched by what was to be written, not by who may write or by the disk: the turn can still be ended as failed."""
        return self._error is not None and not isinstance(self._error, LeaseLost | StorageFull | StorageError)

    def _check_fence(self, connection: apsw.Connection) -> None:
        if QUERIES.one(connection, "fence", id=self.turn.id, epoch=self.turn.epoch) is None:
            raise LeaseLost(conversation=self.turn.conversation, turn=self.turn.id)

    def _write(
        self,
        transaction: Callable[[apsw.Connection], T],
        events: Sequence[Event],
        committed: Callable[[T], None] | None = None,
        *,
        despite_latch: bool = False,
        patient: bool = False,
        fenced: bool = False,
    ) -> asyncio.Future[T]:
        """Enqueues a transaction behind the fence; its events leave after the commit, then `committed` is told. `fenced`:
        the transaction begins with a guarded statement of its own, which is the fence. What is to be counted of the turn
        goes with it."""
        model_calls = self._book.take_model_calls()

        def guarded_write(connection: apsw.Connection) -> T:
            if self._error is not None and not (despite_latch and self._unstorable):
                raise self._refusal()
            if not fenced:
                self._check_fence(connection)
            if model_calls:
                self._count_model_calls(connection, model_calls)
            return transaction(connection)

        def told(result: T) -> None:
            try:
                self._outlet.committed(events)
                if committed is not None:
                    committed(result)
            except BaseException as error:
                self._latch(error)
                raise

        return self._tools.writer.submit(guarded_write, committed=told, refused=self._latch, patient=patient)

    def _count_model_calls(self, connection: apsw.Connection, calls: int) -> None:
        QUERIES.run(connection, "turn_count_model_calls", id=self.turn.id, epoch=self.turn.epoch, calls=calls)

    def _latch(self, error: BaseException) -> None:
        """From any thread."""
        if self._error is None:
            self._error = error
            self._loop.call_soon_threadsafe(self._tell_latch)

    def _tell_latch(self) -> None:
        self._tools.over(self)
        self._outlet.abandon(self.turn.id)
        calls, self._on_latch = self._on_latch, []
        for call in calls:
            call()

    def _refuse_when_over(self) -> None:
        if not self.live:
            raise self._refusal()

    def _refusal(self) -> LeaseLost:
        """What a write after the latch, or after the end, gets."""
        why = f"an earlier write failed ({self._error})" if self._error else "it has ended"
        refusal = LeaseLost(
            f"The attempt writes nothing more: {why}.", conversation=self.turn.conversation, turn=self.turn.id
        )
        refusal.__cause__ = self._error
        return refusal
