"""The built-in agent against a real server process of the OpenAI protocol, through `openai:…` and a base URL."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from perdure.clock import SystemClock
from perdure.config import AgentSettings, Settings
from perdure.graph.errors import ModelRefused, ModelStalled, ModelUnavailable
from perdure.graph.load import HostedGraph, load_agent
from tests.servers.driving import Conversation
from tests.servers.process import OpenAiServer

TOOLS = """
def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b
"""


@pytest.fixture
async def agent(openai: OpenAiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostedGraph:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "sums.py").write_text(TOOLS)
    return await hosted(openai, tmp_path)


async def hosted(openai: OpenAiServer, base: Path, **limits: Any) -> HostedGraph:
    settings = AgentSettings(
        name="agent", base=base, model="openai:any", model_base_url=openai.base_url, tools=("./sums.py:add",)
    )
    return await load_agent(settings, Settings(**limits), SystemClock())


async def test_streamed_tool_call_deltas_become_one_call_and_its_result_goes_back_to_the_model(
    openai: OpenAiServer, agent: HostedGraph
) -> None:
    openai.script({"calls": [{"id": "call_0", "name": "add", "arguments": {"a": 2, "b": 40}}]}, {"say": "It is 42"})
    chat = Conversation(agent)
    _, call, result, answer = await chat.say("2 + 40?")
    assert isinstance(call, AIMessage)
    assert isinstance(result, ToolMessage)
    assert call.tool_calls == [{"id": "call_0", "name": "add", "args": {"a": 2, "b": 40}, "type": "tool_call"}]
    assert (result.content, result.status) == ("42", "success")
    assert answer.content == "It is 42 "
    sent = openai.requests()[1]["messages"]
    assert [each["role"] for each in sent] == ["user", "assistant", "tool"]
    assert sent[2]["tool_call_id"] == "call_0"
    assert [each["function"]["name"] for each in openai.requests()[0]["tools"]] == ["add"]


async def test_text_is_streamed_under_the_id_of_the_message_that_replaces_it(
    openai: OpenAiServer, agent: HostedGraph
) -> None:
    openai.script({"say": "one two three"})
    chat = Conversation(agent)
    _, answer = await chat.say("count")
    assert chat.tokens == {answer.id: "one two three "}


async def test_calls_numbered_from_zero_in_every_answer_keep_their_own_results_and_keys(
    openai: OpenAiServer, agent: HostedGraph
) -> None:
    def step(a: int) -> dict[str, Any]:
        return {"calls": [{"id": "call_0", "name": "add", "arguments": {"a": a, "b": 0}}]}

    openai.script(step(1), step(2), {"say": "done"})
    chat = Conversation(agent)
    messages = await chat.say("twice")
    results = [each for each in messages if isinstance(each, ToolMessage)]
    assert [each.content for each in results] == ["1", "2"]
    assert results[0].id != results[1].id
    assert len({(each.message_id, each.id) for each in chat.record.calls}) == 2


async def test_too_many_requests_waits_as_the_server_asks_and_says_so(openai: OpenAiServer, agent: HostedGraph) -> None:
    openai.script({"status": 429, "retry_after": "0.01", "message": "slow down"}, {"say": "hello"})
    chat = Conversation(agent)
    messages = await chat.say("hi")
    assert messages[-1].content == "hello "
    ((phase, data),) = chat.record.notes
    assert (phase, data["delay_seconds"]) == ("retry", 0.01)
    assert "slow down" in data["error"]


async def test_a_server_that_asks_for_more_patience_than_allowed_ends_the_turn_at_once(
    openai: OpenAiServer, tmp_path: Path, agent: HostedGraph
) -> None:
    openai.script({"status": 429, "retry_after": "9999"})
    with pytest.raises(ModelUnavailable, match="asks to wait 9999 seconds"):
        await Conversation(agent).say("hi")
    assert len(openai.requests()) == 1
    assert "could not be reached" in agent.problems()[0]


async def test_an_empty_quota_is_no_passing_trouble(openai: OpenAiServer, agent: HostedGraph) -> None:
    openai.script({"status": 429, "retry_after": "1", "code": "insufficient_quota", "message": "pay first"})
    with pytest.raises(ModelRefused, match="pay first"):
        await Conversation(agent).say("hi")


@pytest.mark.parametrize("broken", ["cut", "stop"])
async def test_an_answer_cut_in_mid_stream_is_asked_again_under_a_new_id(
    openai: OpenAiServer, agent: HostedGraph, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.graph.retry.FIRST_DELAY_SECONDS", 0.01)
    openai.script({broken: "half an"}, {"say": "a whole answer"})
    chat = Conversation(agent)
    messages = await chat.say("hi")
    assert [each.content for each in messages] == ["hi", "a whole answer "]
    assert sorted(chat.tokens.values()) == ["a whole answer ", "half an "]
    assert chat.tokens[messages[-1].id or ""] == "a whole answer "
    assert [phase for phase, _ in chat.record.notes] == ["retry"]


async def test_server_errors_are_retried_until_the_limit_then_named(
    openai: OpenAiServer, tmp_path: Path, agent: HostedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.graph.retry.FIRST_DELAY_SECONDS", 0.01)
    openai.script(*[{"status": 500, "message": "the server is on fire"}] * 50)
    impatient = await hosted(openai, tmp_path, model_retry_seconds=0.2)
    with pytest.raises(ModelUnavailable, match="on fire") as caught:
        await Conversation(impatient).say("hi")
    assert caught.value.failure.code == "MODEL_UNAVAILABLE"
    assert len(openai.requests()) > 1


async def test_a_bad_key_is_not_retried_and_tells_the_providers_words(openai: OpenAiServer, agent: HostedGraph) -> None:
    openai.script({"status": 401, "message": "Incorrect API key provided"})
    with pytest.raises(ModelRefused, match="Incorrect API key provided") as caught:
        await Conversation(agent).say("hi")
    assert caught.value.failure.reason == "model_refused"
    assert len(openai.requests()) == 1


async def test_a_model_that_falls_silent_is_ended_with_a_reason_of_its_own(
    openai: OpenAiServer, tmp_path: Path, agent: HostedGraph
) -> None:
    openai.script({"hang": "let me think"})
    hasty = await hosted(openai, tmp_path, model_idle_timeout_seconds=0.2)
    with pytest.raises(ModelStalled, match="sent nothing") as caught:
        await Conversation(hasty).say("hi")
    assert caught.value.failure.reason == "model_idle"


async def test_a_server_that_is_gone_makes_the_agent_degraded_until_it_answers_again(
    tmp_path: Path, agent: HostedGraph
) -> None:
    server = OpenAiServer()
    brief = await hosted(server, tmp_path, model_retry_seconds=0)
    chat = Conversation(brief)
    await chat.say("hi")
    assert brief.problems() == []
    server.kill()
    with pytest.raises(ModelUnavailable):
        await chat.say("hi")
    assert "could not be reached" in brief.problems()[0]
    again = OpenAiServer(server.port)
    await chat.drive(None)
    again.close()
    assert brief.problems() == []


async def test_a_cancel_during_a_silent_answer_is_a_cancel_and_no_stall(
    openai: OpenAiServer, agent: HostedGraph
) -> None:
    openai.script({"hang": "let me think"})
    chat = Conversation(agent)
    turn = asyncio.create_task(chat.say("hi"))
    while not chat.tokens:
        await asyncio.sleep(0.01)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn


async def test_arguments_that_are_no_json_are_told_to_the_model_and_nothing_is_called(
    openai: OpenAiServer, agent: HostedGraph
) -> None:
    openai.script({"calls": [{"id": "c1", "name": "add", "arguments": '{"a": 1, "b'}]}, {"say": "sorry"})
    chat = Conversation(agent)
    messages = await chat.say("add")
    assert isinstance(messages[1], AIMessage)
    assert isinstance(messages[2], ToolMessage)
    assert messages[2].status == "error"
    assert "not valid JSON" in messages[2].content
    assert chat.record.calls == []
    assert [each["role"] for each in openai.requests()[1]["messages"]] == ["user", "assistant", "tool"]
