from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call

from perdure.graph.history import CANCELLED, NOT_RECORDED, calls_of, missing_results, result_id, sendable, trim
from perdure.ledger import ToolCall, idempotency_key

CASES = Path(__file__).parents[2] / "cases" / "histories"


def history(name: str) -> list[BaseMessage]:
    listed = json.loads((CASES / f"{name}.json").read_text())["messages"]
    return [made(each, f"m{index}") for index, each in enumerate(listed)]


def made(message: dict[str, Any], id: str) -> BaseMessage:
    role, content = message["role"], message["content"]
    if role == "user":
        return HumanMessage(content, id=id)
    if role == "tool":
        return ToolMessage(content, tool_call_id=message["tool_call_id"], id=id)
    calls = [{**call, "type": "tool_call"} for call in message.get("tool_calls", [])]
    return AIMessage(content, tool_calls=calls, id=id)


def results(messages: list[BaseMessage]) -> list[tuple[str, str]]:
    return [(each.tool_call_id, str(each.content)) for each in messages if isinstance(each, ToolMessage)]


def test_a_call_that_was_cancelled_is_answered_before_the_new_user_message() -> None:
    ready = sendable(history("cancelled_then_new_message"), CANCELLED)
    assert [each.type for each in ready] == ["human", "ai", "tool", "human"]
    assert "cancelled by the user" in str(ready[2].content)


def test_of_two_results_the_first_is_kept() -> None:
    assert results(sendable(history("duplicate_results"))) == [("call_1", "first")]


def test_a_call_cut_by_a_kill_says_that_its_outcome_was_not_recorded_and_its_sibling_keeps_its_own() -> None:
    ready = sendable(history("killed_between_call_and_result"))
    assert results(ready) == [("call_1", "fine"), ("call_2", NOT_RECORDED)]
    assert "not recorded" in NOT_RECORDED


def test_a_result_without_a_call_is_not_sent_and_stays_in_the_thread() -> None:
    thread = history("orphan_result")
    assert [each.id for each in sendable(thread)] == ["m0", "m2"]
    assert [each.id for each in thread] == ["m0", "m1", "m2"]


def test_an_id_that_comes_in_two_turns_names_two_calls_with_a_result_and_a_key_each() -> None:
    thread = history("same_id_in_two_turns")
    ready = sendable(thread)
    assert results(ready) == [("call_0", "1"), ("call_0", NOT_RECORDED)]
    assert [each.type for each in ready] == ["human", "ai", "tool", "ai", "human", "ai", "tool"]
    thread.append(ToolMessage("2", tool_call_id="call_0", id="m6"))
    assert results(sendable(thread)) == [("call_0", "1"), ("call_0", "2")]
    keys = {idempotency_key("t", ToolCall("call_0", "a", {}, str(thread[at].id))) for at in (1, 5)}
    assert len(keys) == 2


@pytest.mark.parametrize("name", sorted(path.stem for path in CASES.glob("*.json")))
def test_a_repaired_thread_is_valid_and_needs_no_second_repair(name: str) -> None:
    thread = history(name)
    repaired = [*thread, *missing_results(thread)]
    assert missing_results(repaired) == []
    assert sendable(sendable(repaired)) == sendable(repaired)
    known = {each.id for each in thread}
    assert [each.id for each in sendable(thread) if each.id in known] == [
        each.id for each in thread if each in sendable(thread)
    ]


def test_missing_results_have_ids_that_come_from_the_call_alone() -> None:
    thread = history("killed_between_call_and_result")
    (first,) = missing_results(thread)
    (second,) = missing_results(thread, CANCELLED)
    assert first.id == second.id == result_id("m1", "call_2")
    assert first.status == "error"


def test_a_call_whose_arguments_cannot_be_read_needs_a_result_too() -> None:
    message = AIMessage("", id="m1", invalid_tool_calls=[invalid_tool_call(name="a", args="{", id="c1", error=None)])
    (call,) = calls_of(message)
    assert call.problem is not None
    assert results(sendable([HumanMessage("go"), message])) == [("c1", NOT_RECORDED)]


def long_thread() -> list[BaseMessage]:
    call = {"id": "c", "name": "a", "args": {}, "type": "tool_call"}
    return [
        HumanMessage("one " * 100, id="h1"),
        AIMessage("", tool_calls=[call], id="a1"),
        ToolMessage("result " * 100, tool_call_id="c", id="t1"),
        AIMessage("answer", id="a2"),
        HumanMessage("two", id="h2"),
        AIMessage("second", id="a3"),
        HumanMessage("three " * 100, id="h3"),
        AIMessage("", tool_calls=[call], id="a4"),
        ToolMessage("result", tool_call_id="c", id="t2"),
    ]


def test_trimming_drops_whole_exchanges_oldest_first() -> None:
    everything = trim(long_thread(), 10_000)
    assert (everything.dropped, everything.messages) == (0, long_thread())
    less = trim(long_thread(), everything.tokens - 1)
    assert [each.id for each in less.messages] == ["h2", "a3", "h3", "a4", "t2"]
    assert less.dropped == 4
    assert less.tokens < everything.tokens


def test_trimming_keeps_the_last_human_message_and_what_follows_even_when_they_are_too_large() -> None:
    trimmed = trim(long_thread(), 1)
    assert [each.id for each in trimmed.messages] == ["h3", "a4", "t2"]


def test_trimming_counts_what_is_reserved_for_the_prompt() -> None:
    everything = trim(long_thread(), 10_000)
    assert trim(long_thread(), everything.tokens, reserved=1).dropped == 4


def test_what_comes_before_the_first_human_message_is_an_exchange_of_its_own() -> None:
    thread: list[BaseMessage] = [SystemMessage("be brief", id="s"), HumanMessage("hi", id="h")]
    assert [each.id for each in trim(thread, 1).messages] == ["h"]
