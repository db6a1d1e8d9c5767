"""What SQLite reports, as errors that say what to do."""

from __future__ import annotations

import apsw

from perdure.errors import PerdureError, StorageError, StorageFull


def storage_fault(error: BaseException) -> BaseException:
    """SQLite's error as StorageFull or StorageError; every other exception (ours, a broken rule of the schema) unchanged."""
    if isinstance(error, PerdureError) or not isinstance(error, apsw.Error):
        return error
    fault = _fault(error)
    if fault is None:
        return error
    fault.__cause__ = error
    return fault


def _fault(error: apsw.Error) -> PerdureError | None:
    if is_full(error):
        return StorageFull()
    advice = _ADVICE.get(type(error))
    return StorageError(f"{advice} (SQLite: {error})") if advice else None


def is_full(error: apsw.Error) -> bool:
    """Whether the disk has no space left; SQLite calls it an I/O error when its shared memory file could not grow."""
    return isinstance(error, apsw.FullError) or getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE


_ADVICE: dict[type[apsw.Error], str] = {
    apsw.IOError: "The disk reported an error while the database was written: nothing was saved. Check the disk and its "
    "mount, then restart the server.",
    apsw.ReadOnlyError: "The database has become read-only: nothing was saved. Check the mount and the owner of the file.",
    apsw.CantOpenError: "The database cannot be opened any more: nothing was saved. Check that its folder still exists "
    "and may be written.",
    apsw.CorruptError: "The database is damaged: nothing was saved. Stop the server, keep the file, and run `perdure "
    "restore` with the last backup.",
    apsw.NotADBError: "The file is no longer a database: nothing was saved. Stop the server, keep the file, and run "
    "`perdure restore` with the last backup.",
    apsw.BusyError: "Another program holds the database: nothing was saved. Close it and try again.",
    apsw.LockedError: "Another program holds the database: nothing was saved. Close it and try again.",
    apsw.NoMemError: "There is not enough memory to write the database: nothing was saved.",
}
