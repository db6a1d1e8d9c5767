"""Where the conversations of one tree of forks part, as one of them sees it. A few look-ups by key for each pair of a place and a
conversation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from perdure.forks import Branch, Parting
from perdure.store.sqlite.checkpoint_queries import rows_of
from perdure.store.sqlite.history import FIRST_STEP
from perdure.store.sqlite.journal import QUERIES, require_conversation
from perdure.store.sqlite.rows import Row, conversation_from

MOST_MEMBERS = 500
"""Conversations of a tree that are looked at, those made first."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How a conversation goes on from a place: with a turn, or not yet."""

    position: int
    turn: str | None


def partings(connection: apsw.Connection, scope: str | None, conversation: str) -> list[Parting]:
    """In the order of the conversation; only places where more than one way is gone."""
    mine = require_conversation(connection, scope, conversation)
    root = mine["tree"] or mine["id"]
    members = QUERIES.all(connection, "tree_members", root=root, scope=scope, limit=MOST_MEMBERS)
    own = next((row for row in members if row["id"] == conversation), None)
    if own is None or len(members) < 2:
        return []
    places = {row["forked_checkpoint"] for row in members if row["forked_from"] is not None}
    found = []
    for place in places:
        way = _way(connection, own, place, members)
        branches = _branches(connection, own, place, members) if way is not None else []
        if way is not None and len(branches) > 1:
            found.append((way.position, Parting(place, way.turn, branches)))
    return [parting for _, parting in sorted(found, key=lambda pair: pair[0])]


def _branches(connection: apsw.Connection, own: Row, place: str | None, members: Sequence[Row]) -> list[Branch]:
    """Conversations that go on with the same turn are one branch, shown by the one asked about, else by the first."""
    shown: dict[str, tuple[Row, str | None]] = {}
    for row in members:
        way = _way(connection, row, place, members)
        if way is None:
            continue
        key = row["id"] if way.turn is None else f"turn {way.turn}"
        if key not in shown or row["id"] == own["id"]:
            shown[key] = (row, way.turn)
    return [_branch(row, turn, current=row["id"] == own["id"]) for row, turn in shown.values()]


def _branch(row: Row, turn: str | None, *, current: bool) -> Branch:
    found = conversation_from(row)
    return Branch(found.id, found.title, found.status, found.created_at, turn, current)


def _way(connection: apsw.Connection, row: Row, place: str | None, members: Iterable[Row]) -> _Way | None:
    """None when the conversation does not come by the place, or is within a turn there."""
    if row["forked_from"] is not None and row["forked_checkpoint"] == place:
        return _forked_here(connection, row, place)
    position = _position(connection, row, place)
    told = _told_by_forks(row, place, members)
    if told is not None:
        return _Way(position if position is not None else -1, told)
    if position is None:
        return None
    after: list[tuple[Any, ...]] = []
    if row["space"] is not None:
        after = rows_of(connection, "checkpoint_after", space=row["space"], position=position)
    if not after:
        return _Way(position, row["first_turn"] if place is None else None)
    run, source, step = after[0]
    if place is None:
        return _Way(position, run) if source == "input" and int(step) == FIRST_STEP else None
    before = rows_of(connection, "place_of_checkpoint", space=row["space"], checkpoint_id=place)[0][1]
    return _Way(position, run) if run != before or source == "input" else None


def _forked_here(connection: apsw.Connection, row: Row, place: str | None) -> _Way | None:
    position = _position(connection, row, place)
    if (
        row["forked_turn"] is None
        and position is not None
        and place is not None
        and _within_turn(connection, row, place)
    ):
        return None
    return _Way(position if position is not None else -1, row["first_turn"])


def _within_turn(connection: apsw.Connection, row: Row, place: str) -> bool:
    """Whether the place is one in the middle of a turn of the conversation it was forked from."""
    for (space,) in rows_of(connection, "space_id", thread_id=row["forked_from"], ns=""):
        for position, run in rows_of(connection, "place_of_checkpoint", space=space, checkpoint_id=place):
            after = rows_of(connection, "checkpoint_after", space=space, position=position)
            return bool(after) and after[0][0] == run and after[0][1] != "input"
    return False


def _told_by_forks(row: Row, place: str | None, members: Iterable[Row]) -> str | None:
    """A fork of this conversation remembers before which of its turns it begins."""
    for each in members:
        if each["forked_from"] == row["id"] and each["forked_checkpoint"] == place and each["forked_turn"]:
            return str(each["forked_turn"])
    return None


def _position(connection: apsw.Connection, row: Row, place: str | None) -> int | None:
    if place is None:
        return -1
    if row["space"] is None:
        return None
    found = rows_of(connection, "place_of_checkpoint", space=row["space"], checkpoint_id=place)
    return found[0][0] if found else None
