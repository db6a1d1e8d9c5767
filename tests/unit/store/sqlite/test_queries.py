from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from perdure.store.sqlite.journal import QUERIES
from perdure.store.sqlite.migrations import known
from perdure.store.sqlite.queries import Queries


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("-- one --\nSELECT 1", "description"),
        ("-- one --\n-- What it does.\n", "statement"),
        ("-- one --\n-- A.\nSELECT 1\n-- one --\n-- B.\nSELECT 2", "twice"),
    ],
)
def test_a_query_without_a_name_of_its_own_a_description_or_a_statement_is_refused(
    tmp_path: Path, text: str, fault: str
) -> None:
    path = tmp_path / "queries.sql"
    path.write_text(text)
    with pytest.raises(ValueError, match=fault):
        Queries(path)


def test_rows_come_as_column_name_and_value(tmp_path: Path) -> None:
    path = tmp_path / "queries.sql"
    path.write_text("-- one --\n-- Two columns.\nSELECT :a AS a, 2 AS b\n\n-- none --\n-- No row.\nSELECT 1 WHERE 0\n")
    queries = Queries(path)
    connection = apsw.Connection(":memory:")
    assert queries.all(connection, "one", a=1) == [{"a": 1, "b": 2}]
    assert queries.one(connection, "none") is None


def test_every_query_of_the_journal_is_understood_by_sqlite() -> None:
    connection = apsw.Connection(":memory:")
    for migration in known():
        connection.execute(migration.path.read_text())
    for name in QUERIES:
        connection.execute(f"EXPLAIN {QUERIES[name]}", _Anything())


class _Anything(dict[str, None]):
    def __missing__(self, key: str) -> None:
        return None


def test_the_lists_are_served_by_their_indexes() -> None:
    """No page of conversations, turns, cards or deeds may sort or scan all of them."""
    connection = apsw.Connection(":memory:")
    for migration in known():
        connection.execute(migration.path.read_text())
    pages = [
        *("conversations_page", "conversations_page_everywhere"),
        *("turns_page", "turns_page_everywhere", "turns_page_of_conversation"),
        *("changes_after", "changes_after_everywhere", "events_after"),
        *("cards_open_of_owner", "cards_open_naming", "cards_open_everywhere", "cards_expired"),
        *("audit_page", "audit_page_everywhere"),
    ]
    for name in pages:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", _Anything())]
        assert not [line for line in plan if "TEMP B-TREE" in line or _scans(line)], (name, plan)


def _scans(line: str) -> bool:
    return line.startswith("SCAN") and not line.startswith("SCAN json_each")


@pytest.mark.parametrize(
    "name",
    [
        *(
            "call_start",
            "call_record",
            "call_unknown",
            "call_withdraw",
            "turn_uncount_tool_call",
            "calls_settle",
            "calls_settle_all",
            "calls_known",
        ),
        *(
            "calls_of_turn",
            "calls_with_results",
            "calls_exist",
            "card",
            "card_decide",
            "cards_undecided",
            "next_expiry",
        ),
        *("open_cards", "calls_by_state", "token_of", "token_used", "turn_in_scope", "prune_calls"),
    ],
)
def test_what_calls_and_decisions_cost_does_not_grow_with_the_journal(name: str) -> None:
    connection = apsw.Connection(":memory:")
    for migration in known():
        connection.execute(migration.path.read_text())
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", _Anything())]
    partial = ("cards_open_everywhere", "tool_calls_unsettled", "cards_expiring")
    assert not [line for line in plan if _scans(line) and not line.endswith(partial)], plan


def test_who_must_be_asked_is_looked_for_among_the_suspects_alone() -> None:
    connection = apsw.Connection(":memory:")
    for migration in known():
        connection.execute(migration.path.read_text())
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {QUERIES['claim_next_to_ask']}", _Anything())]
    assert not [line for line in plan if _scans(line)], plan
    assert any(line.startswith("SEARCH t USING INDEX turns_tried") for line in plan), plan
    assert any(line.startswith("SEARCH c ") and "tool_calls_of_turn (turn=?)" in line for line in plan), plan
    assert any(line.startswith("SEARCH k ") and "(turn=?)" in line for line in plan), plan


def test_no_count_for_the_metrics_reads_every_turn() -> None:
    connection = apsw.Connection(":memory:")
    for migration in known():
        connection.execute(migration.path.read_text())
    for name in (
        "turns_by_status",
        "oldest_queued",
        "orphans",
        "next_due",
        "suspects_due",
        "claim_next",
        "claim_next_to_ask",
    ):
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", _Anything())]
        read = [line for line in plan if line.startswith("SCAN") and "turns" in line and "INDEX" not in line]
        assert not read, (name, plan)
