"""A conversation as Markdown. What models, tools and people said stands in fenced blocks: it is shown letter by letter, so
that no text can become a link, an image or HTML in whatever renders the file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from perdure.agent.base import Transcript

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_TICKS = re.compile(r"`+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u2028\u2029]")


def render(transcript: Transcript) -> str:
    conversation = transcript.conversation
    head = [
        f"# {plain(conversation.title)}",
        "",
        f"- conversation: {plain(conversation.id)}",
        f"- agent: {plain(conversation.agent)}",
        f"- created: {plain(conversation.created_at.isoformat())}",
        f"- last activity: {plain(conversation.updated_at.isoformat())}",
        "",
    ]
    parts = [part for message in transcript.messages for part in _message(message)]
    if transcript.state is not None:
        parts += ["## State", "", fenced(_json(transcript.state), "json"), ""]
    return "\n".join(head + parts)


def _message(message: Mapping[str, Any]) -> list[str]:
    role, name = str(message["role"]), message.get("name")
    title = f"{role}: {name}" if name else role
    status = f" ({message['status']})" if message.get("status") else ""
    parts = [f"## {plain(title + status)}", ""]
    if message.get("content"):
        parts += [fenced(str(message["content"]), "text"), ""]
    for call in message.get("tool_calls", ()):
        parts += [f"calls {plain(str(call['name']))}", "", fenced(_json(call["args"]), "json"), ""]
    return parts


def plain(text: str) -> str:
    """One line that means exactly its letters: every ASCII punctuation mark is escaped, as Markdown allows."""
    return _PUNCTUATION.sub(r"\\\1", _CONTROL.sub(" ", " ".join(text.split())))


def fenced(text: str, language: str) -> str:
    """A block that no text can leave: its fence is longer than any row of backticks inside."""
    text = _CONTROL.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))
    longest = max((len(ticks) for ticks in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)
