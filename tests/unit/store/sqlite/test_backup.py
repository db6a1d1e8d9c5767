from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from perdure.errors import DatabaseUnusable, StorageError
from perdure.ledger import ToolCall
from perdure.replication import Position
from perdure.store.base import StoredResult
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
