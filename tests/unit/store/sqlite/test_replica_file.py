"""The file of a gateway as a file: its kind, its schema, and its queries."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from perdure.errors import DatabaseUnusable
from perdure.failpoints import FailpointError, arm
from perdure.store.sqlite import replica_schema
from perdure.store.sqlite.copying import COPIES
from perdure.store.sqlite.database import REPLICA_ID, Connection, open_writer, prepare_place, scalar
from perdure.store.sqlite.foreign import columns_of
from perdure.store.sqlite.migrations import known
from perdure.store.sqlite.replica import open_replica
from perdure.store.sqlite.replica_schema import FOLDER, migrate_replica
from perdure.store.sqlite.store import open_store
from perdure.testing import FakeClock
from perdure.turns import Limits
from tests.conformance.journal import Heard

HALF = "CREATE TABLE half (a); CREATE TABLE half (a);"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.db"
    prepare_place(path)
    return path


@pytest.fixture
def connection(path: Path) -> Iterator[Connection]:
    connection = open_writer(path, application_id=REPLICA_ID)
    migrate_replica(connection, path)
    yield connection
    connection.close()


class _Anything(dict[str, None]):
    def __missing__(self, key: str) -> None:
        return None


async def test_a_gateway_does_not_take_an_agents_file_nor_an_agent_a_gateways(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "agent.db", clock=FakeClock(), limits=Limits(), notify=Heard())
    await store.close()
    replica = await open_replica(tmp_path / "gateway.db", clock=FakeClock(), notify=Heard(), version="1")
    await replica.close()
    for name, which in (("agent.db", "the journal of an agent"), ("gateway.db", "the file of a gateway")):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(DatabaseUnusable, match=which):
            if name == "agent.db":
                await open_replica(tmp_path / name, clock=FakeClock(), notify=Heard())
            else:
                await open_store(tmp_path / name, clock=FakeClock(), limits=Limits(), notify=Heard())
        assert (tmp_path / name).read_bytes() == before
    again = await open_replica(tmp_path / "gateway.db", clock=FakeClock(), notify=Heard())
    with pytest.raises(DatabaseUnusable, match="in use by process"):
        await open_replica(tmp_path / "gateway.db", clock=FakeClock(), notify=Heard())
    await again.close()


async def test_a_damaged_copy_is_told_to_be_moved_away_for_there_is_no_backup_of_it(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    await (await open_replica(path, clock=FakeClock(), notify=Heard())).close()
    content = bytearray(path.read_bytes())
    content[8_192:16_384] = b"\xff" * 8_192
    path.write_bytes(content)
    with pytest.raises(DatabaseUnusable, match="the copy is made again"):
        await open_replica(path, clock=FakeClock(), notify=Heard())


async def test_a_gateway_does_not_take_the_file_of_one_of_another_namespace(tmp_path: Path) -> None:
    """Its copies would be shown as if they were of agents here, and agents of the same name would be taken for them."""
    path = tmp_path / "gateway.db"
    for place in (None, "perdure.default", "perdure.default"):
        await (await open_replica(path, clock=FakeClock(), notify=Heard(), place=place)).close()
    with pytest.raises(DatabaseUnusable, match=r"agents of perdure\.default"):
        await open_replica(path, clock=FakeClock(), notify=Heard(), place="perdure.other")
    await (await open_replica(path, clock=FakeClock(), notify=Heard(), place="perdure.default")).close()


def test_every_query_of_the_copy_is_understood_by_sqlite(connection: Connection) -> None:
    for name in COPIES:
        connection.execute(f"EXPLAIN {COPIES[name]}", _Anything())


@pytest.mark.parametrize(
    ("table", "query"),
    [
        ("conversations", "conversation_copy"),
        ("turns", "turn_copy"),
        ("attempts", "attempt_copy"),
        ("cards", "card_copy"),
        ("tool_calls", "call_copy"),
        ("audit", "audit_copy"),
    ],
)
def test_a_copy_leaves_no_column_out(connection: Connection, table: str, query: str) -> None:
    """A column that a migration adds must be copied, too."""
    statement = COPIES[query]
    own = {"number"} if table == "tool_calls" else set()  # counted anew
    assert [name for name in columns_of(connection, table) if f":{name}" not in statement and name not in own] == []
    if "ON CONFLICT" in statement:
        given_once = {"id", "conversation", "accept_number"}
        changed = statement.split("DO UPDATE SET")[1]
        kept = [name for name in columns_of(connection, table) if f"{name} = excluded.{name}" not in changed]
        assert set(kept) <= given_once


def test_what_one_answer_costs_does_not_grow_with_the_copy(connection: Connection) -> None:
    names = [
        *(
            "conversation_copied",
            "deletion",
            "turn_copied",
            "turn_before",
            "turns_behind",
            "number_taken",
            "audit_taken",
        ),
        *("turns_supersede_copied", "calls_settle_copied", "attempts_forget", "cards_states", "cards_forget"),
        *("calls_forget", "events_rewind", "event_voided", "transcript", "audit_last", "position"),
    ]
    for name in names:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {COPIES[name]}", _Anything())]
        assert not [line for line in plan if line.startswith("SCAN")], (name, plan)


def test_a_first_start_that_was_cut_is_taken_up_again(path: Path) -> None:
    connection = open_writer(path, application_id=REPLICA_ID)
    arm("migrate.after:error@3")
    try:
        with pytest.raises(FailpointError):
            migrate_replica(connection, path)
    finally:
        arm("")
    assert migrate_replica(connection, path) is None
    assert scalar(connection, "PRAGMA user_version") == len(known())
    assert scalar(connection, "SELECT version FROM copies") == len(known(FOLDER))
    before = connection.total_changes()
    assert migrate_replica(connection, path) is None
    assert connection.total_changes() == before
    connection.close()


def test_a_file_in_use_is_copied_before_its_own_part_is_upgraded_and_a_step_that_fails_changes_nothing(
    path: Path, tmp_path: Path, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.execute("INSERT INTO boots (owner, version, started_at) VALUES ('box:1:b', '1', 1)")
    folder = tmp_path / "later"
    shutil.copytree(FOLDER, folder)
    number = len(known(FOLDER)) + 1
    later = folder / f"{number:04}_later.sql"
    monkeypatch.setattr(replica_schema, "FOLDER", folder)
    later.write_text(HALF)
    with pytest.raises(apsw.SQLError):
        migrate_replica(connection, path)
    assert scalar(connection, "SELECT version FROM copies") == number - 1
    assert scalar(connection, "SELECT count(*) FROM sqlite_schema WHERE name = 'half'") == 0
    later.write_text("CREATE TABLE half (a);")
    copy = migrate_replica(connection, path)
    assert copy is not None
    old = apsw.Connection(str(copy))
    assert scalar(old, "SELECT version FROM copies") == number - 1
    old.close()
    monkeypatch.setattr(replica_schema, "FOLDER", FOLDER)
    with pytest.raises(DatabaseUnusable, match=rf"newer Perdure \(copies {number}, this one knows {number - 1}\)"):
        migrate_replica(connection, path)
