"""The strict model is strict: it refuses what real providers refuse, and takes what our repair makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from perdure.graph.history import sendable
from tests.strict import HistoryRefused, from_wire, problems, refuse

CASES = Path(__file__).parents[1] / "cases" / "histories"
ASK = HumanMessage("go", id="h")


def calls(*ids: str) -> AIMessage:
    return AIMessage(
        "", id="a", tool_calls=[{"name": "t", "args": {}, "id": each, "type": "tool_call"} for each in ids]
    )


def result(call: str) -> ToolMessage:
    return ToolMessage("done", tool_call_id=call)


TAKEN: dict[str, list[BaseMessage]] = {
    "a question": [ASK],
    "a system prompt and a question": [SystemMessage("be brief"), ASK],
    "two results in another order": [ASK, calls("c1", "c2"), result("c2"), result("c1")],
    "the same ids in two answers": [ASK, calls("c1"), result("c1"), calls("c1"), result("c1")],
    "two questions in a row": [ASK, ASK],
}

REFUSED: dict[str, list[BaseMessage]] = {
    "a missing result": [ASK, calls("c1", "c2"), result("c1"), ASK],
    "a missing result at the end": [ASK, calls("c1", "c2"), result("c1")],
    "a doubled result": [ASK, calls("c1"), result("c1"), result("c1")],
    "a result without a call": [ASK, result("c1")],
    "a result before its call": [ASK, result("c1"), calls("c1"), ASK],
    "a result behind another message": [ASK, calls("c1"), ASK, result("c1")],
    "a result of an earlier answer": [ASK, calls("c1"), result("c1"), calls("c2"), result("c1"), result("c2")],
    "a call without an id": [ASK, calls(""), ToolMessage("done", tool_call_id="")],
    "two calls with one id": [ASK, calls("c1", "c1"), result("c1")],
    "an answer first": [AIMessage("hello"), ASK],
    "a system message in the middle": [ASK, SystemMessage("be brief"), ASK],
    "nothing to answer": [ASK, AIMessage("hello")],
}


@pytest.mark.parametrize("name", TAKEN)
def test_this_history_is_taken(name: str) -> None:
    refuse(TAKEN[name])


@pytest.mark.parametrize("name", REFUSED)
def test_this_history_is_refused(name: str) -> None:
    with pytest.raises(HistoryRefused):
        refuse(REFUSED[name])


def read(path: Path) -> list[BaseMessage]:
    return [_made(each, f"m{place}") for place, each in enumerate(json.loads(path.read_text())["messages"])]


def _made(message: dict[str, Any], id: str) -> BaseMessage:
    if message["role"] == "user":
        return HumanMessage(message["content"], id=id)
    if message["role"] == "tool":
        return ToolMessage(message["content"], tool_call_id=message["tool_call_id"], id=id)
    asked = [{**call, "type": "tool_call"} for call in message.get("tool_calls", ())]
    return AIMessage(message["content"], id=id, tool_calls=asked)


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_what_a_crash_left_behind_is_refused_as_it_is_and_taken_once_it_is_mended(path: Path) -> None:
    left = [*read(path), ASK]
    with pytest.raises(HistoryRefused):
        refuse(left)
    refuse(sendable(left))


def test_a_thread_as_the_api_shows_it_is_judged_the_same() -> None:
    shown: list[dict[str, Any]] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "t", "args": {}}]},
    ]
    said = [from_wire(message) for message in shown]
    assert list(problems(said, unfinished=True)) == []
    assert list(problems(said)) == ["the call 'c1' has no result at the end"]
