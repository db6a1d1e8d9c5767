"""The schema of a gateway's file: that of a journal, and what a copy needs beside it, in numbered files of its own."""

from __future__ import annotations

from pathlib import Path

import apsw

from perdure.errors import DatabaseUnusable
from perdure.store.sqlite.database import REPLICA_ID, Connection, scalar
from perdure.store.sqlite.migrations import Migration, copied_first, known, migrate
from perdure.store.sqlite.opening import Kind

FOLDER = Path(__file__).parent / "replica_migrations"


def migrate_replica(connection: Connection, path: Path) -> Path | None:
    """Both schemas, the journal's first. Returns the copy made first when a file in use was upgraded. Raises DatabaseUnusable
    when the file was written by a newer Perdure."""
    current, migrations = _version(connection), known(FOLDER)
    if current > len(migrations):
        raise DatabaseUnusable(
            f"{path} was written by a newer Perdure (copies {current}, this one knows {len(migrations)}). Upgrade Perdure."
        )
    schema: int = scalar(connection, "PRAGMA user_version")
    copy = migrate(connection, path, application_id=REPLICA_ID)
    due = migrations[current:]
    if due and copy is None:
        copy = copied_first(connection, path, schema)
    for migration in due:
        _apply(connection, migration)
    return copy


def _version(connection: apsw.Connection) -> int:
    there = scalar(connection, "SELECT count(*) FROM sqlite_schema WHERE name = 'copies'")
    return int(scalar(connection, "SELECT version FROM copies")) if there else 0


def _apply(connection: apsw.Connection, migration: Migration) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(migration.path.read_text(encoding="utf-8"))
        connection.execute("UPDATE copies SET version = ?", (migration.number,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


REPLICA = Kind(REPLICA_ID, migrate_replica)
