"""An MCP server over HTTP for tests, on the protocol's SDK: `python -m tests.servers.mcp_server PORT [streamable-http|sse]`.

A call whose text is `status CODE` gets that HTTP status the first time, as from a gateway, and is answered the second time.
On SIGTERM it takes no connection any more and goes on with the calls that are under way.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import uvicorn
from mcp.server.fastmcp import FastMCP
from starlette.types import ASGIApp, Message, Receive, Scope, Send

server = FastMCP("tests", log_level="ERROR")


@server.tool()
async def echo(text: str) -> str:
    """Says the same."""
    return f"echo: {text}"


@server.tool()
async def hang(marker: str) -> str:
    """Writes its process id to the marker file, then never answers."""
    target = Path(marker)
    partial = target.with_suffix(".partial")
    partial.write_text(str(os.getpid()))
    partial.rename(target)
    await asyncio.Event().wait()
    return "never"


class Gateway:
    """Answers with a status of its own when the request's text asks for it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._told: set[bytes] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = await _body(receive)
        wanted = re.search(rb"status (\d+)", body)
        if wanted and wanted.group(0) not in self._told:
            self._told.add(wanted.group(0))
            headers = [(b"content-length", b"0"), (b"retry-after", b"7")]
            await send({"type": "http.response.start", "status": int(wanted.group(1)), "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, _replay(body, receive), send)


async def _body(receive: Receive) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


if __name__ == "__main__":
    kind = sys.argv[2] if len(sys.argv) > 2 else "streamable-http"
    app = server.sse_app() if kind == "sse" else server.streamable_http_app()
    uvicorn.run(Gateway(app), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
