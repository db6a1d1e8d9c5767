"""What this process remembers of threads, so that a turn's work does not grow with the thread's length.

A memory is only ever a shortcut: it can be dropped at any moment between two writes, and the next read fills it again. It
belongs to the event loop; reader threads only look things up in it. After a write that failed it is dropped whole.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import BaseMessage

from perdure.store.sqlite.elements import (
    LIFT_BYTES,
    LIFT_DEPTH,
    Element,
    Encoded,
    Path,
    is_scalar,
    snapshot_of,
    unchanged,
)
from perdure.store.sqlite.encoding import StrictSerializer

VIEWS = 32
"""Checkpoints of a thread whose channels are remembered."""

ELEMENT_BYTES = 1_500
"""What an element costs beside its data: a guess, for the budget."""

THREADS = 1_024
"""Threads remembered at most."""

DEFAULT_BYTES = 96 * 1024 * 1024


@dataclass(slots=True, eq=False)
class StoredList:
    """A list's row and all its elements so far."""

    id: int
    owner: str
    """The thread that may append to it."""

    elements: list[Element]
    parent_id: int | None
    parent_length: int
    depth: int


@dataclass(frozen=True, slots=True)
class ListValue:
    """A channel's value: the first `length` elements of a list. `delta`: a snapshot of LangGraph's DeltaChannel."""

    stored: StoredList
    length: int
    delta: bool = False

    @property
    def elements(self) -> list[Element]:
        return self.stored.elements[: self.length]


@dataclass(slots=True, eq=False)
class View:
    """A checkpoint as the next write on top of it needs to know it."""

    ns: str
    checkpoint_id: str
    source: str
    step: int
    run_id: str | None
    lists: dict[str, ListValue] = field(default_factory=dict)
    values: dict[str, Encoded | Element] = field(default_factory=dict)
    message_count: int | None = None
    """Messages of the `messages` channel; None when nobody counted."""

    sends: tuple[str, ...] = ()
    """Names of the nodes of its pending `Send`s, in order."""


@dataclass(slots=True, eq=False)
class ThreadMemory:
    thread_id: str
    by_message: dict[str, Element] = field(default_factory=dict)
    """The latest element of each message id."""

    by_digest: dict[bytes, Element] = field(default_factory=dict)
    by_id: dict[int, Element] = field(default_factory=dict)
    lists: dict[int, StoredList] = field(default_factory=dict)
    views: OrderedDict[tuple[str, str], View] = field(default_factory=OrderedDict)
    pending: int = 0
    """Writes that are enqueued and not yet committed."""

    cost: int = 0
    sized_at: int = 0

    def view(self, ns: str, checkpoint_id: str | None) -> View | None:
        if checkpoint_id is None:
            return None
        view = self.views.get((ns, checkpoint_id))
        if view is not None:
            self.views.move_to_end((ns, checkpoint_id))
        return view

    def remember(self, view: View) -> None:
        self.views[view.ns, view.checkpoint_id] = view
        self.views.move_to_end((view.ns, view.checkpoint_id))
        while len(self.views) > VIEWS:
            self.views.popitem(last=False)

    def adopt(self, elements: Iterable[Element]) -> None:
        for element in elements:
            if element.item_id in self.by_id:
                continue
            self.by_id[element.item_id] = element
            self.by_digest[element.digest] = element
            if element.message_id is not None:
                self.by_message[element.message_id] = element
            self.cost += element.cost
        self._forget_unused()

    def _forget_unused(self) -> None:
        """Edits and writes leave elements behind that no remembered list holds: dropped when they are the larger part."""
        if len(self.by_id) < 2 * self.sized_at + 1_024:
            return
        used = {value.stored.id for view in self.views.values() for value in view.lists.values()}
        self.lists = {number: stored for number, stored in self.lists.items() if number in used}
        kept = {e.item_id: e for stored in self.lists.values() for e in stored.elements}
        kept |= dict(itertools.islice(reversed(self.by_id.items()), 512))
        self.by_message, self.by_digest, self.by_id, self.cost = {}, {}, {}, 0
        self.sized_at = len(kept)
        self.adopt(kept.values())


class Memories:
    """The remembered threads, the one used longest ago dropped first."""

    def __init__(self, bytes_kept: int = DEFAULT_BYTES) -> None:
        self._kept: OrderedDict[str, ThreadMemory] = OrderedDict()
        self._bytes = bytes_kept

    def __iter__(self) -> Iterator[ThreadMemory]:
        return iter(self._kept.values())

    def of(self, thread_id: str) -> ThreadMemory:
        memory = self._kept.get(thread_id)
        if memory is None:
            memory = self._kept[thread_id] = ThreadMemory(thread_id)
            self._shrink(memory)
        self._kept.move_to_end(thread_id)
        return memory

    def forget(self, thread_id: str) -> None:
        self._kept.pop(thread_id, None)

    def forget_all(self) -> None:
        self._kept.clear()

    def _shrink(self, newest: ThreadMemory) -> None:
        if len(self._kept) > THREADS:
            self._drop_oldest()
        total = sum(memory.cost for memory in self._kept.values())
        for memory in list(self._kept.values()):
            if total <= self._bytes:
                return
            if memory.pending == 0 and memory is not newest:
                total -= memory.cost
                del self._kept[memory.thread_id]

    def _drop_oldest(self) -> None:
        for memory in list(self._kept.values())[: len(self._kept) - THREADS]:
            if memory.pending == 0:
                del self._kept[memory.thread_id]


NOTHING = Encoded(0, b"")
"""None."""


class Draft:
    """Encodes the values of one write. What it met for the first time is `fresh`; the memory learns of it on `keep`."""

    def __init__(
        self, memory: ThreadMemory, serializer: StrictSerializer, numbers: Iterator[int], *, verify: bool = False
    ) -> None:
        self._memory = memory
        self.serializer = self._serializer = serializer
        self._verify = verify
        self._numbers = numbers
        self._messages: dict[str, Element] = {}
        self._digests: dict[bytes, Element] = {}
        self.fresh: list[Element] = []
        self.rows: list[tuple[int, int, bytes, str | None]] = []
        """`id, kind, data, refs` of each fresh element."""

    def keep(self) -> None:
        self._memory.adopt(self.fresh)

    def elements(self, values: list[Any], expected: list[Element]) -> list[Element]:
        """The element of each value; the one expected at its place, for most of them."""
        if self._verify:
            return [self.element(value) for value in values]
        found = unchanged(values, expected)
        for value, element in zip(values[len(found) :], expected[len(found) :], strict=False):
            if isinstance(value, BaseMessage) and element.is_same(value):
                found.append(element)
            else:
                found.append(self.element(value))
        found.extend(map(self.element, values[len(found) :]))
        return found

    def element(self, value: Any) -> Element:
        """The element with this value: one known from elsewhere in the thread, or a new one."""
        if not isinstance(value, BaseMessage):
            return self._stored(Encoded(*self._serializer.dumps(value)), None)
        if value.id is not None and not self._verify:
            known = self._messages.get(value.id) or self._memory.by_message.get(value.id)
            if known is not None and known.is_same(value):
                return known
        return self._stored(Encoded(*self._serializer.dumps(value)), value)

    def item(self, encoded: Encoded) -> Element:
        """The element that holds these bytes."""
        return self._stored(encoded, None)

    def encode(self, value: Any) -> Encoded:
        """A value with its messages, and the larger elements of a list, lifted out."""
        if value is None:
            return NOTHING
        refs: list[tuple[Path, Element]] = []
        skeleton = self._lift(value, (), refs)
        return Encoded(*self._serializer.dumps(skeleton), tuple(refs))

    def _stored(self, encoded: Encoded, message: BaseMessage | None) -> Element:
        digest = encoded.digest
        known = self._digests.get(digest) or self._memory.by_digest.get(digest)
        if known is not None:
            return known
        element = Element(next(self._numbers), digest, encoded, cost=len(encoded.data) + ELEMENT_BYTES)
        if message is not None:
            element.message_id, element.written = message.id, snapshot_of(message)
            if message.id is not None:
                self._messages[message.id] = element
        self._digests[digest] = element
        self.fresh.append(element)
        self.rows.append((element.item_id, *encoded.row))
        return element

    def _lift(self, value: Any, path: Path, refs: list[tuple[Path, Element]]) -> Any:
        if isinstance(value, BaseMessage):
            refs.append((path, self.element(value)))
            return None
        if len(path) >= LIFT_DEPTH:
            return value
        if type(value) is list:
            if all(map(is_scalar, value)):
                return value
            return [self._lift_element(part, (*path, place), refs) for place, part in enumerate(value)]
        if type(value) is dict and all(type(key) is str for key in value):
            return {key: self._lift(part, (*path, key), refs) for key, part in value.items()}
        return value

    def _lift_element(self, value: Any, path: Path, refs: list[tuple[Path, Element]]) -> Any:
        if is_scalar(value) or isinstance(value, BaseMessage) or len(path) > 1:
            return self._lift(value, path, refs)
        encoded = Encoded(*self._serializer.dumps(value))
        if len(encoded.data) < LIFT_BYTES:
            return self._lift(value, path, refs)
        refs.append((path, self._stored(encoded, None)))
        return None
