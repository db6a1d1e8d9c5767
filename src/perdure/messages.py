"""The wire form of a message, as events, the HTTP API and exports show it. Pure; no I/O.

`{id, role: user|assistant|tool|system, content, reasoning?, tool_calls?, tool_call_id?, name?, status?, usage?}`. `content` is
always text: of structured content the text blocks, joined (text only is supported; other blocks are named in brackets).
`reasoning` is what a model told of its thinking, where it did. Exports leave it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

_SILENT = frozenset(
    {"tool_use", "tool_call", "reasoning", "thinking", "redacted_thinking", "reasoning_content", "input_json_delta"}
)
"""Blocks that are not part of what was said."""

_ROLES = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}


def wire_message(message: BaseMessage) -> dict[str, Any]:
    wire: dict[str, Any] = {
        "id": message.id or "",
        "role": _ROLES.get(message.type, message.type),
        "content": text_of(message),
    }
    reasoning = reasoning_of(message)
    if reasoning:
        wire["reasoning"] = reasoning
    if isinstance(message, AIMessage) and message.tool_calls:
        wire["tool_calls"] = [
            {"id": call["id"], "name": call["name"], "args": call["args"]} for call in message.tool_calls
        ]
    if isinstance(message, ToolMessage):
        wire["tool_call_id"] = message.tool_call_id
        wire["status"] = message.status
    if message.name:
        wire["name"] = message.name
    status = message.additional_kwargs.get("perdure_status")
    if status:
        wire["status"] = status
    usage = usage_of(message)
    if usage:
        wire["usage"] = usage
    return wire


def text_of(message: BaseMessage) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    return "".join(_block_text(block) for block in content)


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    kind = block.get("type", "")
    if kind == "text":
        return str(block.get("text", ""))
    return "" if kind in _SILENT else f"[{kind}]"


def reasoning_of(message: BaseMessage) -> str:
    """What a model told of its thinking, empty where it told nothing. Providers have it in blocks of the content, each in a
    form of its own, or beside the content; one that has both says the same in both."""
    if not isinstance(message, AIMessage):
        return ""
    blocks = message.content if isinstance(message.content, list) else []
    told = "\n\n".join(text for block in blocks if isinstance(block, Mapping) for text in _thoughts(block) if text)
    beside = message.additional_kwargs.get("reasoning_content")
    return told or (beside if isinstance(beside, str) else "")


def _thoughts(block: Mapping[str, Any]) -> Iterable[str]:
    kind = block.get("type")
    if kind not in {"reasoning", "thinking", "reasoning_content"}:
        return ()
    inside = block.get(kind)
    if kind == "reasoning" and inside is None:
        return _texts(block.get("summary"))
    return _texts([inside])


def _texts(parts: Any) -> Iterable[str]:
    """Of texts and of objects with a `text`."""
    for part in parts if isinstance(parts, list) else ():
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            yield text


def usage_of(message: BaseMessage) -> dict[str, int]:
    """`input_tokens, output_tokens, total_tokens` of a model reply, empty when the model did not tell."""
    usage = getattr(message, "usage_metadata", None)
    if not usage:
        return {}
    return {name: int(usage.get(name, 0)) for name in ("input_tokens", "output_tokens", "total_tokens")}
