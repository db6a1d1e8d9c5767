from __future__ import annotations

import io
import tarfile
from pathlib import Path

import apsw
import pytest

from perdure.deploy.carrying import CarryFailed, examine
from perdure.store.sqlite.database import APPLICATION_ID


def database(folder: Path, turns: int) -> Path:
    path = folder / "perdure.db"
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE turns (id TEXT); CREATE TABLE events (seq INTEGER)")
    with connection:
        connection.executemany("INSERT INTO turns VALUES (?)", ((str(number),) for number in range(turns)))
    connection.close()
    return path


def packed(folder: Path) -> io.BytesIO:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(folder, arcname="data")
    return archive


def test_files_and_rows_of_a_folder_are_counted(tmp_path: Path) -> None:
    database(tmp_path, 3)
    (tmp_path / "notes.txt").write_text("note")

    content = examine(packed(tmp_path))

    assert content.files.keys() == {"data/perdure.db", "data/notes.txt"}
    assert content.rows == {"data/perdure.db": {"turns": 3, "events": 0}}
    assert content.turns == 3


def test_commits_that_are_only_in_the_log_count(tmp_path: Path) -> None:
    path = database(tmp_path, 1)
    writer = apsw.Connection(str(path))
    writer.execute("INSERT INTO turns VALUES ('in the log')")
    archive = packed(tmp_path)
    writer.close()

    assert examine(archive).turns == 2


def test_one_byte_makes_a_difference(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("note")
    before = examine(packed(tmp_path))
    (tmp_path / "notes.txt").write_text("nota")

    assert examine(packed(tmp_path)) != before


def test_a_damaged_database_is_not_carried(tmp_path: Path) -> None:
    path = database(tmp_path, 2_000)
    content = bytearray(path.read_bytes())
    content[4096:8192] = b"\xff" * 4096
    path.write_bytes(bytes(content))

    with pytest.raises(CarryFailed, match=r"data/perdure\.db (is damaged|cannot be read).*perdure restore"):
        examine(packed(tmp_path))


def test_a_file_that_is_no_database_is_damage_under_our_name_alone(tmp_path: Path) -> None:
    (tmp_path / "keys.db").write_text("of another program, whatever it is " * 99)
    assert examine(packed(tmp_path)).rows == {}
    (tmp_path / "gateway.db").write_text("no database any more " * 99)
    with pytest.raises(CarryFailed, match=r"data/gateway\.db is damaged"):
        examine(packed(tmp_path))


def test_what_is_no_database_of_ours_is_a_file_like_others(tmp_path: Path) -> None:
    other = apsw.Connection(str(tmp_path / "other.db"))
    other.execute("CREATE TABLE turns (id)")
    other.close()

    content = examine(packed(tmp_path))

    assert content.rows == {}
    assert "data/other.db" in content.files
