"""What tool calls do to the world, who must be asked before them, and the questions that are asked. Pure; no I/O.

The effect class of a tool comes from the configuration's globs, else from its declaration (`perdure.effect`) or its MCP
annotations, else it is `once`. A gate is a question about one call that parks the turn: `approval` before it starts,
`uncertain` after it was started and its outcome was never recorded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any


class EffectClass(StrEnum):
    READ = "read"
    """Changes nothing: repeated freely."""

    KEYED = "keyed"
    """Repeated with the same idempotency key; the other side deduplicates by it."""

    CHECKABLE = "checkable"
    """A `lookup(key)` function tells whether it happened."""

    ONCE = "once"
    """Never started a second time without a person's word."""


class OnUncertain(StrEnum):
    """What becomes of an uncertain `once` call (and of a `checkable` one whose lookup cannot tell)."""

    ASK = "ask"
    RETRY = "retry"
    FAIL = "fail"


class Gate(StrEnum):
    """Why a call waits for a person; the `kind` of its card."""

    APPROVAL = "approval"
    UNCERTAIN = "uncertain"


INTERRUPT = "interrupt"
"""The kind of a card that a graph's own `interrupt()` or a static breakpoint opened."""


def digest_of(arguments: Any) -> str:
    """SHA-256 of the canonical JSON. What was approved and what runs are compared by it. Half a surrogate pair counts as the
    question mark that it is stored as."""
    canonical = json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(canonical.encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, slots=True)
class ToolPolicy:
    """What an agent's settings say about its tools. Patterns are globs on the name the model sees (`server__tool`)."""

    needs_approval: Sequence[str] = ()
    effects: Sequence[tuple[str, EffectClass]] = ()
    """The first pattern that matches decides."""

    poll: Sequence[str] = ()
    """Tools that may be called with the same arguments again and again."""

    on_uncertain: OnUncertain = OnUncertain.ASK
    approval_expires_seconds: float | None = None
    """An approval that nobody decides in this time is denied."""

    approval_deciders: Sequence[str] = ()
    """Names of the tokens that may decide approvals; empty: the conversation's owner and every operator."""

    def gated(self, tool: str) -> bool:
        return any(fnmatchcase(tool, pattern) for pattern in self.needs_approval)

    def effect_of(self, tool: str, declared: EffectClass | None) -> EffectClass:
        for pattern, effect in self.effects:
            if fnmatchcase(tool, pattern):
                return effect
        return declared or EffectClass.ONCE

    def polls(self, tool: str, declared: bool) -> bool:
        return declared or any(fnmatchcase(tool, pattern) for pattern in self.poll)


@dataclass(frozen=True, slots=True)
class GateRequest:
    """One question about one call, as the interrupt's value carries it and as the card shows it."""

    gate: Gate
    key: str
    """The call's idempotency key."""

    call_id: str
    message_id: str
    tool: str
    server: str | None
    arguments: Mapping[str, Any]
    effect: EffectClass
    starts: int = 0
    """How often the call was started so far."""

    why: str = ""
    """Of an uncertain call: what became of it, one sentence."""

    expires_seconds: float | None = None
    deciders: Sequence[str] = ()

    @property
    def digest(self) -> str:
        return digest_of(self.arguments)

    @property
    def id(self) -> str:
        """The interrupt's id. Other arguments, or another start, are another question: no decision of an earlier one fits."""
        what = self.digest if self.gate is Gate.APPROVAL else str(self.starts)
        return _GATE_PREFIX + hashlib.sha256(f"{self.gate}\n{self.key}\n{what}".encode()).hexdigest()[:32]

    def value(self) -> dict[str, Any]:
        """JSON, read back by `gate_request`."""
        return {
            _MARK: str(self.gate),
            "key": self.key,
            "call_id": self.call_id,
            "message_id": self.message_id,
            "tool": self.tool,
            "server": self.server,
            "arguments": dict(self.arguments),
            "effect_class": str(self.effect),
            "starts": self.starts,
            "why": self.why,
            "expires_seconds": self.expires_seconds,
            "deciders": list(self.deciders),
        }


_MARK = "perdure_gate"
_GATE_PREFIX = "gate-"


def gate_request(interrupt_id: str, value: Any) -> GateRequest | None:
    """The gate that an interrupt stands for; None for a question of the graph's own. A value that only looks like a gate
    (its id does not follow from what it says) is a question of the graph's own."""
    if not interrupt_id.startswith(_GATE_PREFIX) or not isinstance(value, Mapping) or _MARK not in value:
        return None
    try:
        request = GateRequest(
            gate=Gate(value[_MARK]),
            key=value["key"],
            call_id=value["call_id"],
            message_id=value["message_id"],
            tool=value["tool"],
            server=value["server"],
            arguments=value["arguments"],
            effect=EffectClass(value["effect_class"]),
            starts=value["starts"],
            why=value["why"],
            expires_seconds=value["expires_seconds"],
            deciders=tuple(value["deciders"]),
        )
    except (KeyError, ValueError, TypeError):
        return None
    return request if request.id == interrupt_id else None
