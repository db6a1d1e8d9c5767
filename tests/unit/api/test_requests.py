"""What the routes take and answer."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from perdure.api import schemas, shapes
from perdure.api.auth import ADMIN
from perdure.errors import (
    AgentInUse,
    AgentUnavailable,
    CardDecided,
    NotFound,
    NotReady,
    PerdureError,
    StorageError,
    StorageFull,
)
from perdure.events import EventKind
from perdure.turns import DecisionKind, TurnStatus, Verdict

from .conftest import AT, FakeAgents, gate_card


def refusal(response: httpx2.Response, status: int, code: str) -> str:
    assert response.status_code == status, response.text
    envelope = response.json()
    shapes.ErrorEnvelope.model_validate(envelope)
    assert envelope["code"] == code
    return str(envelope["message"])


async def test_a_message_is_accepted_and_the_stream_is_named(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    response = await client.post("/api/chat", json={"message": "Hello"})
    assert response.status_code == 202
    accepted = schemas.AcceptedReply.model_validate(response.json())
    assert response.headers["location"] == f"/api/chat?conversation={accepted.conversation}"
    (asked,) = agents.asked("start")
    assert asked["person"] == ADMIN
    assert asked["input"] == {"message": "Hello"}
    assert (asked["conversation"], asked["agent"], asked["when_busy"]) == (None, None, "reject")


async def test_an_input_goes_to_a_graph_without_messages(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    assert (await client.post("/api/chat", json={"input": {"n": 1}, "agent": "g"})).status_code == 202
    (asked,) = agents.asked("start")
    assert (asked["input"], asked["agent"]) == ({"input": {"n": 1}}, "g")


async def test_a_busy_conversation_names_its_turn(client: httpx2.AsyncClient) -> None:
    response = await client.post("/api/chat", json={"message": "x", "conversation": "mine"})
    refusal(response, 409, "TURN_IN_PROGRESS")
    assert response.json()["turn"] == "mine-turn"
    assert response.json()["conversation"] == "mine"


async def test_a_parked_conversation_names_the_cards_that_wait(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    agents.cards_of = {"k1": gate_card("k1", "mine", "local")}
    response = await client.post("/api/chat", json={"message": "x", "conversation": "mine"})
    refusal(response, 409, "TURN_IN_PROGRESS")
    assert response.json()["pending"] == ["k1"]


async def test_a_message_can_wait_behind_another(client: httpx2.AsyncClient) -> None:
    response = await client.post("/api/chat", json={"message": "x", "conversation": "mine", "when_busy": "enqueue"})
    assert (response.status_code, response.json()["status"]) == (202, "waiting")


async def test_resume_and_answers_reach_their_verbs(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    agents.status = TurnStatus.FAILED
    assert (await client.post("/api/chat", json={"resume": True, "conversation": "mine"})).status_code == 202
    body = {"conversation": "mine", "resume": {"i1": {"ok": 1}}}
    assert (await client.post("/api/chat", json=body)).status_code == 202
    asked = {"person": ADMIN, "conversation": "mine", "request_key": None}
    assert agents.asked("resume") == [asked]
    assert agents.asked("answer") == [asked | {"answers": {"i1": Verdict(DecisionKind.ANSWER, value={"ok": 1})}}]


async def test_resume_of_nothing_says_why(client: httpx2.AsyncClient) -> None:
    response = await client.post("/api/chat", json={"resume": True, "conversation": "mine"})
    assert refusal(response, 409, "TURN_NOT_RESUMABLE") == "The last turn is running."


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "exactly one of"),
        ({"message": "a", "input": {}}, "`message` and `input`"),
        ({"message": "a", "resume": True, "conversation": "c"}, "`message` and `resume`"),
        ({"message": ""}, "empty"),
        ({"message": " \n\t "}, "empty"),
        ({"message": 5}, "`message`"),
        ({"message": ["a"]}, "`message`"),
        ({"mesage": "a"}, "Did you mean `message`?"),
        ({"message": "a", "zzz": 1}, "Known: `message`"),
        ({"message": "a", "when_busy": "wait"}, "`reject`, `enqueue` or `interrupt`"),
        ({"message": "a", "when_busy": ["reject"]}, "`reject`, `enqueue` or `interrupt`"),
        ({"message": "a", "conversation": 5}, "`conversation`"),
        ({"resume": True}, "needs the `conversation`"),
        ({"resume": False, "conversation": "c"}, "must be `true`"),
        ({"resume": {}, "conversation": "c"}, "must be `true`"),
        ({"resume": 1, "conversation": "c"}, "must be `true`"),
        ({"resume": True, "conversation": "c", "when_busy": "enqueue"}, "no meaning"),
        ({"resume": True, "conversation": "c", "discard_pending": False}, "no meaning"),
        ({"message": "a", "discard_pending": True}, '"when_busy": "interrupt"'),
        ({"message": "a", "when_busy": "enqueue", "discard_pending": True}, '"when_busy": "interrupt"'),
        ({"message": "a", "when_busy": "interrupt", "discard_pending": 1}, "`discard_pending`"),
        ({"input": "text"}, "`input`"),
        ([1], "JSON object"),
        ("text", "JSON object"),
        (None, "JSON object"),
    ],
)
async def test_a_body_that_makes_no_sense_is_refused_in_a_sentence(
    client: httpx2.AsyncClient, agents: FakeAgents, body: Any, told: str
) -> None:
    assert told in refusal(await client.post("/api/chat", json=body), 400, "BAD_REQUEST")
    assert agents.calls == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"message": "a', "not JSON"),
        (b"", "JSON object"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"message": "\xc3\x28"}', "not UTF-8"),
        (b'{"message": "\xed\xa0\x80"}', "not UTF-8"),
        ('{"message": "a"}'.encode("utf-16"), "not UTF-8"),
        (b'{"message": "a\\u0000b"}', "NUL"),
        (b'{"input": {"a\\u0000": 1}}', "NUL"),
        (b'{"message": "\\ud83d"}', "surrogate"),
        (b'{"conversation": "c", "resume": {"i": ["\\udc00"]}}', "surrogate"),
        (b'{"input": {"a": NaN}}', "NaN"),
        (b'{"input": {"a": 1e999}}', "1e999"),
        (b'{"input": {"a": [-1.5e400]}}', "-1.5e400"),
        (b'{"input": {"a": 9223372036854775808}}', "9223372036854775808"),
        (b'{"input": {"a": -9223372036854775809}}', "-9223372036854775809"),
        (b'{"conversation": "mine", "resume": {"i": 123456789012345678901234567890}}', "12345678901234567"),
        (b'{"input": {"a": -Infinity}}', "Infinity"),
        (b'{"message": "a", "message": "b"}', "twice"),
        (b'{"input": ' + b'{"a":' * 200 + b"1" + b"}" * 201, "deeper"),
        (b"[" * 100_000, "deeper"),
        (b'{"input": {"a": ' + b"9" * 5_000 + b"}}", "64 bits"),
    ],
)
async def test_bytes_that_are_no_clean_json_are_refused(
    client: httpx2.AsyncClient, agents: FakeAgents, body: bytes, told: str
) -> None:
    response = await client.post("/api/chat", content=body, headers={"Content-Type": "application/json"})
    assert told in refusal(response, 400, "BAD_REQUEST")
    assert agents.calls == []


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json; charset=utf-7"],
)
async def test_another_content_type_is_refused(client: httpx2.AsyncClient, agents: FakeAgents, kind: str) -> None:
    response = await client.post("/api/chat", content=b'{"message": "a"}', headers={"Content-Type": kind})
    assert "application/json" in refusal(response, 400, "BAD_REQUEST")
    response = await client.post("/api/turns/mine-turn/cancel", content=b"", headers={"Content-Type": kind})
    refusal(response, 400, "BAD_REQUEST")
    assert agents.calls == []


async def test_a_body_without_a_content_type_is_refused(client: httpx2.AsyncClient) -> None:
    refusal(await client.post("/api/chat", content=b'{"message": "a"}'), 400, "BAD_REQUEST")


async def test_a_message_may_interrupt_and_discard_what_waits(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    body = {"message": "x", "conversation": "mine", "when_busy": "interrupt", "discard_pending": True}
    assert (await client.post("/api/chat", json=body)).status_code == 202
    await client.post("/api/chat", json={"message": "x", "conversation": "mine", "when_busy": "interrupt"})
    told = [(asked["when_busy"], asked["discard_pending"]) for asked in agents.asked("start")]
    assert told == [("interrupt", True), ("interrupt", False)]


async def test_unicode_arrives_as_it_was_sent(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    text = "Привіт 👩‍💻 \u2028 \x7f"
    await client.post("/api/chat", json={"message": text})
    await client.post("/api/chat", content=json.dumps({"message": text}), headers={"Content-Type": "application/json"})
    assert [asked["input"]["message"] for asked in agents.asked("start")] == [text, text]


async def test_a_key_makes_a_repeat_the_same_turn_however_the_body_is_spelled(
    client: httpx2.AsyncClient, agents: FakeAgents
) -> None:
    headers = {"Idempotency-Key": "k1", "Content-Type": "application/json"}
    bodies = [b'{"message":"a","agent":"g"}', b'{ "agent" : "g", "message": "\\u0061", "when_busy": "reject" }']
    answers = [await client.post("/api/chat", content=body, headers=headers) for body in bodies]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()
    refusal(await client.post("/api/chat", json={"message": "b"}, headers=headers), 422, "IDEMPOTENCY_KEY_REUSED")


async def test_a_key_with_other_words_about_a_busy_conversation_is_another_request(client: httpx2.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k1"}
    base = {"message": "a", "conversation": "mine", "when_busy": "interrupt"}
    first = await client.post("/api/chat", json=base, headers=headers)
    assert first.status_code == 202
    same = await client.post("/api/chat", json=base | {"discard_pending": False}, headers=headers)
    assert same.json() == first.json()
    other = await client.post("/api/chat", json=base | {"discard_pending": True}, headers=headers)
    refusal(other, 422, "IDEMPOTENCY_KEY_REUSED")


@pytest.mark.parametrize("key", ["", "k" * 201, "a\tb"])
async def test_a_bad_key_is_refused(client: httpx2.AsyncClient, agents: FakeAgents, key: str) -> None:
    response = await client.post("/api/chat", json={"message": "a"}, headers={"Idempotency-Key": key})
    assert "200" in refusal(response, 400, "BAD_REQUEST")
    assert agents.calls == []


async def test_the_longest_key_is_taken(client: httpx2.AsyncClient) -> None:
    response = await client.post("/api/chat", json={"message": "a"}, headers={"Idempotency-Key": "k" * 200})
    assert response.status_code == 202


@pytest.mark.parametrize(("resume", "verb"), [(True, "resume"), ({"i-1": "yes"}, "answer")])
async def test_a_key_with_a_resume_reaches_the_agent_with_the_digest_of_the_body(
    client: httpx2.AsyncClient, agents: FakeAgents, resume: object, verb: str
) -> None:
    agents.status = TurnStatus.FAILED
    body = {"resume": resume, "conversation": "mine"}
    await client.post("/api/chat", json=body, headers={"Idempotency-Key": "k"})
    (asked,) = agents.asked(verb)
    assert (asked["request_key"].key, len(asked["request_key"].digest)) == ("k", 64)


async def test_a_conversation_tells_what_waits_to_be_said(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    agents.status, agents.said = TurnStatus.WAITING, {"message": "next"}
    (waiting,) = (await client.get("/api/conversations/mine")).json()["turns"]
    assert waiting["input"] == {"message": "next"}
    assert "input" not in (await client.get("/api/turns/mine-turn")).json()
    agents.said = None
    (known,) = (await client.get("/api/conversations/mine")).json()["turns"]
    assert known["input"] is None


async def test_conversations_are_listed_read_renamed_and_deleted(
    client: httpx2.AsyncClient, agents: FakeAgents
) -> None:
    agents.messages = [{"id": "m1", "role": "user", "content": "hi"}]
    listed = shapes.Page[schemas.ConversationSummary].model_validate((await client.get("/api/conversations")).json())
    assert [(item.id, item.owner) for item in listed.items if item.id == "mine"] == [("mine", "local")]
    read = schemas.ConversationReply.model_validate((await client.get("/api/conversations/mine")).json())
    assert read.messages == agents.messages
    assert [turn.id for turn in read.turns] == ["mine-turn"]
    renamed = await client.patch("/api/conversations/mine", json={"title": "  New  "})
    assert schemas.ConversationSummary.model_validate(renamed.json()).title == "New"
    refusal(await client.delete("/api/conversations/mine"), 409, "TURN_IN_PROGRESS")
    assert (await client.delete("/api/conversations/mine?cancel=1")).status_code == 204
    refusal(await client.get("/api/conversations/mine"), 404, "NOT_FOUND")


@pytest.mark.parametrize("title", ["", "  ", "a\nb", "x" * 201, 5, None])
async def test_a_title_is_one_short_line(client: httpx2.AsyncClient, agents: FakeAgents, title: Any) -> None:
    response = await client.patch("/api/conversations/mine", json={"title": title})
    assert "`title`" in refusal(response, 400, "BAD_REQUEST")
    assert agents.calls == []


async def test_pages_are_asked_for_with_bounds(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    await client.get("/api/conversations?limit=200&cursor=abc&agent=g&q=%20")
    await client.get("/api/turns?limit=1&status=failed&agent=g&attempts_min=2&q=zebra")
    assert agents.asked("conversations") == [
        {"person": ADMIN, "limit": 200, "cursor": "abc", "agent": "g", "text": None}
    ]
    turns = {"limit": 1, "cursor": None, "status": TurnStatus.FAILED, "agent": "g", "attempts_min": 2, "text": "zebra"}
    assert agents.asked("turns") == [{"person": ADMIN, **turns}]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/api/conversations?limit=0", "`limit`"),
        ("/api/conversations?limit=201", "`limit`"),
        ("/api/turns?limit=many", "`limit`"),
        ("/api/turns?status=done", "completed"),
        ("/api/turns/mine-turn/events?kind=token", "message, trace"),
        ("/api/turns?limt=5", "Did you mean `limit`?"),
        ("/api/chat", "`conversation`"),
        ("/api/chat?conversation=mine&folow=1", "Did you mean `follow`?"),
        ("/api/chat?conversation=mine&follow=perhaps", "`follow`"),
        ("/api/chat?conversation=mine&after=x", "whole number"),
        ("/api/chat?conversation=mine&after=-2", "whole number"),
        ("/api/chat?conversation=mine&after=9999999999999999999", "whole number"),
        ("/api/events?after=1.5", "whole number"),
        ("/api/conversations/mine/export?format=pdf", "`format`"),
    ],
)
async def test_a_query_that_makes_no_sense_is_refused(
    client: httpx2.AsyncClient, agents: FakeAgents, path: str, told: str
) -> None:
    assert told in refusal(await client.get(path), 400, "BAD_REQUEST")
    assert agents.calls == []


async def test_a_turn_s_events_are_told_as_its_stream_tells_them(
    client: httpx2.AsyncClient, agents: FakeAgents
) -> None:
    agents.traced = {"node": "tools", "name": "half \ud800 pair", "step": 2, "phase": "enter"}
    told = (await client.get("/api/turns/mine-turn/events?kind=trace&limit=1&cursor=3")).json()
    data = agents.traced | {"name": "half \ufffd pair"}
    assert told == {
        "items": [{"seq": 7, "event": "trace", "attempt": 1, "at": AT.isoformat(), "data": data}],
        "next": "7",
    }
    [asked] = agents.asked("events")
    assert (asked["limit"], asked["cursor"], asked["kind"]) == (1, "3", EventKind.TRACE)


async def test_turns_are_listed_read_and_cancelled(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    agents.status = TurnStatus.FAILED
    listed = shapes.Page[schemas.TurnSummary].model_validate((await client.get("/api/turns")).json())
    assert (listed.items[0].id, listed.next) == ("mine-turn", "more")
    turn = schemas.TurnReply.model_validate((await client.get("/api/turns/mine-turn")).json())
    assert (turn.reason, turn.error) == (
        "model_unreachable",
        schemas.TurnError(code="MODEL_UNAVAILABLE", message="The model cannot be reached."),
    )
    assert turn.attempts[0].outcome == "died"
    assert turn.cards[0].request == {"ask": "?"}
    assert (await client.post("/api/turns/mine-turn/cancel")).status_code == 200
    agents.status = TurnStatus.RUNNING
    cancelled = await client.post("/api/turns/mine-turn/cancel", json={})
    assert cancelled.status_code == 202
    assert schemas.TurnSummary.model_validate(cancelled.json()).cancel_requested_at is not None


async def test_instants_are_told_with_their_zone(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/api/conversations/mine")).json()["created_at"] == "2026-01-02T03:04:05+00:00"


async def test_what_json_cannot_hold_does_not_break_a_conversation(
    client: httpx2.AsyncClient, agents: FakeAgents
) -> None:
    agents.messages = [{"id": "m", "role": "tool", "content": "half \ud800 pair"}]
    agents.state = {"n": float("nan"), "deep": [{"x": float("inf")}]}
    read = (await client.get("/api/conversations/mine")).json()
    assert read["messages"][0]["content"] == "half \ufffd pair"
    assert read["state"] == {"n": None, "deep": [{"x": None}]}


@pytest.mark.parametrize("id", ["nope", "x" * 65, "a.b", "..%2f..%2fetc", "%00", "é", "a%20b", "a'%20OR%201=1--"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/conversations/{}"),
        ("PATCH", "/api/conversations/{}"),
        ("DELETE", "/api/conversations/{}"),
        ("GET", "/api/conversations/{}/export"),
        ("GET", "/api/turns/{}"),
        ("POST", "/api/turns/{}/cancel"),
        ("GET", "/api/turns/{}/events"),
        ("GET", "/api/chat?conversation={}"),
    ],
)
async def test_an_unknown_or_malformed_id_is_not_found(
    client: httpx2.AsyncClient, method: str, path: str, id: str
) -> None:
    body = {"title": "t"} if method == "PATCH" else None
    refusal(await client.request(method, path.format(id), json=body), 404, "NOT_FOUND")


async def test_a_malformed_conversation_in_a_body_is_not_found(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    refusal(await client.post("/api/chat", json={"message": "a", "conversation": "../x"}), 404, "NOT_FOUND")
    assert agents.calls == []


@pytest.mark.parametrize("path", ["/api/nope", "/api/", "/api/chat/", "/api/conversations/a/b/c", "/nope", "/api/docs"])
async def test_an_unknown_route_is_a_json_404(client: httpx2.AsyncClient, path: str) -> None:
    refusal(await client.get(path), 404, "NOT_FOUND")
    refusal(await client.post(path, json={}), 404, "NOT_FOUND")


async def test_a_wrong_method_is_told_with_the_right_ones(client: httpx2.AsyncClient) -> None:
    response = await client.put("/api/turns", json={})
    assert "GET" in refusal(response, 405, "METHOD_NOT_ALLOWED")
    assert response.headers["allow"] == "GET"
    refusal(await client.request("BREW", "/api/healthz"), 405, "METHOD_NOT_ALLOWED")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (StorageFull(), 507),
        (StorageError(), 503),
        (NotReady(), 503),
        (CardDecided("Ann decided at noon."), 409),
    ],
)
async def test_errors_of_the_port_have_their_status(
    client: httpx2.AsyncClient, agents: FakeAgents, error: PerdureError, status: int
) -> None:
    agents.fails_with = error
    assert refusal(await client.post("/api/chat", json={"message": "a"}), status, error.code) == error.message


@pytest.mark.parametrize("error", [ValueError("secret detail"), PerdureError("secret detail"), KeyError("secret")])
async def test_a_fault_is_told_without_its_details(
    client: httpx2.AsyncClient, agents: FakeAgents, error: Exception
) -> None:
    agents.fails_with = error
    response = await client.get("/api/turns")
    assert "log" in refusal(response, 500, "INTERNAL")
    assert "secret" not in response.text
    agents.fails_with = None
    assert (await client.get("/api/turns")).status_code == 200


async def test_agents_are_named_with_their_problems(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    agents.problems = ["The model is missing."]
    reply = schemas.AgentsReply.model_validate((await client.get("/api/agents")).json())
    assert reply.items[0].problems == ["The model is missing."]


async def test_readiness_tells_degraded_from_unready(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    assert (await client.get("/api/readyz")).json() == {"status": "ready", "reasons": [], "notices": []}
    agents.problems = ["The model is missing."]
    response = await client.get("/api/readyz")
    assert (response.status_code, response.json()["status"]) == (200, "degraded")
    assert response.json()["reasons"] == ["agent: The model is missing."]
    agents.why_unready = "Draining."
    response = await client.get("/api/readyz")
    assert (response.status_code, response.json()["reasons"][0]) == (503, "Draining.")


async def test_tools_that_are_not_covered_are_named_and_make_nothing_unready(
    client: httpx2.AsyncClient, agents: FakeAgents
) -> None:
    agents.uncovered = ["wipe", "send"]
    ready = (await client.get("/api/readyz")).json()
    assert (ready["status"], ready["reasons"]) == ("ready", [])
    assert "wipe, send" in ready["notices"][0] and "agent:" in ready["notices"][0]
    assert (await client.get("/api/agents")).json()["items"][0]["uncovered_tools"] == ["wipe", "send"]


async def test_metrics_have_bounded_labels(client: httpx2.AsyncClient) -> None:
    await client.get("/api/conversations/mine")
    await client.get("/api/conversations/" + "x" * 50)
    await client.get("/surprise")
    await client.request("BREW", "/surprise")
    text = (await client.get("/metrics")).text
    assert 'perdure_turns{status="running"} 3.0' in text
    assert "perdure_commits_total 7.0" in text
    assert "perdure_database_bytes 4096.0" in text
    assert 'route="/api/conversations/{id}"' in text
    assert 'method="other"' in text
    assert "xxx" not in text
    assert "surprise" not in text


async def test_the_description_covers_every_route_and_its_errors(client: httpx2.AsyncClient) -> None:
    described = (await client.get("/api/openapi.json")).json()
    assert described["components"]["schemas"].keys() >= {"ErrorEnvelope", "ChatRequest", "TurnReply"}
    assert "HTTPValidationError" not in json.dumps(described)
    for path, operations in described["paths"].items():
        for operation in operations.values():
            assert operation["summary"]
            assert "403" in operation["responses"]
            assert ("401" in operation["responses"]) == (path != "/api/healthz")
    chat = described["paths"]["/api/chat"]
    assert chat["post"]["responses"].keys() >= {"202", "400", "404", "409", "413", "422", "503", "507"}
    assert "text/event-stream" in chat["get"]["responses"]["200"]["content"]
    assert described["components"]["schemas"]["ChatRequest"]["examples"]


async def test_the_numbers_that_a_state_can_hold_are_taken_as_they_are(
    client: httpx2.AsyncClient, agents: FakeAgents
) -> None:
    body = b'{"input": {"a": [9223372036854775807, -9223372036854775808, 1.7976931348623157e308, -0.0, 5e-324]}}'
    headers = {"Content-Type": "application/json"}
    assert (await client.post("/api/chat", content=body, headers=headers)).status_code == 202
    assert agents.asked("start")[0]["input"]["input"]["a"] == [2**63 - 1, -(2**63), 1.7976931348623157e308, 0.0, 5e-324]


async def test_what_is_wrong_with_a_field_is_one_sentence_with_one_full_stop(client: httpx2.AsyncClient) -> None:
    for body in ({"message": ""}, {"message": 3}, {"message": "a", "when_busy": "maybe"}, {"resume": True}):
        message = refusal(await client.post("/api/chat", json=body), 400, "BAD_REQUEST")
        assert message.endswith(".") and ".." not in message


@pytest.mark.parametrize("path", ["/", "/api/healthz", "/api/readyz", "/api/openapi.json"])
async def test_a_monitor_may_ask_for_the_head_alone(client: httpx2.AsyncClient, agents: FakeAgents, path: str) -> None:
    head, whole = await client.head(path), await client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Length"] == whole.headers["Content-Length"]
    assert head.headers["Content-Type"] == whole.headers["Content-Type"]
    agents.why_unready = "The disk is full."
    assert (await client.head("/api/readyz")).status_code == 503


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/chat", "GET, POST"),
        ("PUT", "/api/conversations/mine", "DELETE, GET, PATCH"),
        ("HEAD", "/api/conversations/mine", "DELETE, GET, PATCH"),
        ("DELETE", "/api/readyz", "GET, HEAD"),
        ("GET", "/api/turns/mine-turn/cancel", "POST"),
    ],
)
async def test_a_wrong_method_is_answered_with_every_method_of_the_path(
    client: httpx2.AsyncClient, method: str, path: str, allowed: str
) -> None:
    response = await client.request(method, path)
    assert (response.status_code, response.headers["Allow"]) == (405, allowed)
    assert method == "HEAD" or allowed in response.json()["message"]


async def test_an_agent_is_forgotten_by_its_name(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    response = await client.delete("/api/agents/an%2Fold%20one")
    assert response.status_code == 404  # no name of an agent has a slash
    response = await client.delete("/api/agents/shop-2")
    assert (response.status_code, response.content) == (204, b"")
    assert [(asked["person"], asked["agent"]) for asked in agents.asked("forget")] == [(ADMIN, "shop-2")]


@pytest.mark.parametrize(
    ("error", "status"), [(NotFound, 404), (AgentInUse, 409), (AgentUnavailable, 503), (StorageFull, 507)]
)
async def test_an_agent_that_is_not_forgotten_stays_for_a_reason(
    client: httpx2.AsyncClient, agents: FakeAgents, error: type[PerdureError], status: int
) -> None:
    agents.fails_with = error("The reason.")
    assert refusal(await client.delete("/api/agents/shop"), status, error.code) == "The reason."
