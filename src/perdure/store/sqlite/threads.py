"""Whole threads: deleting, copying and pruning them, and sweeping what nothing refers to any more.

Functions of a connection inside the writer's transaction. After its commit the memory of every thread named here must be
forgotten (`Checkpoints.forget`): it may remember items that are gone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import apsw
import ormsgpack

from perdure.errors import BadRequest
from perdure.store.sqlite.checkpoint_queries import QUERIES, rows_of
from perdure.store.sqlite.rows import LARGEST


@dataclass(slots=True)
class Refs:
    """Lists, each with how many of its first elements, and items by id."""

    lists: dict[int, int] = field(default_factory=dict)
    items: set[int] = field(default_factory=set)

    def add_checkpoint(self, refs: str) -> None:
        named = json.loads(refs)
        for list_id, length, _ in named["l"].values():
            self.add_list(list_id, length)
        self.items.update(named["v"].values())
        self.items.update(named["i"])

    def add_list(self, list_id: int, length: int) -> bool:
        """Whether more of it is named now than before."""
        more = length > self.lists.get(list_id, -1)
        if more:
            self.lists[list_id] = length
        return more

    def add_paths(self, refs: str | None) -> None:
        if refs:
            self.items.update(item for _, item in json.loads(refs))


def delete_thread_rows(connection: apsw.Connection, thread_id: str) -> None:
    """Removes a thread's checkpoints, writes, lists and items; what a copy of it still uses stays.

    Call it before the conversation's events are deleted: messages that only events show go with the thread.
    """
    spaces = rows_of(connection, "spaces_of_thread", thread_id=thread_id)
    gone = Refs()
    for space, _, _ in spaces:
        _collect_space(connection, space, gone)
        connection.execute(QUERIES["delete_writes_of_space"], {"space": space})
        connection.execute(QUERIES["delete_checkpoints_of_space"], {"space": space})
        connection.execute(QUERIES["delete_space"], {"space": space})
    gone.items.update(_column(connection, "event_items_of_thread", thread_id=thread_id))
    for family in {family for _, _, family in spaces}:
        sweep(connection, family, gone)


def prune_superseded(
    connection: apsw.Connection,
    thread_id: str,
    released_items: Iterable[int] = (),
    runs: Collection[str] | None = None,
) -> int:
    """Removes the checkpoints of these turns (None: of all) except the head of each namespace, what the turns that stay
    began on, and what a DeltaChannel needs to rebuild a value that stays; the number removed.

    `released_items`: items of message events that the caller has just deleted.
    """
    gone = Refs(items=set(released_items))
    removed, families = 0, set[int]()
    for space, _, family in rows_of(connection, "spaces_of_thread", thread_id=thread_id):
        families.add(family)
        removed += _prune_space(connection, space, gone, runs)
    for family in families:
        sweep(connection, family, gone)
    return removed


def delete_checkpoints(connection: apsw.Connection, places: Iterable[tuple[Any, ...]]) -> None:
    """Removes single checkpoints, by namespace and id, with the writes on top of them."""
    gone, families = Refs(), set[int]()
    for space, checkpoint_id in places:
        families.update(_column(connection, "family_of_space", space=space))
        _remove(connection, space, checkpoint_id, gone)
    for family in families:
        sweep(connection, family, gone)


def copy_thread_rows(connection: apsw.Connection, source: str, target: str, numbers: Iterator[int]) -> None:
    """Gives `target` every checkpoint and write of `source`; lists and items are shared."""
    if rows_of(connection, "spaces_of_thread", thread_id=target):
        raise BadRequest(f"Thread {target} has checkpoints already: copy into a new one.")
    spaces: dict[int, int] = {}
    for space, ns, family in rows_of(connection, "spaces_of_thread", thread_id=source):
        named = {"thread_id": target, "ns": ns}
        connection.execute(QUERIES["copy_space"], {**named, "id": next(numbers), "family": family})
        spaces[space] = _column(connection, "space_id", **named)[0]
        connection.execute(QUERIES["copy_writes"], {"space": space, "target": spaces[space]})
    for space, position in rows_of(connection, "places_to_copy", thread_id=source):
        bindings = {"target": spaces[space], "position": next(numbers), "space": space, "source": position}
        connection.execute(QUERIES["copy_checkpoint"], bindings)


def sweep(connection: apsw.Connection, family: int, gone: Refs) -> None:
    """Removes those of `gone` that no checkpoint, write or event of the family refers to."""
    live = Refs()
    for space in _column(connection, "spaces_of_family", family=family):
        _collect_space(connection, space, live)
    live.items.update(_column(connection, "event_items_of_family", family=family))
    _close_lists(connection, live)
    _close_lists(connection, gone, whole=True)
    for list_id in gone.lists:
        if list_id in live.lists:
            connection.execute(QUERIES["trim_list"], {"id": list_id, "length": live.lists[list_id]})
            continue
        connection.execute(QUERIES["delete_elements_of_list"], {"id": list_id})
        connection.execute(QUERIES["delete_list"], {"id": list_id})
    _close_items(connection, live)
    _close_items(connection, gone)
    connection.executemany(QUERIES["delete_item"], ((item,) for item in gone.items - live.items))


def _collect_space(connection: apsw.Connection, space: int, refs: Refs) -> None:
    for named in _column(connection, "refs_of_space", space=space):
        refs.add_checkpoint(named)
    for paths in _column(connection, "write_refs_of_space", space=space):
        refs.add_paths(paths)


def _close_lists(connection: apsw.Connection, refs: Refs, *, whole: bool = False) -> None:
    """Adds the parents of the lists and the items of their elements; `whole`: whatever the number of elements named."""
    waiting = list(refs.lists)
    while waiting:
        list_id = waiting.pop()
        length = LARGEST if whole else refs.lists[list_id]
        refs.items.update(_column(connection, "items_of_list", id=list_id, length=length))
        for parent, shared in rows_of(connection, "parent_of_list", id=list_id):
            if refs.add_list(parent, min(shared, length)):
                waiting.append(parent)


def _close_items(connection: apsw.Connection, refs: Refs) -> None:
    """Adds the items that items refer to."""
    waiting = list(refs.items)
    while waiting:
        for paths in _column(connection, "refs_of_item", id=waiting.pop()):
            inner = {item for _, item in json.loads(paths)} - refs.items
            refs.items |= inner
            waiting.extend(inner)


def _prune_space(connection: apsw.Connection, space: int, gone: Refs, runs: Collection[str] | None) -> int:
    rows = rows_of(connection, "checkpoints_of_space", space=space)
    stay = [row for place, row in enumerate(rows) if place == 0 or not _is_of(row, runs)]
    begun_on = {row[1] for row in stay if json.loads(row[3]).get("source") == "input"} if runs is not None else set()
    keep = needed_by(rows, [*stay, *(row for row in rows if row[0] in begun_on)])
    for checkpoint_id, *_ in rows:
        if checkpoint_id not in keep:
            _remove(connection, space, checkpoint_id, gone)
    for checkpoint_id, parent_id, *_ in rows:
        if checkpoint_id in keep and parent_id is not None and parent_id not in keep:
            connection.execute(QUERIES["cut_parent"], {"space": space, "checkpoint_id": checkpoint_id})
    return len(rows) - len(keep)


def _is_of(row: tuple[Any, ...], runs: Collection[str] | None) -> bool:
    return runs is None or json.loads(row[3]).get("run_id") in runs


def needed_by(rows: list[tuple[Any, ...]], kept: list[tuple[Any, ...]]) -> set[str]:
    """Those that are kept, and their ancestors back to the stored value of each DeltaChannel that they do not hold."""
    by_id = {row[0]: row for row in rows}
    keep: set[str] = set()
    for last in kept:
        missing = set(json.loads(last[3]).get("counters_since_delta_snapshot") or ())
        row: tuple[Any, ...] | None = last
        while row is not None:
            keep.add(row[0])
            named = json.loads(row[2])
            missing -= {*named["l"], *named["v"], *_inline_channels(row[4])}
            row = by_id.get(row[1]) if missing and row[1] else None
    return keep


def _inline_channels(header: bytes) -> Iterable[str]:
    inline: dict[str, Any] = ormsgpack.unpackb(header)[6]
    return inline


def _remove(connection: apsw.Connection, space: int, checkpoint_id: str, gone: Refs) -> None:
    at: dict[str, Any] = {"space": space, "checkpoint_id": checkpoint_id}
    for named in rows_of(connection, "refs_of_checkpoint", **at):
        gone.add_checkpoint(named[0])
    for row in rows_of(connection, "writes_of", **at):
        gone.add_paths(row[4])
    connection.execute(QUERIES["delete_writes_of_checkpoint"], at)
    connection.execute(QUERIES["delete_checkpoint"], at)


def _column(connection: apsw.Connection, query: str, **bindings: Any) -> list[Any]:
    return [row[0] for row in rows_of(connection, query, **bindings)]
