"""The database file as commands handle it: copied and put back. Loads neither LangGraph nor the store."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from uuid import uuid4

from perdure.errors import DatabaseUnusable
from perdure.store.sqlite.backup import copy_into, restore_database
from perdure.store.sqlite.database import APPLICATION_ID, open_reader, other_kind, refusals, scalar
from perdure.store.sqlite.lock import Holder
from perdure.store.sqlite.migrations import known
from perdure.store.sqlite.undoing import undo_upgrade


async def backup(database: Path, target: Path) -> None:
    """Copies a database that a server may be using, and verifies the copy. Raises StorageError, DatabaseUnusable."""
    await asyncio.to_thread(_copy, database, target)


def _copy(database: Path, target: Path) -> None:
    connection = open_reader(database)
    try:
        with refusals(database):
            mark = scalar(connection, "PRAGMA application_id")
            if mark != APPLICATION_ID:
                raise DatabaseUnusable(f"{database} {other_kind(mark)}")
            copy_into(connection, target)
    finally:
        connection.close()


async def restore(source: Path, database: Path) -> Path | None:
    """Puts a backup in place; where the replaced file was kept. Raises DatabaseUnusable (damaged, newer, in use)."""
    return await asyncio.to_thread(restore_database, source, database, _holder(), newest_schema=len(known()))


async def undo(database: Path) -> Path:
    """Puts the copy back that the last upgrade made, while nothing was done since; that copy. Raises NotFound, DatabaseUnusable."""
    return await asyncio.to_thread(undo_upgrade, database, _holder())


def _holder() -> Holder:
    return Holder(os.getpid(), socket.gethostname(), uuid4().hex, "restore")
