"""Copies of the database: online, verified before they count, and put back only when they are whole."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import apsw

from perdure.errors import DatabaseUnusable, StorageError
from perdure.store.sqlite.database import APPLICATION_ID, Connection, refusals, scalar
from perdure.store.sqlite.journal import QUERIES
from perdure.store.sqlite.lock import DatabaseLock, Holder

COUNTED = (
    "conversations",
    "turns",
    "attempts",
    "events",
    "cards",
    "tool_calls",
    "audit",
    "tokens",
    "checkpoints",
    "lists",
    "items",
    "writes",
    "searchable",
)
"""Tables whose row counts a copy must match."""

NUMBERS_SKIPPED = 1_000_000_000
"""More changes than are made between a backup and its restore, and few enough for every number to stay exact in a program
that knows floats alone, over a million restores."""


READER_MILLISECONDS = 5_000
"""For a program that reads the database which is replaced: a look takes less."""


def copy_into(source: apsw.Connection, target: Path) -> None:
    """Copies what the source shows now to a new file, verifies the copy, and only then gives it its name. Blocks.

    Raises StorageError when the target exists, cannot be written, or the copy differs.
    """
    if target.exists():
        raise StorageError(f"{target} exists already. Name another file for the copy.")
    partial = target.with_name(f"{target.name}.partial")
    try:
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        counts = _copy_pages(source, partial)
        _verify(partial, counts)
        _make_durable(partial)
        partial.rename(target)
        _make_durable(target.parent)
    except (OSError, apsw.Error) as error:
        raise StorageError(f"The copy to {target} failed: {error}. Check the folder and its free space.") from error
    finally:
        partial.unlink(missing_ok=True)


def restore_database(
    source: Path,
    target: Path,
    holder: Holder,
    *,
    newest_schema: int,
    condition: Callable[[apsw.Connection], None] = lambda backup: None,
) -> Path | None:
    """Puts a backup in the place of a database that no server holds. Returns where the old file was kept, if any.

    The backup is verified first; raises DatabaseUnusable when it is damaged, newer than this version, not ours, or
    when the target is in use. `condition` looks at both once nobody else can change them, and raises to leave all as it is.
    """
    if not source.exists():
        raise DatabaseUnusable(f"{source} does not exist. Name a file that `perdure backup` wrote.")
    with refusals(source):
        backup = Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            _refuse_unusable(backup, source, newest_schema)
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = DatabaseLock(target, holder)
            try:
                condition(backup)
                return _put_in_place(backup, target)
            finally:
                lock.release()
        finally:
            backup.close()


def _refuse_unusable(backup: apsw.Connection, source: Path, newest_schema: int) -> None:
    if scalar(backup, "PRAGMA application_id") != APPLICATION_ID:
        raise DatabaseUnusable(f"{source} is not a Perdure database.")
    schema = scalar(backup, "PRAGMA user_version")
    if schema > newest_schema:
        raise DatabaseUnusable(
            f"{source} has schema {schema}, newer than this Perdure ({newest_schema}). Upgrade first."
        )
    verdict = scalar(backup, "PRAGMA integrity_check(1)")
    if verdict != "ok":
        raise DatabaseUnusable(f"{source} is damaged ({verdict}). Try an older backup.")


def _put_in_place(backup: apsw.Connection, target: Path) -> Path | None:
    """At no instant is there no database under this name: whoever starts after a death finds the old one or the new one, whole."""
    incoming = target.with_name(f"{target.name}.incoming")
    incoming.unlink(missing_ok=True)
    copy_into(backup, incoming)
    _skip_numbers(incoming)
    kept = _keep_old(target) if target.exists() else None
    incoming.rename(target)
    _make_durable(target.parent)
    return kept


def _skip_numbers(incoming: Path) -> None:
    """A watcher of the lists may hold a cursor from after the backup: it must not name a change that is yet to come."""
    copy = Connection(str(incoming), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with copy:
            QUERIES.run(copy, "changes_begin_numbers")
            if scalar(
                copy, "SELECT count(*) FROM sqlite_schema WHERE name = 'lost_changes'"
            ):  # of an older schema: none yet
                QUERIES.run(copy, "changes_lose_numbers", gap=NUMBERS_SKIPPED)
            QUERIES.run(copy, "changes_skip_numbers", gap=NUMBERS_SKIPPED)
    finally:
        copy.close()
    _make_durable(incoming)


def _keep_old(target: Path) -> Path:
    """A second name for the old database; nothing is thrown away. Its log is folded into it first, so that it is whole without: a new
    file must not meet that log."""
    kept, log = _free_name(target), _log_of(target)
    if log.exists():
        shutil.copy2(log, _log_of(kept))  # where the file is too damaged to fold it in, SQLite may drop it
    try:
        folded = _fold_log(target)
    except DatabaseUnusable:
        _log_of(kept).unlink(missing_ok=True)
        raise
    try:
        os.link(target, kept)
    except OSError:  # a file system without links
        shutil.copy2(target, kept)
        _make_durable(kept)
    for piece in (log, target.with_name(f"{target.name}-shm"), *([_log_of(kept)] if folded else [])):
        piece.unlink(missing_ok=True)
    _make_durable(target.parent)
    return kept


def _free_name(target: Path) -> Path:
    number = 1
    while (kept := target.with_name(f"{target.name}.replaced-{number}")).exists():
        number += 1
    return kept


def _log_of(database: Path) -> Path:
    return database.with_name(f"{database.name}-wal")


def _fold_log(target: Path) -> bool:
    """False for a file that is too damaged for it. Raises DatabaseUnusable while another program reads it."""
    try:
        old = Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            old.set_busy_timeout(READER_MILLISECONDS)
            busy = scalar(old, "PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            old.close()
    except (apsw.CantOpenError, apsw.CorruptError, apsw.NotADBError, apsw.IOError):
        return False
    if busy:
        raise DatabaseUnusable(
            f"{target} is being read by another program, so it cannot be replaced. End that one and try again."
        )
    return True


def _copy_pages(source: apsw.Connection, partial: Path) -> Mapping[str, int]:
    """One read transaction holds the state that is counted and copied; the writer is not hindered."""
    outside = not source.in_transaction
    if outside:
        source.execute("BEGIN")
    copy = apsw.Connection(str(partial))
    try:
        counts = counts_of(source)
        with copy.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(4_096)
    finally:
        copy.close()
        if outside:
            source.execute("ROLLBACK")
    return counts


def _verify(partial: Path, counts: Mapping[str, int]) -> None:
    copy = apsw.Connection(str(partial), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        copy.execute("PRAGMA journal_mode = DELETE")  # a copy is one file, without a log beside it
        verdict = scalar(copy, "PRAGMA integrity_check(1)")
        found = counts_of(copy)
    finally:
        copy.close()
    if verdict != "ok" or found != counts:
        raise StorageError(
            f"The copy is not whole ({verdict}; rows {found}, expected {counts}). The original is intact."
        )


def counts_of(connection: apsw.Connection) -> Mapping[str, int]:
    """Rows of each table in COUNTED that there is."""
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    return {table: scalar(connection, f"SELECT count(*) FROM {table}") for table in COUNTED if table in tables}  # noqa: S608


def _make_durable(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems cannot sync a folder
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
