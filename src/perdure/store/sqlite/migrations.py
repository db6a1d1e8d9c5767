"""The schema, step by step: numbered files, each applied in one transaction, and never backwards."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw

from perdure.errors import DatabaseUnusable
from perdure.failpoints import failpoint
from perdure.store.sqlite.backup import copy_into
from perdure.store.sqlite.database import APPLICATION_ID, scalar

FOLDER = Path(__file__).parent / "migrations"

_FILE = re.compile(r"^(\d{4})_[a-z0-9_]+\.sql$")
_COPY = re.compile(r"\.schema-(\d+)\.bak")


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    path: Path


def known(folder: Path = FOLDER) -> list[Migration]:
    """All migrations in order. Their numbers are 1, 2, 3 … without a gap."""
    found = sorted(
        (Migration(int(match[1]), path) for path in folder.iterdir() if (match := _FILE.match(path.name))),
        key=lambda migration: migration.number,
    )
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"the migrations in {folder} are not numbered 1, 2, 3 …")
    return found


def migrate(
    connection: apsw.Connection, path: Path, folder: Path = FOLDER, *, application_id: int = APPLICATION_ID
) -> Path | None:
    """Brings the schema up to date. Returns the copy made first when a database in use was upgraded.

    Raises DatabaseUnusable when the file was written by a newer Perdure. A failing step changes nothing.
    """
    migrations = known(folder)
    current: int = scalar(connection, "PRAGMA user_version")
    newest = len(migrations)
    if current > newest:
        raise DatabaseUnusable(
            f"{path} was written by a newer Perdure (schema {current}, this one knows {newest}). Upgrade Perdure, or "
            "restore the copy that the newer one made before it upgraded the file."
        )
    due = migrations[current:]
    copy = copied_first(connection, path, current) if due else None
    apply_in_order(connection, due, application_id)
    return copy


def apply_in_order(connection: apsw.Connection, due: Sequence[Migration], application_id: int = APPLICATION_ID) -> None:
    for migration in due:
        failpoint("migrate.before")
        _apply(connection, migration, application_id)
        failpoint("migrate.after")


def copied_first(connection: apsw.Connection, path: Path, current: int) -> Path | None:
    """The last upgrade's copy stays, those of upgrades before it go: a file has one at most. A database that no server ever used
    holds nothing worth a copy (a first start that was cut, too)."""
    if current == 0 or scalar(connection, "SELECT count(*) FROM boots") == 0:
        return None
    copy = path.with_name(f"{path.name}.schema-{current}.bak")
    copy.unlink(missing_ok=True)  # of an upgrade that was cut: the file still has this schema, and more content
    copy_into(connection, copy)
    for schema, older in copies_beside(path).items():
        if schema < current:
            older.unlink()
    return copy


def copies_beside(path: Path) -> Mapping[int, Path]:
    """Schema → the copy that was made before an upgrade from it."""
    found = (
        (_COPY.fullmatch(each.name.removeprefix(path.name)), each)
        for each in path.parent.glob(f"{glob.escape(path.name)}.*")
    )
    return {int(match[1]): each for match, each in found if match}


def _apply(connection: apsw.Connection, migration: Migration, application_id: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(migration.path.read_text(encoding="utf-8"))
        connection.execute(f"PRAGMA application_id = {application_id}")
        connection.execute(f"PRAGMA user_version = {migration.number}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
