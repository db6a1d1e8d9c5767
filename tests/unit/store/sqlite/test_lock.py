from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.errors import DatabaseUnusable
from perdure.store.sqlite.lock import DatabaseLock, Holder, lock_path, read_lock

HOLDER = Holder(pid=4711, host="box", boot_id="b00t", version="1.2.3")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "perdure.db"


def test_a_second_server_is_refused_with_the_pid_and_the_address_of_the_first(database: Path) -> None:
    lock = DatabaseLock(database, HOLDER)
    lock.announce("http://127.0.0.1:8700", None)
    with pytest.raises(DatabaseUnusable, match=r"4711 on box, which serves http://127\.0\.0\.1:8700"):
        DatabaseLock(database, HOLDER)
    lock.release()
    DatabaseLock(database, HOLDER).release()


def test_a_command_finds_the_running_server(database: Path) -> None:
    assert read_lock(database) is None
    lock = DatabaseLock(database, HOLDER)
    found = read_lock(database)
    assert found is not None
    assert (found.held, found.address, found.owner) == (True, None, "box:4711:b00t")
    lock.announce("http://127.0.0.1:8700", Path("/data/token"))
    found = read_lock(database)
    assert found is not None
    assert (found.address, found.token_file) == ("http://127.0.0.1:8700", "/data/token")
    lock.announce("http://h:1", None)
    found = read_lock(database)
    assert found is not None
    assert (found.address, found.token_file) == ("http://h:1", None)
    lock.release()
    assert read_lock(database) is None


def test_looking_does_not_take_the_lock(database: Path) -> None:
    lock = DatabaseLock(database, HOLDER)
    for _ in range(3):
        found = read_lock(database)
        assert found is not None
        assert found.held
    lock.release()
    read_lock(database)
    DatabaseLock(database, HOLDER).release()


def test_a_server_that_was_killed_leaves_its_name_but_not_its_lock(database: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from perdure.store.sqlite.lock import *; "
        "lock = DatabaseLock(Path(sys.argv[1]), Holder(os.getpid(), 'box', 'b', '1')); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(database)], check=False)
    assert killed.returncode == -9
    found = read_lock(database)
    assert found is not None
    assert not found.held
    DatabaseLock(database, HOLDER).release()


def test_a_lock_file_with_other_content_is_no_server(database: Path) -> None:
    lock_path(database).write_text("not json")
    assert read_lock(database) is None
    lock_path(database).write_text(json.dumps({"pid": 1}))
    assert read_lock(database) is None


def test_the_lock_file_is_private(database: Path) -> None:
    lock = DatabaseLock(database, HOLDER)
    assert lock_path(database).stat().st_mode & 0o777 == 0o600
    lock.release()


@pytest.mark.parametrize(("reason", "cure"), [(errno.ENOSPC, "Free some space"), (errno.EIO, "Check the disk")])
def test_a_lock_that_cannot_be_written_is_refused_in_words_and_not_held(
    database: Path, monkeypatch: pytest.MonkeyPatch, reason: int, cure: str
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(reason, os.strerror(reason))

    with monkeypatch.context() as failing:
        failing.setattr(os, "pwrite", refuse)
        with pytest.raises(DatabaseUnusable, match=cure):
            DatabaseLock(database, HOLDER)
    DatabaseLock(database, HOLDER).release()
