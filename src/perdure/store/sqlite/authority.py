"""Who may write a thread's checkpoints: the seam between LangGraph's saver and the journal.

The saver (`checkpointer.py`) knows checkpoints, the attempt (`attempt.py`) knows turns. For every write the saver makes,
on the event loop and before its first await, a `StepPlan` (what the write means for the turn) and a closure (the rows of
the checkpoint), and hands both to its authority. A leased attempt runs the closure behind its fence and commits the
derived events and the journal's position in the same transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import apsw
from langgraph.checkpoint.base import CheckpointTuple

from perdure.errors import LeaseLost
from perdure.store.sqlite.writer import Writer

StepWrite = Callable[[apsw.Connection], Sequence[int | None]]
"""Writes the rows of one `aput` or `aput_writes`, on the writer's thread, inside a transaction that is already open.

Returns the item id of each message of the plan, in the plan's order; None for a message without stored bytes (a removal),
whose wire form is then kept in the event itself. An exception undoes this write alone.
"""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one write of the saver means for the turn. Derived from the write's own arguments, on the event loop."""

    messages: Sequence[Mapping[str, Any]] = ()
    """Wire forms (`perdure.messages`) of new, changed and removed messages of the root thread, in order."""

    traces: Sequence[Mapping[str, Any]] = ()
    """Payloads of `trace` events that this commit proves (phase `result`), in order, after the messages."""

    input_stored: bool = False
    """The thread holds the turn's input from this commit on: the journal drops its own copy."""

    supersteps: int = 0
    """Root supersteps that this commit completes (0 or 1)."""

    progress: bool = False
    """A checkpoint or a task's recorded result: sets the count of attempts without progress back to 0."""

    message_count: int | None = None
    """Length of the root thread's message list after this commit; None when it did not change."""

    patient: bool = False
    """May wait a moment for the write that follows, to be committed with it (a task's writes, for the step's checkpoint)."""

    task: str = ""
    """LangGraph's id of the task whose results this commit holds: it settles the tool calls that the task made."""

    usage: Mapping[str, int] = field(default_factory=dict)
    """`input_tokens`, `output_tokens`, `total_tokens` to add to the turn."""


@dataclass(slots=True)
class LastRead:
    """A checkpoint without pending writes, as an attempt's saver gave it out."""

    asked: tuple[str, str, str | None]
    """Thread, namespace, and the checkpoint's id (None for the latest)."""

    found: CheckpointTuple
    offered: bool = False
    """Whether the next read may give out the same objects: nobody's code has held them."""


class Authority(Protocol):
    """What a saver writes through."""

    last_read: LastRead | None
    """Of an attempt alone; gone with the next read or write."""

    @property
    def thread_id(self) -> str | None:
        """The one thread that may be written; None for any."""
        ...

    @property
    def run_id(self) -> str | None:
        """The turn that every write must name in `metadata.run_id`; None for any."""
        ...

    def submit(self, plan: StepPlan, write: StepWrite) -> asyncio.Future[None]:
        """Enqueues the write before it returns, in order of calls; the future is done after the commit and after its
        events were published. Raises LeaseLost at once when the attempt has ended or latched."""
        ...

    async def settle(self) -> None:
        """Returns when everything enqueued so far is committed or refused: what is read now includes it."""
        ...


class OpenAuthority:
    """No fence and no events: for LangGraph's conformance suite and for repair tools, on any thread."""

    thread_id: str | None = None
    run_id: str | None = None
    last_read: LastRead | None = None

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def submit(self, plan: StepPlan, write: StepWrite) -> asyncio.Future[None]:
        def transaction(connection: apsw.Connection) -> None:
            write(connection)

        return self._writer.submit(transaction, patient=plan.patient)

    async def settle(self) -> None:
        await self._writer.settle()


class ReadOnly:
    """Refuses every write."""

    thread_id: str | None = None
    run_id: str | None = None
    last_read: LastRead | None = None

    def submit(self, plan: StepPlan, write: StepWrite) -> asyncio.Future[None]:
        raise LeaseLost("This saver only reads: checkpoints are written by the attempt that holds the turn's lease.")

    async def settle(self) -> None:
        return None
