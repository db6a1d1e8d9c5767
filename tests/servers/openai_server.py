"""A server of the OpenAI chat protocol, scripted over HTTP: `python -m tests.servers.openai_server [PORT]`.

Prints `listening on PORT`. `PUT /script` takes a list of steps; each chat request uses the next one and `default` when none is left.
`GET /requests` returns the bodies received since then. Steps:

- `{"say": text}` streams the text word by word · `{"calls": [{"id", "name", "arguments"}]}` streams tool-call deltas in small pieces
- `{"status": 429, "retry_after": "1", "message"?, "code"?}` answers with an error
- `{"cut": text}` streams the text, then aborts the connection · `{"stop": text}` ends the stream without a finish reason
- `{"hang": text}` streams the text, then sends nothing more
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from typing import Any

DEFAULT = {"say": "ok"}


class Script:
    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self.requests: list[Any] = []

    def next(self) -> dict[str, Any]:
        return self.steps.pop(0) if self.steps else DEFAULT


class Exchange:
    """One request and its answer on one connection."""

    chat_path = "/chat/completions"

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, script: Script) -> None:
        self.reader = reader
        self.writer = writer
        self.script = script
        self.answer = f"chatcmpl-{uuid.uuid4().hex}"

    async def serve(self) -> None:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        request, *lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = request.split(" ", 2)
        if method == "PUT" and path == "/script":
            self.script.steps = json.loads(body)
            self.script.requests = []
            await self.json(200, {"steps": len(self.script.steps)})
        elif method == "GET" and path == "/requests":
            await self.json(200, self.script.requests)
        elif method == "POST" and path.endswith(self.chat_path):
            self.script.requests.append(json.loads(body))
            await self.step(self.script.next())
        else:
            await self.other(method, path)

    async def other(self, method: str, path: str) -> None:
        await self.json(404, {"error": {"message": f"no such path {path}"}})

    async def step(self, step: dict[str, Any]) -> None:
        if "status" in step:
            extra = {"Retry-After": str(step["retry_after"])} if "retry_after" in step else {}
            message = step.get("message", "scripted error")
            error = {"message": message, "type": step.get("type"), "code": step.get("code")}
            await self.json(step["status"], {"error": error}, extra)
            return
        await self.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        await self.delta({"role": "assistant", "content": ""})
        if "calls" in step:
            await self.calls(step["calls"])
            await self.end("tool_calls")
            return
        for word in str(next(step[key] for key in ("say", "cut", "stop", "hang") if key in step)).split(" "):
            await self.delta({"content": f"{word} "})
        if "cut" in step:
            self.writer.transport.abort()
        elif "hang" in step:
            await self.reader.read()
        elif "stop" in step:
            await self.chunk(b"")
        else:
            await self.end("stop")

    async def calls(self, calls: list[dict[str, Any]]) -> None:
        for index, call in enumerate(calls):
            text = call["arguments"] if isinstance(call["arguments"], str) else json.dumps(call["arguments"])
            first = {"index": index, "id": call["id"], "type": "function"}
            await self.delta({"tool_calls": [{**first, "function": {"name": call["name"], "arguments": ""}}]})
            for start in range(0, len(text), 3):
                piece = {"index": index, "function": {"arguments": text[start : start + 3]}}
                await self.delta({"tool_calls": [piece]})

    async def end(self, reason: str) -> None:
        await self.delta({}, reason)
        await self.chunk(b"data: [DONE]\n\n")
        await self.chunk(b"")

    async def delta(self, delta: dict[str, Any], reason: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        event = {"id": self.answer, "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
        await self.chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    async def chunk(self, data: bytes) -> None:
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def json(self, status: int, value: Any, extra: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(extra or {})}
        lines = "".join(f"{name}: {each}\r\n" for name, each in headers.items())
        await self.send(f"HTTP/1.1 {status} Scripted\r\n{lines}Connection: close\r\n\r\n".encode() + body)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


async def main(exchange: type[Exchange] = Exchange) -> None:
    script = Script()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await exchange(reader, writer, script).serve()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    print(f"listening on {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
