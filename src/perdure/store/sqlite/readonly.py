"""The journal of a file that no server holds, for reading alone: no lock, no migration, no start is noted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from perdure.clock import Clock
from perdure.errors import DatabaseUnusable, StorageError
from perdure.store.sqlite.checkpointer import Checkpoints
from perdure.store.sqlite.claims import Owner
from perdure.store.sqlite.database import APPLICATION_ID, damage, open_reader, other_kind, refusals, scalar
from perdure.store.sqlite.migrations import known
from perdure.store.sqlite.readers import Readers
from perdure.store.sqlite.reading import Reading
from perdure.store.sqlite.store import SQLiteStore
from perdure.turns import Limits


class ReadOnlyStore(SQLiteStore):
    """Every verb that reads; those that write raise StorageError. Made on the event loop that uses it."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        """Raises DatabaseUnusable when this version cannot read the file as it is."""
        self.damage = _examined(path)
        """What is broken in the file, in SQLite's words: what is read may be wrong or incomplete. None when it is whole."""

        readers = Readers(lambda: open_reader(path))
        Reading.__init__(self, readers, self._render, Owner("", 0), Limits())
        self.path = path
        self._clock = clock
        self._writer: Any = _NoWriter()
        self._checkpoints = Checkpoints(readers)
        self._live = {}

    def _note_use(self, name: str) -> None:
        """Nothing is written here, the use of a token neither."""

    async def close(self) -> None:
        await self._readers.close()


class _NoWriter:
    def submit(self, *_: Any, **__: Any) -> NoReturn:
        raise StorageError("No server is running on this database, so it is only read. Start it with: perdure serve")


def _examined(path: Path) -> str | None:
    """The damage of a file that can be read. Raises DatabaseUnusable."""
    with refusals(path):
        connection = open_reader(path)
        try:
            mark, schema = scalar(connection, "PRAGMA application_id"), scalar(connection, "PRAGMA user_version")
            _refuse_unreadable(path, mark, schema)
            return damage(connection)
        finally:
            connection.close()


def _refuse_unreadable(path: Path, mark: int, schema: int) -> None:
    newest = len(known())
    if mark != APPLICATION_ID:
        raise DatabaseUnusable(f"{path} {other_kind(mark)}")
    if schema > newest:
        raise DatabaseUnusable(
            f"{path} was written by a newer Perdure (schema {schema}, this one knows {newest}). Upgrade Perdure."
        )
    if schema < newest:
        raise DatabaseUnusable(f"{path} is of an older version. Start it once, which upgrades it: perdure serve")
