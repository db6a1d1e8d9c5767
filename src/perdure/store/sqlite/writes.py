"""One `aput` and one `aput_writes`: encoded on the event loop, stored on the writer's thread.

Both have the same life: `encode` (may raise, leaves no trace), `store` (the rows, in the writer's transaction), `keep`
(the memory follows, once the rows are on their way).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import apsw
from langgraph.checkpoint.base import WRITES_IDX_MAP, ChannelVersions, Checkpoint
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS, _DeltaSnapshot
from langgraph.constants import START

from perdure.errors import LeaseLost, StateTypeNotAllowed
from perdure.store.sqlite.authority import StepPlan
from perdure.store.sqlite.checkpoint_queries import QUERIES, rows_of
from perdure.store.sqlite.elements import Element, Encoded, is_plain_numbers
from perdure.store.sqlite.encoding import Inline, pack_header
from perdure.store.sqlite.lists import ListChange, plan_list
from perdure.store.sqlite.memory import Draft, ThreadMemory, View
from perdure.store.sqlite.steps import MESSAGES, MessageChanges, checkpoint_plan, message_changes, node_of, writes_plan
from perdure.store.sqlite.threads import Refs, sweep

INLINE_BYTES = 200
"""A value up to this size stands in its checkpoint's header, as long as it is alive in each of them."""

_PLACES = {
    INTERRUPT: "a question of `interrupt`",
    RESUME: "an answer to a question",
    TASKS: "what a `Send` carries",
    START: "the turn's input",
    ERROR: "an error",
}
"""Channels that no schema names."""

WRITE_BYTES = 1_000
"""A task's write up to this size stands in its row."""


class CheckpointWrite:
    """An `aput`."""

    def __init__(
        self,
        *,
        memory: ThreadMemory,
        draft: Draft,
        numbers: Iterator[int],
        ns: str,
        checkpoint: Checkpoint,
        metadata: Mapping[str, Any],
        parent_id: str | None,
        parent: View | None,
        guarded: bool,
    ) -> None:
        self._memory = memory
        self._draft = draft
        self._numbers = numbers
        self._checkpoint = checkpoint
        self._metadata = metadata
        self._parent_id = parent_id
        self._parent = parent
        self._lists: list[ListChange] = []
        self._changes = MessageChanges()
        self._view = View(
            ns,
            checkpoint["id"],
            metadata.get("source", ""),
            metadata.get("step", 0),
            metadata.get("run_id"),
        )
        self._guarded = guarded
        """Whether the parent must be the head."""

    @property
    def plan(self) -> StepPlan:
        return checkpoint_plan(self._view.ns, self._metadata, self._parent, self._changes)

    def encode(self, new_versions: ChannelVersions) -> None:
        values = self._checkpoint["channel_values"]
        for channel, value in values.items():
            if channel in new_versions or not self._take_over(channel):
                try:
                    self._encode_value(channel, value)
                except (StateTypeNotAllowed, ValueError) as error:
                    raise _placed(error, channel) from error
        self._view.sends = tuple(send.node for send in values.get(TASKS) or ())
        inline = {channel: _inline(value) for channel, value in self._view.values.items() if _stands_inline(value)}
        self._header = pack_header(self._checkpoint, inline, self._draft.serializer)
        self._refs = self._refs_json()
        self._metadata_json = json.dumps(self._metadata, ensure_ascii=False, separators=(",", ":"))
        self._position = next(self._numbers)

    def store(self, connection: apsw.Connection) -> Sequence[int | None]:
        space = space_of(connection, self._memory.thread_id, self._view.ns, self._numbers)
        if self._guarded:
            self._refuse_behind_head(connection, space)
        connection.executemany(QUERIES["item_put"], self._draft.rows)
        for change in self._lists:
            change.store(connection)
        self._put(connection, space)
        return [element.item_id if element is not None else None for element in self._changes.elements]

    def keep(self) -> None:
        self._draft.keep()
        for change in self._lists:
            change.apply()
            self._memory.lists[change.value.stored.id] = change.value.stored
        self._memory.remember(self._view)

    # -- channels -----------------------------------------------------------------------------------------------------

    def _take_over(self, channel: str) -> bool:
        """A channel without a new version keeps what the parent has; False when the parent does not have it."""
        parent = self._parent
        if parent is None:
            return False
        if channel in parent.lists:
            self._view.lists[channel] = parent.lists[channel]
            if channel == MESSAGES:
                self._view.message_count = parent.message_count
            return True
        if channel in parent.values:
            self._view.values[channel] = parent.values[channel]
            return True
        return False

    def _encode_value(self, channel: str, value: Any) -> None:
        delta = isinstance(value, _DeltaSnapshot)
        listed = value.value if delta else value
        if type(listed) is list and not is_plain_numbers(listed):
            self._encode_list(channel, listed, delta)
            return
        encoded = self._draft.encode(value)
        self._view.values[channel] = encoded if _fits(encoded, INLINE_BYTES) else self._draft.item(encoded)

    def _encode_list(self, channel: str, values: list[Any], delta: bool) -> None:
        base = self._parent.lists.get(channel) if self._parent is not None else None
        elements = self._draft.elements(values, base.elements if base is not None else [])
        change = plan_list(base, elements, self._memory, self._numbers, delta=delta)
        self._lists.append(change)
        self._view.lists[channel] = change.value
        if channel == MESSAGES and not self._view.ns:
            counted = self._parent.message_count if self._parent is not None else None
            self._changes = message_changes(base, elements, values, change.same, 0 if base is None else counted)
            self._view.message_count = self._changes.count if self._changes.count is not None else counted

    def _refs_json(self) -> str:
        view = self._view
        inline = [e.item_id for value in view.values.values() if isinstance(value, Encoded) for _, e in value.refs]
        return json.dumps(
            {
                "l": {name: [value.stored.id, value.length, int(value.delta)] for name, value in view.lists.items()},
                "v": {name: value.item_id for name, value in view.values.items() if isinstance(value, Element)},
                "i": inline,
            },
            ensure_ascii=False,
            separators=(",", ":"),
        )

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _refuse_behind_head(self, connection: apsw.Connection, space: int) -> None:
        head = next((row[0] for row in connection.execute(QUERIES["head_id"], {"space": space})), None)
        if head != self._parent_id:
            raise LeaseLost(
                f"The thread's head is checkpoint {head}, this write builds on {self._parent_id}: another writer was "
                "faster."
            )

    def _put(self, connection: apsw.Connection, space: int) -> None:
        """The checkpoint's row; one that is put again under its id takes the place of the first."""
        row: dict[str, Any] = {
            "space": space,
            "position": self._position,
            "checkpoint_id": self._view.checkpoint_id,
            "parent_id": self._parent_id,
            "header": self._header,
            "refs": self._refs,
            "metadata": self._metadata_json,
        }
        connection.execute(QUERIES["checkpoint_put"], row)
        if connection.changes():
            return
        gone = Refs()
        for (refs,) in rows_of(connection, "refs_of_checkpoint", space=space, checkpoint_id=self._view.checkpoint_id):
            gone.add_checkpoint(refs)
        del row["position"]
        connection.execute(QUERIES["checkpoint_replace"], row)
        _sweep_replaced(connection, space, gone)


class TaskWrites:
    """An `aput_writes`."""

    def __init__(
        self,
        *,
        memory: ThreadMemory,
        draft: Draft,
        numbers: Iterator[int],
        ns: str,
        checkpoint_id: str,
        view: View | None,
        task_id: str,
        task_path: str,
    ) -> None:
        self._memory = memory
        self._draft = draft
        self._numbers = numbers
        self._ns = ns
        self._checkpoint_id = checkpoint_id
        self._view = view
        self._task_id = task_id
        self._task_path = task_path
        self._rows: list[tuple[int, str, Encoded]] = []
        self._writes: Sequence[tuple[str, Any]] = ()
        self._special = False

    @property
    def plan(self) -> StepPlan:
        return writes_plan(self._view, self._task_id, self._task_path, self._writes, self._fresh_messages())

    def encode(self, writes: Sequence[tuple[str, Any]]) -> None:
        self._writes = list(writes)
        self._special = all(channel in WRITES_IDX_MAP for channel, _ in self._writes)
        for place, (channel, value) in enumerate(self._writes):
            try:
                encoded = self._encoded(channel, value)
            except (StateTypeNotAllowed, ValueError) as error:
                raise _placed(error, channel, node_of(self._task_path, self._view)) from error
            self._rows.append((WRITES_IDX_MAP.get(channel, place), channel, encoded))

    def store(self, connection: apsw.Connection) -> Sequence[int | None]:
        space = space_of(connection, self._memory.thread_id, self._ns, self._numbers)
        key = {"space": space, "checkpoint_id": self._checkpoint_id, "task_id": self._task_id}
        stored = {row[0] for row in connection.execute(QUERIES["write_exists"], key)} if not self._special else set()
        # Items are stored even where a write stands already: the memory may hand them to the next checkpoint.
        connection.executemany(QUERIES["item_put"], self._draft.rows)
        connection.executemany(
            QUERIES["write_put"],
            (
                (space, self._checkpoint_id, self._task_id, idx, self._task_path, channel, *encoded.row)
                for idx, channel, encoded in self._rows
                if idx not in stored
            ),
        )
        return ()

    def keep(self) -> None:
        self._draft.keep()

    def _encoded(self, channel: str, value: Any) -> Encoded:
        if channel in WRITES_IDX_MAP:  # replaced by later ones, so they hold all they have
            return Encoded(*self._draft.serializer.dumps(value))
        encoded = self._draft.encode(value)
        if len(encoded.data) <= WRITE_BYTES:
            return encoded
        return Encoded(*self._draft.serializer.dumps(None), (((), self._draft.item(encoded)),))

    def _fresh_messages(self) -> set[str]:
        return {element.message_id for element in self._draft.fresh if element.message_id is not None}


def space_of(connection: apsw.Connection, thread_id: str, ns: str, numbers: Iterator[int]) -> int:
    """The namespace's number; made when it is new."""
    key = {"thread_id": thread_id, "ns": ns}
    for (space,) in connection.execute(QUERIES["space_id"], key):
        return cast(int, space)
    space = next(numbers)
    connection.execute(QUERIES["space_add"], {**key, "id": space})
    return space


def _inline(value: Encoded | Element) -> Inline:
    return cast(Encoded, value).row


def _stands_inline(value: Encoded | Element) -> bool:
    return isinstance(value, Encoded)


def _fits(encoded: Encoded, size: int) -> bool:
    return len(encoded.data) + 8 * len(encoded.refs) <= size


def _sweep_replaced(connection: apsw.Connection, space: int, gone: Refs) -> None:
    for (family,) in rows_of(connection, "family_of_space", space=space):
        sweep(connection, family, gone)


def _placed(error: StateTypeNotAllowed | ValueError, channel: str, node: str = "") -> Exception:
    """The same error with the place of the value that cannot be stored."""
    where = _PLACES.get(channel, f"the key {channel!r}") + (f", from the node {node!r}" if node else "")
    if isinstance(error, StateTypeNotAllowed):
        return StateTypeNotAllowed(f"{error.message} It stands in {where}.")
    return ValueError(f"{error} It stands in {where}.")
