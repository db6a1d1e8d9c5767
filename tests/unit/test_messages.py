"""The wire form of a message."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from perdure.messages import wire_message

TEXT = {"type": "text", "text": "42"}


@pytest.mark.parametrize(
    ("blocks", "reasoning"),
    [
        ([{"type": "thinking", "thinking": "six times seven", "signature": "x"}, TEXT], "six times seven"),
        ([{"type": "reasoning", "reasoning": "six times seven"}, TEXT], "six times seven"),
        ([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}, {"text": "b"}]}, TEXT], "a\n\nb"),
        ([{"type": "reasoning_content", "reasoning_content": {"text": "hm", "signature": "x"}}, TEXT], "hm"),
        ([{"type": "thinking", "thinking": "a"}, {"type": "thinking", "thinking": "b"}, TEXT], "a\n\nb"),
    ],
)
def test_what_a_model_thought_is_told_beside_what_it_said(blocks: list[str | dict[str, Any]], reasoning: str) -> None:
    wire = wire_message(AIMessage(content=blocks, id="m"))
    assert wire == {"id": "m", "role": "assistant", "content": "42", "reasoning": reasoning}


def test_reasoning_beside_the_content_is_told_once() -> None:
    beside = {"reasoning_content": "hm"}
    assert wire_message(AIMessage(content="42", id="m", additional_kwargs=beside))["reasoning"] == "hm"
    both = AIMessage(content=[{"type": "reasoning", "reasoning": "hm"}, TEXT], id="m", additional_kwargs=beside)
    assert wire_message(both)["reasoning"] == "hm"


@pytest.mark.parametrize(
    "block",
    [
        {"type": "redacted_thinking", "data": "secret"},
        {"type": "reasoning", "summary": []},
        {"type": "reasoning", "reasoning": ["?", 1]},
        {"type": "thinking"},
        {"type": "thinking", "thinking": None},
    ],
)
def test_reasoning_that_tells_nothing_is_left_out(block: dict[str, Any]) -> None:
    assert wire_message(AIMessage(content=[block, TEXT], id="m")) == {"id": "m", "role": "assistant", "content": "42"}


def test_what_is_not_of_a_model_has_no_reasoning() -> None:
    said = HumanMessage("hi", id="m", additional_kwargs={"reasoning_content": "forged"})
    assert "reasoning" not in wire_message(said)
