from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from perdure.errors import DatabaseUnusable
from perdure.failpoints import FailpointError, arm
from perdure.store.sqlite.database import open_writer, prepare_place, scalar
from perdure.store.sqlite.migrations import FOLDER, known, migrate

BOOT = "INSERT INTO boots (owner, version, started_at) VALUES ('box:1:b', '1', 1)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "perdure.db"
    prepare_place(path)
    connection = open_writer(path)
    assert migrate(connection, path) is None, "a new database needs no copy"
    connection.execute(BOOT)
    connection.close()
    return path


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """The migrations of a later Perdure: one more, and then one that fails half way."""
    folder = tmp_path / "migrations"
    shutil.copytree(FOLDER, folder)
    number = len(known())
    (folder / f"{number + 1:04}_colours.sql").write_text("CREATE TABLE colours (name TEXT);")
    return folder


def test_a_database_is_up_to_date_after_one_start_and_left_alone_by_the_next(path: Path) -> None:
    connection = open_writer(path)
    assert scalar(connection, "PRAGMA user_version") == len(known())
    before = connection.total_changes()
    assert migrate(connection, path) is None
    assert connection.total_changes() == before
    connection.close()


def test_a_database_in_use_is_copied_before_it_is_upgraded(path: Path, later: Path) -> None:
    connection = open_writer(path)
    copy = migrate(connection, path, later)
    assert copy == path.with_name(f"perdure.db.schema-{len(known())}.bak")
    assert scalar(connection, "PRAGMA user_version") == len(known()) + 1
    connection.close()
    old = apsw.Connection(str(copy))
    assert scalar(old, "PRAGMA user_version") == len(known())
    assert scalar(old, "SELECT count(*) FROM boots") == 1
    old.close()


def test_a_newer_database_is_refused_and_left_as_it_is(path: Path, later: Path) -> None:
    connection = open_writer(path)
    migrate(connection, path, later)
    with pytest.raises(
        DatabaseUnusable, match=rf"newer Perdure \(schema {len(known()) + 1}, this one knows {len(known())}\)"
    ):
        migrate(connection, path)
    assert scalar(connection, "PRAGMA user_version") == len(known()) + 1
    connection.close()


def test_a_step_that_fails_changes_nothing(path: Path, later: Path) -> None:
    broken = later / f"{len(known()) + 2:04}_broken.sql"
    broken.write_text("CREATE TABLE half (a); CREATE TABLE half (a);")
    connection = open_writer(path)
    with pytest.raises(apsw.SQLError):
        migrate(connection, path, later)
    assert scalar(connection, "PRAGMA user_version") == len(known()) + 1
    assert scalar(connection, "SELECT count(*) FROM sqlite_schema WHERE name = 'half'") == 0
    broken.write_text("CREATE TABLE half (a);")
    migrate(connection, path, later)
    assert scalar(connection, "PRAGMA user_version") == len(known()) + 2
    connection.close()


def test_an_upgrade_that_was_cut_is_taken_up_again(path: Path, later: Path) -> None:
    connection = open_writer(path)
    arm("migrate.before:error")
    try:
        with pytest.raises(FailpointError):
            migrate(connection, path, later)
    finally:
        arm("")
    assert migrate(connection, path, later) is not None
    assert scalar(connection, "PRAGMA user_version") == len(known()) + 1
    connection.close()


def test_a_gap_in_the_numbers_is_a_fault_of_the_program(later: Path) -> None:
    (later / f"{len(known()) + 5:04}_gap.sql").write_text("SELECT 1;")
    with pytest.raises(ValueError, match="not numbered"):
        known(later)
