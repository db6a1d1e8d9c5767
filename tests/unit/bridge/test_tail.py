"""What a stream that went back has lost."""

from __future__ import annotations

import pytest

from perdure.bridge import tail
from perdure.bridge.tail import Tail


def acknowledged() -> Tail:
    made = Tail()
    for place, (conversation, previous) in enumerate([("a", 0), ("b", 0), ("a", 3), ("a", 7), ("b", 2)], start=1):
        made.acknowledged(place, conversation, previous)
    return made


@pytest.mark.parametrize(
    ("last", "lost"), [(9, {}), (5, {}), (4, {"b": 2}), (2, {"a": 3, "b": 2}), (0, {"a": 0, "b": 0})]
)
def test_each_conversation_goes_back_to_what_the_stream_still_has(last: int, lost: dict[str, int]) -> None:
    assert acknowledged().lost(last) == lost


def test_what_was_lost_is_told_once_and_another_stream_has_lost_nothing() -> None:
    made = acknowledged()
    assert made.lost(4) == {"b": 2}
    assert made.lost(4) == {}
    made = acknowledged()
    made.forget()
    assert made.lost(0) == {}


def test_of_more_than_is_remembered_all_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "MAX_REMEMBERED", 2)
    made = Tail()
    for place, previous in enumerate((0, 4, 6), start=1):
        made.acknowledged(place, "a", previous)
    assert made.lost(0) == {"a": 0}
