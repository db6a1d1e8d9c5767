"""What the graph knows of the attempt that drives it: a protocol, so that `graph` needs neither store nor engine.

The engine sets `current` for the tasks of one attempt; LangGraph copies the context into its tasks and threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call a model asked for. `message_id` is the committed assistant message that holds it."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    message_id: str
    server: str | None = None
    """The MCP server's name, None for a Python tool."""


class Ledger(Protocol):
    """The attempt's record of what the graph does to the world."""

    @property
    def turn(self) -> str: ...

    @property
    def attempt(self) -> int: ...

    async def intend(self, call: ToolCall) -> None:
        """Records durably that the call is about to start. Raises LeaseLost when the attempt lost its authority."""
        ...

    def note(self, node: str, name: str, phase: str, data: Mapping[str, Any]) -> None:
        """Adds a trace event that goes out with the next commit (`phase`: `trim` or `retry`)."""
        ...


current: ContextVar[Ledger | None] = ContextVar("perdure_ledger", default=None)
"""The ledger of the running attempt; None when a graph runs outside Perdure (a unit test of its author)."""


def idempotency_key(turn: str, call: ToolCall) -> str:
    """Stable across attempts; unique also when a model server numbers its calls from zero in every answer."""
    return f"{turn}:{call.message_id}:{call.id}"
