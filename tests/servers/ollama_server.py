"""A server of Ollama's protocol, scripted over HTTP: `python -m tests.servers.ollama_server [PORT]`.

It is not Ollama: it says what its script tells it to. `PUT /script` and `GET /requests` are those of `openai_server`. `POST /api/chat` streams
lines of JSON as Ollama does: the text word by word, or each tool call whole, with its arguments as an object and without an
id; then a last line with the counts. Steps:

- `{"say": text}` · `{"calls": [{"name", "arguments"}]}` · `{"status": 404, "message"}` answers with an error
- `{"fail": text, "message"}` streams the text, then an error line · `{"cut": text}` streams the text, then aborts the connection
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.servers.openai_server import Exchange, main

MODEL = "qwen3:latest"


class OllamaExchange(Exchange):
    chat_path = "/api/chat"

    async def other(self, method: str, path: str) -> None:
        if (method, path) == ("GET", "/api/tags"):
            await self.json(200, {"models": [{"name": MODEL, "model": MODEL}]})
        elif (method, path) == ("GET", "/api/version"):
            await self.json(200, {"version": "0.12.0"})
        else:
            await self.json(404, {"error": f"no such path {path}"})

    async def step(self, step: dict[str, Any]) -> None:
        if "status" in step:
            await self.json(step["status"], {"error": step.get("message", "scripted error")})
            return
        await self.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for call in step.get("calls", []):
            function = {"name": call["name"], "arguments": call["arguments"]}
            await self.line(message={"content": "", "tool_calls": [{"function": function}]})
        for word in str(next((step[key] for key in ("say", "fail", "cut") if key in step), "")).split():
            await self.line(message={"content": f"{word} "})
        if "cut" in step:
            self.writer.transport.abort()
            return
        if "fail" in step:
            await self.chunk(json.dumps({"error": step["message"]}).encode() + b"\n")
        else:
            counts = {"prompt_eval_count": 11, "eval_count": 7, "total_duration": 1, "load_duration": 1}
            await self.line(message={"content": ""}, done=True, done_reason="stop", **counts)
        await self.chunk(b"")

    async def line(self, *, message: dict[str, Any], done: bool = False, **more: Any) -> None:
        said = {"model": MODEL, "created_at": "2026-11-30T12:00:00.000000Z", "done": done, **more}
        await self.chunk(json.dumps({**said, "message": {"role": "assistant", **message}}).encode() + b"\n")


if __name__ == "__main__":
    asyncio.run(main(OllamaExchange))
