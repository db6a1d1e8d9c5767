"""A small MCP server over stdio for tests, of nothing but the standard library, so that it starts at once.

Run by path: `python tests/servers/mcp_stdio_server.py`. The HTTP tests use `mcp_server` beside it, which is built on the protocol's SDK.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def echo(text: str) -> str:
    return f"echo: {text}"


def pid() -> str:
    return str(os.getpid())


def variables() -> str:
    return " ".join(sorted(os.environ))


def boom() -> str:
    raise ValueError("the kettle is cold")


def hang(marker: str) -> str:
    target = Path(marker)
    partial = target.with_suffix(".partial")
    partial.write_text(str(os.getpid()))
    partial.rename(target)
    while True:
        signal.pause()


def grow() -> str:
    TOOLS["grown"] = (lambda: "grown", {})
    send({"method": "notifications/tools/list_changed"})
    return "There is one more tool now."


def chatter() -> str:
    sys.stdout.write("a line that is no message\n")
    return "Excuse me."


def half() -> str:
    return "half a pair: \ud83d"


def show_meta() -> str:
    return json.dumps(META[-1])


def remember(text: str, idempotency_key: str = "none") -> str:
    return f"{text} under {idempotency_key}"


def append_meta(file: str) -> str:
    with Path(file).open("a") as lines:
        lines.write(json.dumps(META[-1]) + "\n")
    return "appended"


META: list[Any] = []
"""The `_meta` of each call."""

TEXT = {"type": "string"}
ANNOTATIONS: dict[str, dict[str, Any]] = {
    "echo": {"readOnlyHint": True},
    "grow": {"readOnlyHint": False, "idempotentHint": True},
    "boom": {"destructiveHint": False},
    "append_meta": {"idempotentHint": True},
}
TOOLS: dict[str, tuple[Callable[..., str], dict[str, Any]]] = {
    "echo": (echo, {"text": TEXT}),
    "pid": (pid, {}),
    "variables": (variables, {}),
    "boom": (boom, {}),
    "hang": (hang, {"marker": TEXT}),
    "grow": (grow, {}),
    "chatter": (chatter, {}),
    "half": (half, {}),
    "show_meta": (show_meta, {}),
    "append_meta": (append_meta, {"file": TEXT}),
    "remember": (remember, {"text": TEXT, "idempotency_key": TEXT}),
}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        information = {"name": "tests", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": information}
    if method == "tools/list":
        return {
            "tools": [
                {
                    "name": name,
                    "inputSchema": {"type": "object", "properties": schema, "required": list(schema)},
                    "annotations": ANNOTATIONS.get(name),
                }
                for name, (_, schema) in TOOLS.items()
            ]
        }
    if method == "tools/call":
        META.append(parameters.get("_meta"))
        return call(parameters["name"], parameters.get("arguments") or {})
    return {}


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"content": [{"type": "text", "text": TOOLS[name][0](**arguments)}]}
    except ValueError as error:
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            send({"id": message["id"], "result": answer(message["method"], message.get("params") or {})})


if __name__ == "__main__":
    main()
