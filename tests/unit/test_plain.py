"""What may be said over HTTP and over NATS: values that a journal can hold and give back unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.plain import MAX_DEPTH, check_plain


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [{"a": "b", "c": [1, 2.5, None, True]}, {"n": 2**63 - 1}, {"text": "😀"}, {"deep": nested(MAX_DEPTH - 3)}],
    ids=range(4),
)
def test_what_a_journal_holds_is_taken(value: Any) -> None:
    check_plain(value, "The body")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"n": 2**63}, "64 bits"),
        ({"n": -(2**63) - 1}, "64 bits"),
        ({"n": float("inf")}, "float"),
        ({"text": "a\x00b"}, "NUL"),
        ({"a\x00": 1}, "NUL"),
        ({"text": "\ud83d"}, "surrogate"),
        ({"deep": nested(MAX_DEPTH + 3)}, "nested deeper"),
    ],
    ids=range(7),
)
def test_what_it_does_not_is_refused_in_a_sentence(value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=rf"^The body .*{why}"):
        check_plain(value, "The body")
