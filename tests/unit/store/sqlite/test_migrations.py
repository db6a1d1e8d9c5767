from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path

import apsw
import pytest

from perdure.errors import DatabaseUnusable, StorageError
from perdure.failpoints import FailpointError, arm
from perdure.replication import Position
from perdure.store.sqlite.database import Connection, open_writer, prepare_place, scalar
from perdure.store.sqlite.migrations import FOLDER, copies_beside, known, migrate
from perdure.store.sqlite.store import open_store
from perdure.testing import FakeClock
from perdure.turns import CardState, DecisionKind, Limits, Spent, TurnStatus, Verdict
from tests.conformance.journal import Heard

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


LEFT_THE_HOUSE = {
    "0001_journal.sql": "3ffa0da44659f85ee841a33b4c56b49fd5323eea07a5905bdc8b7cf6086e2e41",
    "0002_checkpoints.sql": "72333b84dde26c1aa0d6aace82a359833139cc66b6f25c7af2d37061aa5986b0",
    "0003_decisions.sql": "402255a2814497e382ce65ea1c9a05211096cd046e565bdeb3aea37f07046339",
    "0004_forks.sql": "caf0653dc4a33d6fa6413e7db9d659cce0c14cc3a090d30bc245b0a2e96edf4e",
    "0005_outbox.sql": "df9de6d037a7ae2ca94e02184cdeccd567c4e984e98239dcb25a039d8574d736",
}
"""Databases were made by these. What is to be different comes in a file with the next number."""


def test_a_migration_that_left_the_house_never_changes() -> None:
    digests = {each.name: sha256(each.read_bytes()).hexdigest() for each in FOLDER.glob("*.sql")}
    assert {name: digests.get(name) for name in LEFT_THE_HOUSE} == LEFT_THE_HOUSE


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


def test_a_file_has_one_copy_that_of_its_last_upgrade(path: Path, later: Path) -> None:
    number = len(known())
    connection = open_writer(path)
    first = migrate(connection, path, later)
    (later / f"{number + 2:04}_shapes.sql").write_text("CREATE TABLE shapes (name TEXT);")
    mine = path.with_name(f"{path.name}.schema-{number}.bak.mine")
    mine.touch()
    second = migrate(connection, path, later)
    connection.close()
    assert first is not None
    assert not first.exists()
    assert second == path.with_name(f"perdure.db.schema-{number + 1}.bak")
    assert copies_beside(path) == {number + 1: second}
    assert mine.exists()


def test_without_a_whole_copy_nothing_is_upgraded(path: Path, later: Path) -> None:
    number = len(known())
    path.with_name(f"perdure.db.schema-{number}.bak.partial").symlink_to(path.parent / "gone" / "away")
    connection = open_writer(path)
    with pytest.raises(StorageError, match="Check the folder and its free space"):
        migrate(connection, path, later)
    assert scalar(connection, "PRAGMA user_version") == number
    assert copies_beside(path) == {}
    assert migrate(connection, path, later) is not None
    connection.close()


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


OLD = """
INSERT INTO conversations (id, owner, agent, title, created_at, updated_at)
VALUES ('parked', 'anna', 'agent', 'a', 1, 1), ('cancelled', 'anna', 'agent', 'b', 1, 1);
INSERT INTO turns (id, conversation, owner, agent, status, first_seq, committed_seq, cancel_requested_at, accepted_at,
    epoch, attempts, total_tokens)
VALUES ('t-1', 'parked', 'anna', 'agent', 'parked', 1, 0, NULL, 1, 1, 1, 7),
    ('t-2', 'cancelled', 'anna', 'agent', 'queued', 1, 0, 5, 1, 1, 1, 0);
INSERT INTO attempts (turn, number, epoch, owner, boot, started_at, ended_at, outcome)
VALUES ('t-1', 1, 1, 'box:1:b', 1, 1, 2, 'parked'), ('t-2', 1, 1, 'box:1:b', 1, 1, 2, 'parked');
INSERT INTO cards (id, turn, conversation, owner, interrupt_id, kind, request, state, answer, decided_by, decided_at, opened_at)
VALUES ('c-1', 't-1', 'parked', 'anna', 'i-1', 'interrupt', '"really?"', 'decided', '{"deep":[1]}', 'anna', 9, 3),
    ('c-2', 't-1', 'parked', 'anna', 'i-2', 'interrupt', '"and this?"', 'opened', NULL, NULL, NULL, 4),
    ('c-3', 't-2', 'cancelled', 'anna', 'i-3', 'interrupt', '"anyway?"', 'opened', NULL, NULL, NULL, 5);
"""


@pytest.fixture
def before_decisions(tmp_path: Path) -> Path:
    """A database of the schema before tool calls and decisions had tables, with cards in every state."""
    folder = tmp_path / "before"
    folder.mkdir()
    for migration in known()[:2]:
        shutil.copy(migration.path, folder)
    path = tmp_path / "old" / "perdure.db"
    prepare_place(path)
    connection = open_writer(path)
    migrate(connection, path, folder)
    connection.execute(BOOT)
    connection.execute(OLD)
    connection.close()
    return path


async def test_a_parked_turn_of_an_older_file_is_answered_after_the_upgrade(before_decisions: Path) -> None:
    store = await open_store(before_decisions, clock=FakeClock(), limits=Limits(), notify=Heard())
    assert store.upgraded_from is not None
    (decided,) = (await store.verdicts("t-1")).values()
    assert decided.verdict is not None
    assert (decided.verdict.decision, decided.verdict.value, decided.verdict.by) == (
        DecisionKind.ANSWER,
        {"deep": [1]},
        "anna",
    )
    waiting = await store.approvals("anna", "anna", limit=9)
    assert [(card.id, card.kind, card.request, card.call) for card in waiting.items] == [
        ("c-2", "interrupt", "and this?", None)
    ]
    turn = await store.turn("anna", "t-1")
    assert turn.spent == Spent(tokens=7)
    outcome = await store.decide("anna", "c-2", Verdict(DecisionKind.ANSWER, value=1, by="anna"))
    assert outcome.turn_status is TurnStatus.QUEUED
    await store.close()


async def test_what_asked_a_turn_that_no_longer_waits_is_closed_by_the_upgrade(before_decisions: Path) -> None:
    store = await open_store(before_decisions, clock=FakeClock(), limits=Limits(), notify=Heard())
    (card,) = await store.cards("anna", "t-2")
    assert card.state is CardState.CLOSED
    await store.close()


def before_outbox(folder: Path, path: Path) -> Connection:
    """A database of the schema before copies: two conversations, retention has removed every change of the first."""
    folder.mkdir()
    for migration in known()[:4]:
        shutil.copy(migration.path, folder)
    prepare_place(path)
    connection = open_writer(path)
    migrate(connection, path, folder)
    connection.execute(OLD.split("INSERT INTO attempts", maxsplit=1)[0])
    return connection


@pytest.mark.parametrize("kept", ["conversation = 'cancelled'", "0"])
async def test_an_upgraded_journal_tells_a_copy_all_it_holds(tmp_path: Path, kept: str) -> None:
    """Also conversations and turns whose changes retention had removed, each in pages of one."""
    path = tmp_path / "old" / "perdure.db"
    connection = before_outbox(tmp_path / "before", path)
    connection.execute(f"DELETE FROM changes WHERE NOT ({kept})")
    connection.close()
    store = await open_store(path, clock=FakeClock(), limits=Limits(), notify=Heard())
    last = await store.last_change(None)
    position, turns, conversations = Position(), set(), set()
    for _ in range(20):
        rows = await store.journal_rows(position, limit=1)
        assert rows.after == position.change != -1, "which stands for rows that continue nothing"
        turns |= {row["id"] for row in rows.turns}
        conversations |= {row["id"] for row in rows.conversations}
        position = rows.position
        if not rows.more:
            break
    assert turns == {"t-1", "t-2"}
    assert conversations == {"parked", "cancelled"}
    assert position.change == last > 0
    assert (await store.journal_rows(position)).turns == []
    told = await store.changes("anna", 0, 99)
    assert len(told) == (1 if kept == "0" else 2), "people's lists are told of no more than one"
    await store.close()


def test_an_upgraded_schema_is_the_same_as_a_new_one(path: Path, before_decisions: Path) -> None:
    def schema(place: Path) -> list[tuple[str, str]]:
        connection = open_writer(place)
        migrate(connection, place)
        rows = list(connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name"))
        connection.close()
        return rows

    assert schema(before_decisions) == schema(path)
