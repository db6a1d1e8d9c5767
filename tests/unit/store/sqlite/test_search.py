from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from perdure.store.sqlite import listing, search
from perdure.store.sqlite.database import open_writer, prepare_place
from perdure.store.sqlite.journal import QUERIES
from perdure.store.sqlite.migrations import FOLDER, migrate


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[apsw.Connection]:
    path = tmp_path / "perdure.db"
    prepare_place(path)
    connection = open_writer(path)
    migrate(connection, path)
    yield connection
    connection.close()


def add(connection: apsw.Connection, name: str, title: str, *messages: str, owner: str = "anna") -> None:
    QUERIES.run(connection, "conversation_insert", id=name, owner=owner, agent="agent", title=title, now=1)
    search.keep_title(connection, name, owner, title)
    wires = [{"id": f"{name}-{number}", "role": "user", "content": text} for number, text in enumerate(messages)]
    search.keep_messages(connection, name, owner, wires)


def found(connection: apsw.Connection, text: str, scope: str | None = "anna") -> set[str]:
    page = listing.conversations(connection, scope, limit=200, cursor=None, agent=None, text=text)
    return {each.id for each in page.items}


def test_an_edited_message_is_found_by_its_new_words_alone_and_a_removed_one_by_none(
    connection: apsw.Connection,
) -> None:
    add(connection, "c", "title", "old words", "other")
    search.keep_messages(connection, "c", "anna", [{"id": "c-0", "role": "user", "content": "new words"}])
    assert (found(connection, "old"), found(connection, "new")) == (set(), {"c"})
    search.keep_messages(connection, "c", "anna", [{"id": "c-0", "status": "removed"}])
    assert (found(connection, "new"), found(connection, "other")) == (set(), {"c"})


def test_what_tools_and_systems_say_is_not_searched(connection: apsw.Connection) -> None:
    add(connection, "c", "title")
    told = [{"id": role, "role": role, "content": f"zebra {role}"} for role in ("tool", "system", "assistant")]
    search.keep_messages(connection, "c", "anna", told)
    assert found(connection, "zebra tool") == found(connection, "zebra system") == set()
    assert found(connection, "zebra assistant") == {"c"}


def test_a_beginning_that_too_much_begins_with_counts_as_a_whole_word(
    connection: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(connection, "whole", "an elephant")
    add(connection, "longer", "two elephants")
    assert found(connection, "elephant") == {"whole", "longer"}
    monkeypatch.setattr(search, "MOST_BEGINNINGS", 1)
    assert found(connection, "elephant") == {"whole"}
    monkeypatch.setattr(search, "MOST_BEGINNINGS", 300)
    monkeypatch.setattr(search, "MOST_OCCURRENCES", 1)
    assert found(connection, "elephant") == {"whole"}


def test_only_the_newest_matches_are_looked_at(connection: apsw.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        add(connection, f"c{number}", "zebra")
    monkeypatch.setattr(search, "MOST_MATCHES", 2)
    assert found(connection, "zebra") == {"c3", "c4"}


def test_the_words_of_deleted_conversations_leave_the_file(connection: apsw.Connection) -> None:
    for number in range(200):
        add(connection, f"c{number}", f"title {number}", f"albatross{number} pelican")
    for number in range(200):
        search.forget(connection, f"c{number}")
        QUERIES.run(connection, "conversation_delete", id=f"c{number}")
    for number in range(50):
        add(connection, f"d{number}", "other words", "more of them")
    assert found(connection, "albatross", None) == set()
    left = sum(1 for (block,) in connection.execute("SELECT block FROM words_data") if b"albatross" in bytes(block))
    assert left == 0


@pytest.mark.parametrize("query", ["conversations_found", "turns_found", "turns_retried", "tree_members"])
def test_no_search_reads_all_conversations_or_turns(connection: apsw.Connection, query: str) -> None:
    bindings = dict.fromkeys(
        (
            "match",
            "most",
            "scope",
            "updated_at",
            "id",
            "agent",
            "limit",
            "before",
            "status",
            "attempts_min",
            "text",
            "root",
        ),
        None,
    )
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[query]}", bindings)]
    indexed = ("USING INDEX turns_retried", "USING COVERING INDEX")
    scans = [line for line in plan if line.startswith(("SCAN c ", "SCAN conversations", "SCAN turns", "SCAN t "))]
    assert [line for line in scans if not any(each in line for each in indexed)] == [], plan


def test_an_upgrade_keeps_the_keys_and_makes_the_titles_known(tmp_path: Path) -> None:
    older = tmp_path / "migrations"
    older.mkdir()
    for file in sorted(FOLDER.glob("000[123]_*.sql")):
        shutil.copy(file, older)
    path = tmp_path / "old.db"
    prepare_place(path)
    connection = open_writer(path)
    migrate(connection, path, older)
    connection.execute(
        """
        INSERT INTO conversations (id, owner, agent, title, created_at, updated_at) VALUES ('c', 'anna', 'agent', 'A zebra', 1, 1);
        INSERT INTO turns (id, conversation, owner, agent, status, first_seq, committed_seq, accepted_at)
        VALUES ('t', 'c', 'anna', 'agent', 'queued', 1, 0, 1);
        INSERT INTO idempotency_keys (owner, key, digest, turn, created_at) VALUES ('anna', 'k', 'd', 't', 1);
        """
    )
    migrate(connection, path)
    row = QUERIES.one(connection, "key", owner="anna", key="k")
    assert row is not None
    assert (row["digest"], row["turn"], row["conversation"], row["status"]) == ("d", "t", "c", "queued")
    assert found(connection, "zeb") == {"c"}
    assert found(connection, "zeb", "boris") == set()
    assert list(connection.execute("PRAGMA foreign_key_check")) == []
    connection.close()
