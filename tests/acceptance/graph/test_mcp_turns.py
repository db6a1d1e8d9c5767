"""Whole turns that call MCP servers: a real server process, killed; a real MCP server, killed; and what people see of it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import LIMIT_SECONDS, ServerProcess, eventually
from tests.servers.process import ROOT, OpenAiServer, alive

STDIO = {"command": sys.executable, "args": [str(ROOT / "tests/servers/mcp_stdio_server.py")]}
Serve = Callable[..., ServerProcess]


@pytest.fixture
def serve(tmp_path: Path, openai: OpenAiServer) -> Iterator[Serve]:
    started: list[ServerProcess] = []

    def start(own: Any, more: str = "", **variables: str) -> ServerProcess:
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"own": own}}))
        (tmp_path / "perdure.toml").write_text(f'[agents.agent]\nmodel = "openai:any"\nmcp_config = "mcp.json"\n{more}')
        project = str(tmp_path / "perdure.toml")
        server = ServerProcess(
            tmp_path,
            PERDURE_PROJECT=project,
            PERDURE_MODEL_BASE_URL=openai.base_url,
            OPENAI_API_KEY="none",
            **variables,
        )
        started.append(server)
        return server.start()

    yield start
    for each in started:
        each.close()


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"id": "call_0", "name": name, "arguments": arguments}]}


def pid_in(marker: Path) -> int:
    return int(eventually(lambda: marker.exists() and marker.read_text(), "the server has got the call"))


def results(server: ServerProcess, conversation: str) -> list[dict[str, Any]]:
    messages = server.get(f"/api/conversations/{conversation}").json()["messages"]
    return [each for each in messages if each["role"] == "tool"]


def test_a_call_whose_server_died_under_it_is_shown_to_a_person_and_not_made_again(
    serve: Serve, openai: OpenAiServer, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    openai.script(call("own__hang", marker=str(marker)), {"say": "I see."})
    server = serve(STDIO)
    accepted = server.say("go")
    os.kill(pid_in(marker), signal.SIGKILL)
    (card,) = server.until(accepted["turn"], "parked")["cards"]
    (item,) = server.get("/api/approvals").json()["items"]
    assert (item["kind"], item["tool"], item["server"], item["effect_class"]) == (
        "uncertain",
        "own__hang",
        "own",
        "once",
    )
    marker.unlink()
    said = {"decision": "happened", "result": "it rang"}
    assert server.post(f"/api/approvals/{card['id']}", said).is_success
    server.until(accepted["turn"], "completed")
    (result,) = results(server, accepted["conversation"])
    assert "it rang" in result["content"]
    assert not marker.exists()


def test_a_call_that_could_not_reach_its_server_is_an_error_for_the_model_and_asks_nobody(
    serve: Serve, openai: OpenAiServer, tmp_path: Path
) -> None:
    openai.script(call("own__echo", text="hi"), {"say": "It is down."})
    server = serve({**STDIO, "command": "no-such-program"})
    accepted = server.say("go")
    server.until(accepted["turn"], "completed")
    (result,) = results(server, accepted["conversation"])
    assert result["status"] == "error"
    assert "cannot start no-such-program" in result["content"]


def test_a_call_that_is_repeated_after_a_death_carries_the_same_key(
    serve: Serve, openai: OpenAiServer, tmp_path: Path
) -> None:
    file = tmp_path / "keys.jsonl"
    openai.script(call("own__append_meta", file=str(file)), {"say": "done"})
    server = serve(STDIO, PERDURE_FAILPOINTS="tool_call.after:kill")
    accepted = server.say("go")
    assert server.process is not None
    assert server.process.wait(LIMIT_SECONDS) == -signal.SIGKILL
    server.start(PERDURE_FAILPOINTS="")
    server.until(accepted["turn"], "completed")
    first, second = [json.loads(line) for line in file.read_text().splitlines()]
    assert first == second
    assert first["perdure/idempotency-key"].startswith(accepted["turn"])


def test_the_key_that_a_server_wants_as_an_argument_is_neither_shown_nor_approved(
    serve: Serve, openai: OpenAiServer
) -> None:
    openai.script(call("own__remember", text="milk"), {"say": "done"})
    own = {**STDIO, "idempotencyArgument": "idempotency_key"}
    server = serve(own, 'needs_approval = ["own__remember"]\n')
    accepted = server.say("go")
    (card,) = server.until(accepted["turn"], "parked")["cards"]
    (item,) = server.get("/api/approvals").json()["items"]
    assert item["arguments"] == {"text": "milk"}
    assert server.post(f"/api/approvals/{card['id']}", {"decision": "approve"}).is_success
    server.until(accepted["turn"], "completed")
    (result,) = results(server, accepted["conversation"])
    assert result["content"].startswith(f"milk under {accepted['turn']}-")
    offered = {each["function"]["name"]: each["function"] for each in openai.requests()[0]["tools"]}
    assert list(offered["own__remember"]["parameters"]["properties"]) == ["text"]


def test_a_turn_without_its_required_server_fails_and_goes_on_once_the_server_is_there(
    serve: Serve, openai: OpenAiServer, tmp_path: Path
) -> None:
    openai.script({"say": "hello"})
    server = serve(STDIO)
    absent = {"command": "no-such-program", "required": True}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"own": absent}}))
    accepted = server.say("go")
    failed = server.until(accepted["turn"], "failed")
    assert (failed["error"]["code"], failed["reason"]) == ("TOOL_FAILURE", "mcp_server_missing")
    assert "cannot start no-such-program" in failed["error"]["message"]
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"own": {**STDIO, "required": True}}}))
    assert server.post("/api/chat", {"resume": True, "conversation": accepted["conversation"]}).is_success
    server.until(accepted["turn"], "completed")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_kill_9_of_the_server_leaves_no_mcp_server_behind(serve: Serve, openai: OpenAiServer, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    openai.script(call("own__hang", marker=str(marker)), {"say": "done"})
    server = serve(STDIO)
    server.say("go")
    pid = pid_in(marker)
    assert alive(pid)
    server.kill()
    eventually(lambda: not alive(pid), "the MCP server has ended")


def test_a_shutdown_closes_the_mcp_servers(serve: Serve, openai: OpenAiServer) -> None:
    openai.script(call("own__pid"), {"say": "done"})
    server = serve(STDIO)
    accepted = server.say("go")
    server.until(accepted["turn"], "completed")
    (result,) = results(server, accepted["conversation"])
    assert alive(int(result["content"]))
    assert server.stop() == 0
    eventually(lambda: not alive(int(result["content"])), "the MCP server has ended")


def test_a_required_server_that_is_down_is_told_before_any_turn_needs_it(serve: Serve) -> None:
    server = serve({"command": "no-such-program", "required": True})

    def told() -> bool:
        (agent,) = server.get("/api/agents").json()["items"]
        return any("`own` is not available" in problem for problem in agent["problems"])

    eventually(told, "the agent names the server that it does not answer without")
