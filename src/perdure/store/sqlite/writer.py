"""The one writer of the database: a thread with one connection, a FIFO queue, and one commit for all that waits.

A logical transaction is a function of the connection. The writer drains what is queued (only a caller that said so, by
`patient`, waits for more), runs each function in a savepoint of its own, so that a failing one undoes itself alone, and
commits once. After the commit the results travel to the event loop in one callback: first every `committed` hook in commit
order, then the waiting callers.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import apsw

from perdure.errors import StorageError
from perdure.store.sqlite.faults import storage_fault

T = TypeVar("T")
Transaction = Callable[[apsw.Connection], T]

MAX_BATCH = 256
"""Logical transactions in one commit."""

CHECKPOINT_PAGES = 4_000
"""WAL pages (1 KiB each) after which the writer copies them into the database, without waiting for readers."""

TRUNCATE_PAGES = 16_000
"""WAL pages after which the writer, once idle, waits for readers and empties the WAL file."""

PATIENCE_SECONDS = 0.002
"""How long a patient transaction is held back for one to be committed with: an fsync is saved, and the pages that both
write are written once."""

IDLE_SECONDS = 0.5
"""How long the queue must be empty before the WAL is emptied."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Order(Generic[T]):
    """One logical transaction and where its result goes."""

    transaction: Transaction[T]
    settle: Callable[[T | None, BaseException | None], None]
    """Called once, after the commit or with the failure: on the loop for `submit`, on the writer thread for `call`."""

    on_loop: bool
    patient: bool = False
    refused: Callable[[BaseException], None] | None = None
    result: T | None = None
    error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        self.error = error
        if self.refused is not None:
            self.refused(error)


@dataclass(slots=True)
class WriterCounts:
    """Totals since the start, read without a lock."""

    transactions: int = 0
    commits: int = 0
    failures: int = 0
    wal_pages: int = 0


class Writer:
    """Owns the connection from construction on. `submit` belongs to the loop it was made on; `call` to other threads."""

    def __init__(self, connection: apsw.Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop
        self._pid = os.getpid()
        self._queue: queue.SimpleQueue[_Order[Any] | None] = queue.SimpleQueue()
        self._closed = False
        self._gate = threading.Lock()
        self.counts = WriterCounts()
        connection.set_wal_hook(self._note_wal)
        self._thread = threading.Thread(target=self._work, name="perdure-writer", daemon=True)
        self._thread.start()

    # -- giving orders ------------------------------------------------------------------------------------------------

    def submit(
        self,
        transaction: Transaction[T],
        *,
        committed: Callable[[T], None] | None = None,
        refused: Callable[[BaseException], None] | None = None,
        patient: bool = False,
    ) -> asyncio.Future[T]:
        """Enqueues before it returns. The future carries the result after the commit, or the error: what `transaction`
        raised, or StorageFull or StorageError. `committed` runs on the loop after the commit, in commit order, before any
        waiting caller wakes; `refused` runs on the writer's thread, before anything that was enqueued later. A `patient`
        one keeps its place, and is committed with what follows it within `PATIENCE_SECONDS`."""
        future: asyncio.Future[T] = self._loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if error is None and committed is not None:
                error = _run_hook(committed, cast(T, result))
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(cast(T, result))

        self._enqueue(_Order(transaction, settle, on_loop=True, patient=patient, refused=refused))
        return future

    def call(self, transaction: Transaction[T]) -> T:
        """The same from any other thread: blocks until the commit. Never call it on the event loop."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(cast(T, result))

        self._enqueue(_Order(transaction, settle, on_loop=False))
        return future.result()

    async def settle(self) -> None:
        """Returns when everything enqueued so far is committed or refused."""
        await self.submit(_nothing)

    async def close(self) -> None:
        """Commits what is queued, empties the WAL, closes the connection. Later orders are refused."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _enqueue(self, order: _Order[Any]) -> None:
        if os.getpid() != self._pid:
            raise StorageError("The database was opened before a fork: open it again in the child process.")
        with self._gate:
            if self._closed:
                raise StorageError("The database is closed: the server is shutting down.")
            self._queue.put(order)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            batch, last = self._drain()
            if batch:
                self._commit(batch)
                self._deliver(batch)
                self._checkpoint_passively()
            if last:
                break
        self._close_connection()

    def _drain(self) -> tuple[list[_Order[Any]], bool]:
        """What is queued now, at most a batch of it; waits for the first, and a moment longer while all are patient."""
        batch: list[_Order[Any]] = []
        until = 0.0
        while len(batch) < MAX_BATCH:
            try:
                order = self._next(until) if batch else self._wait()
            except queue.Empty:
                break
            if order is None:
                return batch, True
            patient = order.patient and (not batch or until > 0)
            until = (until or time.monotonic() + PATIENCE_SECONDS) if patient else 0.0
            batch.append(order)
        return batch, False

    def _next(self, until: float) -> _Order[Any] | None:
        """What follows, at once or until an instant. The wait is this thread's own: a blocked event loop delays nothing."""
        wait_seconds = until - time.monotonic()
        return self._queue.get(timeout=wait_seconds) if wait_seconds > 0 else self._queue.get_nowait()

    def _wait(self) -> _Order[Any] | None:
        if self.counts.wal_pages < TRUNCATE_PAGES:
            return self._queue.get()
        try:
            return self._queue.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)
            return self._queue.get()

    def _commit(self, batch: list[_Order[Any]]) -> None:
        """Runs the batch in one transaction. When SQLite rolls the transaction back by itself (disk full, I/O error), what
        had run in it fails and the rest starts a new one; never a bare COMMIT after an error."""
        done: list[_Order[Any]] = []
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            alone = len(batch) == 1
            for order in batch:
                done.append(order)
                self._run(order, alone)
                if not self._connection.in_transaction:
                    break
            else:
                if alone and batch[0].error is not None:
                    self._roll_back()  # nothing else is in it
                    return
                self._connection.execute("COMMIT")
                self.counts.commits += 1
                self.counts.transactions += len(batch)
                return
            fault: BaseException = storage_fault(cast(BaseException, done[-1].error))
        except BaseException as error:
            done = done or batch
            fault = storage_fault(error)
        self._roll_back()
        for order in done:
            if order.error is None:
                order.fail(fault)
        self.counts.failures += 1
        rest = batch[len(done) :]
        if rest:
            self._commit(rest)

    def _run(self, order: _Order[Any], alone: bool) -> None:
        if alone:
            self._run_alone(order)
            return
        execute = self._connection.execute
        execute("SAVEPOINT logical")
        try:
            order.result = order.transaction(self._connection)
        except BaseException as error:
            if self._connection.in_transaction:
                execute("ROLLBACK TO logical")
                execute("RELEASE logical")
            order.fail(storage_fault(error))
        else:
            execute("RELEASE logical")

    def _run_alone(self, order: _Order[Any]) -> None:
        """The whole transaction is this one's: what fails is rolled back with it, and needs no savepoint."""
        try:
            order.result = order.transaction(self._connection)
        except BaseException as error:
            order.fail(storage_fault(error))

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except apsw.Error:
                _log.exception("rolling back failed")

    def _deliver(self, batch: list[_Order[Any]]) -> None:
        for order in batch:
            if not order.on_loop:
                order.settle(order.result, order.error)
        told = [order for order in batch if order.on_loop]
        if told:
            try:
                self._loop.call_soon_threadsafe(_settle_all, told)
            except RuntimeError:
                _log.warning("the event loop closed before %d committed writes could be told", len(told))

    # -- the write-ahead log ------------------------------------------------------------------------------------------

    def _note_wal(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self.counts.wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint_passively(self) -> None:
        if self.counts.wal_pages >= CHECKPOINT_PAGES:
            self._checkpoint(apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _checkpoint(self, mode: int) -> None:
        try:
            self._connection.wal_checkpoint(mode=mode)
        except apsw.BusyError:
            return  # a reader stands in the way; the next commit tries again
        except apsw.Error as error:
            _log.error("the write-ahead log could not be copied into the database: %s", error)
        else:
            if mode == apsw.SQLITE_CHECKPOINT_TRUNCATE:
                self.counts.wal_pages = 0

    def _close_connection(self) -> None:
        self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self._connection.close()


def ignore_outcome(future: asyncio.Future[Any]) -> None:
    """For a write that nobody waits for; whom its failure concerns is told by `refused`."""
    if not future.cancelled():
        future.exception()


def _nothing(connection: apsw.Connection) -> None:
    return None


def _run_hook(committed: Callable[[T], None], result: T) -> BaseException | None:
    try:
        committed(result)
    except Exception as error:
        _log.exception("a hook failed after its commit")
        return error
    return None


def _settle_all(orders: list[_Order[Any]]) -> None:
    for order in orders:
        order.settle(order.result, order.error)
