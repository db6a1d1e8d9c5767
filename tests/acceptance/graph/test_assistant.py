"""`examples/assistant`: a real server, a model server of Ollama's protocol, MCP servers over stdio. Its files are used as they
are, but for leave to fetch a page of this machine.

`npx` and `uvx` are stand-ins here that start MCP servers of our own. With PERDURE_TEST_REGISTRY_SERVERS=1 the real ones fetch the
pinned servers from their registries, and the same test runs against those.
"""

from __future__ import annotations

import http.server
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.clock import SystemClock
from perdure.config import AgentSettings, Settings
from perdure.graph.errors import ModelRefused
from perdure.graph.load import load_agent
from tests.acceptance.conftest import ServerProcess
from tests.servers.driving import Conversation
from tests.servers.process import ROOT, OllamaServer

EXAMPLE = ROOT / "examples/assistant"
STAND_IN = ROOT / "tests/servers/mcp_assistant_server.py"
REGISTRIES = os.environ.get("PERDURE_TEST_REGISTRY_SERVERS") == "1"
PAGE = b"<html><body><h1>The lighthouse</h1><p>It was built in 1823 by Ida Brand.</p></body></html>"

ENTITY = {"name": "Lighthouse", "entityType": "building", "observations": ["built in 1823"]}


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.path == "/lighthouse"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        if found:
            self.wfile.write(PAGE)

    def log_message(self, *_: Any) -> None:
        """Tests are quiet."""


@pytest.fixture
def page() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/lighthouse"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def ollama() -> Iterator[OllamaServer]:
    process = OllamaServer()
    yield process
    process.close()


def stand_ins(folder: Path) -> str:
    """A PATH whose `npx` and `uvx` start our own servers."""
    folder.mkdir()
    for program, name in (("npx", "memory"), ("uvx", "fetch")):
        script = folder / program
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STAND_IN}" {name}\n')
        script.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def registries(_: Path) -> str:
    if not REGISTRIES:
        pytest.skip(
            "NOT RUN with the real MCP servers: set PERDURE_TEST_REGISTRY_SERVERS=1 (needs npx, uvx and the registries)"
        )
    return os.environ["PATH"]


@pytest.fixture
def assistant(tmp_path: Path, ollama: OllamaServer, request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "assistant"))
    allow_own_pages(folder / "mcp.json")
    way: Callable[[Path], str] = getattr(request, "param", stand_ins)
    process = ServerProcess(
        tmp_path,
        PERDURE_PROJECT=str(folder / "perdure.toml"),
        PERDURE_MODEL_BASE_URL=ollama.address,
        PATH=way(tmp_path / "bin"),
    )
    try:
        yield process.start()
    finally:
        process.close()


def allow_own_pages(file: Path) -> None:
    servers = json.loads(file.read_text())
    servers["mcpServers"]["fetch"]["args"].append("--allow-private-ips")
    file.write_text(json.dumps(servers))


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments}]}


@pytest.mark.parametrize("assistant", [stand_ins, registries], indirect=True)
def test_it_reads_a_page_asks_before_it_remembers_and_remembers(
    assistant: ServerProcess, ollama: OllamaServer, page: str
) -> None:
    ollama.script(
        call("fetch__fetch", url=page),
        call("memory__create_entities", entities=[ENTITY]),
        call("memory__read_graph"),
        {"say": "Ida Brand built it in 1823, and I remember it."},
    )
    accepted = assistant.say(f"Read {page} and remember it.")
    (card,) = assistant.until(accepted["turn"], "parked")["cards"]
    memory = assistant.folder / "assistant/memory.jsonl"
    assert not memory.exists()
    waiting = assistant.get("/api/approvals").json()["items"]
    assert [(each["tool"], each["server"], each["kind"]) for each in waiting] == [
        ("memory__create_entities", "memory", "approval")
    ]
    assert waiting[0]["arguments"] == {"entities": [ENTITY]}
    assert waiting[0]["effect_class"] == "keyed"
    assert assistant.post(f"/api/approvals/{card['id']}", {"decision": "approve"}).is_success
    assistant.until(accepted["turn"], "completed")
    messages = assistant.get(f"/api/conversations/{accepted['conversation']}").json()["messages"]
    read, stored, graph = [each for each in messages if each["role"] == "tool"]
    assert "built in 1823 by Ida Brand" in read["content"], read
    assert "Lighthouse" in stored["content"]
    assert "built in 1823" in graph["content"]
    assert "Lighthouse" in memory.read_text()
    assert messages[-1]["content"].split() == [
        "Ida",
        "Brand",
        "built",
        "it",
        "in",
        "1823,",
        "and",
        "I",
        "remember",
        "it.",
    ]
    assert_spoken_as_ollama_wants_it(ollama.requests())


def assert_spoken_as_ollama_wants_it(requests: list[dict[str, Any]]) -> None:
    assert [each["stream"] for each in requests] == [True] * 4
    assert {each["model"] for each in requests} == {"qwen3"}
    offered = {each["function"]["name"]: each["function"] for each in requests[0]["tools"]}
    assert offered["fetch__fetch"]["parameters"]["required"] == ["url"]
    assert {"memory__create_entities", "memory__read_graph"} <= set(offered)
    last = requests[-1]["messages"]
    assert [each["role"] for each in last] == ["system", "user", *["assistant", "tool"] * 3]
    assert last[0]["content"] == (EXAMPLE / "prompt.md").read_text().strip()
    assert last[2]["tool_calls"][0]["function"]["name"] == "fetch__fetch"
    assert "Ida Brand" in last[3]["content"]


def test_a_model_that_repeats_itself_is_stopped_and_its_turn_goes_on_when_a_person_says_so(
    assistant: ServerProcess, ollama: OllamaServer
) -> None:
    ollama.script(*[call("memory__read_graph")] * 6, {"say": "Nothing is remembered."})
    accepted = assistant.say("What do you know?")
    failed = assistant.until(accepted["turn"], "failed")
    assert (failed["error"]["code"], failed["reason"]) == ("LIMIT_REACHED", "identical_call_limit")
    assert len(ollama.requests()) == 6
    again = assistant.post("/api/chat", {"resume": True, "conversation": accepted["conversation"]})
    assert again.is_success, again.text
    assistant.until(accepted["turn"], "completed")
    assert assistant.answer_of(accepted["conversation"]).strip() == "Nothing is remembered."


async def test_what_ollama_refuses_is_told_with_its_words(ollama: OllamaServer) -> None:
    ollama.script({"status": 404, "message": "model 'qwen3' not found"})
    settings = AgentSettings(name="agent", model="ollama:qwen3", model_base_url=ollama.address)
    agent = await load_agent(settings, Settings(), SystemClock())
    with pytest.raises(ModelRefused, match="model 'qwen3' not found"):
        await Conversation(agent).say("hi")
    await agent.close()


async def test_an_answer_of_ollama_that_was_cut_is_asked_for_again(
    ollama: OllamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.graph.retry.FIRST_DELAY_SECONDS", 0.01)
    ollama.script({"cut": "half an"}, {"say": "a whole answer"})
    settings = AgentSettings(name="agent", model="ollama:qwen3", model_base_url=ollama.address)
    agent = await load_agent(settings, Settings(), SystemClock())
    messages = await Conversation(agent).say("hi")
    assert [str(each.content).strip() for each in messages] == ["hi", "a whole answer"]
    await agent.close()


def test_the_configuration_pins_what_it_fetches() -> None:
    servers = json.loads((EXAMPLE / "mcp.json").read_text())["mcpServers"]
    assert servers["memory"]["args"][-1].rpartition("@")[2][:1].isdigit()
    assert "==" in servers["fetch"]["args"][-1]
