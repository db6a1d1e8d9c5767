from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from perdure.errors import DatabaseUnusable, NotFound
from perdure.store.sqlite.database import scalar
from perdure.store.sqlite.lock import Holder
from perdure.store.sqlite.migrations import known
from perdure.store.sqlite.store import SQLiteStore, open_store
from perdure.store.sqlite.undoing import undo_upgrade
from perdure.testing import FakeClock
from perdure.turns import Limits
from tests.conformance.journal import Heard
from tests.releases import previous

HOLDER = Holder(1, "box", "b", "restore")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """What the previous version left."""
    path = tmp_path / "perdure.db"
    shutil.copy(previous.DATABASE, path)
    return path


async def opened(path: Path) -> SQLiteStore:
    return await open_store(path, clock=FakeClock(), limits=Limits(), notify=Heard())


def content(path: Path) -> dict[str, list[tuple[object, ...]]]:
    connection = apsw.Connection(str(path))
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    found = {
        table: list(connection.execute(f"SELECT * FROM {table}")) for table in tables if table != "sqlite_sequence"
    }
    connection.close()
    return found


def schema_of(path: Path) -> int:
    connection = apsw.Connection(str(path))
    number: int = scalar(connection, "PRAGMA user_version")
    connection.close()
    return number


async def test_an_upgrade_that_nobody_used_is_undone(path: Path) -> None:
    before = content(path)
    for _ in range(2):  # a supervisor starts the new version again and again
        await (await opened(path)).close()
    assert schema_of(path) == len(known())

    copy = undo_upgrade(path, HOLDER)

    assert content(path) == before
    assert {each.name for each in path.parent.iterdir()} == {path.name, copy.name, "perdure.db.lock"}, (
        "nothing is left beside"
    )
    store = await opened(path)
    assert store.upgraded_from == copy, "and it is upgraded again"
    await store.close()


async def test_what_was_done_since_an_upgrade_is_never_lost(path: Path) -> None:
    store = await opened(path)
    copy = store.upgraded_from
    conversation = (await store.conversations(None, limit=1)).items[0]
    await store.rename(conversation.owner, conversation.id, "another title")
    await store.close()
    names, after = {each.name for each in path.parent.iterdir()}, content(path)

    with pytest.raises(DatabaseUnusable, match=rf"last change \d+ → \d+.*perdure restore {copy}"):
        undo_upgrade(path, HOLDER)

    assert content(path) == after
    assert {each.name for each in path.parent.iterdir()} == names


async def test_without_an_upgrade_nothing_is_undone(path: Path) -> None:
    with pytest.raises(NotFound, match="was not upgraded"):
        undo_upgrade(path, HOLDER)
    with pytest.raises(NotFound, match="no database"):
        undo_upgrade(path.with_name("other.db"), HOLDER)
    assert schema_of(path) == schema_of(previous.DATABASE)


async def test_a_folder_where_the_copy_is_tried_out_is_left_alone(path: Path) -> None:
    await (await opened(path)).close()
    in_the_way = path.with_name("perdure.db.undoing")
    in_the_way.mkdir()
    with pytest.raises(DatabaseUnusable, match=r"perdure\.db\.undoing is in the way"):
        undo_upgrade(path, HOLDER)
    assert in_the_way.is_dir() and schema_of(path) == len(known())


async def test_a_file_that_a_server_holds_is_not_touched(path: Path) -> None:
    store = await opened(path)
    with pytest.raises(DatabaseUnusable, match="in use"):
        undo_upgrade(path, HOLDER)
    assert schema_of(path) == len(known())
    await store.close()
