"""Making a fork: one transaction. The past is shared by rows that name the same lists and items; no message is copied."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Any

import apsw

from perdure.forks import Forked, NewFork
from perdure.store.sqlite import audit, search
from perdure.store.sqlite.acceptance import insert_turn
from perdure.store.sqlite.checkpoint_queries import QUERIES as CHECKPOINT_QUERIES
from perdure.store.sqlite.checkpoint_queries import rows_of
from perdure.store.sqlite.history import Place, line, root_space, taken_along
from perdure.store.sqlite.journal import QUERIES, require_conversation
from perdure.store.sqlite.keys import remember_request, repeated_fork
from perdure.store.sqlite.rows import clean, micros
from perdure.store.sqlite.threads import needed_by
from perdure.store.sqlite.writes import space_of
from perdure.turns import NewTurn


def fork(connection: apsw.Connection, new: NewFork, numbers: Iterator[int], now: datetime) -> Forked:
    """Raises NotFound (also when the point was pruned since it was looked up), IdempotencyConflict."""
    repeated = repeated_fork(connection, new.owner, new.request_key, now)
    if repeated is not None:
        return repeated
    source = require_conversation(connection, new.scope, new.source)
    title = _numbered(connection, source) if new.title is None else clean(new.title)
    QUERIES.run(
        connection,
        "fork_insert",
        id=new.id,
        owner=new.owner,
        agent=source["agent"],
        title=title,
        message_count=len(new.messages),
        source=new.source,
        turn=new.point.turn,
        checkpoint=new.point.checkpoint,
        now=micros(now),
    )
    if new.point.checkpoint is not None:
        _take_along(connection, new, new.point.checkpoint, numbers)
    search.keep_title(connection, new.id, new.owner, title)
    search.keep_messages(connection, new.id, new.owner, new.messages)
    made = _begin(connection, new, source["agent"], now)
    turn = new.turn.id if new.turn is not None else None
    remember_request(connection, new.owner, new.request_key, turn, now, conversation=new.id)
    audit.note(
        connection,
        "fork",
        by=new.by,
        now=now,
        owner=source["owner"],
        conversation=new.source,
        turn=new.point.turn,
        detail={"fork": new.id, "owner": new.owner},
    )
    return made


_NUMBER = re.compile(r" \(\d{1,9}\)$")


def _numbered(connection: apsw.Connection, source: Mapping[str, Any]) -> str:
    """The source's title with the first number that no conversation of the family has: a list of them can be read."""
    root = source["tree"] or source["id"]
    taken = {row["title"] for row in QUERIES.all(connection, "tree_titles", root=root)}
    stem = _NUMBER.sub("", source["title"]) if source["tree"] else source["title"]
    return next(title for n in count(2) if (title := f"{stem} ({n})") not in taken)


def _begin(connection: apsw.Connection, new: NewFork, agent: str, now: datetime) -> Forked:
    if new.turn is None:
        return Forked(new.id, None, None)
    turn = NewTurn(new.turn.id, new.owner, agent, new.turn.input, new.id, new.id, "", by=new.by)
    accepted = insert_turn(connection, turn, new.id, None, now)
    return Forked(new.id, accepted.turn, accepted.status)


def _take_along(connection: apsw.Connection, new: NewFork, checkpoint: str, numbers: Iterator[int]) -> None:
    places = line(connection, new.source, checkpoint)
    space = root_space(connection, new.source)
    assert space is not None
    target = _new_space(connection, new.source, new.id, "", numbers)
    kept = _with_deltas(connection, space, places)
    rows = [(place.position, place.checkpoint, target, space) for place in kept]
    rows += _lasting_subgraphs(connection, new, places[-1].position, numbers)
    deltas = any(place.delta for place in kept)
    before: dict[int, str] = {}
    for position, name, into, origin in sorted(rows):
        at: dict[str, Any] = {"target": into, "space": origin, "position": next(numbers), "source": position}
        connection.execute(CHECKPOINT_QUERIES["fork_checkpoint"], {**at, "parent_id": before.get(into)})
        if deltas and into in before:
            # A DeltaChannel's value is made of what tasks wrote on the checkpoints below; what they wrote on the last one
            # belongs to the step that the fork does not take.
            connection.execute(
                CHECKPOINT_QUERIES["fork_writes"], {"target": into, "space": origin, "checkpoint_id": before[into]}
            )
        before[into] = name


def _with_deltas(connection: apsw.Connection, space: int, places: Sequence[Place]) -> list[Place]:
    kept = taken_along(places)
    if not any(place.delta for place in kept):
        return kept
    names = {place.checkpoint for place in places}
    rows = [row for row in rows_of(connection, "checkpoints_of_space", space=space) if row[0] in names]
    wanted = {place.checkpoint for place in kept}
    needed = needed_by(rows, [row for row in rows if row[0] in wanted])
    return [place for place in places if place.checkpoint in needed]


def _lasting_subgraphs(
    connection: apsw.Connection, new: NewFork, position: int, numbers: Iterator[int]
) -> list[tuple[int, str, int, int]]:
    """Of subgraphs that keep a state of their own over the turns: all until then. What belongs to one task alone stays."""
    rows = []
    for origin, ns, _ in rows_of(connection, "spaces_of_thread", thread_id=new.source):
        if not ns or ":" in ns:
            continue
        found = rows_of(connection, "positions_of_space", space=origin, position=position)
        into = _new_space(connection, new.source, new.id, ns, numbers) if found else 0
        rows += [(at, name, into, origin) for name, _, at in found]
    return rows


def _new_space(connection: apsw.Connection, source: str, target: str, ns: str, numbers: Iterator[int]) -> int:
    """In the family of the source, whose lists and items it shares."""
    family = next(row[2] for row in rows_of(connection, "spaces_of_thread", thread_id=source))
    named = {"id": next(numbers), "thread_id": target, "ns": ns, "family": family}
    connection.execute(CHECKPOINT_QUERIES["copy_space"], named)
    return space_of(connection, target, ns, numbers)
