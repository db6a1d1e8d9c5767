"""The demo agent's tools, and the independent record of what they did to the world.

`PERDURE_DEMO_STEP_SECONDS` (2) is one step's time. `PERDURE_DEMO_EFFECTS=FILE`: at the end of its time each execution appends one
fsynced JSON line `{"tool", "args", "key", "at"}`; one that comes twice appends twice, so the file counts executions.
`PERDURE_DEMO_EFFECT_PAUSE_SECONDS` (0) passes between the line and the return: the time to kill a server in between.
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

from perdure.graph.effect import effect
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


@effect("once")
@tool
async def restart_service(name: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Restarts a service. The demo agent asks a person before it."""
    await _record("restart_service", {"name": name}, runtime)
    return f"The service {name} was restarted."


@tool
async def read_status(runtime: ToolRuntime[Any, Any]) -> str:
    """Reads the state of the services."""
    await _record("read_status", {}, runtime)
    return "All services are up."


@effect("once")
@tool
async def charge_card(amount: int, runtime: ToolRuntime[Any, Any]) -> str:
    """Charges the customer's card."""
    await _record("charge_card", {"amount": amount}, runtime)
    return f"The card was charged {amount}."


@effect("keyed")
@tool
async def save_note(text: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Saves a note."""
    await _record("save_note", {"text": text}, runtime)
    return f"Noted: {text}"


def demo_tools() -> list[BaseTool]:
    reading: list[BaseTool] = [slow_step, tick, fail, crash, read_status]
    for each in reading:
        each.metadata = {"effect": "read"}
    return [*reading, restart_service, charge_card, save_note]


async def _record(name: str, arguments: Mapping[str, Any], runtime: ToolRuntime[Any, Any]) -> None:
    path = os.environ.get("PERDURE_DEMO_EFFECTS")
    if path:
        await asyncio.to_thread(append_effect, path, name, arguments, call_key(runtime.config))
    await asyncio.sleep(float(os.environ.get("PERDURE_DEMO_EFFECT_PAUSE_SECONDS", "0")))


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
