"""The database file as commands handle it: copied, put back, pruned."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from perdure.clock import SystemClock
from perdure.config import Settings
from perdure.errors import DatabaseUnusable
from perdure.runtime import logs
from perdure.store.sqlite.backup import copy_into, restore_database
from perdure.store.sqlite.database import APPLICATION_ID, open_reader, refusals, scalar
from perdure.store.sqlite.lock import Holder, read_lock
from perdure.store.sqlite.migrations import known
from perdure.store.sqlite.store import open_store
from perdure.transport.local import LocalTransport
from perdure.turns import Limits


async def backup(database: Path, target: Path) -> None:
    """Copies a database that a server may be using, and verifies the copy. Raises StorageError, DatabaseUnusable."""
    await asyncio.to_thread(_copy, database, target)


def _copy(database: Path, target: Path) -> None:
    connection = open_reader(database)
    try:
        with refusals(database):
            if scalar(connection, "PRAGMA application_id") != APPLICATION_ID:
                raise DatabaseUnusable(f"{database} is not a Perdure database. Name another file with --database.")
            copy_into(connection, target)
    finally:
        connection.close()


async def restore(source: Path, database: Path) -> Path | None:
    """Puts a backup in place; where the replaced file was kept. Raises DatabaseUnusable (damaged, newer, in use)."""
    holder = Holder(os.getpid(), socket.gethostname(), uuid4().hex, "restore")
    return await asyncio.to_thread(restore_database, source, database, holder, newest_schema=len(known()))


async def prune(settings: Settings, days: float, *, dry_run: bool) -> Mapping[str, int]:
    """Rows by table that are, or would be, removed. Counting beside a running server works on a copy."""
    assert settings.database is not None
    logs.set_up_command(settings, os.environ)
    holder = read_lock(settings.database)
    if holder is None or not holder.held:
        return await _prune(settings.database, days, dry_run=dry_run)
    with tempfile.TemporaryDirectory(prefix="perdure-prune-") as folder:
        copy = Path(folder) / "perdure.db"
        await backup(settings.database, copy)
        return await _prune(copy, days, dry_run=True)


async def _prune(database: Path, days: float, *, dry_run: bool) -> Mapping[str, int]:
    clock = SystemClock()
    store = await open_store(database, clock=clock, limits=Limits(), notify=LocalTransport(), version="prune")
    try:
        return await store.prune(clock.now() - timedelta(days=days), dry_run=dry_run)
    finally:
        await store.close()
