"""JSON as it leaves the server: compact UTF-8, instants as ISO 8601, always valid for a strict reader."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from starlette.responses import Response


def dumps(value: Any) -> bytes:
    """One line of JSON. What JSON cannot hold (lone surrogates, NaN, infinities) becomes U+FFFD or null."""
    try:
        return _encode(value)
    except ValueError:
        return _encode(_clean(value))


def _encode(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_instant)
    return text.encode()


def _instant(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value


class JSONReply(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dumps(content)
