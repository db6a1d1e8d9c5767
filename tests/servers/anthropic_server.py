"""A server of Anthropic's Messages protocol, scripted over HTTP: `python -m tests.servers.anthropic_server [PORT]`.

`PUT /script` and `GET /requests` are those of `openai_server`. `POST /v1/messages` streams the protocol's events. Steps:

- `{"say": text}` streams the text word by word · `{"calls": [{"id", "name", "arguments"}], "say"?}` streams the text, then each call's arguments in small pieces
- `{"status": 529, "type", "message", "retry_after"?}` answers with an error
- `{"cut": text}` streams the text, then aborts the connection · `{"fail": text, "type", "message"}` streams the text, then an error event
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.servers.openai_server import Exchange, main


class AnthropicExchange(Exchange):
    chat_path = "/v1/messages"

    async def step(self, step: dict[str, Any]) -> None:
        if "status" in step:
            extra = {"Retry-After": str(step["retry_after"])} if "retry_after" in step else {}
            await self.json(step["status"], self.failure(step), extra)
            return
        await self.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        usage = {"input_tokens": 11, "output_tokens": 1}
        message = {"id": self.answer, "type": "message", "role": "assistant", "model": "m", "content": []}
        await self.event("message_start", message={**message, "stop_reason": None, "usage": usage})
        text = str(next((step[key] for key in ("say", "cut", "fail") if key in step), ""))
        if text:
            pieces = [{"type": "text_delta", "text": f"{word} "} for word in text.split()]
            await self.block(0, {"type": "text", "text": ""}, pieces)
        if "cut" in step:
            self.writer.transport.abort()
            return
        if "fail" in step:
            await self.event("error", **self.failure(step))
        else:
            await self.calls_of(step.get("calls", []), 1 if text else 0)
            reason = "tool_use" if "calls" in step else "end_turn"
            await self.event(
                "message_delta", delta={"stop_reason": reason}, usage={"input_tokens": 11, "output_tokens": 7}
            )
            await self.event("message_stop")
        await self.chunk(b"")

    async def calls_of(self, calls: list[dict[str, Any]], first: int) -> None:
        for index, call in enumerate(calls, first):
            text = json.dumps(call["arguments"])
            parts = ["", *(text[start : start + 5] for start in range(0, len(text), 5))]
            block = {"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}}
            await self.block(index, block, [{"type": "input_json_delta", "partial_json": each} for each in parts])

    async def block(self, index: int, block: dict[str, Any], deltas: list[dict[str, Any]]) -> None:
        await self.event("content_block_start", index=index, content_block=block)
        for delta in deltas:
            await self.event("content_block_delta", index=index, delta=delta)
        await self.event("content_block_stop", index=index)

    def failure(self, step: dict[str, Any]) -> dict[str, Any]:
        return {"error": {"type": step["type"], "message": step["message"]}}

    async def event(self, kind: str, **data: Any) -> None:
        await self.chunk(f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode())


if __name__ == "__main__":
    asyncio.run(main(AnthropicExchange))
