"""A database file as a process opens it: locked, migrated, its start noted."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from perdure.clock import Clock
from perdure.store.sqlite.claims import Owner
from perdure.store.sqlite.database import (
    APPLICATION_ID,
    SYNCHRONOUS,
    Connection,
    open_writer,
    prepare_place,
    refusals,
)
from perdure.store.sqlite.journal import QUERIES
from perdure.store.sqlite.lock import DatabaseLock, Holder
from perdure.store.sqlite.migrations import migrate
from perdure.store.sqlite.rows import micros


@dataclass(frozen=True, slots=True)
class Opened:
    path: Path
    lock: DatabaseLock
    connection: Connection
    owner: Owner
    upgraded_from: Path | None


@dataclass(frozen=True, slots=True)
class Kind:
    """What a file holds: how it says so, and what brings its schema up to date (it returns the copy made before)."""

    application_id: int
    migrate: Callable[[Connection, Path], Path | None]


JOURNAL = Kind(APPLICATION_ID, migrate)


async def open_database(
    path: Path,
    kind: Kind,
    *,
    clock: Clock,
    version: str,
    synchronous: str = SYNCHRONOUS,
    vfs: str | None = None,
    allow_unsafe_file_system: bool = False,
) -> Opened:
    """Raises DatabaseUnusable with what to do."""
    holder = Holder(os.getpid(), socket.gethostname(), uuid4().hex, version)

    def opened() -> Opened:
        place = path.absolute()  # readers open it later, wherever the process has moved to by then
        prepare_place(place, allow_unsafe_file_system=allow_unsafe_file_system)
        lock = DatabaseLock(place, holder)
        try:
            connection = open_writer(place, synchronous=synchronous, vfs=vfs, application_id=kind.application_id)
            return _started(place, kind, lock, connection, clock)
        except BaseException:
            lock.release()
            raise

    return await asyncio.to_thread(opened)


def _started(path: Path, kind: Kind, lock: DatabaseLock, connection: Connection, clock: Clock) -> Opened:
    try:
        with refusals(path, kind.application_id):
            copy = kind.migrate(connection, path)
            holder = lock.holder
            started = {"owner": holder.owner, "version": holder.version, "now": micros(clock.now())}
            row = QUERIES.one(connection, "boot_start", **started)
        assert row is not None
        return Opened(path, lock, connection, Owner(holder.owner, row["number"]), copy)
    except BaseException:
        connection.close()
        raise
