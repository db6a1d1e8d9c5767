"""The vocabulary's dataclasses as JSON and back, for the way between a gateway and its agents."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from perdure.errors import PerdureError

T = TypeVar("T")


class Unreadable(PerdureError):
    """What the other side sent is not of the form that this version knows. Run the same version on both."""


def to_json(kind: type[T], value: T) -> Any:
    """Dicts, lists, text, numbers: what `json.dumps` takes. Infinities and NaN become null."""
    return _adapter(kind).dump_python(value, mode="json")


def from_json(kind: type[T], document: Any) -> T:
    """Fields that this version does not know are passed over. Raises Unreadable with the first field that does not fit."""
    try:
        return cast(T, _adapter(kind).validate_python(document))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise Unreadable(f"A {kind.__name__} that cannot be read: {where}: {first['msg']}.") from error


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    made = _ADAPTERS.get(kind)
    if made is None:
        made = _ADAPTERS[kind] = TypeAdapter(kind)
    return made


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}
