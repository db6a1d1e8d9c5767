"""Lists that share what they have in common: storage grows by what changed, whatever the graph does with its lists.

A value of a list channel is `(list, length)`. Appending to the end of a list adds rows; a shorter list is a shorter length;
any other change starts a new list that shares the unchanged beginning with its parent and names equal elements by their
items. Chains of parents end after `MAX_DEPTH`: then the new list names all its elements itself (a few bytes each).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import apsw

from perdure.store.sqlite.checkpoint_queries import QUERIES
from perdure.store.sqlite.elements import Element
from perdure.store.sqlite.memory import ListValue, StoredList, ThreadMemory

MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class ListChange:
    """How a channel's list comes to be what it is now. `tail` is stored from `start` on; nothing when it is empty."""

    value: ListValue
    new: bool
    same: int
    """How many elements at the beginning are those of the channel's list at the parent checkpoint."""

    tail: Sequence[Element] = ()
    """What is stored, as the last elements of the list."""

    def apply(self) -> None:
        """The remembered list follows; called once the rows are on their way to the writer."""
        if not self.new and self.tail:
            self.value.stored.elements.extend(self.tail)

    def store(self, connection: apsw.Connection) -> None:
        stored = self.value.stored
        if self.new:
            row = (stored.id, stored.owner, stored.parent_id, stored.parent_length, stored.depth)
            connection.execute(QUERIES["list_put"], row)
        if self.tail:
            start = self.value.length - len(self.tail)
            rows = ((stored.id, start + place, element.item_id) for place, element in enumerate(self.tail))
            connection.executemany(QUERIES["element_put"], rows)


def plan_list(
    base: ListValue | None,
    elements: list[Element],
    memory: ThreadMemory,
    numbers: Iterator[int],
    *,
    delta: bool = False,
) -> ListChange:
    """The cheapest way from `base` (the channel's list at the parent checkpoint) to `elements`."""
    if base is None:
        return ListChange(ListValue(_list_of(memory, elements, numbers), len(elements), delta), True, 0, elements)
    same = _common(base, elements)
    if same == len(elements):
        return ListChange(ListValue(base.stored, same, delta), False, same)
    if same == base.length == len(base.stored.elements) and base.stored.owner == memory.thread_id:
        value = ListValue(base.stored, len(elements), delta)
        return ListChange(value, False, same, elements[same:])
    parent = base.stored
    while parent.parent_id is not None and same <= parent.parent_length and parent.parent_id in memory.lists:
        parent = memory.lists[parent.parent_id]
    stored = _list_of(memory, elements, numbers)
    if same == 0 or parent.depth >= MAX_DEPTH:
        return ListChange(ListValue(stored, len(elements), delta), True, same, elements)
    stored.parent_id, stored.parent_length, stored.depth = parent.id, same, parent.depth + 1
    return ListChange(ListValue(stored, len(elements), delta), True, same, elements[same:])


def _list_of(memory: ThreadMemory, elements: list[Element], numbers: Iterator[int]) -> StoredList:
    return StoredList(next(numbers), memory.thread_id, list(elements), None, 0, 0)


def _common(base: ListValue, elements: Sequence[Element]) -> int:
    length = min(base.length, len(elements))
    theirs = base.stored.elements
    for place in range(length):
        if theirs[place] is not elements[place]:
            return place
    return length
