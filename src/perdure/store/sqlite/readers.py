"""Reading beside the writer: a few threads, each with a read-only connection of its own.

A read is a function of a connection; it runs inside one short read transaction, so that its queries see one state. No
read transaction lives across an await.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import apsw

from perdure.errors import StorageError
from perdure.store.sqlite.faults import storage_fault

T = TypeVar("T")

READERS = 4


class Readers:
    def __init__(self, connect: Callable[[], apsw.Connection], threads: int = READERS) -> None:
        self._connect = connect
        self._pid = os.getpid()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="perdure-reader")
        self._local = threading.local()
        self._opened: list[apsw.Connection] = []
        self._gate = threading.Lock()
        self._closed = False

    async def run(self, read: Callable[[apsw.Connection], T]) -> T:
        """The result of `read`, from a thread of the pool. Raises StorageError when the database cannot be read."""
        self._refuse_if_unusable()
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.read_here, read)

    def read_here(self, read: Callable[[apsw.Connection], T]) -> T:
        """The same on the calling thread, which blocks. On the event loop for look-ups that touch a few pages alone: going
        to another thread and back costs several times what they do."""
        self._refuse_if_unusable()
        connection = self._connection()
        try:
            connection.execute("BEGIN")
            try:
                return read(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except apsw.Error as error:
            raise storage_fault(error) from error

    def look(self, read: Callable[[apsw.Connection], T]) -> T:
        """`read_here` for a read of one statement, which needs no transaction around it."""
        self._refuse_if_unusable()
        try:
            return read(self._connection())
        except apsw.Error as error:
            raise storage_fault(error) from error

    async def close(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
        with self._gate:
            for connection in self._opened:
                connection.close()
            self._opened.clear()

    def _connection(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connect()
            self._local.connection = connection
            with self._gate:
                self._opened.append(connection)
        return connection

    def _refuse_if_unusable(self) -> None:
        if os.getpid() != self._pid:
            raise StorageError("The database was opened before a fork: open it again in the child process.")
        if self._closed:
            raise StorageError("The database is closed: the server is shutting down.")
