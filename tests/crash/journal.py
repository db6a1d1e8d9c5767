"""The database as an outsider reads it: plain SQLite, none of the store's code, after the server has gone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from perdure.messages import wire_message

Row = Mapping[str, Any]

MESSAGES = "SELECT id, kind, data, refs FROM items WHERE id IN (SELECT item_id FROM events WHERE item_id IS NOT NULL)"
KINDS = ("null", "bytes", "bytearray", "msgpack")
PATIENCE_MS = 60_000


@dataclass(slots=True)
class Journal:
    """Every row that the oracle needs; `events` carry their payload as the wire shows it."""

    integrity: str
    conversations: Sequence[Row]
    turns: Mapping[str, Row]
    attempts: Mapping[str, Sequence[Row]]
    events: Sequence[Row]
    dangling: Sequence[Row]
    cards: Sequence[Row] = field(default_factory=list)
    calls: Mapping[str, Row] = field(default_factory=dict)
    """The tool-call ledger by idempotency key."""

    def retained(self, turn: str) -> list[Row]:
        return [event for event in self.events if event["turn"] == turn and event["dropped_by"] is None]


def opened(database: Path, *, writing: bool = False) -> apsw.Connection:
    """The file of a server that may be running, starting or being killed: who has it for a moment is waited for."""
    connection = apsw.Connection(
        str(database), flags=apsw.SQLITE_OPEN_READWRITE if writing else apsw.SQLITE_OPEN_READONLY
    )
    connection.set_busy_timeout(PATIENCE_MS)
    return connection


def read_journal(database: Path) -> Journal:
    """Reads the file whole; runs SQLite's own integrity check first."""
    connection = opened(database, writing=True)
    try:
        integrity = str(connection.pragma("integrity_check"))
        attempts: dict[str, list[Row]] = {}
        for row in _rows(connection, "SELECT * FROM attempts ORDER BY turn, epoch"):
            attempts.setdefault(row["turn"], []).append(row)
        return Journal(
            integrity=integrity,
            conversations=_rows(connection, "SELECT * FROM conversations"),
            turns={row["id"]: row for row in _rows(connection, "SELECT * FROM turns ORDER BY accept_number")},
            attempts=attempts,
            events=_events(connection),
            dangling=_rows(connection, "PRAGMA foreign_key_check"),
            cards=_rows(connection, "SELECT * FROM cards"),
            calls={row["key"]: row for row in _rows(connection, "SELECT * FROM tool_calls")},
        )
    finally:
        connection.close()


def _rows(connection: apsw.Connection, statement: str) -> list[Row]:
    cursor = connection.execute(statement)
    rows: list[Row] = []
    for row in cursor:
        rows.append(dict(zip((name for name, _ in cursor.get_description()), row, strict=True)))
    return rows


def _events(connection: apsw.Connection) -> list[Row]:
    serde = JsonPlusSerializer()
    messages: dict[int, Any] = {}
    for row in _rows(connection, MESSAGES):
        assert row["refs"] is None, f"message {row['id']} stands in several rows: {row['refs']}"
        messages[row["id"]] = wire_message(serde.loads_typed((KINDS[row["kind"]], row["data"])))
    rows: list[Row] = []
    for row in _rows(connection, "SELECT * FROM events ORDER BY conversation, seq"):
        payload = json.loads(row["payload"]) if row["payload"] else {}
        if row["item_id"] is not None:
            payload = {**payload, "message": messages[row["item_id"]]}
        rows.append({**row, "payload": payload})
    return rows


def uncertain_calls(database: Path) -> set[str]:
    """The keys of the `once` calls that are started and not recorded, and of whose start nobody has decided yet, of turns that
    the next life will drive: those whose attempts are not spent and whose cancel nobody asked for."""
    connection = opened(database)
    try:
        rows = connection.execute(
            "SELECT c.key FROM tool_calls c JOIN turns t ON t.id = c.turn WHERE c.state = 'started' "
            "AND c.effect_class = 'once' AND t.status = 'running' AND t.attempts_without_progress < 3 "
            "AND t.cancel_requested_at IS NULL AND c.starts > (SELECT count(*) FROM cards d WHERE d.call_key = c.key "
            "AND d.kind = 'uncertain' AND d.state = 'decided')"
        )
        return {str(key) for (key,) in rows}
    finally:
        connection.close()


def leased_until(database: Path) -> float:
    """When the last lease of a running turn ends, Unix seconds; 0 when there is none."""
    connection = opened(database)
    try:
        row = next(iter(connection.execute("SELECT max(lease_expires_at) FROM turns WHERE status = 'running'")))
        return int(row[0] or 0) / 1e6
    finally:
        connection.close()


def unfinished_turns(database: Path) -> list[tuple[Any, ...]]:
    """`(id, status, epoch, attempts without progress, not before)` of turns that are neither ended nor parked."""
    connection = opened(database)
    try:
        statement = (
            "SELECT id, status, epoch, attempts_without_progress, not_before FROM turns "
            "WHERE status IN ('queued', 'running', 'waiting')"
        )
        return connection.execute(statement).fetchall()
    finally:
        connection.close()
