"""The allowed moves of a turn, kept three times: the table, the schema's trigger, and every other pair tried for real."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from perdure.store.sqlite.database import open_writer, prepare_place
from perdure.store.sqlite.migrations import FOLDER, migrate
from perdure.turns import ACTIVE, ENDED, TRANSITIONS, TurnStatus

PAIRS = [(old, new) for old, new in itertools.product(TurnStatus, repeat=2) if old is not new]


def shape(status: TurnStatus) -> dict[str, object]:
    """What a row in this state must hold beside it."""
    running, ended = status is TurnStatus.RUNNING, status in ENDED
    failed = status in {TurnStatus.FAILED, TurnStatus.INTERRUPTED}
    return {
        "lease_owner": "box:1:b" if running else None,
        "lease_expires_at": 1 if running else None,
        "ended_at": 1 if ended else None,
        "failure_code": "AGENT_FAILURE" if failed else None,
    }


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[apsw.Connection]:
    path = tmp_path / "perdure.db"
    prepare_place(path)
    connection = open_writer(path)
    migrate(connection, path)
    connection.execute(
        "INSERT INTO conversations (id, owner, agent, title, created_at, updated_at) VALUES ('c', 'o', 'a', 't', 1, 1)"
    )
    yield connection
    connection.close()


def insert(connection: apsw.Connection, status: TurnStatus, **other: object) -> None:
    row: dict[str, object] = {
        "id": f"turn-{connection.total_changes()}", "conversation": "c", "owner": "o", "agent": "a", "status": str(status),
        "first_seq": 1, "committed_seq": 0, "accepted_at": 1, **shape(status), **other,
    }  # fmt: skip
    columns = ", ".join(row)
    connection.execute(f"INSERT INTO turns ({columns}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))


def move(connection: apsw.Connection, new: TurnStatus) -> None:
    row = {"status": str(new), **shape(new)}
    assignments = ", ".join(f"{name} = ?" for name in row)
    connection.execute(f"UPDATE turns SET {assignments}", tuple(row.values()))


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_the_database_allows_exactly_the_moves_of_the_table(
    connection: apsw.Connection, old: TurnStatus, new: TurnStatus
) -> None:
    insert(connection, old)
    if new in TRANSITIONS[old]:
        move(connection, new)
    else:
        with pytest.raises(apsw.ConstraintError, match="transition not allowed"):
            move(connection, new)
    (status,) = next(iter(connection.execute("SELECT status FROM turns")))
    assert status == (new if new in TRANSITIONS[old] else old)


def test_the_triggers_text_is_the_table() -> None:
    text = (FOLDER / "0001_journal.sql").read_text()
    trigger = text[text.index("CREATE TRIGGER turns_transition") : text.index("SELECT RAISE(ABORT, 'transition")]
    written: dict[TurnStatus, frozenset[TurnStatus]] = dict.fromkeys(TurnStatus, frozenset())
    for old, one, several in re.findall(
        r"OLD\.status = '(\w+)'\s+AND NEW\.status (?:= '(\w+)'|IN \(([^)]*)\))", trigger
    ):
        names = [one] if one else re.findall(r"\w+", several)
        written[TurnStatus(old)] = frozenset(map(TurnStatus, names))
    assert written == dict(TRANSITIONS)


@pytest.mark.parametrize(("first", "second"), list(itertools.product(sorted(ACTIVE), repeat=2)))
def test_a_thread_has_one_active_turn(connection: apsw.Connection, first: TurnStatus, second: TurnStatus) -> None:
    insert(connection, first)
    with pytest.raises(apsw.ConstraintError, match="UNIQUE"):
        insert(connection, second)


@pytest.mark.parametrize("status", list(TurnStatus))
@pytest.mark.parametrize("column", ["lease_owner", "lease_expires_at", "ended_at", "failure_code"])
def test_a_row_that_contradicts_its_status_is_refused(
    connection: apsw.Connection, status: TurnStatus, column: str
) -> None:
    wrong = None if shape(status)[column] is not None else 1
    with pytest.raises(apsw.ConstraintError, match="CHECK"):
        insert(connection, status, **{column: wrong})
