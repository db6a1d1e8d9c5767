"""Logs hold no secret, whichever way it comes in."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from perdure.api.auth import new_secret
from perdure.config import Settings
from perdure.runtime.logs import Redaction, secret_name, secret_values, set_up

CANARIES = {"OPENAI_API_KEY": "canary-provider-key", "DB_PASSWORD": "canary-password"}
TOKEN = "canary-token"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    try:
        yield io.StringIO()
    finally:
        root.handlers[:], level = before[0], before[1]
        root.setLevel(level)
        structlog.reset_defaults()


def set_up_json(stream: io.StringIO) -> Redaction:
    return set_up(Settings(token=TOKEN, environment={"EXTRA_SECRET": "canary-extra"}), CANARIES, stream)


def log_everywhere() -> None:
    log = structlog.get_logger("perdure.test")
    log.info("text", url="http://x/?key=canary-provider-key", nested={"deep": ["canary-password"]})
    log.info("by name", authorization="Bearer anything-at-all", api_key="short", headers={"Set-Cookie": "sid"})
    logging.getLogger("library").warning("sent %s", "canary-token")
    try:
        raise ValueError("refused canary-extra")
    except ValueError:
        log.exception("failed")
        logging.getLogger("library").exception("failed too")


def test_no_canary_is_logged_by_value_by_name_in_urls_or_in_exceptions(stream: io.StringIO) -> None:
    set_up_json(stream)
    log_everywhere()
    written = stream.getvalue()
    assert "canary" not in written
    assert "anything-at-all" not in written and '"short"' not in written and '"sid"' not in written
    assert written.count("***") >= 7 and "refused ***" in written


def test_every_line_is_one_json_object_with_time_level_and_logger(stream: io.StringIO) -> None:
    set_up_json(stream)
    log_everywhere()
    lines: list[dict[str, Any]] = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len(lines) == 5
    assert all({"event", "level", "logger", "timestamp"} <= line.keys() for line in lines)


def test_a_secret_that_is_known_later_is_masked_from_then_on(stream: io.StringIO) -> None:
    redaction = set_up_json(stream)
    redaction.add("generated-later")
    structlog.get_logger("perdure.test").info("made generated-later")
    assert "generated-later" not in stream.getvalue()


def test_the_secret_of_a_named_token_is_masked_although_nobody_here_knows_it(stream: io.StringIO) -> None:
    set_up_json(stream)
    secret = new_secret()
    structlog.get_logger("perdure.test").info("asked", url=f"http://x/?token={secret}", header=f"Bearer {secret}")
    try:
        raise ValueError(f"{secret} was refused")
    except ValueError:
        logging.getLogger("library").exception("with %s", [secret])
    assert secret not in stream.getvalue() and "pdt_" not in stream.getvalue()
    assert stream.getvalue().count("***") == 4


def test_what_a_tool_was_called_with_and_what_it_gave_is_masked_by_the_fields_name(stream: io.StringIO) -> None:
    set_up_json(stream)
    log = structlog.get_logger("perdure.test")
    log.info("called", arguments={"amount": "canary"}, call={"args": ["canary"], "name": "refund"}, result="canary")
    assert "canary" not in stream.getvalue() and "refund" in stream.getvalue()


def test_a_field_that_speaks_of_tokens_as_text_is_not_masked() -> None:
    assert not any(
        map(secret_name, ("input_tokens", "total_tokens", "context_tokens", "idempotency_key", "keyed", "path"))
    )
    assert all(map(secret_name, ("token", "PERDURE_TOKEN", "x-api-key", "client_secret", "Cookie", "password")))


def test_short_values_are_not_masked_by_value_since_they_would_tear_words() -> None:
    assert secret_values(Settings(token="abc"), {"A_TOKEN": "1"}) == frozenset()


def test_the_password_in_an_address_of_nats_is_a_secret() -> None:
    settings = Settings(nats_url="nats://a:1,tls://user:corr%20ect-horse@b:2")
    assert "corr ect-horse" in secret_values(settings, {})
