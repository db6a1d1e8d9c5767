"""Stand-ins for the two MCP servers of `examples/assistant`, over stdio: `python mcp_assistant_server.py memory|fetch`.

The same names and arguments of tools and the same annotations as the servers of the registries; the memory is a file of
JSON lines, the fetch server reads text as it is.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations

READ = ToolAnnotations(readOnlyHint=True)

memory = FastMCP("memory", log_level="ERROR")
fetching = FastMCP("fetch", log_level="ERROR")


def stored() -> list[dict[str, Any]]:
    file = Path(os.environ["MEMORY_FILE_PATH"])
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@memory.tool(annotations=READ)
async def read_graph() -> str:
    """Everything that is remembered."""
    return json.dumps({"entities": stored(), "relations": []})


@memory.tool(annotations=ToolAnnotations(readOnlyHint=False, idempotentHint=False))
async def create_entities(entities: list[dict[str, Any]]) -> str:
    """Remembers entities that are not known yet."""
    known = {each["name"] for each in stored()}
    new = [each for each in entities if each["name"] not in known]
    with Path(os.environ["MEMORY_FILE_PATH"]).open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in new)
    return json.dumps(new)


@fetching.tool(annotations=READ)
async def fetch(url: str) -> str:
    """Reads a page."""

    def read() -> str:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return f"Contents of {url}:\n{answer.read().decode()}"

    return await asyncio.to_thread(read)


if __name__ == "__main__":
    {"memory": memory, "fetch": fetching}[sys.argv[1]].run("stdio")
