"""The envelope: requests, replies, errors both ways, parts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.errors import (
    AgentUnavailable,
    AmbiguousResume,
    BadRequest,
    CardDecided,
    NotFound,
    PerdureError,
    TooLarge,
    TurnInProgress,
    UnknownCard,
)
from perdure.transport.nats import jsonrpc
from perdure.transport.nats.jsonrpc import Joined, Part, RpcError
from perdure.transport.nats.wire import Malformed

ID = "0123456789abcdef"


def request(**fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": ID, "method": "m", "params": {}, **fields}).encode()


def test_a_request_comes_out_as_it_went_in() -> None:
    made = jsonrpc.decode_request(jsonrpc.encode_request("turns/get", {"turn_id": "t"}, ID))
    assert (made.id, made.method, made.params, made.unique) == (ID, "turns/get", {"turn_id": "t"}, True)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{", jsonrpc.PARSE_ERROR),
        (b"\xff", jsonrpc.PARSE_ERROR),
        (b"[]", jsonrpc.INVALID_REQUEST),
        (request(jsonrpc="1.0"), jsonrpc.INVALID_REQUEST),
        (request(id=[1]), jsonrpc.INVALID_REQUEST),
        (request(id=True), jsonrpc.INVALID_REQUEST),
        (request(id="x" * 201), jsonrpc.INVALID_REQUEST),
        (request(method=None), jsonrpc.INVALID_REQUEST),
        (request(params=[1]), jsonrpc.INVALID_PARAMS),
        (request(params=None), jsonrpc.INVALID_PARAMS),
    ],
)
def test_what_is_no_request_is_told_so_by_its_code(data: bytes, code: int) -> None:
    with pytest.raises(RpcError) as raised:
        jsonrpc.decode_request(data)
    assert raised.value.code == code


def test_a_reply_to_what_is_no_request_names_its_id_where_it_has_one() -> None:
    assert jsonrpc.request_id_in(request(method=None)) == ID
    assert [jsonrpc.request_id_in(data) for data in (b"{", b"[]", request(id=[1]), request(id=True))] == [None] * 4


@pytest.mark.parametrize("counted", [1, "1", "", None, "fifteen letters"])
def test_an_id_that_may_be_a_counter_says_nothing_of_repetition(counted: Any) -> None:
    assert not jsonrpc.decode_request(request(id=counted)).unique


def test_a_result_comes_out_as_it_went_in() -> None:
    assert jsonrpc.decode_reply(jsonrpc.encode_result(ID, {"a": None}), ID) == {"a": None}
    assert jsonrpc.decode_reply(jsonrpc.encode_result(ID, None), ID) is None


@pytest.mark.parametrize(
    "error",
    [
        TurnInProgress("busy", conversation="c", turn="t", details={"pending": ["k"]}),
        AmbiguousResume("which?", details={"pending": ["a", "b"]}),
        UnknownCard("no card"),
        NotFound("nothing"),
        CardDecided("late", details={"decided_by": "alice"}),
        AgentUnavailable("away"),
        BadRequest("`x` is wrong"),
        PerdureError("odd"),
    ],
)
def test_an_error_of_the_agent_is_raised_again_as_itself(error: PerdureError) -> None:
    with pytest.raises(RpcError) as raised:
        jsonrpc.decode_reply(jsonrpc.encode_error(ID, jsonrpc.to_rpc_error(error)), ID)
    back = jsonrpc.to_perdure_error(raised.value, agent="alpha")
    assert type(back) is type(error)
    assert (back.code, back.message, back.conversation, back.turn, back.details) == (
        error.code,
        error.message,
        error.conversation,
        error.turn,
        error.details,
    )


def test_codes_follow_the_standard() -> None:
    assert jsonrpc.to_rpc_error(BadRequest("x")).code == jsonrpc.INVALID_PARAMS
    assert jsonrpc.to_rpc_error(AmbiguousResume("x")).code == jsonrpc.PERDURE_ERROR
    assert jsonrpc.to_rpc_error(AmbiguousResume("x")).document["data"] == {"code": "AMBIGUOUS_RESUME"}


def test_an_error_that_is_not_known_here_keeps_its_code() -> None:
    back = jsonrpc.to_perdure_error(RpcError(-32000, "later", {"code": "FROM_A_LATER_VERSION"}), agent="alpha")
    assert (type(back), back.code) == (PerdureError, "FROM_A_LATER_VERSION")
    assert PerdureError.code == "INTERNAL"


def test_an_agent_without_the_method_is_of_another_version() -> None:
    back = jsonrpc.to_perdure_error(RpcError(jsonrpc.METHOD_NOT_FOUND, "There is no method."), agent="alpha")
    assert isinstance(back, BadRequest)
    assert "alpha" in back.message


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"[]",
        b"{}",
        request(),
        jsonrpc.encode_result("other", 1),
        b'{"jsonrpc":"2.0","id":null,"error":{"code":"x"}}',
    ],
)
def test_what_is_no_reply_is_refused(reply: bytes) -> None:
    with pytest.raises(Malformed):
        jsonrpc.decode_reply(reply, ID)


# -- parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 20, 95])
def test_parts_make_the_whole_again(size: int) -> None:
    data = bytes(range(size))
    parts = jsonrpc.split(data, 10)
    assert all(len(part.data) <= 10 for part in parts)
    joined = Joined()
    results = [joined.add(part) for part in parts]
    assert results == [None] * (len(parts) - 1) + [data]


def test_a_reply_that_fits_is_an_ordinary_message() -> None:
    assert jsonrpc.split(b"x" * 10, 10) == [Part(b"x" * 10, {})]


def test_too_many_parts_are_refused_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonrpc, "MAX_REPLY_BYTES", 25)
    with pytest.raises(TooLarge):
        jsonrpc.split(b"x" * 26, 10)
    joined = Joined()
    with pytest.raises(TooLarge):
        for number in range(1, 4):
            joined.add(Part(b"x" * 10, {jsonrpc.PART: str(number), jsonrpc.PARTS: "9"}))


@pytest.mark.parametrize(
    ("part", "parts"),
    [("2", "2"), ("0", "2"), ("3", "2"), ("x", "2"), ("1", "x"), ("1", None), (None, "2"), ("-1", "1")],
)
def test_a_part_that_makes_no_sense_is_refused(part: str | None, parts: str | None) -> None:
    given = {jsonrpc.PART: part, jsonrpc.PARTS: parts}
    with pytest.raises(Malformed):
        Joined().add(Part(b"x", {name: value for name, value in given.items() if value is not None}))
