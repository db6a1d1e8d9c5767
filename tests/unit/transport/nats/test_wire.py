"""What travels: exactly what was sent comes out, and nothing else is taken."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from perdure.events import Event, EventKind
from perdure.replication import JournalRows, Position
from perdure.transport.nats import wire
from perdure.transport.nats.wire import EventMessage, Malformed, News

MEGABYTE = 1_000_000
TURN = "a" * 32
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
PAYLOAD = {"text": 'π "quoted" \\ \u2028 \x00 😀 \ud83d', "deep": [{"a": [1, 2.5, -0.0, None, True]}, []]}
ROWS = JournalRows(
    "j1",
    3,
    Position("j1", 9, 2),
    more=True,
    conversations=[{"id": "c1", "title": "t", "owner": None}],
    turns=[{"id": TURN, "accepted": 4}],
    attempts=[],
    cards=[{"id": "k1", "note": "né"}],
    calls=[],
    audit=[{"n": 1.5}],
    deleted=["c9"],
    last_seqs={"c1": 12},
)


def event(seq: int = 5, kind: EventKind = EventKind.TRACE, at: datetime = AT, **payload: Any) -> Event:
    return Event(seq, "c1", TURN, 2, kind, at, payload or PAYLOAD)


def test_an_event_comes_out_as_it_went_in() -> None:
    for at in (AT, AT.replace(microsecond=0), AT.astimezone(timezone(timedelta(hours=5, minutes=30)))):
        message = EventMessage(event(at=at), 4, ROWS)
        back = wire.decode_event(wire.encode_event(message, MEGABYTE))
        assert back == message
        assert back.event.wire() == message.event.wire()
        assert wire.event_from_json(json.loads(json.dumps(wire.event_to_json(message.event)))) == message.event


def test_rows_come_out_as_they_went_in() -> None:
    assert wire.rows_from_json(json.loads(json.dumps(wire.rows_to_json(ROWS)))) == ROWS
    empty = JournalRows("j", 0, Position())
    assert wire.rows_to_json(wire.rows_from_json(wire.rows_to_json(empty))) == wire.rows_to_json(empty)


def test_a_message_that_would_be_too_large_goes_by_reference() -> None:
    message = EventMessage(event(text="x" * 1_000), 4, ROWS)
    whole = wire.encode_event(message, MEGABYTE)
    assert wire.decode_event(wire.encode_event(message, len(whole))) == message
    small = wire.encode_event(message, len(whole) - 1)
    bare = Event(5, "c1", TURN, 2, EventKind.TRACE, AT)
    assert wire.decode_event(small) == EventMessage(bare, 4, None, reference=True)
    assert json.loads(small)["reference"] == {"conversation": "c1", "seq": 5}


def test_a_repeated_event_has_the_same_id() -> None:
    assert wire.event_headers(event()) == {"Nats-Msg-Id": "c1:5", "Perdure-Kind": "trace"}


def test_a_token_comes_out_as_it_went_in() -> None:
    token = event(kind=EventKind.TOKEN, message_id="m1", text="né\ud800", from_seq=3)
    assert wire.decode_token(wire.encode_token(token)) == token


def test_news_come_out_as_they_went_in() -> None:
    for news in (News(4, "b1"), News(0, "b2", wire.LEAVING, ("c1", "c2"), ("queue",))):
        assert wire.decode_news(wire.encode_news(news)) == news


def test_what_json_has_not_becomes_null() -> None:
    assert wire.decode(wire.encode({"a": [float("nan"), float("inf"), 1.5], "b": "\ud800"})) == {
        "a": [None, None, 1.5],
        "b": "\ud800",
    }


def test_fields_of_a_later_version_are_passed_over() -> None:
    document = json.loads(wire.encode_event(EventMessage(event(), 4), MEGABYTE))
    document["new"] = document["event"]["new"] = 1
    assert wire.decode_event(json.dumps(document).encode()) == EventMessage(event(), 4)


GOOD = {"event": {**wire.event_to_json(event(text="x")), "kind": "message"}, "previous": 4}


def changed(**fields: Any) -> dict[str, Any]:
    return {**GOOD, "event": {**GOOD["event"], **fields}}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("document", "names"),
    [
        (b"", "JSON"),
        (b"\xff\xfe", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b'{"a": NaN}', "NaN"),
        ([], "it"),
        ({}, "event"),
        ({**GOOD, "previous": 5}, "previous"),
        ({**GOOD, "previous": -1}, "previous"),
        ({**GOOD, "previous": None}, "previous"),
        ({**GOOD, "rows": {"journal": 1}}, "rows"),
        (changed(seq=0), "seq"),
        (changed(seq="x"), "seq"),
        (changed(kind="boom"), "kind"),
        (changed(kind="token"), "token"),
        (changed(at="2026-01-02T03:04:05"), "at"),
        (changed(at="yesterday"), "at"),
        (changed(conversation=""), "conversation"),
        (changed(conversation="c" * 201), "conversation"),
        (changed(payload=[]), "payload"),
        (changed(attempt=-1), "attempt"),
    ],
)
def test_what_is_no_event_is_refused_and_named(document: Any, names: str) -> None:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    with pytest.raises(Malformed, match=names):
        wire.decode_event(data)


@pytest.mark.parametrize("payload", [{}, {"message_id": 1, "text": "x"}, {"message_id": "m", "text": None}])
def test_what_is_no_token_is_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        wire.decode_token(
            json.dumps({"event": {**wire.event_to_json(event()), "kind": "token", "payload": payload}}).encode()
        )
    with pytest.raises(Malformed):
        wire.decode_token(json.dumps(GOOD).encode())


@pytest.mark.parametrize("document", [{}, {"position": -1, "boot": "b"}, {"position": 1, "boot": "b", "deleted": "c1"}])
def test_what_is_no_news_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        wire.decode_news(json.dumps(document).encode())
