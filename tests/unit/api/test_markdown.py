"""The Markdown export shows text letter by letter: nothing in it becomes markup."""

from __future__ import annotations

import json

import httpx2
import pytest

from perdure.api.markdown import fenced, plain

from .conftest import FakeAgents

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "![](https://evil.example/?leak)",
    "https://evil.example",
    "```\n<b>out</b>\n```",
    "``````\n<b>out</b>",
    "~~~\n<b>out</b>",
    "\r```\r<b>out</b>",
    "a\u2028```\u2028<b>out</b>",
    "| a | b |\n|---|---|",
    "# heading",
    "&lt;b&gt;",
    "",
    "\n\n",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_leaves_its_fence(text: str) -> None:
    block = fenced(text, "text").split("\n")
    fence = block[-1]
    assert set(fence) == {"`"}
    assert len(fence) >= 3
    assert block[0] == f"{fence}text"
    assert not any(line.lstrip(" ").startswith(fence) for line in block[1:-1])


@pytest.mark.parametrize("text", HOSTILE)
def test_a_title_is_one_line_without_markup(text: str) -> None:
    told = plain(text)
    assert "\n" not in told
    assert "\r" not in told
    unescaped = told.replace("\\\\", "").split("\\")
    assert not set("<>[]()!#`&|:") & set(unescaped[0])
    assert all(not set("<>[]()!#`&|:") & set(piece[1:]) for piece in unescaped[1:])


async def test_a_conversation_is_exported_verbatim(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    agents.title = "<b>Title</b> [x](y)"
    agents.messages = [
        {"id": "1", "role": "user", "content": "```html\n<script>x</script>\n```"},
        {
            "id": "2",
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "name": "a](b", "args": {"q": "<i>"}}],
        },
        {"id": "3", "role": "tool", "name": "a", "content": "half \ud800", "status": "error", "tool_call_id": "c"},
    ]
    response = await client.get("/api/conversations/mine/export")
    assert response.headers["content-type"] == "text/markdown; charset=utf-8"
    assert response.headers["content-disposition"] == 'attachment; filename="mine.md"'
    assert response.text.startswith("# \\<b\\>Title\\<\\/b\\> \\[x\\]\\(y\\)\n")
    assert "````text\n```html\n<script>x</script>\n```\n````" in response.text
    assert "calls a\\]\\(b\n" in response.text
    assert "## tool\\: a \\(error\\)" in response.text


async def test_checkpoints_are_exported_one_a_line(client: httpx2.AsyncClient, agents: FakeAgents) -> None:
    agents.history = [{"checkpoint": "a", "values": {"t": "x\ny\u2028"}}, {"checkpoint": "b", "values": {}}]
    response = await client.get("/api/conversations/mine/export?format=jsonl")
    assert response.headers["content-type"].startswith("application/jsonl")
    assert response.headers["content-disposition"] == 'attachment; filename="mine.jsonl"'
    assert [json.loads(line) for line in response.text.strip().split("\n")] == agents.history


async def test_nothing_to_export_is_an_empty_file(client: httpx2.AsyncClient) -> None:
    response = await client.get("/api/conversations/mine/export?format=jsonl")
    assert (response.status_code, response.text) == (200, "")
