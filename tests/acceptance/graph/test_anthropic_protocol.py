"""The built-in agent against a real server process of Anthropic's Messages protocol, streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from perdure.clock import SystemClock
from perdure.config import AgentSettings, Settings
from perdure.graph.errors import ModelRefused
from perdure.graph.load import HostedGraph, load_agent
from tests.servers.driving import Conversation
from tests.servers.process import AnthropicServer

TOOLS = """
def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b
"""


@pytest.fixture(scope="module")
def process() -> Iterator[AnthropicServer]:
    server = AnthropicServer()
    yield server
    server.close()


@pytest.fixture
def anthropic(process: AnthropicServer, monkeypatch: pytest.MonkeyPatch) -> AnthropicServer:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    monkeypatch.setattr("perdure.graph.retry.FIRST_DELAY_SECONDS", 0.01)
    process.script()
    return process


@pytest.fixture
async def agent(anthropic: AnthropicServer, tmp_path: Path) -> AsyncIterator[HostedGraph]:
    (tmp_path / "sums.py").write_text(TOOLS)
    settings = AgentSettings(
        name="agent",
        base=tmp_path,
        model="anthropic:claude-any",
        model_base_url=anthropic.address,
        tools=("./sums.py:add",),
    )
    hosted = await load_agent(settings, Settings(), SystemClock())
    yield hosted
    await hosted.close()


def text_of(message: Any) -> str:
    return " ".join(str(message.text).split())


async def test_a_call_in_pieces_after_some_text_becomes_one_call_and_its_result_goes_back(
    anthropic: AnthropicServer, agent: HostedGraph
) -> None:
    calls = [
        {"id": "toolu_1", "name": "add", "arguments": {"a": 2, "b": 40}},
        {"id": "toolu_2", "name": "add", "arguments": {"a": 1, "b": 1}},
    ]
    anthropic.script({"say": "Let me add", "calls": calls}, {"say": "It is 42"})
    chat = Conversation(agent)
    _, call, *results, answer = await chat.say("2 + 40?")
    assert isinstance(call, AIMessage)
    assert text_of(call) == "Let me add"
    assert [(each["id"], each["args"]) for each in call.tool_calls] == [
        ("toolu_1", {"a": 2, "b": 40}),
        ("toolu_2", {"a": 1, "b": 1}),
    ]
    assert [(each.content, each.status) for each in results if isinstance(each, ToolMessage)] == [
        ("42", "success"),
        ("2", "success"),
    ]
    assert text_of(answer) == "It is 42"
    assert isinstance(answer, AIMessage) and answer.usage_metadata is not None
    assert (answer.usage_metadata["input_tokens"], answer.usage_metadata["output_tokens"]) == (11, 7)
    first, second = anthropic.requests()
    assert first["stream"] is second["stream"] is True
    assert [each["name"] for each in first["tools"]] == ["add"]
    assert [each["role"] for each in second["messages"]] == ["user", "assistant", "user"]
    assert [each["tool_use_id"] for each in second["messages"][2]["content"]] == ["toolu_1", "toolu_2"]


async def test_a_server_that_is_overloaded_is_asked_again(anthropic: AnthropicServer, agent: HostedGraph) -> None:
    anthropic.script({"status": 529, "type": "overloaded_error", "message": "Overloaded"}, {"say": "hello"})
    chat = Conversation(agent)
    messages = await chat.say("hi")
    assert text_of(messages[-1]) == "hello"
    assert [phase for phase, _ in chat.record.notes] == ["retry"]


@pytest.mark.parametrize(
    "broken", [{"cut": "half an"}, {"fail": "half an", "type": "overloaded_error", "message": "Overloaded"}]
)
async def test_an_answer_that_breaks_in_mid_stream_is_asked_for_again(
    anthropic: AnthropicServer, agent: HostedGraph, broken: dict[str, Any]
) -> None:
    anthropic.script(broken, {"say": "a whole answer"})
    messages = await Conversation(agent).say("hi")
    assert [text_of(each) for each in messages] == ["hi", "a whole answer"]


async def test_a_bad_key_is_not_retried_and_tells_the_providers_words(
    anthropic: AnthropicServer, agent: HostedGraph
) -> None:
    anthropic.script({"status": 401, "type": "authentication_error", "message": "invalid x-api-key"})
    with pytest.raises(ModelRefused, match="invalid x-api-key"):
        await Conversation(agent).say("hi")
    assert len(anthropic.requests()) == 1
