"""Forks, their branches, checkpoint history and the operator's lists over HTTP, in front of the scripted port."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from perdure.agent.bounded import Bounded
from perdure.errors import ForkPointGone
from perdure.turns import Person, Role
from tests.unit.api.conftest import AT, USER_SECRET, FakeAgents, Running

ADMIN = Person("admin", "local", Role.OPERATOR, admin=True)

CHECKPOINT = {
    "id": "c-1",
    "parent": None,
    "step": -1,
    "source": "input",
    "turn": "turn-1",
    "created_at": AT.isoformat(),
    "next": ["model"],
    "tasks": [{"id": "t", "name": "model", "error": None, "interrupts": [{"id": "i", "value": {"ask": 1}}]}],
    "message_count": 0,
    "interrupts": [{"id": "i", "value": {"ask": 1}}],
}


async def test_an_edit_becomes_the_first_turn_of_a_fork(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    asked = {"from": {"message": "m-1"}, "message": "Say it in French.", "title": " What if "}
    response = await client.post("/api/conversations/mine/fork", json=asked)
    assert response.status_code == 202
    assert response.headers["location"] == "/api/chat?conversation=fork"
    assert response.json() == {
        "conversation": "fork",
        "turn": "fork-turn",
        "status": "queued",
        "forked_from": {"conversation": "mine", "message": "msg-turn-0", "checkpoint": None},
    }
    (call,) = agents.asked("fork")
    assert call == {
        "person": ADMIN,
        "conversation": "mine",
        "message": "m-1",
        "checkpoint": None,
        "text": "Say it in French.",
        "title": "What if",
        "request_key": None,
    }


async def test_a_fork_without_a_message_has_no_turn(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    response = await client.post("/api/conversations/mine/fork", json={"from": {"checkpoint": "c-9"}})
    assert (response.json()["turn"], response.json()["status"]) == (None, None)
    assert response.json()["forked_from"]["checkpoint"] == "c-9"


async def test_the_key_of_a_fork_stands_for_its_body_and_its_conversation(
    client: httpx2.AsyncClient, agents: FakeAgents
) -> None:
    for path, body in [
        ("mine", {"from": {"message": "m"}}),
        ("mine", {"from": {"message": "m"}, "message": None}),
        ("mine", {"from": {"checkpoint": "m"}}),
        ("other", {"from": {"message": "m"}}),
    ]:
        agents.conversations_of[path] = "local"
        headers = {"Idempotency-Key": "k"}
        assert (await client.post(f"/api/conversations/{path}/fork", json=body, headers=headers)).status_code == 202
    keys = [call["request_key"].digest for call in agents.asked("fork")]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "from"),
        ({"from": {}}, "either the `message`"),
        ({"from": {"message": "m", "checkpoint": "c"}}, "either the `message`"),
        ({"from": {"mesage": "m"}}, "`message`"),
        ({"from": "m"}, "from"),
        ({"from_": {"message": "m"}}, "`from`"),
        ({"from": {"message": "m"}, "message": "  "}, "empty"),
        ({"from": {"message": "m"}, "title": "a\nb"}, "title"),
        ({"from": {"message": "m"}, "agent": "other"}, "`agent`"),
        ({"from": {"message": 5}}, "message"),
    ],
)
async def test_a_fork_that_is_none_is_refused_with_the_field(
    client: httpx2.AsyncClient, agents: FakeAgents, body: dict[str, Any], told: str
) -> None:
    response = await client.post("/api/conversations/mine/fork", json=body)
    assert (response.status_code, response.json()["code"]) == (400, "BAD_REQUEST")
    assert told in response.json()["message"]
    assert agents.calls == []


async def test_a_place_that_retention_removed_is_a_conflict(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    agents.fails_with = ForkPointGone(conversation="mine")
    response = await client.post("/api/conversations/mine/fork", json={"from": {"message": "m"}})
    assert (response.status_code, response.json()["code"]) == (409, "FORK_POINT_GONE")
    assert "later message" in response.json()["message"]


async def test_branches_are_told_with_the_current_one_marked(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    (point,) = (await client.get("/api/conversations/mine/branches")).json()["items"]
    assert (point["message"], point["checkpoint"]) == ("msg-turn-1", "c-1")
    assert [(each["conversation"], each["message"], each["current"]) for each in point["branches"]] == [
        ("mine", "msg-turn-1", True),
        ("fork", None, False),
    ]


async def test_the_history_comes_in_pages_and_one_checkpoint_with_its_values(
    client: httpx2.AsyncClient, agents: FakeAgents
) -> None:
    agents.history = [CHECKPOINT]
    page = (await client.get("/api/conversations/mine/checkpoints?limit=3&cursor=x")).json()
    assert page["next"] == "more"
    assert {**page["items"][0], "created_at": AT.isoformat()} == CHECKPOINT
    assert agents.asked("checkpoints")[0]["limit"] == 3
    one = (await client.get("/api/conversations/mine/checkpoints/c-1")).json()
    assert (one["values"], one["truncated"]) == ({"messages": []}, False)
    assert (await client.get("/api/conversations/mine/checkpoints?limit=51")).status_code == 400
    assert (await client.get("/api/conversations/mine/checkpoints/no%20id")).status_code == 404


async def test_counts_name_every_state(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    counts = (await client.get("/api/turns/counts?agent=g")).json()
    assert counts["running"] == len(agents.conversations_of)
    assert len(counts) == 8
    assert agents.asked("turn_counts")[0]["agent"] == "g"


async def test_an_operator_sees_what_serves_and_a_user_nothing_of_others(server: Running) -> None:
    async with server.client() as operator, server.client(USER_SECRET) as user:
        told = (await operator.get("/api/server")).json()
        assert [(each["host"], each["pid"], each["draining"]) for each in told["workers"]] == [
            ("box", 1, True),
            ("box.two", 17, False),
        ]
        assert told["database"] == {"path": "/data/perdure.db", "bytes": 10, "wal_bytes": 20}
        assert told["mcp_servers"][0]["state"] == "failing"
        seen = (await user.get("/api/server")).json()
        assert seen["database"] is None
        assert [(each["host"], each["owner"], each["running"]) for each in seen["workers"]] == [(None, None, 2)]


def test_values_are_cut_to_a_size_that_a_browser_takes() -> None:
    bounded = Bounded(most=1_000, most_in_a_text=100)
    cut = bounded.of({"long": "x" * 500, "many": list(range(5_000)), "never": {"reached": True}})
    assert bounded.truncated
    assert cut["long"] == "x" * 100 + "… [400 more characters]"
    assert len(cut["many"]) < 1_000 and cut["many"][-1].endswith("more]")
    assert cut["…"] == "[1 more]"
    small = {"a": [1, None, True, 2.5, "x"], "b": {"c": "d"}}
    whole = Bounded()
    assert whole.of(small) == small and not whole.truncated
    deep: Any = "end"
    for _ in range(200):
        deep = [deep]
    nested = Bounded()
    nested.of(deep)
    assert nested.truncated
