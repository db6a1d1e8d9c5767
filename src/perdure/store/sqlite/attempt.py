"""The one writer of a claimed turn: every write behind the fence, every event after its commit, and a latch.

The first write that fails or finds the turn in other hands latches the attempt: what was enqueued behind it is refused on
the writer's thread already, what comes later is refused at once, and the drive is told to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import apsw
from langgraph.checkpoint.base import BaseCheckpointSaver

from perdure.clock import Clock
from perdure.errors import LeaseLost, StorageError, StorageFull
from perdure.events import Event, EventKind
from perdure.failpoints import failpoint
from perdure.ledger import ToolCall
from perdure.store.base import Notify, Question
from perdure.store.sqlite import endings
from perdure.store.sqlite.authority import Authority, LastRead, StepPlan, StepWrite
from perdure.store.sqlite.claims import SEQ_BLOCK, Claimed
from perdure.store.sqlite.journal import (
    QUERIES,
    publish,
    take_seqs,
    write_events,
)
from perdure.store.sqlite.outlet import Outlet, Seqs
from perdure.store.sqlite.rows import micros
from perdure.store.sqlite.writer import Writer
from perdure.turns import Failure, Outcome, TurnStatus

T = TypeVar("T")

SaverFactory = Callable[[Authority], BaseCheckpointSaver[str]]


@dataclass(frozen=True, slots=True)
class AttemptTools:
    """What every attempt of a store works with."""

    writer: Writer
    clock: Clock
    notify: Notify
    saver: SaverFactory
    over: Callable[[SQLiteAttempt], None]
    """Told when the attempt gives out no more numbers: it ended or latched."""


class SQLiteAttempt:
    """A `perdure.store.base.LeasedAttempt`, and the authority its checkpointer writes through."""

    def __init__(self, claimed: Claimed, tools: AttemptTools) -> None:
        self.turn = claimed.turn
        self.number = claimed.turn.epoch
        self.rewind = claimed.rewind
        self.thread_id: str | None = claimed.turn.conversation
        self.run_id: str | None = claimed.turn.id
        self.last_read: LastRead | None = None
        self._tools = tools
        self._loop = asyncio.get_running_loop()
        self._seqs = Seqs(claimed.next_seq, claimed.end)
        self._outlet = Outlet(lambda event: publish(tools.notify, event), tools.notify.publish)
        self._buffer: list[Event] = []
        self._late: list[tuple[str, str]] = []
        self._extending = False
        self._error: BaseException | None = None
        self._ended = False
        self._on_latch: list[Callable[[], object]] = []
        self._supersteps = claimed.turn.supersteps
        self._progressed = False
        self._checkpointer = tools.saver(self)

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def latched(self) -> BaseException | None:
        return self._error

    @property
    def live(self) -> bool:
        return self._error is None and not self._ended

    @property
    def checkpointer(self) -> BaseCheckpointSaver[str]:
        return self._checkpointer

    @property
    def supersteps(self) -> int:
        return self._supersteps

    @property
    def progressed(self) -> bool:
        return self._progressed

    def on_latch(self, call: Callable[[], object]) -> None:
        """Runs `call` once on the loop when the attempt latches; soon, when it has latched already."""
        self._on_latch.append(call)
        if self._error is not None:
            self._loop.call_soon(self._tell_latch)

    def reuse_read(self) -> None:
        if self.last_read is not None:
            self.last_read.offered = True

    # -- events -------------------------------------------------------------------------------------------------------

    def token(self, message_id: str, text: str) -> None:
        if not self.live:
            return
        if self._buffer:
            self._flush()
        if self._late or not self._seqs.spare_for_text:
            self._late.append((message_id, text))
        else:
            self._outlet.text(self._event(EventKind.TOKEN, {"message_id": message_id, "text": text}))
        self._extend_when_low()

    def trace(self, node: str, name: str, step: int, phase: str, **more: Any) -> None:
        if self.live:
            payload = {"node": node, "name": name, "step": step, "phase": phase, **more}
            self._buffer.append(self._held(EventKind.TRACE, payload))

    def lend(self, turn: str, kind: EventKind, payload: Mapping[str, Any]) -> Event:
        """Numbers an event of another turn of the thread, and keeps its place until `lent`."""
        event = Event(self._seqs.take(), self.turn.conversation, turn, 0, kind, self._tools.clock.now(), payload)
        self._outlet.hold(event)
        return event

    def lent(self, event: Event, committed: bool) -> None:
        if committed and self._error is not None:
            publish(self._tools.notify, event)
        elif committed:
            self._outlet.committed([event])
        else:
            self._outlet.discard(event)

    def _event(self, kind: EventKind, payload: Mapping[str, Any]) -> Event:
        turn = self.turn
        return Event(self._seqs.take(), turn.conversation, turn.id, self.number, kind, self._tools.clock.now(), payload)

    def _held(self, kind: EventKind, payload: Mapping[str, Any]) -> Event:
        event = self._event(kind, payload)
        self._outlet.hold(event)
        return event

    def _take_buffer(self) -> list[Event]:
        taken, self._buffer = self._buffer, []
        return taken

    def _flush(self) -> None:
        """Commits buffered traces on their own, so that streamed text need not wait for the step that follows it."""
        events = self._take_buffer()
        future = self._write(lambda connection: write_events(connection, events), events)
        future.add_done_callback(_ignore_outcome)  # a failure has latched the attempt

    def _extend_when_low(self) -> None:
        """Reserves another block before this one is used up."""
        if self._extending or not self._seqs.low:
            return
        self._extending = True

        def extended(first: int) -> None:
            self._extending = False
            self._seqs.extend(first, first + SEQ_BLOCK)
            late, self._late = self._late, []
            for message_id, text in late:
                self.token(message_id, text)

        future = self._write(
            lambda connection: take_seqs(connection, self.turn.conversation, SEQ_BLOCK), (), committed=extended
        )
        future.add_done_callback(_ignore_outcome)

    # -- the saver's writes -------------------------------------------------------------------------------------------

    def submit(self, plan: StepPlan, write: StepWrite) -> asyncio.Future[None]:
        self._refuse_when_over()
        buffered = self._take_buffer()
        self._forget_late_text(plan)
        messages = [self._held(EventKind.MESSAGE, {"message": message}) for message in plan.messages]
        traces = [self._held(EventKind.TRACE, payload) for payload in plan.traces]
        boundary = self._seqs.last
        messages_seqs = [event.seq for event in messages]

        def transaction(connection: apsw.Connection) -> None:
            self._advance(connection, plan, boundary)
            items = write(connection)
            write_events(connection, [*buffered, *messages, *traces], dict(zip(messages_seqs, items, strict=True)))

        def committed(_: None) -> None:
            self._supersteps += plan.supersteps
            self._progressed = self._progressed or plan.progress

        events = [*buffered, *messages, *traces]
        future = self._write(transaction, events, committed=committed, patient=plan.patient, fenced=True)
        self._extend_when_low()
        return future

    async def settle(self) -> None:
        await self._tools.writer.settle()

    def _forget_late_text(self, plan: StepPlan) -> None:
        """A message replaces its streamed text, also the part that still waits for numbers."""
        replaced = {message["id"] for message in plan.messages}
        self._late = [(message_id, text) for message_id, text in self._late if message_id not in replaced]

    def _advance(self, connection: apsw.Connection, plan: StepPlan, boundary: int) -> None:
        """The journal's position; guarded, so that it is the fence of the whole transaction."""
        usage = {name: plan.usage.get(name, 0) for name in ("input_tokens", "output_tokens", "total_tokens")}
        ours = QUERIES.run(
            connection,
            "turn_advance",
            id=self.turn.id,
            epoch=self.turn.epoch,
            committed_seq=boundary,
            supersteps=plan.supersteps,
            progress=int(plan.progress),
            input_stored=int(plan.input_stored),
            **usage,
        )
        if not ours:
            raise LeaseLost(conversation=self.turn.conversation, turn=self.turn.id)
        if plan.progress and not self._progressed:
            QUERIES.run(connection, "attempt_progressed", turn=self.turn.id, epoch=self.turn.epoch)
        if plan.message_count is not None:
            QUERIES.run(connection, "conversation_count", id=self.turn.conversation, message_count=plan.message_count)

    # -- the engine's writes ------------------------------------------------------------------------------------------

    async def intend(self, call: ToolCall, node: str, step: int) -> None:
        self._refuse_when_over()
        failpoint("tool_intent.before")
        data = {"arguments": dict(call.arguments), "message_id": call.message_id}
        if call.server is not None:
            data["server"] = call.server
        self.trace(node, call.name, step, "call", call_id=call.id, data=data)
        events = self._take_buffer()
        await self._write(lambda connection: write_events(connection, events), events)
        failpoint("tool_intent.after")

    async def park(self, questions: Sequence[Question]) -> None:
        if not questions:
            raise ValueError("a turn is parked for at least one question")
        failpoint("park.before")
        buffered, now = self._close(), self._tools.clock.now()

        def transaction(connection: apsw.Connection) -> list[Event]:
            write_events(connection, buffered)
            return endings.park(connection, self.turn, self._seqs, questions, now)

        await self._end(transaction, buffered)
        failpoint("park.after")

    async def finish(self, status: TurnStatus, failure: Failure | None = None) -> None:
        _refuse_bad_ending(status, failure)
        failpoint("finish.before")
        failed = status is TurnStatus.FAILED
        buffered, now = self._close(despite_latch=failed), self._tools.clock.now()

        def transaction(connection: apsw.Connection) -> list[Event]:
            if self._error is None:
                write_events(connection, buffered)
            return endings.finish(connection, self.turn, self._seqs, status, failure, now=now)

        await self._end(transaction, buffered, despite_latch=failed)
        failpoint("finish.after")

    async def release(self, outcome: Outcome, *, not_before: datetime | None = None, error: str | None = None) -> None:
        if outcome not in {Outcome.RELEASED, Outcome.RETRIED}:
            raise ValueError(f"a turn goes back to the queue as released or retried, not as {outcome}")
        failpoint("release.before")
        self._close()
        now = self._tools.clock.now()

        def transaction(connection: apsw.Connection) -> list[Event]:
            return endings.give_back(
                connection, self.turn, self._seqs, outcome, now, not_before=not_before, error=error
            )

        await self._end(transaction, ())
        failpoint("release.after")

    async def give_up(self, *, not_before: datetime, error: str) -> None:
        if not isinstance(self._error, StorageError | StorageFull):
            raise self._refusal()
        failpoint("release.before")
        now = self._tools.clock.now()

        def transaction(connection: apsw.Connection) -> list[Event]:
            self._check_fence(connection)
            return endings.give_back(
                connection, self.turn, self._seqs, Outcome.RELEASED, now, not_before=not_before, error=error
            )

        await self._tools.writer.submit(transaction, committed=self._tell_end)
        failpoint("release.after")

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
            )
        )
        if not ours and not self._ended:
            self._latch(LeaseLost(conversation=self.turn.conversation, turn=self.turn.id))
        return bool(ours)

    # -- fence and latch ----------------------------------------------------------------------------------------------

    def _close(self, *, despite_latch: bool = False) -> list[Event]:
        """From here on nothing new is numbered: the last transaction owns the rest of the block."""
        if not (despite_latch and self._unstorable):  # also an end that could not be written as it was
            self._refuse_when_over()
        self._ended = True
        self._tools.over(self)
        return self._take_buffer()

    async def _end(
        self,
        transaction: Callable[[apsw.Connection], list[Event]],
        buffered: Sequence[Event],
        *,
        despite_latch: bool = False,
    ) -> None:
        await self._write(transaction, buffered, committed=self._tell_end, despite_latch=despite_latch)

    def _tell_end(self, events: Sequence[Event]) -> None:
        for event in events:
            publish(self._tools.notify, event)
        self._tools.notify.ring("queue")
        self._tools.notify.ring("changes")

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
        the transaction begins with a guarded statement of its own, which is the fence."""

        def guarded_write(connection: apsw.Connection) -> T:
            if self._error is not None and not (despite_latch and self._unstorable):
                raise self._refusal()
            if not fenced:
                self._check_fence(connection)
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


def _refuse_bad_ending(status: TurnStatus, failure: Failure | None) -> None:
    if status not in {TurnStatus.COMPLETED, TurnStatus.FAILED, TurnStatus.CANCELLED}:
        raise ValueError(f"a turn is finished as completed, failed or cancelled, not as {status}")
    if (status is TurnStatus.FAILED) != (failure is not None):
        raise ValueError("a failed turn, and only that, carries its failure")


def _ignore_outcome(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
