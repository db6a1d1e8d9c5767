"""Values as stored: encoded bytes, the references in them, and the copies a reader gets.

Every message inside a list, a dict or alone is lifted out of its value and stored as an item of its own; the value keeps a
hole and a reference `(path, item)`. So the same message in an input, in a task's writes, in the state of the graph and in
the state of a subgraph is stored once.

A message is compared by its *form*: its attributes packed in C. Equal forms have equal bytes, and a form is ten times as
cheap as the bytes. A reader never gets an object that anybody else holds: each read rebuilds messages from their forms, so
a node may edit what it was given.
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

_FORM = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_SCALARS = (str, int, float, bool, bytes, type(None))
_set = object.__setattr__


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
    """The stored bytes; dropped once `form` is known."""

    message_id: str | None = None
    written: bytes | None = None
    """Form of the object that was written."""

    form: bytes | None = None
    """Form of the object that reading the bytes gives; a reader's copy is made from it."""

    cls: type[BaseMessage] | None = None
    fields_set: frozenset[str] = frozenset()

    @property
    def cost(self) -> int:
        size = 200 + (len(self.encoded.data) if self.encoded else 0)
        size += len(self.written) if self.written and self.written is not self.form else 0
        return size + (len(self.form) if self.form else 0)

    def is_form(self, form: bytes) -> bool:
        return form in (self.written, self.form)

    def value(self, serializer: StrictSerializer) -> Any:
        """A fresh copy."""
        if self.form is not None and self.cls is not None:
            return _from_form(self.cls, self.form, self.fields_set)
        encoded = self.encoded
        if encoded is None:  # another thread has just learned the form
            return self.value(serializer)
        value = encoded.value(serializer)
        if isinstance(value, BaseMessage):
            self.message_id = value.id
            self._learn(value)
        return value

    def _learn(self, message: BaseMessage) -> None:
        form = form_of(message)
        if form is None:
            return
        fields_set = frozenset(message.__pydantic_fields_set__)
        copy = _from_form(type(message), form, fields_set)
        if copy.__dict__ == message.__dict__ and copy == message:
            self.cls, self.fields_set = type(message), fields_set
            self.form = self.written if self.written == form else form
            self.encoded = None


def form_of(message: BaseMessage) -> bytes | None:
    """The attributes, packed; None when they hold more than plain data (such a message is compared by its bytes)."""
    cls = type(message)
    if (cls.__module__, cls.__name__) not in SAFE_MSGPACK_TYPES or message.__pydantic_private__:
        return None
    try:
        return ormsgpack.packb((cls.__name__, message.__dict__, message.__pydantic_extra__), option=_FORM)
    except (TypeError, ValueError):
        return None


def _from_form(cls: type[BaseMessage], form: bytes, fields_set: frozenset[str]) -> BaseMessage:
    _, attributes, extra = ormsgpack.unpackb(form, option=ormsgpack.OPT_NON_STR_KEYS)
    message = cls.__new__(cls)
    _set(message, "__dict__", attributes)
    _set(message, "__pydantic_extra__", extra)
    _set(message, "__pydantic_fields_set__", set(fields_set))
    _set(message, "__pydantic_private__", None)
    return message


def is_plain_numbers(values: Sequence[Any]) -> bool:
    """A vector, a list of flags: stored as one value rather than element by element."""
    return all(isinstance(value, (int, float, type(None))) for value in values)


def is_scalar(value: Any) -> bool:
    return isinstance(value, _SCALARS)
