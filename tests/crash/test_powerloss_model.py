"""The power-loss layer itself: it keeps what was synced, forgets what was not, and knows files whose names were never synced."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import apsw
import pytest

from tests.crash.powerloss import Disk, Fault, Op, RecordingVFS, lay_out


@pytest.fixture
def vfs() -> Iterator[RecordingVFS]:
    recording = RecordingVFS("powerloss-model")
    yield recording
    recording.unregister()


def commit_numbers(vfs: RecordingVFS, path: Path, synchronous: str, count: int = 12) -> None:
    connection = apsw.Connection(str(path), vfs=vfs.name)
    connection.execute(
        f"PRAGMA journal_mode=wal; PRAGMA synchronous={synchronous}; PRAGMA wal_autocheckpoint=5"
    ).fetchall()
    connection.execute("CREATE TABLE numbers (n INTEGER)")
    for number in range(count):
        connection.execute("INSERT INTO numbers VALUES (?)", (number,))
        vfs.mark(number)
    connection.close()


def lost_after_each_cut(vfs: RecordingVFS, folder: Path, luck: Random | None) -> int:
    """How many acknowledged numbers are missing, over cuts after every operation."""
    disk = Disk()
    lost = 0
    for index, op in enumerate(vfs.log):
        disk.advance(op)
        if not disk.marks:
            continue
        lost += len(set(disk.marks) - numbers_in(lay_out(disk.cut(luck), folder / str(index), "numbers.db")))
    return lost


def numbers_in(database: Path) -> set[int]:
    if not database.exists():
        return set()
    connection = apsw.Connection(str(database))
    try:
        assert connection.pragma("integrity_check") == "ok"
        return {row[0] for row in connection.execute("SELECT n FROM numbers")}
    except apsw.SQLError:
        return set()
    finally:
        connection.close()


@pytest.mark.parametrize("luck", [None, Random(7)], ids=["nothing unsynced survives", "a random part survives"])
def test_with_full_synchronisation_no_acknowledged_commit_is_lost_at_any_cut(
    vfs: RecordingVFS, tmp_path: Path, luck: Random | None
) -> None:
    commit_numbers(vfs, tmp_path / "numbers.db", "FULL")
    assert lost_after_each_cut(vfs, tmp_path / "cuts", luck) == 0


@pytest.mark.parametrize("synchronous", ["OFF", "NORMAL"])
def test_without_it_acknowledged_commits_are_lost_and_the_layer_shows_it(
    vfs: RecordingVFS, tmp_path: Path, synchronous: str
) -> None:
    commit_numbers(vfs, tmp_path / "numbers.db", synchronous)
    assert lost_after_each_cut(vfs, tmp_path / "cuts", None) > 0


def test_a_file_whose_directory_was_never_synced_is_gone() -> None:
    disk = Disk()
    for op in (Op("create", "/d/a.db"), Op("write", "/d/a.db", 0, b"x"), Op("sync", "/d/a.db")):
        disk.advance(op)
    assert disk.cut() == {}
    disk.advance(Op("sync_directory", "/d"))
    assert disk.cut() == {"/d/a.db": b"x"}


@pytest.mark.parametrize(("error", "raised"), [("io", apsw.IOError), ("full", apsw.FullError)])
def test_each_write_can_be_made_to_fail_once(
    vfs: RecordingVFS, tmp_path: Path, error: str, raised: type[Exception]
) -> None:
    connection = apsw.Connection(str(tmp_path / "numbers.db"), vfs=vfs.name)
    connection.execute("PRAGMA journal_mode=wal; CREATE TABLE numbers (n INTEGER)").fetchall()
    vfs.fault = Fault("write", 2, error)  # type: ignore[arg-type]
    with pytest.raises(raised):
        connection.execute("INSERT INTO numbers VALUES (1)")
    connection.execute("INSERT INTO numbers VALUES (2)")
    assert connection.execute("SELECT n FROM numbers").fetchall() == [(2,)]
    connection.close()
