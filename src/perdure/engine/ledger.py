"""The attempt as the graph sees it: `perdure.ledger.Ledger` over a leased attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.config import get_config

from perdure.ledger import ToolCall
from perdure.store.base import LeasedAttempt


class AttemptLedger:
    def __init__(self, attempt: LeasedAttempt) -> None:
        self._attempt = attempt

    @property
    def turn(self) -> str:
        return self._attempt.turn.id

    @property
    def attempt(self) -> int:
        return self._attempt.number

    async def intend(self, call: ToolCall) -> None:
        node, step = _place()
        await self._attempt.intend(call, node, step)

    def note(self, node: str, name: str, phase: str, data: Mapping[str, Any]) -> None:
        self._attempt.trace(node, name, _place()[1], phase, data=dict(data))


def _place() -> tuple[str, int]:
    """Node and superstep of the running task."""
    metadata = get_config().get("metadata") or {}
    return str(metadata.get("langgraph_node", "")), int(metadata.get("langgraph_step", 0))
