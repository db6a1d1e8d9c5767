"""The server from outside: what it refuses and how, and that a restart of either kind loses nothing."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.acceptance.conftest import LIMIT_SECONDS, CommandLine, ServerProcess, environment, eventually

ANSWER = "All four steps are done: one, two, three, four."

# -- bad input: a clear error, nothing lost ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"message": ""}',
        b'{"message": "  \\n"}',
        b'{"message": 3}',
        b'{"mesage": "hi"}',
        b'{"message": "hi", "input": {}}',
        b'{"message": "hi", "when_busy": "maybe"}',
        b'{"message": "hi", "agent": "nobody"}',
        b'{"message": "\xff\xfe"}',
    ],
)
def test_a_body_that_is_no_message_is_refused_in_words(running: ServerProcess, body: bytes) -> None:
    answer = running.request("POST", "/api/chat", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == "BAD_REQUEST" and answer.json()["message"]


@pytest.mark.parametrize("message", ["nul \0 inside", "lone \ud800 surrogate", "\U0001f600 ok", "\u202eright to left"])
def test_a_strange_message_is_refused_in_words_or_answered_whole(running: ServerProcess, message: str) -> None:
    body = json.dumps({"message": message}).encode()
    answer = running.request("POST", "/api/chat", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in {202, 400}, answer.text
    if answer.status_code == 202:
        running.until(answer.json()["turn"], "completed")


def test_a_huge_body_is_refused_and_the_refusal_is_readable_while_it_is_still_being_sent(
    running: ServerProcess,
) -> None:
    host, port = running.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=LIMIT_SECONDS) as connection:
        connection.sendall(
            f"POST /api/chat HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {running.token}\r\n"
            "Content-Type: application/json\r\nContent-Length: 50000000\r\n\r\n".encode()
        )
        connection.sendall(b'{"message": "' + b"x" * 2_000_000)
        answer = b""
        while b"TOO_LARGE" not in answer:
            piece = connection.recv(65_536)
            assert piece, answer
            answer += piece
    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("identity", ["unknown", "../../etc/passwd", "%00", "a" * 5_000, "a b", "1;drop table turns"])
@pytest.mark.parametrize("path", ["/api/conversations/{}", "/api/turns/{}", "/api/conversations/{}/export"])
def test_unknown_and_malformed_ids_are_a_404_in_json(running: ServerProcess, path: str, identity: str) -> None:
    answer = running.get(path.format(identity))
    assert answer.status_code == 404, answer.text
    assert answer.json()["code"] == "NOT_FOUND"


def test_an_unknown_route_is_a_404_in_json(running: ServerProcess) -> None:
    assert running.get("/api/nothing/here").json()["code"] == "NOT_FOUND"


def test_of_two_messages_at_once_one_is_accepted_and_the_other_names_its_turn(running: ServerProcess) -> None:
    first = running.say("/say " + "word " * 50_000)
    second = running.post("/api/chat", {"message": "me too", "conversation": first["conversation"]})
    assert second.status_code == 409
    assert second.json()["code"] == "TURN_IN_PROGRESS" and second.json()["turn"] == first["turn"]
    queued = running.say("and me", conversation=first["conversation"], when_busy="enqueue")
    assert queued["status"] == "waiting"
    assert running.post(f"/api/turns/{first['turn']}/cancel").status_code == 202
    assert running.until(first["turn"], "cancelled") and running.until(queued["turn"], "completed")


def test_resuming_nothing_says_why(running: ServerProcess) -> None:
    accepted = running.say("hello")
    running.until(accepted["turn"], "completed")
    answer = running.post("/api/chat", {"resume": True, "conversation": accepted["conversation"]})
    assert answer.status_code == 409 and answer.json()["code"] == "TURN_NOT_RESUMABLE"
    assert "completed" in answer.json()["message"]


@pytest.mark.parametrize("authorization", [None, "Bearer wrong", "Basic d3Jvbmc=", "Bearer"])
def test_a_missing_or_wrong_token_opens_only_health(running: ServerProcess, authorization: str | None) -> None:
    headers = {"Authorization": authorization} if authorization else {}
    for path in ("/api/conversations", "/api/turns", "/api/chat?conversation=x", "/metrics", "/api/openapi.json"):
        answer = httpx2.get(f"{running.address}{path}", headers=headers, trust_env=False)
        assert answer.status_code == 401, path
    assert httpx2.get(f"{running.address}/api/healthz", trust_env=False).json() == {"status": "ok"}


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}])
def test_a_foreign_host_or_origin_gets_nothing(running: ServerProcess, headers: dict[str, str]) -> None:
    answer = running.post("/api/chat", {"message": "hi"}, headers=headers)
    assert answer.status_code == 403 and answer.json()["code"] == "FORBIDDEN"


def test_a_repeated_request_with_its_key_is_the_same_turn_and_another_body_is_refused(running: ServerProcess) -> None:
    headers = {"Idempotency-Key": "k-1"}
    first = running.post("/api/chat", {"message": "once"}, headers=headers).json()
    assert running.post("/api/chat", {"message": "once"}, headers=headers).json()["turn"] == first["turn"]
    assert running.post("/api/chat", {"message": "twice"}, headers=headers).status_code == 422
    running.until(first["turn"], "completed")


# -- a start that cannot succeed says why and what to do --------------------------------------------------------------


def refused(folder: Path, *arguments: str, **variables: str) -> str:
    """Standard error of a start that ends with exit code 78, without a stack."""
    done = CommandLine(folder)("serve", "--port", "0", *arguments, **variables)
    assert done.returncode == 78, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_broken_mcp_file_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"a": {"command": "x",}}}')
    said = refused(tmp_path, "--mcp-config", "mcp.json")
    assert "mcp.json" in said and "line 1" in said


def test_a_graph_that_does_not_import_is_refused_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = 1\nraise RuntimeError('no luck')\n")
    (tmp_path / "langgraph.json").write_text('{"graphs": {"mine": "./broken.py:graph"}}')
    said = refused(tmp_path)
    assert "broken.py, line 2" in said and "no luck" in said and "mine" in said


def everything(connection: sqlite3.Connection) -> dict[str, list[Any]]:
    """The schema, and the rows of each table that any SQLite can read (the index of the search is read by one that has it)."""
    schema = connection.execute("SELECT name, type, sql FROM sqlite_master ORDER BY name").fetchall()
    plain = [name for name, kind, sql in schema if kind == "table" and not sql.startswith("CREATE VIRTUAL")]
    return {"": schema, **{name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in plain}}


def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is(
    server: ServerProcess, perdure: CommandLine
) -> None:
    server.start().stop()
    with sqlite3.connect(server.database) as connection:
        connection.execute("PRAGMA user_version = 9999")
        before = everything(connection)
    connection.close()
    assert "newer" in refused(server.folder)
    with sqlite3.connect(server.database) as connection:
        assert everything(connection) == before
        assert connection.execute("PRAGMA user_version").fetchone() == (9999,)
    connection.close()
    doctor = perdure("doctor", "--json")
    assert doctor.returncode == 1
    findings = {each["subject"]: each for each in json.loads(doctor.stdout)["findings"]}
    assert "newer" in findings["database"]["message"] and "restore" in findings["database"]["mend"]


@pytest.mark.parametrize("content", [b"this is not a database" * 100, b"SQLite format 3\0" + b"\xff" * 8_000])
def test_a_corrupt_database_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "perdure.db").write_bytes(content)
    assert str(tmp_path / "perdure.db") in refused(tmp_path)
    assert (tmp_path / "perdure.db").read_bytes() == content


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a place that even root cannot write")
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    assert "/proc/perdure.db" in refused(tmp_path, "--database", "/proc/perdure.db")


def test_a_second_server_on_the_same_file_names_the_first(running: ServerProcess) -> None:
    said = refused(running.folder)
    assert f"process {running.pid}" in said and running.address in said


def test_a_taken_port_is_refused_with_the_pid_and_the_flag(running: ServerProcess, tmp_path: Path) -> None:
    port = running.address.rpartition(":")[2]
    done = CommandLine(tmp_path)("serve", "--port", port)
    assert done.returncode == 78
    assert f"Port {port} is taken by process {running.pid}" in done.stderr and "--port" in done.stderr


# -- restarts ---------------------------------------------------------------------------------------------------------


def frames(server: ServerProcess, conversation: str, cursor: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    """(event, data, last id) of one connection, until it ends in whatever way."""
    headers = {"Authorization": f"Bearer {server.token}", "Last-Event-ID": cursor}
    url = f"{server.address}/api/chat"
    try:
        with httpx2.stream(
            "GET", url, params={"conversation": conversation}, headers=headers, timeout=60, trust_env=False
        ) as stream:
            assert stream.status_code == 200
            event = ""
            for line in stream.iter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    event = value
                elif field == "id":
                    cursor = value
                elif field == "data":
                    yield event, json.loads(value), cursor
    except httpx2.TransportError:
        return


def test_sigterm_in_mid_turn_hands_it_over_without_spending_an_attempt(server: ServerProcess) -> None:
    server.start(PERDURE_FAILPOINTS="tool_call.before:pause@3")
    accepted = server.say("four-step job")
    server.until_paused()
    assert server.effects() == {"one": 1, "two": 1}
    assert server.process is not None
    server.process.terminate()
    server.go_on()
    assert server.process.wait(LIMIT_SECONDS) == 0
    assert "Traceback" not in server.log()
    server.start()
    done = server.until(accepted["turn"], "completed")
    assert server.answer_of(accepted["conversation"]) == ANSWER
    assert server.effects() == {"one": 1, "two": 1, "three": 1, "four": 1}
    outcomes = [attempt["outcome"] for attempt in done["attempts"]]
    assert outcomes == ["released", "completed"] and done["attempt_count"] == 1
    assert server.stop() == 0


def test_a_drain_that_takes_too_long_is_cut_and_the_turn_still_finishes(server: ServerProcess) -> None:
    server.start(PERDURE_DEMO_STEP_SECONDS="30", PERDURE_DRAIN_SECONDS="0.3")
    accepted = server.say("four-step job")
    eventually(lambda: server.turn(accepted["turn"])["status"] == "running", "the turn runs")
    assert server.stop() == 0
    server.start()
    done = server.until(accepted["turn"], "completed")
    assert done["attempt_count"] == 1 and server.answer_of(accepted["conversation"]) == ANSWER


def test_a_second_signal_cuts_at_once(server: ServerProcess) -> None:
    server.start(PERDURE_DEMO_STEP_SECONDS="600", PERDURE_DRAIN_SECONDS="600")
    accepted = server.say("four-step job")
    eventually(lambda: server.turn(accepted["turn"])["calls"], "a step is under way")
    assert server.process is not None
    server.process.terminate()
    eventually(lambda: "draining" in server.log(), "it drains")
    refused = server.post("/api/chat", {"message": "too late"})
    assert (refused.status_code, refused.json()["code"]) == (503, "NOT_READY")
    assert refused.headers["Retry-After"] == "1"
    assert server.get("/api/readyz").status_code == 503
    assert server.stop() == 0
    server.start()
    assert server.until(accepted["turn"], "completed")["attempt_count"] == 1


def results(seen: list[tuple[str, dict[str, Any], str]]) -> list[str]:
    """Labels of the steps whose results the watcher was told of, each after its commit."""
    traces = [data for event, data, _ in seen if event == "trace"]
    labels = {data["call_id"]: data["data"]["arguments"]["label"] for data in traces if data["phase"] == "call"}
    return [labels[data["call_id"]] for data in traces if data["phase"] == "result"]


def test_kill_9_in_mid_turn_loses_nothing_and_the_watcher_follows_across_it(server: ServerProcess) -> None:
    server.start(PERDURE_FAILPOINTS="tool_call.before:pause@4")
    accepted = server.say("four-step job")
    seen: list[tuple[str, dict[str, Any], str]] = []

    def watch() -> None:
        cursor = "0"
        while not seen or seen[-1][0] not in {"end", "chat-error"}:
            try:
                for frame in frames(server, accepted["conversation"], cursor):
                    seen.append(frame)
                    cursor = frame[2]
            except (OSError, ValueError):
                pass  # the server is away: its lock is stale, its address gone

    watcher = threading.Thread(target=watch)
    watcher.start()
    finished = eventually(lambda: len(done := results(seen)) >= 2 and done, "two results are committed")
    server.until_paused()
    server.kill()
    server.start()
    done = server.until(accepted["turn"], "completed")
    watcher.join(LIMIT_SECONDS)
    assert not watcher.is_alive()
    assert [event for event, _, _ in seen].count("end") == 1 and "reset" in [event for event, _, _ in seen]
    effects = server.effects()
    assert {label: effects[label] for label in finished} == dict.fromkeys(finished, 1), "a committed result is used"
    assert set(effects) == {"one", "two", "three", "four"} and effects.total() <= 5, "only the cut step may run twice"
    assert server.answer_of(accepted["conversation"]) == ANSWER
    assert [attempt["outcome"] for attempt in done["attempts"]] == ["died", "completed"]


def test_no_secret_reaches_log_or_standard_output(server: ServerProcess) -> None:
    server.start(OPENAI_API_KEY="canary-openai-key", PERDURE_LOG_LEVEL="debug")
    server.get("/api/turns?token=canary-openai-key")
    server.say("my secret is canary-in-a-message")
    server.stop()
    assert server.token not in server.log()
    assert "canary" not in server.log()


def test_at_start_a_person_is_told_address_link_database_and_agents(server: ServerProcess) -> None:
    server.start()
    said = server.log()
    assert server.address in said and str(server.database) in said and "model demo" in said
    link = next(word for word in said.split() if "/login?key=" in word)
    first = httpx2.get(link, trust_env=False, follow_redirects=False)
    assert "HttpOnly" in first.headers["set-cookie"]
    assert "set-cookie" not in httpx2.get(link, trust_env=False, follow_redirects=False).headers


def test_a_start_that_fails_leaves_no_lock_behind(server: ServerProcess) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = str(held.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "perdure", "serve"],
            env=environment(**{**server.variables, "PERDURE_PORT": port}),
            cwd=server.folder,
            capture_output=True,
            timeout=90,
            check=False,
        )
    assert done.returncode == 78
    server.start()


UNCOVERED = """
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

def wipe(path: str) -> str:
    "Wipes a path."
    return path

graph = StateGraph(MessagesState).add_node("tools", ToolNode([wipe])).add_edge(START, "tools")
"""


def test_tools_outside_the_guard_are_named_and_keep_the_server_ready(server: ServerProcess) -> None:
    (server.folder / "bare.py").write_text(UNCOVERED)
    (server.folder / "langgraph.json").write_text('{"graphs": {"bare": "./bare.py:graph"}, "dependencies": ["."]}')
    server.start()
    ready = server.get("/api/readyz")
    assert (ready.status_code, ready.json()["status"], ready.json()["reasons"]) == (200, "ready", [])
    assert "wipe" in ready.json()["notices"][0]
    assert server.get("/api/agents").json()["items"][0]["uncovered_tools"] == ["wipe"]
