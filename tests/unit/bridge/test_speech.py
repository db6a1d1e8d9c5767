"""Tokens on their way out: several in one, in their order, and never a hole without a sign of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.bridge import speech as module
from perdure.bridge.speech import COALESCE_SECONDS, Speech
from perdure.events import Event, EventKind

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def token(seq: int, text: str, message: str = "m", attempt: int = 1) -> Event:
    return Event(seq, "c", "t", attempt, EventKind.TOKEN, NOW, {"message_id": message, "text": text})


def event(seq: int, kind: EventKind = EventKind.TRACE, **payload: Any) -> Event:
    return Event(seq, "c", "t", 1, kind, NOW, payload)


def told(events: list[Event]) -> list[tuple[int, str, int, int]]:
    return [(each.seq, each.payload["text"], each.payload["from_seq"], each.payload["follows"]) for each in events]


def test_what_was_said_meanwhile_is_one_message() -> None:
    speech = Speech()
    for seq, text in enumerate(["a", "b", "c"], start=1):
        speech.add(token(seq, text), keep=True)
    assert told(speech.all(0.0)) == [(3, "abc", 1, 0)]
    assert not speech.waiting
    speech.add(token(4, "d"), keep=True)
    assert told(speech.all(1.0)) == [(4, "d", 4, 3)]


def test_the_first_is_due_at_once_and_the_next_a_little_later() -> None:
    speech = Speech()
    assert speech.due_in(10.0) == 0
    speech.add(token(1, "a"), keep=True)
    speech.all(10.0)
    assert speech.due_in(10.0) == pytest.approx(COALESCE_SECONDS)
    assert speech.due_in(11.0) == 0


def test_texts_that_are_said_side_by_side_leave_in_the_order_of_seqs() -> None:
    speech = Speech()
    for seq, message in [(1, "m"), (2, "n"), (3, "m"), (4, "n"), (5, "m")]:
        speech.add(token(seq, str(seq), message), keep=True)
    assert told(speech.all(0.0)) == [(4, "24", 2, 0), (5, "135", 1, 0)]


def test_no_message_reaches_across_a_committed_event() -> None:
    speech = Speech()
    speech.add(token(1, "a"), keep=True)
    speech.committed(event(2))
    speech.add(token(3, "b"), keep=True)
    assert told(speech.before(2)) == [(1, "a", 1, 0)]
    assert told(speech.all(0.0)) == [(3, "b", 3, 1)]


def test_a_lost_token_shows_in_the_one_after_it() -> None:
    speech = Speech()
    speech.add(token(1, "a"), keep=True)
    speech.all(0.0)
    speech.add(token(2, "b"), keep=False)
    speech.add(token(3, "c"), keep=True)
    assert told(speech.all(1.0)) == [(3, "c", 3, 2)]
    speech.add(token(4, "d"), keep=True)
    speech.drop()
    speech.add(token(5, "e"), keep=True)
    assert told(speech.all(2.0)) == [(5, "e", 5, 4)]


def test_another_attempt_and_another_turn_begin_anew() -> None:
    speech = Speech()
    speech.add(token(1, "a"), keep=True)
    speech.add(token(2, "b", attempt=2), keep=True)
    assert [each.payload["follows"] for each in speech.all(0.0)] == [0, 0]
    speech.committed(event(3, EventKind.MESSAGE, message={"id": "m"}))
    speech.add(token(4, "c"), keep=True)
    assert told(speech.all(0.0)) == [(4, "c", 4, 0)]
    speech.committed(event(5, EventKind.END, status="completed"))
    speech.add(token(6, "d", attempt=2), keep=True)
    assert told(speech.all(0.0)) == [(6, "d", 6, 0)]


def test_too_much_is_thrown_away_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CHARACTERS", 3)
    speech = Speech()
    speech.add(token(1, "ab"), keep=True)
    speech.add(token(2, "cd"), keep=True)
    assert not speech.waiting
    speech.add(token(3, "e"), keep=True)
    assert told(speech.all(0.0)) == [(3, "e", 3, 2)]
