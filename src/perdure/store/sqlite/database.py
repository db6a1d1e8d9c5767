"""Opening the database file: safe place, right modes, sane content, or a clear refusal.

Never open the file, its `-wal` or its `-shm` by other means in the same process: closing such a handle drops SQLite's
locks. Copies are made by the backup API alone (`backup.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from perdure.errors import DatabaseUnusable, StorageError
from perdure.store.sqlite.faults import is_full
from perdure.store.sqlite.file_systems import refuse_unsafe

MINIMUM_SQLITE = (3, 51, 3)
"""Earlier versions have a race that can damage a database in WAL mode."""

SYNCHRONOUS = "FULL"
"""An fsync per commit. Only the proof passes another level, to show that the suite notices."""

PAGE_BYTES = 1_024
"""Of a new file. A commit writes each page it touched as a whole, and touches a few rows in a dozen tables and indexes: small
pages write a third of what SQLite's default of 4,096 writes, and read as fast."""

BUSY_MILLISECONDS = 5_000
JOURNAL_LIMIT_BYTES = 32 * 1024 * 1024
APPLICATION_ID = 0x50524455
"""`PRDU`: how the file says that it is ours."""

REPLICA_ID = 0x50524452
"""`PRDR`: the same of a gateway's file, which holds copies of journals."""

WHOLE_CHECK_BYTES = 64 * 1024 * 1024
"""Up to this size the whole file is checked at start (about 0.2 s); above it only the tables that steer turns, so that a
server with a file of gigabytes is ready within seconds. `perdure doctor` and every backup check the whole."""

STEERING_TABLES = ("conversations", "turns", "attempts", "spaces")

_LEVELS = {"OFF": 0, "NORMAL": 1, "FULL": 2, "EXTRA": 3}


class Connection(apsw.Connection):
    """Remembers its process: a child made by fork must not touch its parent's handle."""

    pid: int

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.pid = os.getpid()

    def execute(self, *arguments: Any, **options: Any) -> apsw.Cursor:
        if os.getpid() != self.pid:
            raise StorageError("The database was opened before a fork: open it again in the child process.")
        return super().execute(*arguments, **options)


def prepare_place(path: Path, *, allow_unsafe_file_system: bool = False) -> None:
    """Makes the folder (0700) and the empty file (0600) where they are missing. Raises DatabaseUnusable."""
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "a device or a pipe"
        raise DatabaseUnusable(f"{path} is {kind}: a database is a file. Name one with --database.")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not allow_unsafe_file_system:
            refuse_unsafe(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise DatabaseUnusable(
            f"{path} cannot be opened for writing: {error.strerror}. Check the folder, its owner and its mount, or name "
            "another file with --database."
        ) from error


def open_writer(
    path: Path, *, synchronous: str = SYNCHRONOUS, vfs: str | None = None, application_id: int = APPLICATION_ID
) -> Connection:
    """The one connection that writes; of this kind of file. Raises DatabaseUnusable with what to do."""
    _refuse_old_sqlite()
    with refusals(path, application_id):
        connection = Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
        try:
            refuse_foreign(connection, path, application_id)
            _set_modes(connection, path, synchronous)
            _refuse_damaged(connection, path, application_id)
        except BaseException:
            connection.close()
            raise
    return connection


def open_reader(path: Path, *, vfs: str | None = None) -> Connection:
    """A connection that cannot write."""
    with refusals(path):
        connection = Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=vfs)
        connection.set_busy_timeout(BUSY_MILLISECONDS)
        connection.execute("PRAGMA query_only = ON")
    return connection


@contextmanager
def refusals(path: Path, application_id: int = APPLICATION_ID) -> Iterator[None]:
    """Turns SQLite's errors into DatabaseUnusable: what is wrong with a file of this kind, and what to do."""
    try:
        yield
    except apsw.Error as error:
        kind = apsw.FullError if is_full(error) else type(error)
        reason = _damaged(application_id) if kind is apsw.CorruptError else _REASONS.get(kind, "could not be opened")
        raise DatabaseUnusable(f"{path} {reason} (SQLite: {error})") from error


def scalar(connection: apsw.Connection, statement: str) -> Any:
    """The first column of the first row."""
    return next(iter(connection.execute(statement)))[0]


_REASONS: dict[type[apsw.Error], str] = {
    apsw.NotADBError: "is not a database. Move it away, or name another file with --database.",
    apsw.ReadOnlyError: "is read-only. Check the mount and the owner of the file and its folder.",
    apsw.CantOpenError: "cannot be opened. Check that its folder exists and may be written by this user.",
    apsw.FullError: "lies on a full disk. Free some space and start again.",
    apsw.BusyError: "is locked by another program. Close it and start again.",
    apsw.LockedError: "is locked by another program. Close it and start again.",
    apsw.IOError: "cannot be read or written: the disk reported an error. Check the disk and its mount.",
}


def _damaged(application_id: int) -> str:
    if application_id == REPLICA_ID:
        return (
            "is damaged. Move it away and start again: the copy is made again from the agents (named tokens: perdure tokens "
            "create)."
        )
    return "is damaged. Keep the file and run `perdure restore` with the last backup."


def _refuse_old_sqlite() -> None:
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")[:3]) < MINIMUM_SQLITE:
        wanted = ".".join(map(str, MINIMUM_SQLITE))
        raise DatabaseUnusable(
            f"SQLite {version} can damage a database in WAL mode; {wanted} or later is needed. Install a current `apsw`."
        )


def refuse_foreign(connection: apsw.Connection, path: Path, application_id: int) -> None:
    """A file of another program, or of another kind, is left as it is."""
    mark = scalar(connection, "PRAGMA application_id")
    empty = scalar(connection, "SELECT count(*) FROM sqlite_schema") == 0
    if mark == application_id or (empty and mark == 0):
        return
    raise DatabaseUnusable(f"{path} {other_kind(mark)}")


def other_kind(mark: int) -> str:
    """What a file with this application id is, where another one is wanted, and what to do."""
    return _OTHER_KINDS.get(mark, "is the database of another program. Name another file with --database.")


_OTHER_KINDS = {
    APPLICATION_ID: "holds the journal of an agent. A gateway keeps a file of its own: name another one with --database.",
    REPLICA_ID: "is the file of a gateway, which holds copies of its agents' journals. Name another one with --database.",
}


def _set_modes(connection: apsw.Connection, path: Path, synchronous: str) -> None:
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    if connection.readonly("main"):
        raise DatabaseUnusable(f"{path} {_REASONS[apsw.ReadOnlyError]}")
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # this and the next are heeded only before the first table
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    mode = scalar(connection, "PRAGMA journal_mode = WAL")
    if mode != "wal":
        raise DatabaseUnusable(f"{path} cannot use a write-ahead log (its journal stays {mode!r}). Use a local disk.")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    if scalar(connection, "PRAGMA synchronous") != _LEVELS[synchronous]:
        raise DatabaseUnusable(f"{path}: SQLite did not accept synchronous={synchronous}; nothing would be durable.")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_LIMIT_BYTES}")
    connection.execute("BEGIN IMMEDIATE")  # finds a lock of another program now rather than at the first message
    connection.execute("ROLLBACK")


def _refuse_damaged(connection: apsw.Connection, path: Path, application_id: int) -> None:
    verdict = damage(connection)
    if verdict is not None:
        raise DatabaseUnusable(f"{path} {_damaged(application_id)} (SQLite: {verdict})")


def damage(connection: apsw.Connection) -> str | None:
    """The first fault that the check of a start finds in the file, in SQLite's words; None when it is whole."""
    try:
        for target in _check_targets(connection):
            verdict = scalar(connection, f"PRAGMA quick_check({target})")
            if verdict != "ok":
                return str(verdict)
    except apsw.CorruptError as error:
        return str(error)
    return None


def _check_targets(connection: apsw.Connection) -> list[str]:
    """Arguments of `quick_check`: a number checks the whole file up to that many faults, a name checks one table."""
    size = scalar(connection, "PRAGMA page_count") * scalar(connection, "PRAGMA page_size")
    if size <= WHOLE_CHECK_BYTES:
        return ["1"]
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    return [table for table in STEERING_TABLES if table in tables]
