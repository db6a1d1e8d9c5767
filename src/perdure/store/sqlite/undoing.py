"""The way back from an upgrade that came to nothing: the copy made before it takes the file's place again.

Only while nothing was done in the upgraded file: an effect whose record was lost would be taken for one that never happened. The copy,
upgraded once more beside it, then has the same rows and the same last change.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from perdure.errors import DatabaseUnusable, NotFound
from perdure.store.sqlite.backup import copy_into, counts_of, restore_database
from perdure.store.sqlite.database import Connection, open_reader, refusals, scalar
from perdure.store.sqlite.lock import Holder
from perdure.store.sqlite.migrations import apply_in_order, copies_beside, known


def undo_upgrade(database: Path, holder: Holder) -> Path:
    """Puts the copy back that the last upgrade made; returns that copy, which stays. Blocks.

    Raises NotFound when no upgrade can be undone, DatabaseUnusable when something was done since, or for what
    `restore_database` refuses. Then nothing has changed.
    """
    copy = _copy_of_last_upgrade(database)

    def unused(before: apsw.Connection) -> None:
        _refuse_used(before, database, copy)

    upgraded = restore_database(copy, database, holder, newest_schema=len(known()), condition=unused)
    if upgraded is not None:  # it holds nothing that the copy lacks
        for suffix in ("-wal", "-shm", ""):
            upgraded.with_name(upgraded.name + suffix).unlink(missing_ok=True)
    return copy


def _copy_of_last_upgrade(database: Path) -> Path:
    if not database.exists():
        raise NotFound(f"There is no database at {database}.")
    schema = _schema_of(database)
    older = {number: copy for number, copy in copies_beside(database).items() if number < schema}
    if not older:
        raise NotFound(
            f"{database} (schema {schema}) was not upgraded, or the copy made before is gone: nothing can be undone."
        )
    return older[max(older)]


def _schema_of(database: Path) -> int:
    connection = open_reader(database)
    try:
        with refusals(database):
            return int(scalar(connection, "PRAGMA user_version"))
    finally:
        connection.close()


def _refuse_used(before: apsw.Connection, database: Path, copy: Path) -> None:
    scratch = database.with_name(f"{database.name}.undoing")
    try:
        scratch.unlink(missing_ok=True)
    except OSError as error:
        raise DatabaseUnusable(
            f"{scratch} is in the way: the copy is tried out under that name, and what is there cannot be removed ({error.strerror}). Move it "
            "elsewhere and try again."
        ) from error
    copy_into(before, scratch)
    upgraded, now = Connection(str(scratch)), Connection(str(database))
    try:
        apply_in_order(upgraded, known()[scalar(upgraded, "PRAGMA user_version") : scalar(now, "PRAGMA user_version")])
        had, has = _fingerprint(upgraded), _fingerprint(now)
    finally:
        upgraded.close()
        now.close()
        scratch.unlink()
    if had != has:
        told = ", ".join(f"{name} {had[name]} → {has[name]}" for name in has if had[name] != has[name])
        raise DatabaseUnusable(
            f"Something was done in {database} since it was upgraded ({told}), so the upgrade is not undone: that would be lost. Go on with "
            f"this version. To lose it on purpose: perdure restore {copy}"
        )


def _fingerprint(connection: apsw.Connection) -> dict[str, int]:
    """Whatever happens to a turn or a conversation is a change, with a number of its own."""
    return {**counts_of(connection), "last change": scalar(connection, "SELECT coalesce(max(number), 0) FROM changes")}
