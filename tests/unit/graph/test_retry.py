from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import anthropic
import httpx
import httpx2
import ollama
import openai
import pytest

from perdure.graph.retry import LONGEST_DELAY_SECONDS, Permanent, Transient, UnfinishedReply, classify, next_delay

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REQUEST = httpx2.Request("POST", "http://127.0.0.1/v1")


def answered(status: int, body: Any = None, **headers: str) -> openai.APIStatusError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = httpx2.Response(status, headers=named, request=REQUEST)
    return openai.APIStatusError("scripted", response=response, body=body)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_a_status_that_may_pass_is_transient(status: int) -> None:
    assert classify(answered(status)) == Transient()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 501, 505])
def test_a_status_that_would_come_again_is_permanent(status: int) -> None:
    assert classify(answered(status)) == Permanent()


@pytest.mark.parametrize(
    "error",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("peer closed connection"),
        httpx2.ReadError("reset"),
        httpx2.RemoteProtocolError("peer closed connection"),
        openai.APIConnectionError(request=REQUEST),
        openai.APITimeoutError(request=REQUEST),
        anthropic.APIConnectionError(request=REQUEST),
        ollama.ResponseError("loading", 503),
        ConnectionResetError(),
        TimeoutError(),
        UnfinishedReply("cut"),
    ],
    ids=lambda error: f"{type(error).__module__}.{type(error).__name__}",
)
def test_errors_of_the_transport_are_transient_whoever_raises_them(error: Exception) -> None:
    assert isinstance(classify(error), Transient)


def test_an_error_that_hides_a_broken_connection_as_its_cause_is_transient() -> None:
    error = RuntimeError("the client gave up")
    error.__cause__ = ConnectionRefusedError()
    assert classify(error) == Transient()


@pytest.mark.parametrize("error", [ValueError("bug"), ollama.ResponseError("no such model", 404), KeyError("x")])
def test_anything_else_is_permanent(error: Exception) -> None:
    assert classify(error) == Permanent()


def test_an_overload_told_inside_a_stream_that_began_well_is_transient() -> None:
    response = httpx2.Response(200, request=REQUEST)
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assert classify(anthropic.APIStatusError("Overloaded", response=response, body=body)) == Transient()


def test_a_spent_quota_is_permanent_although_its_status_is_429() -> None:
    assert classify(answered(429, {"code": "insufficient_quota", "message": "pay"})) == Permanent()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0"}, 0.0),
        ({"retry_after_ms": "250", "retry_after": "7"}, 0.25),
        ({"retry_after": "Thu, 01 Jan 2026 00:00:30 GMT"}, 30.0),
        ({"retry_after": "Wed, 31 Dec 2025 00:00:30 GMT"}, 0.0),
        ({"retry_after": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert classify(answered(429, **headers), NOW) == Transient(seconds)


def test_the_delay_doubles_up_to_a_bound() -> None:
    delays = [next_delay(Transient(), number, 0, 1000) for number in (1, 2, 3, 4, 20, 5000)]
    assert delays == [1.0, 2.0, 4.0, 8.0, LONGEST_DELAY_SECONDS, LONGEST_DELAY_SECONDS]


def test_jitter_spreads_the_delay_around_its_middle() -> None:
    assert [next_delay(Transient(), 1, 0, 100, jitter) for jitter in (0.0, 1.0)] == [0.5, 1.5]


def test_the_last_delay_ends_with_the_limit_and_then_it_is_over() -> None:
    assert next_delay(Transient(), 5, 118, 120) == 2.0
    assert next_delay(Transient(), 5, 120, 120) is None
    assert next_delay(Transient(), 1, 0, 0) is None


def test_a_servers_own_wish_is_followed_or_the_call_is_given_up() -> None:
    assert next_delay(Transient(60), 1, 0, 120) == 60
    assert next_delay(Transient(60), 1, 61, 120) is None


def test_a_permanent_error_is_not_tried_again() -> None:
    assert next_delay(Permanent(), 1, 0, 120) is None
