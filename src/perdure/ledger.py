"""What the graph knows of the attempt that drives it: a protocol, so that `graph` needs neither store nor engine.

The engine sets `current` for the tasks of one attempt; LangGraph copies the context into its tasks and threads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from perdure.effects import EffectClass, ToolPolicy, digest_of
from perdure.turns import Verdict


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call a model asked for. `message_id` is the committed assistant message that holds it."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    """What runs: the model's, or those a person approved in their place."""

    message_id: str
    server: str | None = None
    """The MCP server's name, None for a Python tool."""

    effect: EffectClass = EffectClass.ONCE
    polls: bool = False
    """Exempt from the limit of identical calls in a row."""

    twin: str = ""
    """Tells it from another call of the same message that came with the same id; empty where the id alone names it."""

    @property
    def digest(self) -> str:
        return digest_of(self.arguments)

    @property
    def likeness(self) -> str:
        """The same for calls that are alike: the tool and its arguments."""
        return f"{self.name} {self.digest}"


PAUSED = "it asked a question of its own and goes on from its start when it is answered"
"""Why a call is STARTED whose tool stopped by itself (`interrupt()`, or a graph inside it was drained): not uncertain."""

NOT_BEGUN = "it was cancelled before it began"
"""Why a call is STARTED whose tool was never reached: not uncertain either."""

NOT_UNCERTAIN = frozenset({PAUSED, NOT_BEGUN})
"""What makes a STARTED call no uncertain one."""


class CallState(StrEnum):
    STARTED = "started"
    """The intent is durable; nobody knows yet what came of it."""

    RECORDED = "recorded"
    """Its result is in the ledger."""

    SETTLED = "settled"
    """Its result is in the thread: the writes of the task that made the call are committed, the ledger's copy is dropped."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """What the ledger holds of one call of the turn."""

    key: str
    state: CallState
    call: ToolCall
    starts: int
    """How often it was started, over all attempts."""

    attempt: int
    """The attempt that started it last."""

    result: Any = None
    """What the tool node answers with (a ToolMessage, a Command or a list of them), while RECORDED."""

    error: str | None = None
    """Of a STARTED call: why its outcome is not known, as far as anybody could tell."""

    @property
    def paused(self) -> bool:
        """Its tool stopped by itself to be run again, or was never reached: nobody needs to be asked."""
        return self.state is CallState.STARTED and self.error in NOT_UNCERTAIN


class Ledger(Protocol):
    """The attempt's record of what the graph does to the world."""

    @property
    def turn(self) -> str: ...

    @property
    def attempt(self) -> int: ...

    @property
    def policy(self) -> ToolPolicy: ...

    def record(self, key: str) -> CallRecord | None:
        """What is known of the call with this idempotency key, from earlier attempts and from this one."""
        ...

    def verdict(self, gate_id: str) -> Verdict | None:
        """The decision on a gate. It alone authorises: never what a graph's `interrupt()` returned. Decisions are made while
        a turn is parked, so they do not change during an attempt."""
        ...

    async def intend(self, call: ToolCall) -> None:
        """Records durably that the call is about to start. Raises LimitReached before anything was recorded, and LeaseLost when
        the attempt lost its authority."""
        ...

    def result(self, call: ToolCall, result: Any) -> None:
        """Records what the call gave, ahead of the writes of its task. Durable soon, and before any later write; a failure
        latches the attempt. Raises StateTypeNotAllowed when it holds what may not be read back."""
        ...

    def unknown(self, call: ToolCall, error: str) -> None:
        """Notes why the outcome of a started call is not known: the call stays uncertain."""
        ...

    async def count_model_call(self) -> None:
        """Before every model call of the turn. Raises LimitReached."""
        ...

    @property
    def draining(self) -> bool:
        """Whether the attempt was asked to stop between two steps (a shutdown, or no steps left)."""
        ...

    def grace_seconds(self) -> float:
        """How long a `once` call that is under way may still take after its task was cancelled: never more than its own time
        limit; 0 when the attempt may not write any more or the process must end."""
        ...

    def note(self, node: str, name: str, phase: str, data: Mapping[str, Any]) -> None:
        """Adds a trace event that goes out with the next commit (`phase`: `trim` or `retry`)."""
        ...


current: ContextVar[Ledger | None] = ContextVar("perdure_ledger", default=None)
"""The ledger of the running attempt; None when a graph runs outside Perdure (a unit test of its author)."""

current_key: ContextVar[str | None] = ContextVar("perdure_idempotency_key", default=None)
"""The idempotency key of the tool call that runs in this context."""


def idempotency_key(turn: str, call: ToolCall) -> str:
    """Stable across attempts; unique also when a model server numbers its calls from zero in every answer. Letters, digits
    and `-` only, whatever a model server makes its ids of."""
    parts = [call.message_id, call.id, *([call.twin] if call.twin else ())]
    name = hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:32]
    return f"{turn}-{name}"
