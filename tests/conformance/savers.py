"""Our saver over a real file, opened as often as a test likes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw

from perdure.store.sqlite.authority import Authority, LastRead, OpenAuthority, StepPlan, StepWrite
from perdure.store.sqlite.checkpointer import Checkpointer, Checkpoints
from perdure.store.sqlite.database import open_reader, open_writer, prepare_place
from perdure.store.sqlite.migrations import migrate
from perdure.store.sqlite.readers import Readers
from perdure.store.sqlite.writer import Writer


class Opened:
    """The database, its writer, and what all savers of it share."""

    def __init__(self, path: Path, **options: Any) -> None:
        prepare_place(path)
        connection = open_writer(path, synchronous="OFF")
        migrate(connection, path)
        self.writer = Writer(connection, asyncio.get_running_loop())
        self.readers = Readers(lambda: open_reader(path))
        self.shared = Checkpoints(self.readers, **options)
        self.saver = self.saver_of(OpenAuthority(self.writer))

    def saver_of(self, authority: Authority) -> Checkpointer:
        return Checkpointer(self.shared, authority)

    def owner(self, thread_id: str, run_id: str) -> Owner:
        return Owner(self.writer, thread_id, run_id)

    async def rows(self, statement: str, *bindings: Any) -> list[tuple[Any, ...]]:
        await self.writer.settle()
        return await self.readers.run(lambda connection: connection.execute(statement, bindings).fetchall())

    async def count(self, table: str) -> int:
        return int((await self.rows(f"SELECT count(*) FROM {table}"))[0][0])

    async def close(self) -> None:
        await self.writer.close()
        await self.readers.close()


class Owner:
    """An authority without a journal: fences by a flag, remembers the plans it committed, latches like an attempt."""

    def __init__(self, writer: Writer, thread_id: str, run_id: str) -> None:
        self.thread_id: str | None = thread_id
        self.run_id: str | None = run_id
        self.last_read: LastRead | None = None
        self.plans: list[StepPlan] = []
        self.items: list[int | None] = []
        self.latched: BaseException | None = None
        self.observe: Callable[[apsw.Connection], None] | None = None
        """Looks at the database at the end of each transaction."""

        self._writer = writer

    def submit(self, plan: StepPlan, write: StepWrite) -> asyncio.Future[None]:
        if self.latched is not None:
            raise self.latched

        def transaction(connection: apsw.Connection) -> None:
            if self.latched is not None:
                raise self.latched
            self.items.extend(write(connection))
            self.plans.append(plan)
            if self.observe is not None:
                self.observe(connection)

        def refused(error: BaseException) -> None:
            self.latched = self.latched or error

        return self._writer.submit(transaction, refused=refused, patient=plan.patient)

    async def settle(self) -> None:
        await self._writer.settle()


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[Opened]:
    database = Opened(path, **options)
    try:
        yield database
    finally:
        await database.close()
