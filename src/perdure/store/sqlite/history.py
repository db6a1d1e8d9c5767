"""A thread's checkpoints as a line, without their values: where a fork can begin, and what it takes along.

Functions of a connection; the line is the root namespace's, oldest first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from perdure.errors import ForkPointGone, NotFound
from perdure.forks import ForkPoint
from perdure.store.base import Page
from perdure.store.sqlite.checkpoint_queries import rows_of
from perdure.store.sqlite.encoding import StrictSerializer
from perdure.store.sqlite.loading import Loader, message_of
from perdure.store.sqlite.memory import ThreadMemory
from perdure.store.sqlite.rows import LARGEST, cursor_of, cursor_parts
from perdure.store.sqlite.steps import MESSAGES

FIRST_STEP = -1
"""LangGraph's number of the checkpoint that holds a thread's very first input."""


@dataclass(frozen=True, slots=True)
class Place:
    """One checkpoint of the line."""

    checkpoint: str
    parent: str | None
    position: int
    source: str
    run: str | None
    step: int
    delta: bool
    """Whether a DeltaChannel's value is not in it."""

    refs: str


def root_space(connection: apsw.Connection, thread: str) -> int | None:
    """None for a thread without a checkpoint."""
    return next((row[0] for row in rows_of(connection, "space_id", thread_id=thread, ns="")), None)


def line(connection: apsw.Connection, thread: str, checkpoint: str | None = None) -> list[Place]:
    """The ancestors of a checkpoint (None: of the head) and itself. Raises NotFound when there is no such checkpoint."""
    space = root_space(connection, thread)
    position = LARGEST
    if checkpoint is not None:
        found = (
            () if space is None else rows_of(connection, "place_of_checkpoint", space=space, checkpoint_id=checkpoint)
        )
        if not found:
            raise NotFound("There is no checkpoint with this id in the conversation.", conversation=thread)
        position = found[0][0]
    if space is None:
        return []
    rows = rows_of(connection, "history_of_space", space=space, position=position)
    places = {row[0]: _place(row) for row in rows}
    return list(_ancestry(places, rows[0][0] if rows else None))[::-1]


def _place(row: tuple[Any, ...]) -> Place:
    checkpoint, parent, position, source, run, step, deltas, refs = row
    return Place(checkpoint, parent, position, source or "", run, int(step or 0), bool(deltas), refs)


def _ancestry(places: dict[str, Place], checkpoint: str | None) -> Iterator[Place]:
    while checkpoint is not None and checkpoint in places:
        yield places[checkpoint]
        checkpoint = places[checkpoint].parent


def at_checkpoint(connection: apsw.Connection, thread: str, checkpoint: str) -> ForkPoint:
    """The state of that checkpoint; of one that only holds an input which was not taken yet, the state before it."""
    places = line(connection, thread, checkpoint)
    last = places[-1]
    if last.source == "input":
        return _before(thread, last)
    for run, source, _ in rows_of(
        connection, "checkpoint_after", space=root_space(connection, thread), position=last.position
    ):
        return ForkPoint(checkpoint, run if run != last.run or source == "input" else None)
    return ForkPoint(checkpoint, None)


def before_message(
    connection: apsw.Connection, serializer: StrictSerializer, thread: str, message: str, turn: str | None
) -> ForkPoint:
    """The state before the turn that a message belongs to. `turn`: the one whose own message it is, if the id tells.

    Raises NotFound when the thread does not hold it, ForkPointGone when what was before it is not there any more.
    """
    places = line(connection, thread)
    found = _first_with(places, _Messages(connection, serializer), message)
    if found is None:
        begun = next((place for place in places if turn is not None and place.run == turn), None)
        if begun is None or begun.source != "input":
            raise NotFound(
                "There is no message with this id in the conversation, or its turn has not begun yet.",
                conversation=thread,
            )
        return _before(thread, begun)
    first = places[found]
    owner = first.run if turn is None else turn
    for place in reversed(places[:found]):
        if place.source == "input":
            if place.run == owner:
                return _before(thread, place)
            break
    if found == 0:
        if first.source != "update" or first.step > FIRST_STEP + 1:
            raise ForkPointGone(conversation=thread)
        return ForkPoint(None, owner)
    return ForkPoint(places[found - 1].checkpoint, owner)


def _before(thread: str, begun: Place) -> ForkPoint:
    if begun.parent is None and begun.step != FIRST_STEP:
        raise ForkPointGone(conversation=thread)
    return ForkPoint(begun.parent, begun.run)


def _first_with(places: Sequence[Place], messages: _Messages, message: str) -> int | None:
    return next((number for number, place in enumerate(places) if messages.stand_in(place, message)), None)


class _Messages:
    """Which messages a checkpoint holds. Each list is read once."""

    def __init__(self, connection: apsw.Connection, serializer: StrictSerializer) -> None:
        self._loader = Loader(connection, serializer, ThreadMemory(""))
        self._serializer = serializer
        self._known: dict[int, list[str | None]] = {}

    def stand_in(self, place: Place, message: str) -> bool:
        entry = json.loads(place.refs)["l"].get(MESSAGES)
        if entry is None:
            return False
        list_id, length, _ = entry
        ids = self._known.setdefault(list_id, [])
        if len(ids) < length:
            ids.extend(self._ids(list_id, len(ids), length))
        return message in ids[:length]

    def _ids(self, list_id: int, start: int, length: int) -> Iterator[str | None]:
        for element in self._loader.stored_list(list_id, length).elements[start:length]:
            found = message_of(element, self._serializer)
            yield found.id if found is not None else None


def taken_along(places: Sequence[Place]) -> list[Place]:
    """What a fork at the last place keeps of the line: where each turn began and ended, so that it can be forked again."""
    return [
        place
        for place, after in zip(places, [*places[1:], None], strict=True)
        if after is None or place.source == "input" or after.source == "input" or after.run != place.run
    ]


def checkpoint_ids(connection: apsw.Connection, thread: str, *, limit: int, cursor: str | None) -> Page[str]:
    """Newest first."""
    (before,) = cursor_parts(cursor, (int,)) if cursor else (LARGEST,)
    space = root_space(connection, thread)
    if space is None:
        return Page([], None)
    rows = rows_of(connection, "checkpoint_ids", space=space, before=before, limit=limit + 1)
    more = cursor_of(rows[limit - 1][1]) if len(rows) > limit else None
    return Page([row[0] for row in rows[:limit]], more)
