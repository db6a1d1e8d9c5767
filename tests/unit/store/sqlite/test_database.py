from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from perdure.errors import DatabaseUnusable
from perdure.store.sqlite import database
from perdure.store.sqlite.database import open_reader, open_writer, prepare_place, scalar
from perdure.store.sqlite.migrations import known, migrate
from perdure.store.sqlite.store import open_store
from perdure.testing import FakeClock
from perdure.turns import Limits
from tests.conformance.journal import Heard


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "perdure.db"


def made(path: Path) -> Path:
    prepare_place(path)
    connection = open_writer(path)
    migrate(connection, path)
    connection.close()
    return path


def test_the_folder_and_the_file_are_private(path: Path) -> None:
    made(path)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600


def test_every_commit_is_synced_and_the_log_is_a_write_ahead_log(path: Path) -> None:
    made(path)
    connection = open_writer(path)
    modes = [
        scalar(connection, f"PRAGMA {name}") for name in ("synchronous", "journal_mode", "auto_vacuum", "foreign_keys")
    ]
    assert modes == [2, "wal", 2, 1]
    connection.close()


def test_an_old_sqlite_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(path)
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(DatabaseUnusable, match=r"3\.51\.2.*3\.51\.3"):
        open_writer(path)


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"these are my notes, not a database " * 200)
    before = path.read_bytes()
    with pytest.raises(DatabaseUnusable, match="is not a database"):
        open_writer(path)
    assert path.read_bytes() == before


def test_the_database_of_another_program_is_refused_and_left_as_it_is(path: Path) -> None:
    path.parent.mkdir()
    foreign = apsw.Connection(str(path))
    foreign.execute("CREATE TABLE bookmarks (url TEXT)")
    foreign.close()
    before = path.read_bytes()
    with pytest.raises(DatabaseUnusable, match="another program"):
        open_writer(path)
    assert path.read_bytes() == before


def test_a_damaged_file_is_refused_with_the_command_that_mends_it(path: Path) -> None:
    made(path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    with pytest.raises(DatabaseUnusable, match=r"damaged.*perdure restore"):
        open_writer(path)


def test_of_a_large_file_only_the_steering_tables_are_checked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(path)
    monkeypatch.setattr(database, "WHOLE_CHECK_BYTES", 0)
    connection = open_writer(path)
    assert database._check_targets(connection) == ["conversations", "turns", "attempts", "spaces"]
    connection.close()


def test_a_file_locked_by_another_program_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(path)
    monkeypatch.setattr(database, "BUSY_MILLISECONDS", 10)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseUnusable, match="locked by another program"):
        open_writer(path)
    other.close()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DatabaseUnusable, match="cannot be opened for writing"):
        prepare_place(tmp_path / "file" / "perdure.db")


class ReadOnlyVfs(apsw.VFS):
    """A mount that lets nothing be written, as SQLite meets it: asked for a writable file, it opens a readable one."""

    def __init__(self) -> None:
        super().__init__("perdure-read-only", "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        readable = flags[0] & ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE) | apsw.SQLITE_OPEN_READONLY
        flags[0] = flags[1] = readable
        return apsw.VFSFile("", name, flags)


def test_a_read_only_file_is_refused(path: Path) -> None:
    made(path)
    vfs = ReadOnlyVfs()
    with pytest.raises(DatabaseUnusable, match=r"read-only|cannot be opened"):
        open_writer(path, vfs="perdure-read-only")
    vfs.unregister()


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("a small file system cannot be mounted here: needs the right to mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_read_only_mount_is_refused(mounted: Path) -> None:
    path = made(mounted / "perdure.db")
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    try:
        with pytest.raises(DatabaseUnusable, match="Check the folder, its owner and its mount"):
            prepare_place(path)
        with pytest.raises(DatabaseUnusable, match=r"read-only|cannot be opened"):
            open_writer(path)
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(mounted)], check=True)


async def test_a_full_disk_at_start_is_refused(mounted: Path) -> None:
    (mounted / "ballast").write_bytes(bytes(500_000))
    with pytest.raises(DatabaseUnusable, match=r"full disk|No space left"):
        await open_store(mounted / "perdure.db", clock=FakeClock(), limits=Limits(), notify=Heard())
    (mounted / "ballast").unlink()
    store = await open_store(mounted / "perdure.db", clock=FakeClock(), limits=Limits(), notify=Heard())
    await store.close()


async def test_a_second_store_on_the_file_is_refused_and_the_first_goes_on(path: Path) -> None:
    store = await open_store(path, clock=FakeClock(), limits=Limits(), notify=Heard())
    with pytest.raises(DatabaseUnusable, match="in use by process"):
        await open_store(path, clock=FakeClock(), limits=Limits(), notify=Heard())
    await store.check()
    await store.close()


async def test_a_store_that_could_not_open_holds_no_lock(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database, only text in a file" * 100)
    for _ in range(2):
        with pytest.raises(DatabaseUnusable, match="is not a database"):
            await open_store(path, clock=FakeClock(), limits=Limits(), notify=Heard())
    path.unlink()
    await (await open_store(path, clock=FakeClock(), limits=Limits(), notify=Heard())).close()


def test_a_reader_needs_no_write_access(path: Path) -> None:
    made(path)
    reader = open_reader(path)
    with pytest.raises(apsw.ReadOnlyError):
        reader.execute("DELETE FROM boots")
    reader.close()


def test_a_process_killed_before_its_first_commit_leaves_a_file_that_opens(path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from perdure.store.sqlite.database import *; "
        "from perdure.store.sqlite.migrations import migrate; path = Path(sys.argv[1]); prepare_place(path); "
        "connection = open_writer(path); migrate(connection, path)"
    )
    for armed in ("migrate.before:kill", "migrate.after:kill", "migrate.before:kill@2", ""):
        subprocess.run(
            [sys.executable, "-c", script, str(path)], env=os.environ | {"PERDURE_FAILPOINTS": armed}, check=False
        )
    connection = open_writer(path)
    assert scalar(connection, "PRAGMA user_version") == len(known())
    assert scalar(connection, "PRAGMA integrity_check") == "ok"
    connection.close()
    assert not list(path.parent.glob("*.bak"))
