"""An MCP server over streamable HTTP for tests, on the protocol's SDK: `python -m tests.servers.mcp_server PORT`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.fastmcp import FastMCP

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


if __name__ == "__main__":
    server.settings.port = int(sys.argv[1])
    server.run("streamable-http")
