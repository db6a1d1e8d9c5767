"""What may be said over NATS is what may be said over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.api.body import check_json
from perdure.bridge.plain import MAX_DEPTH, check_plain
from perdure.errors import BadRequest


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


SAMPLES = [
    {"a": "b", "c": [1, 2.5, None, True]},
    {"n": 2**63 - 1},
    {"n": 2**63},
    {"n": -(2**63) - 1},
    {"text": "a\x00b"},
    {"a\x00": 1},
    {"text": "\ud83d"},
    {"text": "😀"},
    {"deep": nested(MAX_DEPTH - 3)},
    {"deep": nested(MAX_DEPTH + 3)},
]


@pytest.mark.parametrize("value", SAMPLES, ids=range(len(SAMPLES)))
def test_the_two_ways_refuse_the_same(value: Any) -> None:
    scope = {"headers": [(b"content-type", b"application/json")]}
    try:
        check_json(scope, json.dumps(value).encode())
        refused = False
    except BadRequest:
        refused = True
    if refused:
        with pytest.raises(ValueError):
            check_plain(value)
    else:
        check_plain(value)


def test_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="float"):
        check_plain({"n": float("inf")})
