"""Forks over a real server: while a card waits, edited, regenerated, after the parent is deleted, and across kill -9."""

from __future__ import annotations

import json
from typing import Any

import apsw
import httpx2
import pytest

from tests.acceptance.conftest import CommandLine, ServerProcess, eventually

RESTART = "restart the service"


def fork(server: ServerProcess, conversation: str, begin: dict[str, str], **more: Any) -> dict[str, Any]:
    headers = more.pop("headers", {})
    answer = server.post(f"/api/conversations/{conversation}/fork", {"from": begin, **more}, headers=headers)
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


def texts(server: ServerProcess, conversation: str) -> list[tuple[str, str]]:
    return [(each["role"], each["content"]) for each in server.messages(conversation)]


def said(server: ServerProcess, *messages: str) -> str:
    """A conversation in which all of these were answered."""
    conversation = None
    for message in messages:
        more: dict[str, Any] = {"conversation": conversation} if conversation else {}
        accepted = server.say(message, **more)
        conversation = accepted["conversation"]
        assert server.until(accepted["turn"], "completed", "failed")["status"] == "completed"
    assert conversation is not None
    return conversation


def test_a_conversation_is_forked_while_it_waits_and_both_go_on(running: ServerProcess) -> None:
    source = said(running, "hello")
    parked = running.say(RESTART, conversation=source)
    (card,) = running.waiting(parked["turn"])
    before = running.get(f"/api/conversations/{source}").json()
    asked = next(each for each in reversed(before["messages"]) if each["role"] == "user")
    made = fork(running, source, {"message": asked["id"]}, message="hello again")
    assert made["forked_from"]["message"] == asked["id"]
    seen = running.get(f"/api/conversations/{made['conversation']}").json()
    assert [each["content"] for each in seen["messages"]][:2] == [each["content"] for each in before["messages"]][:2]
    assert running.until(made["turn"], "completed", "failed")["status"] == "completed"
    assert texts(running, made["conversation"])[2] == ("user", "hello again")
    after = running.get(f"/api/conversations/{source}").json()
    assert after == before, "the conversation stays as it is"
    mine = running.get("/api/approvals", params={"conversation": made["conversation"]}).json()["items"]
    assert mine == []
    assert running.post(f"/api/approvals/{card['id']}", {"decision": "approve"}).status_code == 202
    assert running.until(parked["turn"], "completed", "failed")["status"] == "completed"
    (point,) = running.get(f"/api/conversations/{source}/branches").json()["items"]
    assert point["message"] == asked["id"]
    assert [each["conversation"] for each in point["branches"]] == [source, made["conversation"]]
    assert [each["current"] for each in point["branches"]] == [True, False]


def test_a_fork_within_a_step_is_valid_for_the_model_and_starts_no_call_of_the_other(running: ServerProcess) -> None:
    parked = running.say(RESTART)
    running.waiting(parked["turn"])
    before = len(running.effect_lines())
    history = running.get(f"/api/conversations/{parked['conversation']}/checkpoints").json()["items"]
    assert history[0]["interrupts"], "the head waits for a person"
    assert history[0]["next"] and history[0]["turn"] == parked["turn"]
    made = fork(running, parked["conversation"], {"checkpoint": history[0]["id"]}, message="hello")
    assert made["forked_from"] == {
        "conversation": parked["conversation"],
        "message": None,
        "checkpoint": history[0]["id"],
    }
    assert running.until(made["turn"], "completed", "failed")["status"] == "completed"
    messages = running.messages(made["conversation"])
    calls = {call["id"] for each in messages for call in each.get("tool_calls", ())}
    results = [each for each in messages if each["role"] == "tool"]
    assert {each["tool_call_id"] for each in results} == calls
    assert "was not started" in results[0]["content"]
    assert len(running.effect_lines()) == before
    assert running.turn(parked["turn"])["status"] == "parked"
    running.post(f"/api/turns/{parked['turn']}/cancel")


def test_regenerating_sends_the_same_message_once_more_in_a_fork(running: ServerProcess) -> None:
    source = said(running, "hello", "and how are you?")
    messages = running.messages(source)
    made = fork(running, source, {"message": messages[-1]["id"]}, title="Once more")
    assert made["status"] == "queued"
    assert running.until(made["turn"], "completed", "failed")["status"] == "completed"
    again = running.messages(made["conversation"])
    assert [each["content"] for each in again[:3]] == [each["content"] for each in messages[:3]]
    assert again[2]["id"] != messages[2]["id"]
    summary = running.get(f"/api/conversations/{made['conversation']}").json()
    assert (summary["title"], summary["message_count"]) == ("Once more", 4)
    assert running.messages(source) == messages


def test_the_stream_of_a_fork_tells_its_own_turns_alone(running: ServerProcess) -> None:
    source = said(running, "hello")
    first = running.messages(source)[0]["id"]
    made = fork(running, source, {"message": first}, message="hi")
    stream = running.get("/api/chat", params={"conversation": made["conversation"]}).text
    assert "event: end" in stream
    told = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: ") and len(line) > 8]
    assert {each["turn"] for each in told if "turn" in each} == {made["turn"]}
    empty = fork(running, source, {"message": running.messages(source)[-2]["id"]})
    assert (empty["turn"], running.messages(empty["conversation"])) == (None, [])
    watched = running.get("/api/chat", params={"conversation": empty["conversation"]}).text
    assert "event:" not in watched, "there is no turn to watch"


def test_a_fork_outlives_its_parent_and_nothing_of_the_rest_is_found(running: ServerProcess) -> None:
    source = said(running, "remember the albatross", "remember the pelican")
    second = [each for each in running.messages(source) if each["role"] == "user"][1]
    made = fork(running, source, {"message": second["id"]}, message="remember the heron")
    running.until(made["turn"], "completed", "failed")
    before = running.messages(made["conversation"])
    assert running.request("DELETE", f"/api/conversations/{source}").status_code == 204
    assert running.messages(made["conversation"]) == before
    found = {word: _found(running, word) for word in ("albatross", "pelican", "heron")}
    assert found == {"albatross": [made["conversation"]], "pelican": [], "heron": [made["conversation"]]}
    history = running.get(f"/api/conversations/{made['conversation']}/checkpoints").json()["items"]
    assert [each["step"] for each in history] == sorted((each["step"] for each in history), reverse=True)
    one = running.get(f"/api/conversations/{made['conversation']}/checkpoints/{history[0]['id']}").json()
    assert len(one["values"]["messages"]) == one["message_count"] == len(before)
    again = running.say("go on", conversation=made["conversation"])
    assert running.until(again["turn"], "completed", "failed")["status"] == "completed"


def _found(server: ServerProcess, word: str) -> list[str]:
    return [each["id"] for each in server.get("/api/conversations", params={"q": word}).json()["items"]]


def test_anothers_conversation_is_not_there_to_fork(running: ServerProcess) -> None:
    source = said(running, "hello")
    secret = running.post("/api/tokens", {"name": "mira", "role": "user"}).json()["secret"]
    message = running.messages(source)[0]["id"]
    for method, path in [("POST", "fork"), ("GET", "branches"), ("GET", "checkpoints"), ("GET", "checkpoints/c")]:
        body = {"from": {"message": message}} if method == "POST" else None
        answer = running.request(method, f"/api/conversations/{source}/{path}", json=body, secret=secret)
        assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND"), path
    assert running.get("/api/conversations", params={"q": "hello"}, secret=secret).json()["items"] == []
    assert sum(running.get("/api/turns/counts", secret=secret).json().values()) == 0
    assert running.get("/api/server", secret=secret).json()["database"] is None
    told = running.get("/api/server").json()
    assert told["database"]["bytes"] > 0
    assert [each["pid"] for each in told["workers"]] == [running.pid]


@pytest.mark.parametrize("side", ["before", "after"])
def test_kill_9_at_the_accept_of_a_fork_leaves_one_fork_or_none(server: ServerProcess, side: str) -> None:
    server.start()
    source = said(server, "hello")
    before = server.messages(source)
    server.stop()
    server.start(PERDURE_FAILPOINTS=f"accept.{side}:kill")
    asked = {"from": {"message": before[0]["id"]}, "message": "hello again"}
    key = {"Idempotency-Key": "one-fork"}
    with pytest.raises(httpx2.HTTPError):
        server.post(f"/api/conversations/{source}/fork", asked, headers=key)
    assert server.process is not None
    server.process.wait(60)
    server.start()
    listed = server.get("/api/conversations").json()["items"]
    assert len(listed) == (1 if side == "before" else 2)
    made = fork(server, source, headers=key, begin=asked["from"], message="hello again")  # type: ignore[arg-type]
    assert server.until(made["turn"], "completed", "failed")["status"] == "completed"
    assert len(server.get("/api/conversations").json()["items"]) == 2
    assert texts(server, made["conversation"])[0] == ("user", "hello again")
    assert server.messages(source) == before
    server.stop()
    connection = apsw.Connection(str(server.database), flags=apsw.SQLITE_OPEN_READONLY)
    assert list(connection.execute("PRAGMA integrity_check")) == [("ok",)]
    assert list(connection.execute("PRAGMA foreign_key_check")) == []
    connection.close()


def test_conversations_are_forked_and_searched_from_the_command_line(running: ServerProcess) -> None:
    perdure = CommandLine(running.folder)
    source = said(running, "tell me of the kingfisher")
    message = running.messages(source)[0]["id"]
    done = perdure("conversations", "fork", source, "--message", message, "--say", "and of the wagtail")
    assert done.returncode == 0, done.stderr
    made = done.stdout.strip().splitlines()[0]
    eventually(lambda: len(running.messages(made)) == 2, "the fork is answered")
    assert [each["id"] for each in perdure.json("conversations", "search", "wagtail")["items"]] == [made]
    refused = perdure("conversations", "fork", source)
    assert refused.returncode != 0 and "--checkpoint" in refused.stderr
    retried = perdure.json("turns", "list", "--attempts-min", "2")["items"]
    assert [turn for turn in retried if turn["conversation"] in {source, made}] == []
    assert [turn["conversation"] for turn in perdure.json("turns", "list", "--search", "wagtail")["items"]] == [made]
