"""The one writer of a claimed turn: numbers what leaves it, commits every step with its events, and ends it once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import apsw
from langgraph.checkpoint.base import BaseCheckpointSaver

from perdure.errors import LeaseLost, StorageError, StorageFull
from perdure.events import Event, EventKind
from perdure.failpoints import failpoint
from perdure.ledger import ToolCall
from perdure.store.base import Question, Spoken, StoredResult
from perdure.store.sqlite import calls, endings, search
from perdure.store.sqlite.authority import LastRead, StepPlan, StepWrite
from perdure.store.sqlite.claims import SEQ_BLOCK, Claimed
from perdure.store.sqlite.fenced import AttemptTools, Fenced
from perdure.store.sqlite.journal import QUERIES, publish, take_seqs, write_events
from perdure.store.sqlite.outlet import Seqs
from perdure.store.sqlite.writer import ignore_outcome
from perdure.turns import Failure, Outcome, Spent, TurnStatus


class SQLiteAttempt(Fenced):
    """A `perdure.store.base.LeasedAttempt`, and the authority its checkpointer writes through."""

    def __init__(self, claimed: Claimed, tools: AttemptTools) -> None:
        super().__init__(claimed, tools)
        self.rewind = claimed.rewind
        self.thread_id: str | None = claimed.turn.conversation
        self.run_id: str | None = claimed.turn.id
        self.last_read: LastRead | None = None
        self._seqs = Seqs(claimed.next_seq, claimed.end)
        self._buffer: list[Event] = []
        self._late: list[tuple[str, str]] = []
        self._extending = False
        self._supersteps = claimed.turn.supersteps
        self._progressed = False
        self._checkpointer = tools.saver(self)

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def checkpointer(self) -> BaseCheckpointSaver[str]:
        return self._checkpointer

    @property
    def supersteps(self) -> int:
        return self._supersteps

    @property
    def progressed(self) -> bool:
        return self._progressed

    @property
    def spent(self) -> Spent:
        return self._book.spent

    @property
    def repeats(self) -> tuple[str, int]:
        return self._book.repeats

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
        future.add_done_callback(ignore_outcome)

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
        future.add_done_callback(ignore_outcome)

    # -- the saver's writes -------------------------------------------------------------------------------------------

    def submit(self, plan: StepPlan, write: StepWrite) -> asyncio.Future[None]:
        self._refuse_when_over()
        buffered = self._take_buffer()
        self._forget_late_text(plan)
        messages = [self._held(EventKind.MESSAGE, {"message": message}) for message in plan.messages]
        traces = [self._held(EventKind.TRACE, payload) for payload in plan.traces]
        boundary = self._seqs.last
        messages_seqs = [event.seq for event in messages]
        settled = self._book.settle(plan.task) if plan.task else ()
        self._book.add_tokens(plan.usage)

        def transaction(connection: apsw.Connection) -> None:
            self._advance(connection, plan, boundary)
            if settled:
                calls.settle(connection, settled)
            items = write(connection)
            search.keep_messages(connection, self.turn.conversation, self.turn.owner, plan.messages)
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

    async def intend(self, call: ToolCall, key: str, task: str, node: str, step: int) -> None:
        self._refuse_when_over()
        failpoint("tool_intent.before")
        started = self._book.start(call, key, task)
        row = calls.start_row(self.turn, call, key, task, self._tools.clock.now())
        self.trace(node, call.name, step, "call", call_id=call.id, data=calls.told(call, key, started.starts))
        events = self._take_buffer()

        def transaction(connection: apsw.Connection) -> None:
            calls.start(connection, self.turn, row, started)
            write_events(connection, events)

        try:
            await self._write(transaction, events)
        except asyncio.CancelledError:
            if started.first:
                self._withdraw(key)
            raise
        failpoint("tool_intent.after")

    def _withdraw(self, key: str) -> None:
        """Whoever wanted to make the call was cancelled before it was made: it is no uncertain one, and no limit knows it."""
        self._book.withdraw(key)
        repeats = self._book.repeats
        future = self._write(lambda connection: calls.withdraw(connection, self.turn, key, repeats), ())
        future.add_done_callback(ignore_outcome)

    def record(self, key: str, result: StoredResult, status: str) -> None:
        if status not in {"success", "error"}:
            raise ValueError(f"a tool call ends with success or error, not with {status!r}")
        self._refuse_when_over()
        self._book.record(key)
        now = self._tools.clock.now()
        self._note_outcome(lambda connection: calls.record(connection, self.turn, key, result, status=status, now=now))

    def unknown(self, key: str, error: str) -> None:
        self._refuse_when_over()
        self._note_outcome(lambda connection: calls.unknown(connection, self.turn, key, error), fenced=False)

    def _note_outcome(self, transaction: Callable[[apsw.Connection], None], *, fenced: bool = True) -> None:
        """Nobody waits for it: it may go with the writes of the call's task, and a failure latches."""
        failpoint("tool_result.before")
        future = self._write(
            transaction, (), committed=lambda _: failpoint("tool_result.after"), patient=True, fenced=fenced
        )
        future.add_done_callback(ignore_outcome)

    async def count_model_call(self, *, durable: bool) -> None:
        self._refuse_when_over()
        self._book.count_model_call()
        if durable:
            events = self._take_buffer()
            await self._write(lambda connection: write_events(connection, events), events)

    async def park(
        self, questions: Sequence[Question], *, despite_cancel: bool = False, spoken: Sequence[Spoken] = ()
    ) -> None:
        if not questions:
            raise ValueError("a turn is parked for at least one question")
        failpoint("park.before")
        buffered, now = self._close(), self._tools.clock.now()

        def transaction(connection: apsw.Connection) -> list[Event]:
            write_events(connection, buffered)
            return endings.park(
                connection,
                self.turn,
                self._seqs,
                questions,
                now,
                despite_cancel=despite_cancel,
                spoken=spoken,
                worked=not self.asking,
            )

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
            return self._give_back(connection, outcome, now, not_before, error)

        await self._end(transaction, ())
        failpoint("release.after")

    async def give_up(self, *, not_before: datetime, error: str) -> None:
        if not isinstance(self._error, StorageError | StorageFull):
            raise self._refusal()
        failpoint("release.before")
        now, worked = self._tools.clock.now(), self._worked()

        def transaction(connection: apsw.Connection) -> list[Event]:
            self._check_fence(connection)
            self._count_time(connection, worked)
            return self._give_back(connection, Outcome.RELEASED, now, not_before, error)

        await self._tools.writer.submit(transaction, committed=self._tell_end)
        failpoint("release.after")

    def _give_back(
        self,
        connection: apsw.Connection,
        outcome: Outcome,
        now: datetime,
        not_before: datetime | None,
        error: str | None,
    ) -> list[Event]:
        return endings.give_back(
            connection,
            self.turn,
            self._seqs,
            outcome,
            now,
            counted=not self.asking,
            not_before=not_before,
            error=error,
        )

    # -- the end ------------------------------------------------------------------------------------------------------

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
        worked = self._worked()

        def last(connection: apsw.Connection) -> list[Event]:
            self._count_time(connection, worked)
            return transaction(connection)

        await self._write(last, buffered, committed=self._tell_end, despite_latch=despite_latch)

    def _count_time(self, connection: apsw.Connection, worked: int) -> None:
        QUERIES.run(connection, "turn_worked", id=self.turn.id, epoch=self.turn.epoch, worked=worked)

    def _tell_end(self, events: Sequence[Event]) -> None:
        for event in events:
            publish(self._tools.notify, event)
        self._tools.notify.ring("queue")
        self._tools.notify.ring("changes")


def _refuse_bad_ending(status: TurnStatus, failure: Failure | None) -> None:
    if status not in {TurnStatus.COMPLETED, TurnStatus.FAILED, TurnStatus.CANCELLED}:
        raise ValueError(f"a turn is finished as completed, failed or cancelled, not as {status}")
    if (status is TurnStatus.FAILED) != (failure is not None):
        raise ValueError("a failed turn, and only that, carries its failure")
