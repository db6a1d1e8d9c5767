"""Bytes of values and of a checkpoint's header, under strict rules: what could not be read back is refused when written.

A value is `(kind, data)`: the tag and bytes of LangGraph's serializer, msgpack of plain data and named classes. There is no
pickle. A class is named in the bytes by module and name; only LangGraph's safe types, the types of the graph's schema and
the configured `state_types` may be named, both when a value is written and when it is read.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

import ormsgpack
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.serde import _msgpack
from langgraph.checkpoint.serde.jsonplus import (
    EXT_DELTA_SNAPSHOT,
    EXT_METHOD_SINGLE_ARG,
    EXT_NUMPY_ARRAY,
    JsonPlusSerializer,
)
from langgraph.types import Interrupt, Send
from pydantic import BaseModel

from perdure.errors import ConfigurationError, StateTypeNotAllowed

KINDS = ("null", "bytes", "bytearray", "msgpack")
"""Tags of the serializer; a row holds the place in this tuple."""

_CODE = {kind: code for code, kind in enumerate(KINDS)}
_UNPACK = ormsgpack.OPT_NON_STR_KEYS

DEEPEST = 100
"""How far into a value the culprit is looked for."""

_NAMELESS = frozenset({str, int, float, bool})
"""Values that name no type."""

TypeName = tuple[str, ...]


def assert_strict() -> None:
    """LangGraph reads the variable once, when it is imported: `perdure/__init__.py` sets it first."""
    if not _msgpack.STRICT_MSGPACK_ENABLED:
        raise ConfigurationError(
            "LangGraph was imported before Perdure, without LANGGRAPH_STRICT_MSGPACK=true. Import perdure first, or set "
            "the variable for the whole process."
        )


def type_names(state_types: Iterable[str]) -> set[TypeName]:
    """`["module:Class"]` → `{("module", "Class")}`. Raises ConfigurationError for another form."""
    names: set[TypeName] = set()
    for text in state_types:
        module, _, name = text.partition(":")
        if not module or not name:
            raise ConfigurationError(f"state_types: {text!r} is not of the form `module:Class`.")
        names.add((module, name))
    return names


class StrictSerializer(JsonPlusSerializer):
    """LangGraph's serializer without its silent ways out: a type that is not allowed raises StateTypeNotAllowed."""

    def __init__(self, allowed: Iterable[TypeName] = ()) -> None:
        super().__init__(pickle_fallback=False, allowed_msgpack_modules=tuple(allowed) or None)
        self._derived: dict[frozenset[tuple[str, ...] | type], JsonPlusSerializer] = {}

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[tuple[str, ...] | type]) -> JsonPlusSerializer:
        """LangGraph asks for the same few sets with every turn and read: each is derived once."""
        extra = frozenset(extra_allowlist)
        known = self._derived.get(extra)
        if known is None:
            known = super().with_msgpack_allowlist(extra)
            if isinstance(known, StrictSerializer) and known is not self:
                known._derived = {}
            self._derived[extra] = known
        return known

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        try:
            kind, data = super().dumps_typed(obj)
        except TypeError as error:
            raise self._unstorable(obj) from error
        if kind == "msgpack" and type(obj) not in _NAMELESS and (refused := self._refused(data)):
            raise StateTypeNotAllowed(_refusal(refused))
        return kind, data

    def _unstorable(self, value: Any) -> Exception:
        """Names the innermost value that has no stored form."""
        inner = self._first_refused(value, 0)
        if isinstance(inner, int):
            return ValueError(
                "The graph's state holds a whole number beyond 64 bits, which cannot be stored: keep it as text."
            )
        kind = type(inner)
        return StateTypeNotAllowed(
            f"The graph's state holds a {kind.__module__}:{kind.__qualname__}, which cannot be stored. Keep plain "
            "data there, a dataclass or a Pydantic model."
        )

    def _first_refused(self, value: Any, depth: int) -> Any:
        for part in _parts(value) if depth < DEEPEST else ():
            try:
                super().dumps_typed(part)
            except TypeError:
                return self._first_refused(part, depth + 1)
        return value

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        if data[0] not in _CODE:
            raise StateTypeNotAllowed(f"A stored value is tagged {data[0]!r}: it was not written by Perdure.")
        if data[0] == "msgpack" and (refused := self._refused(data[1])):
            raise StateTypeNotAllowed(_refusal(refused))
        return super().loads_typed(data)

    def dumps(self, value: Any) -> tuple[int, bytes]:
        kind, data = self.dumps_typed(value)
        return _CODE[kind], bytes(data)

    def loads(self, kind: int, data: bytes) -> Any:
        return self.loads_typed((KINDS[kind], data))

    def _refused(self, data: bytes) -> TypeName | None:
        """The first named type in the bytes that may not be rebuilt, found without rebuilding anything."""
        refused: list[TypeName] = []
        extra = cast("set[TypeName] | None", self._allowed_msgpack_modules) or ()

        def probe(code: int, inner: bytes) -> None:
            if code == EXT_NUMPY_ARRAY:
                return
            content = ormsgpack.unpackb(inner, ext_hook=probe, option=_UNPACK)
            if code == EXT_DELTA_SNAPSHOT:
                return
            name = (content[0], content[1])
            if code == EXT_METHOD_SINGLE_ARG:
                if (*name, content[3]) not in _msgpack.SAFE_MSGPACK_METHODS:
                    refused.append(name)
            elif name not in _msgpack.SAFE_MSGPACK_TYPES and not (name in extra and _resolves(*name)):
                refused.append(name)

        ormsgpack.unpackb(data, ext_hook=probe, option=_UNPACK)
        return refused[0] if refused else None


def _parts(value: Any) -> Iterable[Any]:
    """What a value is made of, as far as it is stored."""
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset | deque):
        return list(value)
    if isinstance(value, Interrupt):
        return [value.value]
    if isinstance(value, Send):
        return [value.arg]
    if isinstance(value, BaseModel):
        return [getattr(value, name, None) for name in type(value).model_fields]
    if is_dataclass(value):
        return [getattr(value, field.name, None) for field in fields(value)]
    return ()


_resolved: set[TypeName] = set()


def _resolves(module: str, name: str) -> bool:
    """Whether the class can be found by its name; one that is defined inside a function cannot."""
    if (module, name) in _resolved:
        return True
    try:
        getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return False
    _resolved.add((module, name))
    return True


def _refusal(name: TypeName) -> str:
    module, attribute = name[0], name[1]
    return (
        f"The graph's state holds a {module}:{attribute}, which may not be read back. Define it at the top of its module, "
        f'and name it in the state schema or in the agent\'s settings: state_types = ["{module}:{attribute}"]'
    )


# -- the header of a checkpoint ---------------------------------------------------------------------------------------

_HEADER_KEYS = frozenset(
    {"v", "id", "ts", "channel_values", "channel_versions", "versions_seen", "updated_channels", "pending_sends"}
)

Inline = tuple[int, bytes, str | None]
"""A small value that stands in the header: kind, data, and its refs as JSON."""


class _Names:
    """Each name and version once; the rest of the header counts places in this table."""

    def __init__(self) -> None:
        self.table: list[Any] = []
        self._places: dict[tuple[type, Any], int] = {}

    def place(self, name: Any) -> int:
        key = (type(name), name)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self.table)
            self.table.append(name)
        return place

    def places(self, mapping: Mapping[Any, Any]) -> list[int]:
        return [self.place(word) for pair in mapping.items() for word in pair]


def pack_header(checkpoint: Checkpoint, inline: Mapping[str, Inline], serializer: StrictSerializer) -> bytes:
    """Everything of a checkpoint but its id and its larger values."""
    names = _Names()
    versions = names.places(checkpoint["channel_versions"])
    seen = [[names.place(node), *names.places(read)] for node, read in checkpoint["versions_seen"].items()]
    updated = checkpoint.get("updated_channels")
    more = {key: value for key, value in checkpoint.items() if key not in _HEADER_KEYS}
    if "pending_sends" in checkpoint:
        more["pending_sends"] = checkpoint["pending_sends"]  # type: ignore[typeddict-item]
    return ormsgpack.packb(
        [
            checkpoint["v"],
            checkpoint["ts"],
            versions,
            seen,
            None if updated is None else [names.place(channel) for channel in updated],
            "updated_channels" in checkpoint,
            {channel: list(value) for channel, value in inline.items()},
            serializer.dumps(more)[1] if more else None,
            names.table,
        ]
    )


def unpack_header(
    header: bytes, checkpoint_id: str, serializer: StrictSerializer
) -> tuple[Checkpoint, dict[str, Inline]]:
    """The checkpoint with no values yet, and the small values of its channels."""
    v, ts, versions, seen, updated, has_updated, inline, more, table = ormsgpack.unpackb(header)
    checkpoint: dict[str, Any] = {
        "v": v,
        "id": checkpoint_id,
        "ts": ts,
        "channel_values": {},
        "channel_versions": _named(table, versions),
        "versions_seen": {table[entry[0]]: _named(table, entry[1:]) for entry in seen},
    }
    if has_updated:
        checkpoint["updated_channels"] = None if updated is None else [table[place] for place in updated]
    if more is not None:
        checkpoint |= serializer.loads(_CODE["msgpack"], more)
    return cast(Checkpoint, checkpoint), {channel: (kind, data, refs) for channel, (kind, data, refs) in inline.items()}


def _named(table: Sequence[Any], places: Sequence[int]) -> dict[Any, Any]:
    words = [table[place] for place in places]
    return dict(zip(words[::2], words[1::2], strict=True))
