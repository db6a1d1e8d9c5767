from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from langchain_core.tools import ToolException
from mcp import types

from perdure import ledger
from perdure.effects import EffectClass
from perdure.graph.mcp_options import PerTool, ServerOptions
from perdure.graph.mcp_tool import McpTool, bound_tool, declared_effect, result_text

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}, "key": {"type": "string"}}, "required": ["key"]}


class Remembering:
    """Keeps what was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any], dict[str, Any]]] = []

    async def call(self, tool: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> str:
        self.sent.append((tool, dict(arguments), dict(meta)))
        return "done"


def tool(caller: Remembering, schema: dict[str, Any], **options: Any) -> McpTool:
    described = types.Tool(name="save", inputSchema=schema)
    return bound_tool("notes", caller, described, ServerOptions(**options))


@pytest.mark.parametrize(
    ("hints", "keyed", "declared"),
    [
        (None, False, None),
        ({}, False, None),
        ({"readOnlyHint": False, "idempotentHint": False}, True, EffectClass.KEYED),
        ({"idempotentHint": True}, False, EffectClass.KEYED),
        ({"idempotentHint": True, "destructiveHint": True}, False, EffectClass.KEYED),
        ({"readOnlyHint": True, "idempotentHint": True}, True, EffectClass.READ),
        ({"destructiveHint": False, "openWorldHint": False}, False, None),
    ],
)
def test_hints_become_an_effect_class_or_nothing(
    hints: dict[str, bool] | None, keyed: bool, declared: EffectClass | None
) -> None:
    annotations = None if hints is None else types.ToolAnnotations.model_validate(hints)
    assert declared_effect(annotations, keyed=keyed) is declared


async def test_the_argument_for_the_key_is_hidden_filled_in_and_never_the_models_own() -> None:
    caller = Remembering()
    save = tool(caller, SCHEMA, key_argument=PerTool((("save", "key"),)))
    shown: Any = save.tool_call_schema
    assert (list(shown["properties"]), shown["required"]) == (["text"], [])
    assert list(SCHEMA["properties"]) == ["text", "key"]
    token = ledger.current_key.set("turn-1-a")
    try:
        await save.ainvoke({"text": "hi", "key": "made up"})
    finally:
        ledger.current_key.reset(token)
    await save.ainvoke({"text": "hi", "key": "made up"})
    assert caller.sent == [
        ("save", {"text": "hi", "key": "turn-1-a"}, {"perdure/idempotency-key": "turn-1-a"}),
        ("save", {"text": "hi"}, {}),
    ]


def test_an_argument_that_the_tool_does_not_take_makes_it_neither_keyed_nor_other() -> None:
    plain = tool(Remembering(), {"type": "object"}, key_argument=PerTool((("*", "key"),)))
    assert (plain.key_argument, plain.effect) == (None, None)


def test_an_error_of_the_tool_is_raised_with_its_words_and_content_that_is_no_text_is_named() -> None:
    text = types.TextContent(type="text", text="hello")
    image = types.ImageContent(type="image", data="", mimeType="image/png")
    assert result_text(types.CallToolResult(content=[text, image])) == "hello\n[image]"
    assert result_text(types.CallToolResult(content=[], structuredContent={"a": 1})) == "{'a': 1}"
    with pytest.raises(ToolException, match="hello"):
        result_text(types.CallToolResult(content=[text], isError=True))
    with pytest.raises(ToolException, match="gave no reason"):
        result_text(types.CallToolResult(content=[], isError=True))
