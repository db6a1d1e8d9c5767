"""Rows and events of another process, before they are stored: nothing that could not be read back gets in.

Whoever may speak for an agent may send anything. A row must have every column of its table, each of its kind, and must make
the record that readers make of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import apsw

from perdure.errors import PerdureError
from perdure.events import Event, EventKind
from perdure.replication import JournalRows
from perdure.store.sqlite.rows import (
    LARGEST,
    Row,
    attempt_from,
    audit_entry_from,
    card_from,
    conversation_from,
    stored_call_from,
    turn_from,
)

T = TypeVar("T")

Columns = Mapping[str, tuple[type, bool]]
"""Of a table: what each holds, and whether it may be empty."""

NOT_TOLD = {"tool_calls": frozenset({"result", "result_kind"})}
"""Columns that do not travel."""

_KINDS = {"INTEGER": int, "TEXT": str}


def columns_of(connection: apsw.Connection, table: str) -> Columns:
    """Those that travel."""
    rows = connection.execute(f"PRAGMA table_info({table})")
    left_out = NOT_TOLD.get(table, frozenset())
    return {
        name: (_KINDS[kind], not (required or key)) for _, name, kind, required, _, key in rows if name not in left_out
    }


class Checked:
    """The rows of one answer, each with the columns of its table alone."""

    def __init__(self, connection: apsw.Connection, rows: JournalRows) -> None:
        """Raises PerdureError."""
        check = _Checks(connection)
        self.conversations = check("conversations", rows.conversations, _conversation)
        self.turns = sorted(check("turns", rows.turns, turn_from), key=lambda row: row["accept_number"])
        self.attempts = _by_turn(check("attempts", rows.attempts, attempt_from))
        self.cards = _by_turn(check("cards", rows.cards, card_from))
        self.calls = _by_turn(check("tool_calls", rows.calls, stored_call_from))
        self.audit = sorted(check("audit", rows.audit, audit_entry_from), key=lambda row: row["number"])


def _conversation(row: Row) -> object:
    return conversation_from({**row, "status": None})


class _Checks:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def __call__(self, table: str, rows: Iterable[Row], record: Callable[[Row], object]) -> list[dict[str, Any]]:
        columns = columns_of(self._connection, table)
        checked = []
        for row in rows:
            kept = {name: _value(table, row, name, *kind) for name, kind in columns.items()}
            try:
                record(kept)
            except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
                raise _refusal(table, f"a row of it makes no sense here: {error!r}") from error
            checked.append(kept)
        return checked


def _value(table: str, row: Row, name: str, kind: type, optional: bool) -> Any:
    if name not in row:
        raise _refusal(table, f"the column {name!r} is missing")
    value = row[name]
    if value is None and optional:
        return None
    if type(value) is not kind or not _storable(value):
        raise _refusal(table, f"the column {name!r} holds what it cannot hold")
    return value


def _storable(value: Any) -> bool:
    if isinstance(value, int):
        return abs(value) <= LARGEST
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _by_turn(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["turn"], []).append(row)
    return found


def _refusal(table: str, what: str) -> PerdureError:
    return PerdureError(
        f"An agent told rows of {table!r} that do not fit: {what}. Run the same version of Perdure on both sides."
    )


def guarded(transaction: Callable[[apsw.Connection], T], connection: apsw.Connection) -> T:
    """What breaks a rule of the schema is the fault of who told it. Raises PerdureError."""
    try:
        return transaction(connection)
    except (apsw.ConstraintError, apsw.MismatchError, OverflowError, ValueError, TypeError) as error:
        raise PerdureError(
            f"An agent told rows that contradict what is held: {error}. Nothing of them was kept."
        ) from error


# -- events ---------------------------------------------------------------------------------------------------------------


def is_sound(event: Event) -> bool:
    """Whether an event can be stored, and be read back by everyone who reads events."""
    numbers = (event.seq, event.attempt)
    texts = (event.conversation, event.turn)
    if not all(type(number) is int and 0 <= number <= LARGEST for number in numbers) or event.seq == 0:
        return False
    if not all(type(text) is str and _storable(text) for text in texts) or not isinstance(event.payload, Mapping):
        return False
    if not isinstance(event.at, datetime) or event.at.tzinfo is None:
        return False
    if event.kind is EventKind.MESSAGE:
        return is_message(event.payload.get("message"))
    if event.kind is EventKind.REWIND:
        to_seq = event.payload.get("to_seq")
        return type(to_seq) is int and 0 <= to_seq < event.seq
    return event.kind is not EventKind.TOKEN


def is_message(message: Any) -> bool:
    return isinstance(message, Mapping) and all(
        isinstance(message.get(name), str) for name in ("id", "role", "content")
    )
