from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.errors import GraphRecursionError

from perdure.clock import SystemClock
from perdure.config import AgentSettings, Settings
from perdure.graph.demo import DemoModel, decide
from perdure.graph.load import load_agent
from perdure.ledger import idempotency_key
from tests.servers.driving import Conversation


@pytest.fixture
async def chat() -> Conversation:
    return Conversation(await load_agent(AgentSettings(name="agent"), Settings(), SystemClock()))


@pytest.fixture
def effects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "effects.jsonl"
    monkeypatch.setenv("PERDURE_DEMO_EFFECTS", str(path))
    return path


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def calls(messages: list[BaseMessage]) -> list[list[tuple[str, object]]]:
    """Per assistant message that calls: its calls' names and arguments."""
    called = [each.tool_calls for each in messages if isinstance(each, AIMessage) and each.tool_calls]
    return [[(call["name"], call["args"]) for call in each] for each in called]


async def test_the_four_step_job_does_one_step_per_model_turn(chat: Conversation, effects: Path) -> None:
    messages = await chat.say("Please run the four-step job now")
    assert calls(messages) == [[("slow_step", {"label": label})] for label in ("one", "two", "three", "four")]
    assert messages[-1].content == "All four steps are done: one, two, three, four."
    assert [each["args"] for each in lines(effects)] == [{"label": x} for x in ("one", "two", "three", "four")]


async def test_three_at_once_calls_three_tools_in_one_model_turn(
    chat: Conversation, effects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_DEMO_STEP_SECONDS", "0.05")
    messages = await chat.say("three at once")
    assert calls(messages) == [[("slow_step", {"label": label}) for label in ("alpha", "beta", "gamma")]]
    assert messages[-1].content == "All three are done: alpha, beta, gamma."
    assert [each["args"] for each in lines(effects)] == [{"label": x} for x in ("alpha", "beta", "gamma")]


async def test_say_streams_the_rest_word_by_word(chat: Conversation) -> None:
    pieces = [chunk.text async for chunk in DemoModel().astream([HumanMessage("/say  one\n two   three ")])]
    assert [each for each in pieces if each] == [" ", "one\n ", "two   ", "three "]
    messages = await chat.say("/say hello big world")
    assert messages[-1].content == "hello big world"
    assert chat.tokens == {messages[-1].id: "hello big world"}


async def test_fail_quotes_the_tools_error(chat: Conversation) -> None:
    *_, result, answer = await chat.say("/fail")
    assert isinstance(result, ToolMessage)
    assert result.status == "error"
    assert str(result.content) in str(answer.content)


async def test_loop_ticks_with_rising_numbers_until_the_step_limit(chat: Conversation, effects: Path) -> None:
    with pytest.raises(GraphRecursionError):
        await chat.say("/loop")
    assert [each["args"] for each in lines(effects)] == [{"n": n} for n in range(1, 13)]


async def test_call_calls_the_named_tools_of_the_agent_one_a_line(chat: Conversation, effects: Path) -> None:
    messages = await chat.say('/call tick {"n": 4}\n/call tick {"n": 5}')
    assert calls(messages) == [[("tick", {"n": 4}), ("tick", {"n": 5})]]
    assert messages[-1].content == 'tick answered: "Tick 4."\ntick answered: "Tick 5."'
    assert sorted(str(each["args"]) for each in lines(effects)) == ["{'n': 4}", "{'n': 5}"]  # at once: in any order


@pytest.mark.parametrize("said", ["/call tick {n: 4}", "/call tick [4]", "/call tick 4"])
async def test_call_says_how_when_what_follows_is_no_json_object(chat: Conversation, said: str) -> None:
    assert '/call TOOL {"argument": 1}' in str((await chat.say(said))[-1].content)


async def test_anything_else_is_repeated_with_a_word_on_real_models(chat: Conversation) -> None:
    messages = await chat.say("good morning")
    assert '"good morning"' in str(messages[-1].content)
    assert "PERDURE_MODEL" in str(messages[-1].content)


async def test_only_the_last_human_message_counts(chat: Conversation) -> None:
    await chat.say("four-step job")
    assert (await chat.say("/say bye"))[-1].content == "bye"
    assert calls(await chat.say("four-step job"))[-1] == [("slow_step", {"label": "four"})]


@pytest.mark.parametrize(
    ("message", "called"),
    [
        ("Restart the service, please", [("restart_service", {"name": "web"})]),
        (
            "two services",
            [("restart_service", {"name": "web"}), ("restart_service", {"name": "db"}), ("read_status", {})],
        ),
        ("charge the card", [("charge_card", {"amount": 5})]),
        ("note it", [("save_note", {"text": "note it"})]),
    ],
)
async def test_tools_with_an_effect_are_called_once_in_one_model_turn(
    chat: Conversation, effects: Path, message: str, called: list[tuple[str, object]]
) -> None:
    messages = await chat.say(message)
    assert calls(messages) == [called]
    assert sorted(str(each["tool"]) for each in lines(effects)) == sorted(name for name, _ in called)
    answers = [str(each.content) for each in messages if isinstance(each, ToolMessage)]
    assert messages[-1].content == "\n".join(answers)
    keys = {each.call.name: (each.call.effect, key) for key, each in chat.record.records.items()}
    assert {str(each["key"]) for each in lines(effects)} == set(chat.record.records)
    classes = {"restart_service": "once", "read_status": "read", "charge_card": "once", "save_note": "keyed"}
    assert {name: str(effect) for name, (effect, _) in keys.items()} == {name: classes[name] for name, _ in called}


async def test_the_demo_agent_asks_before_it_restarts_a_service(effects: Path) -> None:
    hosted = await load_agent(AgentSettings(name="agent"), Settings(), SystemClock())
    chat = Conversation(hosted)
    chat.record.policy = hosted.policy
    await chat.say("two services")
    waiting = [each.value["arguments"] for each in await chat.interrupts()]
    assert sorted(waiting, key=str) == [{"name": "db"}, {"name": "web"}]
    assert [each["tool"] for each in lines(effects)] == ["read_status"]


async def test_a_pause_passes_between_an_effect_and_its_return(
    chat: Conversation, effects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_DEMO_EFFECT_PAUSE_SECONDS", "3600")
    work = asyncio.create_task(chat.say("charge the card"))
    while not effects.exists() or not effects.read_text().endswith("\n"):
        await asyncio.sleep(0.01)
    assert not work.done()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    (record,) = chat.record.records.values()
    assert record.state == "started"


def test_crash_ends_the_process_after_its_effect_was_recorded(tmp_path: Path) -> None:
    program = """
import asyncio
from perdure.clock import SystemClock
from perdure.config import AgentSettings, Settings
from perdure.graph.load import load_agent
from tests.servers.driving import Conversation

async def main():
    await Conversation(await load_agent(AgentSettings(name="agent"), Settings(), SystemClock())).say("/crash")

asyncio.run(main())
print("still here")
"""
    effects = tmp_path / "effects.jsonl"
    environment = {**os.environ, "PERDURE_DEMO_EFFECTS": str(effects)}
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, check=False, cwd=root, env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert [each["tool"] for each in lines(effects)] == ["crash"]


async def test_each_line_of_the_effects_file_names_its_call_by_a_key_of_its_own(
    chat: Conversation, effects: Path
) -> None:
    await chat.say("four-step job")
    keys = [str(each["key"]) for each in lines(effects)]
    assert len(set(keys)) == 4
    assert keys == [idempotency_key("turn-1", call) for call in chat.record.calls]
    assert set(lines(effects)[0]) == {"tool", "args", "key", "at"}


def test_what_to_do_depends_on_the_history_alone() -> None:
    done = AIMessage("", tool_calls=[{"id": "c", "name": "slow_step", "args": {"label": "one"}, "type": "tool_call"}])
    history = [HumanMessage("four-step job"), done, ToolMessage("lost", tool_call_id="c", status="error")]
    assert decide(history) == decide(history)
    assert decide(history).calls == (("slow_step", {"label": "two"}),)


async def test_streamed_and_whole_answers_agree_and_tell_their_usage() -> None:
    question = [HumanMessage("/say one two")]
    whole = await DemoModel(disable_streaming=True).ainvoke(question)
    streamed = None
    async for chunk in DemoModel().astream(question):
        streamed = chunk if streamed is None else streamed + chunk
    assert streamed is not None
    assert whole.content == streamed.content == "one two"
    assert whole.usage_metadata == streamed.usage_metadata
    assert whole.usage_metadata == {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    assert whole.id != streamed.id
