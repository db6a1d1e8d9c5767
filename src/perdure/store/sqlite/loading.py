"""Checkpoints from their rows. Runs on a reader's thread; what it learned is given to the memory on the event loop."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import apsw
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointMetadata, CheckpointTuple, PendingWrite
from langgraph.checkpoint.serde.types import TASKS, _DeltaSnapshot

from perdure.errors import StorageError
from perdure.store.sqlite.checkpoint_queries import QUERIES, rows_of
from perdure.store.sqlite.elements import Element, Encoded, Path
from perdure.store.sqlite.encoding import StrictSerializer, unpack_header
from perdure.store.sqlite.memory import ELEMENT_BYTES, ListValue, StoredList, ThreadMemory, View


@dataclass(slots=True)
class Loaded:
    """A checkpoint for LangGraph, and what the memory may keep of it."""

    tuple: CheckpointTuple
    view: View


QUICK_ELEMENTS = 64
QUICK_BYTES = 256 * 1024
"""What a read on the event loop may copy at most."""


class TooLong(Exception):
    """A quick read met a checkpoint that is not remembered, or has much in it: read it on another thread."""


@dataclass(slots=True)
class Loader:
    """Reads checkpoints of one thread. Known elements and lists come from the memory, the rest from their rows."""

    connection: apsw.Connection
    serializer: StrictSerializer
    memory: ThreadMemory
    elements: dict[int, Element] = field(default_factory=dict)
    lists: dict[int, StoredList] = field(default_factory=dict)
    quick: bool = False
    """Whether to raise TooLong rather than fetch elements, or copy many."""

    def latest(self, ns: str) -> Loaded | None:
        return self._first("checkpoint_latest", thread_id=self.memory.thread_id, ns=ns)

    def by_id(self, ns: str, checkpoint_id: str) -> Loaded | None:
        return self._first("checkpoint_by_id", thread_id=self.memory.thread_id, ns=ns, checkpoint_id=checkpoint_id)

    def at(self, space: int, position: int) -> Loaded | None:
        return self._first("checkpoint_at", space=space, position=position)

    def view(self, ns: str, checkpoint_id: str) -> View | None:
        """Without values: for a write on top of a checkpoint that this process has not read."""
        bindings = {"thread_id": self.memory.thread_id, "ns": ns, "checkpoint_id": checkpoint_id}
        for row in self.connection.execute(QUERIES["checkpoint_by_id"], bindings):
            return self._view(row, unpack_header(row[6], row[4], self.serializer)[1])
        return None

    def _first(self, query: str, **bindings: Any) -> Loaded | None:
        for row in self.connection.execute(QUERIES[query], bindings):
            return self._loaded(row)
        return None

    def _refuse_long(self, row: tuple[Any, ...]) -> None:
        refs, lists, items = json.loads(row[7]), self.memory.lists, self.memory.by_id
        wanted = [*refs["v"].values(), *refs["i"]]
        if sum(length for _, length, _ in refs["l"].values()) + len(wanted) > QUICK_ELEMENTS:
            raise TooLong
        elements = [items.get(item) for item in wanted]
        for list_id, length, _ in refs["l"].values():
            known = lists.get(list_id)
            elements += known.elements[:length] if known and len(known.elements) >= length else [None]
        size = len(row[6])
        for element in elements:
            if element is None:
                raise TooLong
            size += element.cost
        if size > QUICK_BYTES:
            raise TooLong

    def _loaded(self, row: tuple[Any, ...]) -> Loaded:
        if self.quick:
            self._refuse_long(row)
        _, thread_id, ns, space, checkpoint_id, parent_id, header, _, metadata = row
        checkpoint, inline = unpack_header(header, checkpoint_id, self.serializer)
        view = self._view(row, inline)
        checkpoint["channel_values"] = self._values(view)
        return Loaded(
            CheckpointTuple(
                _config(thread_id, ns, checkpoint_id),
                checkpoint,
                cast(CheckpointMetadata, json.loads(metadata)),
                _config(thread_id, ns, parent_id) if parent_id else None,
                self._writes(space, checkpoint_id),
            ),
            view,
        )

    def _view(self, row: tuple[Any, ...], inline: Mapping[str, Any]) -> View:
        refs, metadata = json.loads(row[7]), json.loads(row[8])
        view = View(row[2], row[4], metadata.get("source", ""), metadata.get("step", 0), metadata.get("run_id"))
        wanted = [*refs["v"].values(), *refs["i"]]
        self._fetch(wanted)
        for channel, (list_id, length, delta) in refs["l"].items():
            view.lists[channel] = ListValue(self.stored_list(list_id, length), length, bool(delta))
        for channel, item_id in refs["v"].items():
            view.values[channel] = self._element(item_id)
        for channel, (kind, data, paths) in inline.items():
            view.values[channel] = Encoded(kind, data, self._refs(paths))
        view.sends = self._sends(view)
        return view

    def _values(self, view: View) -> dict[str, Any]:
        values = {channel: value.value(self.serializer) for channel, value in view.values.items()}
        with _collection_paused():
            for channel, listed in view.lists.items():
                elements = [element.value(self.serializer) for element in listed.elements]
                values[channel] = _DeltaSnapshot(elements) if listed.delta else elements
        return values

    def _writes(self, space: int, checkpoint_id: str) -> list[PendingWrite]:
        rows = rows_of(self.connection, "writes_of", space=space, checkpoint_id=checkpoint_id)
        self._fetch(item for row in rows if row[4] for _, item in json.loads(row[4]))
        return [
            (task, channel, Encoded(kind, data, self._refs(paths)).value(self.serializer))
            for task, channel, kind, data, paths in rows
        ]

    def _sends(self, view: View) -> tuple[str, ...]:
        listed = view.lists.get(TASKS)
        value = view.values.get(TASKS)
        if listed is not None:
            return tuple(element.value(self.serializer).node for element in listed.elements)
        return tuple(send.node for send in value.value(self.serializer)) if value is not None else ()

    # -- lists and items ----------------------------------------------------------------------------------------------

    def stored_list(self, list_id: int, length: int) -> StoredList:
        """A list with at least so many elements. Raises StorageError when they are not there."""
        for known in (self.memory.lists.get(list_id), self.lists.get(list_id)):
            if known is not None and len(known.elements) >= length:
                return known
        for owner, parent_id, parent_length, depth, whole in self.connection.execute(
            QUERIES["list_of"], {"id": list_id}
        ):
            # Of another thread's list no more than is shared: the rest may go with that thread.
            wanted = whole if owner == self.memory.thread_id else length
            rows = self.connection.execute(QUERIES["elements_of"], {"id": list_id, "length": wanted})
            elements = [self._adopted(*row) for row in rows]
            if len(elements) != wanted:
                raise StorageError(f"List {list_id} of the thread has lost elements: the database is damaged.")
            self.lists[list_id] = StoredList(list_id, owner, elements, parent_id, parent_length, depth)
            return self.lists[list_id]
        raise StorageError(f"List {list_id} of the thread is missing: the database is damaged.")

    def items(self, ids: Sequence[int]) -> dict[int, Element]:
        """Elements by item id. Raises StorageError when one is missing."""
        self._fetch(ids)
        return {item_id: self._element(item_id) for item_id in ids}

    def _fetch(self, items: Iterable[int]) -> None:
        missing = [item for item in items if item not in self.memory.by_id and item not in self.elements]
        if missing:
            rows = rows_of(self.connection, "items_of", ids=json.dumps(missing))
            self._fetch(item for row in rows if row[3] for _, item in json.loads(row[3]))
            for row in rows:
                self._adopted(*row)

    def _element(self, item_id: int) -> Element:
        element = self.memory.by_id.get(item_id) or self.elements.get(item_id)
        if element is None:
            raise StorageError(f"Item {item_id} of the thread is missing: the database is damaged.")
        return element

    def _adopted(self, item_id: int, kind: int, data: bytes, paths: str | None) -> Element:
        known = self.memory.by_id.get(item_id) or self.elements.get(item_id)
        if known is not None:
            return known
        encoded = Encoded(kind, data, self._refs(paths))
        element = Element(item_id, encoded.digest, encoded, cost=len(data) + ELEMENT_BYTES)
        self.elements[item_id] = element
        return element

    def _refs(self, paths: str | None) -> tuple[tuple[Path, Element], ...]:
        if not paths:
            return ()
        return tuple((tuple(path), self._element(item)) for path, item in json.loads(paths))


@contextmanager
def _collection_paused() -> Iterator[None]:
    """Thousands of new objects, all of them alive: looking for garbage among them costs more than making them."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def message_of(element: Element, serializer: StrictSerializer) -> BaseMessage | None:
    value = element.value(serializer)
    return value if isinstance(value, BaseMessage) else None


def _config(thread_id: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}
