"""The wire form of a message, as events, the HTTP API and exports show it. Pure; no I/O.

`{id, role: user|assistant|tool|system, content, tool_calls?, tool_call_id?, name?, status?, usage?}`. `content` is always
text: of structured content the text blocks, joined (text only is supported; other blocks are named in brackets).
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

_ROLES = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}


def wire_message(message: BaseMessage) -> dict[str, Any]:
    wire: dict[str, Any] = {
        "id": message.id or "",
        "role": _ROLES.get(message.type, message.type),
        "content": text_of(message),
    }
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
    return "" if kind in {"tool_use", "tool_call", "reasoning", "thinking", "input_json_delta"} else f"[{kind}]"


def usage_of(message: BaseMessage) -> dict[str, int]:
    """`input_tokens, output_tokens, total_tokens` of a model reply, empty when the model did not tell."""
    usage = getattr(message, "usage_metadata", None)
    if not usage:
        return {}
    return {name: int(usage.get(name, 0)) for name in ("input_tokens", "output_tokens", "total_tokens")}
