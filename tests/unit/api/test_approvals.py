"""What waits for a person, over HTTP: lists, cards, decisions, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx2
import pytest

from perdure.api import shapes
from perdure.api.cards import MAX_NOTE, CallReply, CardReply, DecidedReply
from perdure.effects import EffectClass
from perdure.ledger import NOT_BEGUN, PAUSED, CallState, ToolCall
from perdure.store.base import StoredCall
from perdure.turns import Card, CardState, DecisionKind, TurnStatus, Verdict

from .conftest import AT, FakeAgents, gate_card


def uncertain_card(id: str, conversation: str = "mine") -> Card:
    return replace(gate_card(id, conversation, "local"), kind="uncertain", why="The process died while it ran.")


def question_card(id: str, conversation: str = "mine", request: Any = None) -> Card:
    return replace(
        gate_card(id, conversation, "local"), kind="interrupt", call=None, interrupt_id=f"i-{id}", request=request
    )


def refusal(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    told = dict(response.json())
    shapes.ErrorEnvelope.model_validate(told)
    assert told["code"] == code
    return told


@pytest.fixture(autouse=True)
def cards(agents: FakeAgents) -> None:
    agents.cards_of = {
        "k1": gate_card("k1", "mine", "local"),
        "k2": uncertain_card("k2", "anns"),
        "k3": question_card("k3", "theirs", {"question": "May I?"}),
    }


# -- lists and cards --------------------------------------------------------------------------------------------------


async def test_everything_that_waits_is_listed_with_all_that_a_person_needs(client: httpx2.AsyncClient) -> None:
    answer = (await client.get("/api/approvals")).json()
    shapes.Page[CardReply].model_validate(answer)
    assert answer["next"] is None
    gate, unsure, question = answer["items"]
    assert gate == {
        "id": "k1",
        "turn": "mine-turn",
        "conversation": "mine",
        "interrupt_id": "gate-k1",
        "kind": "approval",
        "state": "opened",
        "tool": "restart_service",
        "call_id": "call-1",
        "message_id": "m1",
        "server": None,
        "arguments": {"name": "web"},
        "digest": gate["digest"],
        "effect_class": "once",
        "key": "k1-key",
        "opened_at": "2026-01-02T03:04:05+00:00",
        "expires_at": None,
    }
    assert len(gate["digest"]) == 64
    assert (unsure["kind"], unsure["why"]) == ("uncertain", "The process died while it ran.")
    assert (question["kind"], question["request"], question["tool"]) == ("interrupt", {"question": "May I?"}, None)


async def test_a_question_that_asks_null_still_shows_its_request(
    client: httpx2.AsyncClient, agents: FakeAgents
) -> None:
    agents.cards_of = {"k": question_card("k", request=None)}
    assert (await client.get("/api/approvals/k")).json()["request"] is None


async def test_the_list_is_paged_and_narrowed_to_a_conversation(client: httpx2.AsyncClient) -> None:
    first = (await client.get("/api/approvals?limit=2")).json()
    second = (await client.get(f"/api/approvals?limit=2&cursor={first['next']}")).json()
    assert [card["id"] for card in [*first["items"], *second["items"]]] == ["k1", "k2", "k3"]
    mine = (await client.get("/api/approvals?conversation=anns")).json()["items"]
    assert [card["id"] for card in mine] == ["k2"]


@pytest.mark.parametrize(
    ("query", "told"), [("limit=0", "`limit`"), ("limit=201", "`limit`"), ("state=opened", "no field `state`")]
)
async def test_a_query_that_makes_no_sense_is_refused(client: httpx2.AsyncClient, query: str, told: str) -> None:
    assert told in refusal(await client.get(f"/api/approvals?{query}"), 400, "BAD_REQUEST")["message"]


@pytest.mark.parametrize("id", ["nope", "x" * 65, "a.b", "%00", "é", "a'%20OR%201=1--", "..%2f.."])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_unknown_or_malformed_card_is_refused_with_those_that_wait(
    client: httpx2.AsyncClient, method: str, id: str
) -> None:
    body = {"decision": "approve"} if method == "POST" else None
    response = await client.request(method, f"/api/approvals/{id}", json=body)
    if "%2f" in id:
        refusal(response, 404, "NOT_FOUND")  # another path altogether
    else:
        assert refusal(response, 404, "APPROVAL_UNKNOWN")["pending"] == ["k1", "k2", "k3"]


# -- decisions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("card", "body", "verdict"),
    [
        ("k1", {"decision": "approve"}, Verdict(DecisionKind.APPROVE)),
        ("k1", {"decision": "approve", "arguments": {"name": "db"}}, Verdict(DecisionKind.APPROVE, {"name": "db"})),
        ("k1", {"decision": "approve", "arguments": {}}, Verdict(DecisionKind.APPROVE, {})),
        ("k1", {"decision": "deny"}, Verdict(DecisionKind.DENY)),
        ("k1", {"decision": "deny", "note": " not now\n"}, Verdict(DecisionKind.DENY, note="not now")),
        ("k1", {"decision": "deny", "note": "  ", "arguments": None}, Verdict(DecisionKind.DENY)),
        ("k2", {"decision": "happened"}, Verdict(DecisionKind.HAPPENED)),
        (
            "k2",
            {"decision": "happened", "result": [1, {"a": "b"}]},
            Verdict(DecisionKind.HAPPENED, result=[1, {"a": "b"}]),
        ),
        ("k2", {"decision": "retry"}, Verdict(DecisionKind.RETRY)),
        ("k2", {"decision": "give_up", "note": "lost"}, Verdict(DecisionKind.GIVE_UP, note="lost")),
        ("k3", {"decision": "answer", "value": False}, Verdict(DecisionKind.ANSWER, value=False)),
        ("k3", {"decision": "answer", "value": None}, Verdict(DecisionKind.ANSWER)),
    ],
)
async def test_a_decision_reaches_the_port_as_it_was_said(
    client: httpx2.AsyncClient, agents: FakeAgents, card: str, body: Any, verdict: Verdict
) -> None:
    response = await client.post(f"/api/approvals/{card}", json=body)
    assert response.status_code == 202, response.text
    reply = DecidedReply.model_validate(response.json())
    assert (reply.turn_status, reply.card.state, reply.card.decided_by) == (
        TurnStatus.QUEUED,
        CardState.DECIDED,
        "admin",
    )
    assert response.json()["card"]["decision"] == body["decision"]
    (asked,) = agents.asked("decide")
    assert (asked["card"], asked["verdict"]) == (card, verdict)


async def test_what_was_decided_is_shown_with_the_card(client: httpx2.AsyncClient) -> None:
    await client.post("/api/approvals/k1", json={"decision": "approve", "arguments": {"name": "db"}, "note": "ok"})
    card = (await client.get("/api/approvals/k1")).json()
    assert (card["state"], card["decision"], card["decided_by"]) == ("decided", "approve", "admin")
    assert (card["arguments"], card["decided_arguments"], card["note"]) == ({"name": "web"}, {"name": "db"}, "ok")
    assert card["decided_at"] == "2026-01-02T03:04:05+00:00"
    assert [each["id"] for each in (await client.get("/api/approvals")).json()["items"]] == ["k2", "k3"]


async def test_while_another_card_of_the_turn_is_open_the_answer_is_200_and_the_turn_stays_parked(
    client: httpx2.AsyncClient, agents: FakeAgents
) -> None:
    agents.cards_of["k4"] = gate_card("k4", "mine", "local")
    first = await client.post("/api/approvals/k4", json={"decision": "approve"})
    assert (first.status_code, first.json()["turn_status"]) == (200, "parked")
    last = await client.post("/api/approvals/k1", json={"decision": "deny"})
    assert (last.status_code, last.json()["turn_status"]) == (202, "queued")


async def test_the_second_to_decide_is_told_who_did_what_and_when(client: httpx2.AsyncClient) -> None:
    await client.post("/api/approvals/k1", json={"decision": "deny"})
    told = refusal(await client.post("/api/approvals/k1", json={"decision": "approve"}), 409, "APPROVAL_DECIDED")
    assert (told["decision"], told["decided_by"], told["decided_at"]) == ("deny", "admin", "2026-01-02T03:04:05+00:00")
    assert told["pending"] == ["k2", "k3"]


@pytest.mark.parametrize(
    ("card", "decision", "takes"),
    [
        ("k1", "retry", "`approve` or `deny`"),
        ("k1", "yes", "`approve` or `deny`"),
        ("k2", "approve", "`happened` or `retry` or `give_up`"),
        ("k2", "", "`happened` or `retry` or `give_up`"),
        ("k3", "approve", "`answer`"),
    ],
)
async def test_a_decision_that_the_card_does_not_take_is_refused_with_those_it_takes(
    client: httpx2.AsyncClient, agents: FakeAgents, card: str, decision: str, takes: str
) -> None:
    response = await client.post(f"/api/approvals/{card}", json={"decision": decision})
    assert takes in refusal(response, 400, "BAD_REQUEST")["message"]
    assert agents.asked("decide") == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "`decision`"),
        ({"decision": None}, "`decision`"),
        ({"decision": ["approve"]}, "`decision`"),
        ({"decision": "x" * 41}, "`decision`"),
        ({"decison": "approve"}, "Did you mean `decision`?"),
        ({"decision": "approve", "force": True}, "no field `force`"),
        ({"decision": "approve", "arguments": "name=db"}, "`arguments`"),
        ({"decision": "approve", "arguments": [1]}, "`arguments`"),
        ({"decision": "approve", "result": "done"}, "`result` goes with `happened`"),
        ({"decision": "approve", "value": 1}, "`value` goes with `answer`"),
        ({"decision": "deny", "arguments": {"name": "db"}}, "`arguments` goes with `approve`"),
        ({"decision": "deny", "note": "x" * (MAX_NOTE + 1)}, "`note`"),
        ({"decision": "deny", "note": 5}, "`note`"),
        ({"decision": "retry", "arguments": {"name": "db"}}, "`arguments` goes with `approve`"),
        ({"decision": "answer"}, "needs the `value`"),
        ([], "JSON object"),
        (None, "JSON object"),
    ],
)
async def test_a_body_that_makes_no_sense_decides_nothing(
    client: httpx2.AsyncClient, agents: FakeAgents, body: Any, told: str
) -> None:
    assert told in refusal(await client.post("/api/approvals/k1", json=body), 400, "BAD_REQUEST")["message"]
    assert agents.asked("decide") == []


async def test_a_decision_of_a_page_needs_that_page_to_be_ours(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    evil = {"Origin": "http://evil.example"}
    refused = await client.post("/api/approvals/k1", json={"decision": "approve"}, headers=evil)
    refusal(refused, 403, "FORBIDDEN")
    assert agents.asked("decide") == []


# -- through the chat route -------------------------------------------------------------------------------------------


async def test_a_resume_answers_questions_and_decides_gates_by_interrupt_id(
    client: httpx2.AsyncClient, agents: FakeAgents
) -> None:
    agents.cards_of["k4"] = question_card("k4")
    said = {"gate-k1": {"decision": "approve", "arguments": {"name": "db"}}, "i-k4": {"decision": "approve"}, "old": 1}
    response = await client.post("/api/chat", json={"conversation": "mine", "resume": said})
    assert response.status_code == 202, response.text
    (asked,) = agents.asked("answer")
    assert asked["answers"] == {
        "gate-k1": Verdict(DecisionKind.APPROVE, {"name": "db"}),
        "i-k4": Verdict(DecisionKind.ANSWER, value={"decision": "approve"}),
        "old": Verdict(DecisionKind.ANSWER, value=1),
    }


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (True, "JSON object"),
        ("approve", "JSON object"),
        ({"decision": "answer", "value": 1}, "`approve` or `deny`"),
        ({"decision": "approve", "why": 1}, "no field `why`"),
        ({"decision": "approve", "arguments": 1}, "`arguments`"),
        ({}, "`decision`"),
    ],
)
async def test_a_resume_of_a_gate_that_is_no_decision_is_refused(
    client: httpx2.AsyncClient, agents: FakeAgents, said: Any, told: str
) -> None:
    message = refusal(
        await client.post("/api/chat", json={"conversation": "mine", "resume": {"gate-k1": said}}), 400, "BAD_REQUEST"
    )["message"]
    assert told in message and "resume.gate-k1" in message
    assert agents.asked("answer") == []


async def test_a_gate_far_down_the_list_of_what_waits_is_found(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    agents.cards_of = {f"q{n}": question_card(f"q{n}") for n in range(450)} | {"k": gate_card("k", "mine", "local")}
    body = {"conversation": "mine", "resume": {"gate-k": {"decision": "deny"}}}
    assert (await client.post("/api/chat", json=body)).status_code == 202
    assert agents.asked("answer")[0]["answers"] == {"gate-k": Verdict(DecisionKind.DENY)}


# -- the turn ---------------------------------------------------------------------------------------------------------


def stored(state: CallState, **more: Any) -> StoredCall:
    call = ToolCall("call-1", "charge", {"amount": 5}, "m1", "bank", EffectClass.KEYED)
    fields: dict[str, Any] = {
        "key": "key-1",
        "turn": "mine-turn",
        "conversation": "mine",
        "call": call,
        "state": state,
        "starts": 2,
        "attempt": 1,
        "epoch": 1,
        "started_at": AT,
    }
    return StoredCall(**(fields | more))


async def test_a_turn_shows_its_calls_and_its_cards(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    agents.called = [stored(CallState.SETTLED, ended_at=AT, status="error")]
    turn = (await client.get("/api/turns/mine-turn")).json()
    (call,) = turn["calls"]
    CallReply.model_validate(call)
    assert call == {
        "id": "call-1",
        "message_id": "m1",
        "key": "key-1",
        "name": "charge",
        "server": "bank",
        "arguments": {"amount": 5},
        "effect_class": "keyed",
        "state": "done",
        "status": "error",
        "starts": 2,
        "attempt": 1,
        "started_at": "2026-01-02T03:04:05+00:00",
        "ended_at": "2026-01-02T03:04:05+00:00",
        "error": None,
    }
    assert [card["kind"] for card in turn["cards"]] == ["interrupt", "approval", "uncertain", "interrupt"]
    assert turn["spent"] == {"model_calls": 0, "tool_calls": 0, "tokens": 0, "seconds": 0.0}


@pytest.mark.parametrize(
    ("status", "call", "shown"),
    [
        (TurnStatus.RUNNING, stored(CallState.STARTED), "running"),
        (TurnStatus.RUNNING, stored(CallState.RECORDED, status="success", ended_at=AT), "done"),
        (TurnStatus.RUNNING, stored(CallState.STARTED, epoch=0), "unknown"),
        (TurnStatus.RUNNING, stored(CallState.STARTED, error="The server went away."), "unknown"),
        (TurnStatus.QUEUED, stored(CallState.STARTED), "unknown"),
        (TurnStatus.PARKED, stored(CallState.STARTED), "unknown"),
        (TurnStatus.FAILED, stored(CallState.STARTED), "unknown"),
        (TurnStatus.PARKED, stored(CallState.STARTED, error=PAUSED), "paused"),
        (TurnStatus.CANCELLED, stored(CallState.STARTED, error=NOT_BEGUN), "paused"),
    ],
)
async def test_a_started_call_runs_only_while_the_attempt_that_started_it_lives(
    client: httpx2.AsyncClient, agents: FakeAgents, status: TurnStatus, call: StoredCall, shown: str
) -> None:
    agents.status, agents.called = status, [call]
    assert (await client.get("/api/turns/mine-turn")).json()["calls"][0]["state"] == shown
