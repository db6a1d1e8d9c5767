"""The demo agent's tools, and the independent record of what they did to the world.

`PERDURE_DEMO_STEP_SECONDS` (2) is one step's time. `PERDURE_DEMO_EFFECTS=FILE`: at the end of its time each execution appends one
fsynced JSON line `{"tool", "args", "key", "at"}`. All tools are of class `read`: an execution that comes twice appends twice,
so the file counts executions.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.prebuilt import ToolRuntime

from perdure.graph.keys import call_key

_STEPS = {"alpha": 1, "beta": 2, "gamma": 3}
"""How many step times a label takes; any other takes one."""


@tool
async def slow_step(label: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Does one step of a job; takes a while."""
    await asyncio.sleep(_step_seconds() * _STEPS.get(label, 1))
    await _record("slow_step", {"label": label}, runtime)
    return f"Step {label} is done."


@tool
async def tick(n: int, runtime: ToolRuntime[Any, Any]) -> str:
    """Counts."""
    await _record("tick", {"n": n}, runtime)
    return f"Tick {n}."


@tool
async def fail(runtime: ToolRuntime[Any, Any]) -> str:
    """Fails, always."""
    await _record("fail", {}, runtime)
    raise ToolException("the demo tool fails on request")


@tool
async def crash(runtime: ToolRuntime[Any, Any]) -> str:
    """Ends the whole process at once, as a fatal fault in a native library would."""
    await _record("crash", {}, runtime)
    os._exit(1)


def demo_tools() -> list[BaseTool]:
    tools: list[BaseTool] = [slow_step, tick, fail, crash]
    for each in tools:
        each.metadata = {"effect": "read"}
    return tools


async def _record(name: str, arguments: Mapping[str, Any], runtime: ToolRuntime[Any, Any]) -> None:
    path = os.environ.get("PERDURE_DEMO_EFFECTS")
    if path:
        await asyncio.to_thread(append_effect, path, name, arguments, call_key(runtime.config))


def append_effect(path: str, name: str, arguments: Mapping[str, Any], key: str | None) -> None:
    """Appends one line and syncs it, under a lock that other processes respect."""
    line = {"tool": name, "args": dict(arguments), "key": key, "at": datetime.now(UTC).isoformat()}
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.write(handle, json.dumps(line).encode() + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)


def _step_seconds() -> float:
    return float(os.environ.get("PERDURE_DEMO_STEP_SECONDS", "2"))
