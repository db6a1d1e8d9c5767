"""Every example is served by a real server and does what its first lines promise."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import LIMIT_SECONDS, ServerProcess, environment
from tests.servers.process import OpenAiServer, free_port

EXAMPLES = Path(__file__).parents[2] / "examples"
Serve = Callable[..., ServerProcess]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    started: list[ServerProcess] = []

    def start(project: str, **variables: str) -> ServerProcess:
        server = ServerProcess(tmp_path, PERDURE_PROJECT=str(EXAMPLES / project), **variables)
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.close()


def test_a_graph_of_your_own_is_served_as_it_is(serve: Serve) -> None:
    server = serve("own_graph/langgraph.json")
    accepted = server.say("speak up")
    server.until(accepted["turn"], "completed")
    assert server.answer_of(accepted["conversation"]) == "SPEAK UP"


@pytest.mark.parametrize(("answer", "receipt"), [("yes", "ordered: lamp"), ("no", "not ordered")])
def test_an_approval_waits_across_a_kill_for_its_answer(serve: Serve, answer: str, receipt: str) -> None:
    server = serve("approval/perdure.toml")
    accepted = server.post("/api/chat", {"input": {"item": "lamp"}}).json()
    (card,) = server.until(accepted["turn"], "parked")["cards"]
    assert card["request"] == {"question": "Order one lamp?"}
    server.kill()
    server.start()
    body = {"conversation": accepted["conversation"], "resume": {card["interrupt_id"]: answer}}
    assert server.post("/api/chat", body).status_code == 202
    server.until(accepted["turn"], "completed")
    state = server.get(f"/api/conversations/{accepted['conversation']}").json()["state"]
    assert state["receipt"] == receipt


def test_a_shops_tools_act_by_their_classes(serve: Serve, tmp_path: Path) -> None:
    server = serve("effects/perdure.toml")
    done = server.say('/call stock {"item": "lamps"}')
    server.until(done["turn"], "completed")
    assert server.answer_of(done["conversation"]) == 'stock answered: "There are 3 of lamps."'
    gated = server.say('/call refund {"order": 7, "amount": 5}')
    (card,) = server.until(gated["turn"], "parked")["cards"]
    assert not (tmp_path / "shop.jsonl").exists()
    assert server.post(f"/api/approvals/{card['id']}", {"decision": "approve"}).status_code == 202
    server.until(gated["turn"], "completed")
    assert happened(tmp_path) == ["Paid back: 5.0 for order 7"]


@pytest.mark.parametrize(
    ("call", "line"),
    [('leave_note {"text": "call back"}', "Note: call back"), ('ship {"order": 7}', "Shipped: order 7")],
)
def test_a_keyed_and_a_checkable_tool_ask_nobody_after_a_death_between_effect_and_record(
    serve: Serve, tmp_path: Path, call: str, line: str
) -> None:
    server = serve("effects/perdure.toml", PERDURE_FAILPOINTS="tool_call.after:kill")
    accepted = server.say(f"/call {call}")
    assert server.process is not None
    assert server.process.wait(LIMIT_SECONDS) == -signal.SIGKILL
    assert happened(tmp_path) == [line]
    server.start(PERDURE_FAILPOINTS="")
    server.until(accepted["turn"], "completed")
    assert happened(tmp_path) == [line]
    assert line in server.answer_of(accepted["conversation"])


@pytest.mark.parametrize("agent", ["graph", "agent"])
def test_graphs_of_ones_own_gate_the_same_tools(serve: Serve, tmp_path: Path, agent: str) -> None:
    """The model of both is a scripted server of the OpenAI protocol: an ungated call beside two gated ones."""
    model = OpenAiServer()
    try:
        calls = [
            {"id": "c1", "name": "refund", "arguments": {"order": 1, "amount": 5}},
            {"id": "c2", "name": "refund", "arguments": {"order": 2, "amount": 6}},
            {"id": "c3", "name": "leave_note", "arguments": {"text": "two refunds"}},
        ]
        model.script({"calls": calls}, {"say": "done"})
        server = serve("effects/graphs.toml", OPENAI_API_KEY="none", OPENAI_BASE_URL=model.base_url)
        accepted = server.say("Pay back order 1 and 2", agent=agent)
        first, second = sorted(
            server.until(accepted["turn"], "parked")["cards"], key=lambda card: card["arguments"]["order"]
        )
        assert happened(tmp_path) == ["Note: two refunds"]
        denied = server.post(f"/api/approvals/{second['id']}", {"decision": "deny", "note": "over the limit"})
        assert denied.status_code == 200
        server.kill()
        server.start()
        assert server.turn(accepted["turn"])["status"] == "parked"
        server.post(f"/api/approvals/{first['id']}", {"decision": "approve"})
        server.until(accepted["turn"], "completed")
        messages = server.get(f"/api/conversations/{accepted['conversation']}").json()["messages"]
    finally:
        model.close()
    results = {message["tool_call_id"]: message for message in messages if message["role"] == "tool"}
    assert results["c1"]["content"] == "Paid back: 5.0 for order 1"
    assert results["c2"]["status"] == "denied" and "over the limit" in results["c2"]["content"]
    assert results["c3"]["content"] == "Note: two refunds"
    assert happened(tmp_path) == ["Note: two refunds", "Paid back: 5.0 for order 1"]


def happened(folder: Path) -> list[str]:
    """What the effects example did to its world, in order."""
    file = folder / "shop.jsonl"
    return [json.loads(line)["what"] for line in file.read_text().splitlines()] if file.exists() else []


def test_a_model_uses_python_and_mcp_tools(serve: Serve) -> None:
    """The example's model name is served by a scripted server of the OpenAI protocol."""
    model = OpenAiServer()
    try:
        calls = [
            {"id": "c1", "name": "days_between", "arguments": {"first": "2026-11-30", "second": "2026-12-24"}},
            {"id": "c2", "name": "time__get_current_time", "arguments": {"timezone": "UTC"}},
        ]
        model.script({"calls": calls}, {"say": "24 days"})
        python = str(Path(sys.executable).parent)
        server = serve(
            "tools/perdure.toml",
            OPENAI_API_KEY="none",
            PERDURE_MODEL_BASE_URL=model.base_url,
            PATH=f"{python}{os.pathsep}{os.environ['PATH']}",
        )
        accepted = server.say("How long until Christmas Eve?")
        server.until(accepted["turn"], "completed")
        messages = server.get(f"/api/conversations/{accepted['conversation']}").json()["messages"]
    finally:
        model.close()
    results = {message["tool_call_id"]: message for message in messages if message["role"] == "tool"}
    assert results["c1"]["content"] == "24"
    assert results["c2"]["status"] == "success", results["c2"]
    assert messages[-1]["content"].strip() == "24 days"


def test_the_client_prints_the_answer_once_although_the_server_dies(serve: Serve) -> None:
    port, pauses = str(free_port()), "tool_call.before:pause@3"
    server = serve("../tests/crash/graphs/perdure.toml", PERDURE_PORT=port, PERDURE_FAILPOINTS=pauses)
    client = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "client.py"), server.address, "four-step job"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(PERDURE_TOKEN=server.token),
    )
    try:
        server.until_paused()
        server.kill()
        server.start(PERDURE_FAILPOINTS="")
        out, err = client.communicate(timeout=LIMIT_SECONDS)
    finally:
        client.kill()
    assert client.returncode == 0, err
    assert out.strip().splitlines()[-1] == "All four steps are done: one, two, three, four."
    assert out.count("All four steps are done") == 1


def test_an_agent_on_nats_is_killed_and_the_transcript_finishes(tmp_path: Path) -> None:
    """Costs the start of four programs, as a person starts them: the example is what is tested."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "durable-panel" / "run.py")],
        capture_output=True,
        text=True,
        env=environment(TMPDIR=str(tmp_path)),
        timeout=LIMIT_SECONDS * 3,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    (cut,) = [number for number, line in enumerate(lines) if line.startswith("--- kill -9")]
    assert any(line.startswith("<<< reset to event ") for line in lines[cut:])
    assert lines[-2] == "=== completed ==="
    assert lines[-1].startswith("effects: one × 1, two × 1, three × ") and lines[-1].endswith(", four × 1")
    assert list(tmp_path.iterdir()) == [], "the example leaves nothing behind"
