from __future__ import annotations

import errno
import os
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.errors import DatabaseUnusable, StorageError
from perdure.ledger import ToolCall
from perdure.replication import Position
from perdure.store.base import StoredResult
from perdure.store.sqlite import backup
from perdure.store.sqlite.backup import restore_database
from perdure.store.sqlite.database import open_writer, prepare_place, scalar
from perdure.store.sqlite.lock import Holder
from perdure.store.sqlite.migrations import known, migrate
from perdure.store.sqlite.store import SQLiteStore
from perdure.turns import Limits, Role, TurnStatus
from tests.conformance.conftest import sqlite_journal
from tests.conformance.journal import OWNER, Journal, ask, intend, work

HOLDER = Holder(pid=1, host="box", boot_id="b", version="1")
NEWEST = len(known())


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = sqlite_journal(tmp_path, Limits())
    await journal.start()
    yield journal
    await journal.store.close()


async def test_a_backup_made_while_turns_run_opens_and_goes_on(journal: Journal, tmp_path: Path) -> None:
    attempt = await journal.running()
    await work(attempt)
    target = tmp_path / "copy.db"
    await journal.store.backup(target)
    await attempt.finish(TurnStatus.COMPLETED)
    assert target.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("copy")) == ["copy.db"]
    await journal.store.close()
    kept = restore_database(target, tmp_path / "perdure.db", HOLDER, newest_schema=NEWEST)
    assert kept == tmp_path / "perdure.db.replaced-1"
    await journal.start()
    turn = await journal.turn(attempt.turn.id)
    assert turn.status is TurnStatus.RUNNING
    assert [orphan.id for orphan in await journal.store.orphans(journal.clock.now(), [])] == [turn.id]
    messages = [event.payload["message"]["content"] for event in await journal.store.events(turn.conversation)]
    assert messages == ["hello", "hi"]
    assert scalar(apsw.Connection(str(kept)), "SELECT status FROM turns") == "completed", "nothing was thrown away"


async def test_a_backup_holds_calls_decisions_tokens_and_the_audit(journal: Journal, tmp_path: Path) -> None:
    attempt = await journal.running()
    key = await intend(attempt, ToolCall("c-1", "tool", {}, "m-1"))
    attempt.record(key, StoredResult("msgpack", b"result"), "success")
    await attempt.park([ask()])
    await journal.answer(attempt.turn.conversation, {"i-1": "yes"})
    await journal.store.create_token("clara", Role.USER, "hash", by="admin")
    await journal.store.backup(tmp_path / "copy.db")
    await journal.store.close()
    restore_database(tmp_path / "copy.db", tmp_path / "perdure.db", HOLDER, newest_schema=NEWEST)
    await journal.start()
    (known_call,) = await journal.store.ledger(attempt.turn.id)
    assert known_call.result == StoredResult("msgpack", b"result")
    assert await journal.answers(attempt.turn.id) == {"i-1": "yes"}
    assert await journal.store.token_of("hash") is not None
    assert [entry.action for entry in (await journal.store.audit(None, limit=9)).items] == ["token_create", "decide"]


@pytest.mark.parametrize("before", [0, 2])
async def test_after_a_restore_no_change_gets_a_number_that_was_given_out_before(
    journal: Journal, tmp_path: Path, before: int
) -> None:
    for number in range(before):
        await journal.accept(f"kept {number}")
    kept = await journal.store.last_change(OWNER)
    await journal.store.backup(tmp_path / "copy.db")
    for number in range(3):
        await journal.accept(f"lost {number}")
    lost = range(kept + 1, await journal.store.last_change(OWNER) + 1)
    await journal.store.close()
    restore_database(tmp_path / "copy.db", tmp_path / "perdure.db", HOLDER, newest_schema=NEWEST)
    await journal.start()
    for number in range(4):
        await journal.accept(f"new {number}")
    numbers = [change.number for change in await journal.store.changes(OWNER, 0, 100)]
    assert len(lost) > 0
    assert len(numbers) > kept
    assert not set(numbers) & set(lost)
    assert numbers[:kept] == list(range(1, kept + 1))


async def test_a_copy_that_saw_more_than_a_restored_backup_begins_anew(journal: Journal, tmp_path: Path) -> None:
    """Also once as much has happened since as was lost, and after a second restore."""

    def outgoing() -> SQLiteStore:
        assert isinstance(journal.store, SQLiteStore)
        return journal.store

    await journal.accept("kept")
    kept = (await outgoing().journal_rows(Position())).position
    name = outgoing().journal
    seen = [kept]
    for number in range(2):
        await journal.store.backup(tmp_path / f"copy-{number}.db")
        for _ in range(2):
            await journal.accept("lost")
            seen.append((await outgoing().journal_rows(Position())).position)
        await journal.store.close()
        restore_database(tmp_path / f"copy-{number}.db", tmp_path / "perdure.db", HOLDER, newest_schema=NEWEST)
        await journal.start()
        assert outgoing().journal == name
        for _ in range(3):
            await journal.accept("new")
        assert (await outgoing().journal_rows(kept)).after == kept.change, "what both saw is still true"
        for position in seen[1:]:
            rows = await outgoing().journal_rows(position)
            assert rows.after == 0
            assert len(rows.turns) == 1 + 3 * (number + 1)


@pytest.mark.parametrize("links", [True, False])
async def test_a_death_anywhere_in_a_restore_leaves_the_old_database_or_the_new_one_whole(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """The old one as a killed server leaves it: its last message is in the log alone."""
    await journal.accept("in both")
    await journal.store.backup(tmp_path / "copy.db")
    await journal.accept("in the log")
    left = tmp_path / "left"
    left.mkdir()
    for piece in ("perdure.db", "perdure.db-wal"):
        shutil.copy(tmp_path / piece, left)
    assert (left / "perdure.db-wal").stat().st_size > 0
    survived = 0
    for last in range(1, 30):
        folder = tmp_path / f"death-{last}"
        shutil.copytree(left, folder)
        with monkeypatch.context() as patched:
            steps = _dying_after(last, patched, links=links)
            try:
                restore_database(tmp_path / "copy.db", folder / "perdure.db", HOLDER, newest_schema=NEWEST)
            except _Death:
                assert steps.done > last
            else:
                break
        turns = scalar(apsw.Connection(str(folder / "perdure.db")), "SELECT count(*) FROM turns")
        assert turns == 2, "the old one until the very last step"
        survived += 1
    assert survived >= 3
    assert scalar(apsw.Connection(str(folder / "perdure.db")), "SELECT count(*) FROM turns") == 1
    assert scalar(apsw.Connection(str(folder / "perdure.db.replaced-1")), "SELECT count(*) FROM turns") == 2


class _Death(BaseException):
    pass


@dataclass
class _Steps:
    done: int = 0


def _dying_after(last: int, patched: pytest.MonkeyPatch, *, links: bool) -> _Steps:
    """Of the steps that change what names mean, the one after `last` and all others are not done."""
    steps = _Steps()

    def mortal(step: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*arguments: Any, **named: Any) -> Any:
            steps.done += 1
            if steps.done > last:
                raise _Death
            return step(*arguments, **named)

        return stepping

    def unable(*arguments: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links here")

    patched.setattr(Path, "rename", mortal(Path.rename))
    patched.setattr(Path, "unlink", mortal(Path.unlink))
    patched.setattr(os, "link", mortal(os.link if links else unable))
    patched.setattr(shutil, "copy2", mortal(shutil.copy2))
    return steps


async def test_a_database_that_is_being_read_is_not_replaced_under_its_reader(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "READER_MILLISECONDS", 10)
    await journal.accept("in both")
    await journal.store.backup(tmp_path / "copy.db")
    await journal.store.close()
    reader, writer = apsw.Connection(str(tmp_path / "perdure.db")), apsw.Connection(str(tmp_path / "perdure.db"))
    reader.execute("BEGIN")
    assert scalar(reader, "SELECT count(*) FROM turns") == 1
    writer.execute("CREATE TABLE later (number)")
    with pytest.raises(DatabaseUnusable, match="read by another program"):
        restore_database(tmp_path / "copy.db", tmp_path / "perdure.db", HOLDER, newest_schema=NEWEST)
    reader.execute("ROLLBACK")
    restore_database(tmp_path / "copy.db", tmp_path / "perdure.db", HOLDER, newest_schema=NEWEST)


async def test_a_damaged_database_is_replaced_and_kept_with_its_log(journal: Journal, tmp_path: Path) -> None:
    await journal.accept("hello")
    await journal.store.backup(tmp_path / "copy.db")
    await journal.store.close()
    (tmp_path / "perdure.db").write_bytes(b"no database at all" * 500)
    (tmp_path / "perdure.db-wal").write_bytes(b"its log")
    kept = restore_database(tmp_path / "copy.db", tmp_path / "perdure.db", HOLDER, newest_schema=NEWEST)
    assert kept is not None and kept.read_bytes().startswith(b"no database at all")
    assert kept.with_name(f"{kept.name}-wal").read_bytes() == b"its log"
    assert scalar(apsw.Connection(str(tmp_path / "perdure.db")), "SELECT count(*) FROM turns") == 1


async def test_a_backup_of_an_older_schema_is_put_back(tmp_path: Path) -> None:
    folder = tmp_path / "before"
    folder.mkdir()
    for migration in known()[:4]:
        shutil.copy(migration.path, folder)
    old = tmp_path / "old.db"
    prepare_place(old)
    connection = open_writer(old)
    migrate(connection, old, folder)
    connection.close()
    restore_database(old, tmp_path / "perdure.db", HOLDER, newest_schema=NEWEST)
    journal = sqlite_journal(tmp_path, Limits())
    await journal.start()
    await journal.accept()
    assert (await journal.store.last_change(OWNER)) > 1_000
    await journal.store.close()


async def test_a_backup_does_not_overwrite(journal: Journal, tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("precious")
    with pytest.raises(StorageError, match="exists already"):
        await journal.store.backup(tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "precious"


async def test_a_backup_into_a_missing_folder_says_so(journal: Journal, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="Check the folder"):
        await journal.store.backup(tmp_path / "missing" / "copy.db")


async def test_a_database_in_use_is_not_replaced(journal: Journal, tmp_path: Path) -> None:
    await journal.store.backup(tmp_path / "copy.db")
    with pytest.raises(DatabaseUnusable, match="in use"):
        restore_database(tmp_path / "copy.db", tmp_path / "perdure.db", HOLDER, newest_schema=NEWEST)
    await journal.store.check()


async def test_a_damaged_a_newer_or_a_foreign_backup_is_refused_before_anything_is_touched(
    journal: Journal, tmp_path: Path
) -> None:
    accepted = await journal.accept()
    for number in range(200):
        await journal.accept(f"{number} " + "x" * 500)
    copy = tmp_path / "copy.db"
    await journal.store.backup(copy)
    await journal.store.close()
    target = tmp_path / "perdure.db"

    def refused(source: Path, why: str, newest: int = NEWEST) -> None:
        with pytest.raises(DatabaseUnusable, match=why):
            restore_database(source, target, HOLDER, newest_schema=newest)

    refused(copy, "newer than this Perdure", NEWEST - 1)
    refused(tmp_path / "nothing.db", "does not exist")
    apsw.Connection(str(tmp_path / "foreign.db")).execute("CREATE TABLE other (a)")
    refused(tmp_path / "foreign.db", "not a Perdure database")
    content = bytearray(copy.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 20_000] = bytes(range(250)) * 80
    (tmp_path / "damaged.db").write_bytes(content)
    refused(tmp_path / "damaged.db", "damaged")
    await journal.start()
    assert (await journal.turn(accepted.turn)).status is TurnStatus.QUEUED
    assert (await journal.store.turns(OWNER, limit=1)).next is not None
