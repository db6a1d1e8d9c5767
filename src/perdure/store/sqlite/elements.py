"""Values as stored: encoded bytes, the references in them, and the copies a reader gets.

Every message inside a list, a dict or alone is lifted out of its value and stored as an item of its own; the value keeps a
hole and a reference `(path, item)`. So the same message in an input, in a task's writes, in the state of the graph and in
the state of a subgraph is stored once.

A message is known again by a *snapshot* of its attributes, which nobody else holds: comparing with it costs a hundredth of
encoding the message, and it sees every edit, also one in place. A reader never gets an object that anybody else holds: each
read makes new messages from the snapshots, so a node may edit what it was given.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ormsgpack
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES

from perdure.store.sqlite.encoding import StrictSerializer

Path = tuple[str | int, ...]

LIFT_DEPTH = 3
"""Messages are looked for this deep in plain lists and dicts (an input is a dict of lists)."""

LIFT_BYTES = 128
"""A list element of this size or more is lifted out of a value, message or not."""

_SCALARS = (str, int, float, bool, bytes, type(None))
_set = object.__setattr__


class Snapshot:
    """The attributes of a message that consists of plain data, frozen."""

    __slots__ = ("_dicts", "_fields_set", "_filled", "_lists", "_packed", "attributes", "cls", "extra", "simple")

    def __init__(
        self, message: BaseMessage, attributes: dict[str, Any], extra: dict[str, Any] | None, numbers: bool
    ) -> None:
        self.cls = type(message)
        self.attributes = attributes
        self.extra = extra
        self._fields_set = frozenset(message.__pydantic_fields_set__)
        self._dicts = tuple(name for name, value in attributes.items() if value == {})
        self._lists = tuple(name for name, value in attributes.items() if value == [])
        self._filled = tuple(name for name, value in attributes.items() if type(value) in (dict, list) and value)
        # Python holds 1, 1.0 and True for equal, their bytes differ: where there are numbers the bytes are compared too.
        self._packed = _pack(message) if numbers else None
        self.simple = not numbers
        """Whether equal attributes have equal bytes."""

    def same(self, message: BaseMessage) -> bool:
        """Whether the message has the stored bytes."""
        return (
            message.__dict__ == self.attributes
            and type(message) is self.cls
            and message.__pydantic_extra__ == self.extra
            and not message.__pydantic_private__
            and (self._packed is None or _pack(message) == self._packed)
        )

    def copy(self) -> BaseMessage:
        attributes = self.attributes.copy()
        for name in self._dicts:
            attributes[name] = {}
        for name in self._lists:
            attributes[name] = []
        for name in self._filled:
            attributes[name] = _copied(attributes[name])
        message = self.cls.__new__(self.cls)
        _set(message, "__dict__", attributes)
        _set(message, "__pydantic_extra__", _copied(self.extra) if self.extra is not None else None)
        _set(message, "__pydantic_fields_set__", set(self._fields_set))
        _set(message, "__pydantic_private__", None)
        return message


def snapshot_of(message: BaseMessage) -> Snapshot | None:
    """None for a class of somebody else's, or when it holds more than plain data: such a message is known by its bytes."""
    cls = type(message)
    if (cls.__module__, cls.__name__) not in SAFE_MSGPACK_TYPES or message.__pydantic_private__:
        return None
    numbers: list[Any] = []
    try:
        attributes, extra = _frozen(message.__dict__, numbers), _frozen(message.__pydantic_extra__, numbers)
        return Snapshot(message, attributes, extra, bool(numbers))
    except TypeError:
        return None


def _frozen(value: Any, numbers: list[Any]) -> Any:
    kind = type(value)
    if kind is str or value is None:
        return value
    if kind is dict:
        if not all(type(key) is str for key in value):
            raise TypeError
        return {key: _frozen(part, numbers) for key, part in value.items()}
    if kind is list:
        return [_frozen(part, numbers) for part in value]
    if kind in (bool, int, float):
        numbers.append(value)
        return value
    raise TypeError


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {key: _copied(part) for key, part in value.items()} if value else {}
    if kind is list:
        return [_copied(part) for part in value] if value else []
    return value


def _pack(message: BaseMessage) -> bytes:
    return ormsgpack.packb((message.__dict__, message.__pydantic_extra__))


@dataclass(slots=True, eq=False)
class Encoded:
    """A value's bytes, with a hole (None) at each path of `refs`."""

    kind: int
    data: bytes
    refs: tuple[tuple[Path, Element], ...] = ()

    @property
    def refs_json(self) -> str | None:
        if not self.refs:
            return None
        return json.dumps([[path, element.item_id] for path, element in self.refs], separators=(",", ":"))

    @property
    def row(self) -> tuple[int, bytes, str | None]:
        """`kind, data, refs` as the tables hold them."""
        return self.kind, self.data, self.refs_json

    @property
    def digest(self) -> bytes:
        digest = hashlib.blake2b(self.data, digest_size=16, person=b"%d" % self.kind)
        if self.refs:
            digest.update((self.refs_json or "").encode())
        return digest.digest()

    def value(self, serializer: StrictSerializer) -> Any:
        """A fresh copy of the value."""
        value = serializer.loads(self.kind, self.data)
        for path, element in self.refs:
            if not path:
                return element.value(serializer)
            place = value
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = element.value(serializer)
        return value


@dataclass(slots=True, eq=False)
class Element:
    """An item as this process knows it. Immutable in meaning; forms are learned when they are first needed."""

    item_id: int
    digest: bytes
    encoded: Encoded | None
    """The stored bytes; dropped once `read` is known."""

    message_id: str | None = None
    written: Snapshot | None = None
    """Of the object that was written."""

    read: Snapshot | None = None
    """Of the object that reading the bytes gives; a reader's copy is made from it."""

    cost: int = 0

    def is_same(self, message: BaseMessage) -> bool:
        """Whether the message has the bytes of this element, as far as the snapshots tell."""
        read, written = self.read, self.written
        return (read is not None and read.same(message)) or (
            written is not None and written is not read and written.same(message)
        )

    def value(self, serializer: StrictSerializer) -> Any:
        """A fresh copy."""
        if self.read is not None:
            return self.read.copy()
        encoded = self.encoded
        if encoded is None:  # another thread has just made the snapshot
            return self.value(serializer)
        value = encoded.value(serializer)
        if isinstance(value, BaseMessage):
            self.message_id = value.id
            self._learn(value)
        return value

    def _learn(self, message: BaseMessage) -> None:
        snapshot = self.written if self.written is not None and self.written.same(message) else snapshot_of(message)
        if snapshot is not None and snapshot.copy() == message:
            self.read = snapshot
            self.encoded = None


def unchanged(values: Sequence[Any], elements: Sequence[Element]) -> list[Element]:
    """The longest common beginning, as far as simple messages tell: what `is_same` says, for a thousand at once."""
    found: list[Element] = []
    for value, element in zip(values, elements, strict=False):
        snapshot = element.read
        if snapshot is None or not snapshot.simple or type(value) is not snapshot.cls:
            break
        if (
            value.__dict__ != snapshot.attributes
            or value.__pydantic_extra__ != snapshot.extra
            or value.__pydantic_private__
        ):
            break
        found.append(element)
    return found


def is_plain_numbers(values: Sequence[Any]) -> bool:
    """A vector, a list of flags: stored as one value rather than element by element."""
    return all(isinstance(value, (int, float, type(None))) for value in values)


def is_scalar(value: Any) -> bool:
    return isinstance(value, _SCALARS)
