"""Events: what leaves the engine for a watcher, their fold, and the frames a stream is made of. Pure; no I/O.

`seq` strictly increases within a thread and is never used twice, across attempts and restarts. Everything a watcher
shows is a fold of the events it got; folding a watcher's events equals folding the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from perdure.turns import TurnStatus


class EventKind(StrEnum):
    TOKEN = "token"
    """`message_id, text`. Never in the journal: gone with the process or the turn's end."""

    MESSAGE = "message"
    """`message`: the wire form of `perdure.messages`; replaces the tokens of its id. Committed."""

    TRACE = "trace"
    """`node, name, step, phase: enter|leave|call|result|trim|retry, call_id?, data?`."""

    APPROVAL = "approval"
    """`card, kind, state: opened|decided|closed, interrupt_id, decision?, decided_by?, note?`; of a question of the graph's own
    `request`; of a call that waits `tool, server?, arguments, digest, effect_class, call_id, expires_at?, why?`."""

    REWIND = "rewind"
    """`to_seq, reason`: forget everything of this turn after `to_seq`. A watcher gets `reset` for it."""

    END = "end"
    """`status: completed|cancelled`."""

    CHAT_ERROR = "chat-error"
    """`status: failed|interrupted, code, reason, message`."""


TERMINAL = frozenset({EventKind.END, EventKind.CHAT_ERROR})


class RewindReason(StrEnum):
    RECOVERED = "recovered"
    """The previous owner died."""

    RELEASED = "released"
    """A planned shutdown handed the turn over."""

    RETRIED = "retried"
    RESUMED = "resumed"
    """A person re-opened the ended turn."""


class ResetReason(StrEnum):
    """Why a watcher is told to start a turn again, beside the reasons of a rewind."""

    RECONNECTED = "reconnected"
    """The cursor lies before a rewind, or tokens it saw are gone."""

    CURSOR_UNKNOWN = "cursor_unknown"
    """The cursor is too old, or not of this journal."""


@dataclass(frozen=True, slots=True)
class Event:
    seq: int
    conversation: str
    turn: str
    attempt: int
    """0 for what happens outside an attempt (accept, a decision, a cancel)."""

    kind: EventKind
    at: datetime
    payload: Mapping[str, Any] = field(default_factory=dict)

    @property
    def terminal(self) -> bool:
        return self.kind in TERMINAL

    def wire(self) -> dict[str, Any]:
        """The JSON object of the SSE data line."""
        return {
            "seq": self.seq,
            "conversation": self.conversation,
            "turn": self.turn,
            "attempt": self.attempt,
            "at": self.at.isoformat(),
            **self.payload,
        }


@dataclass(frozen=True, slots=True)
class Reset:
    """A frame without an id: empty this turn and its set of seen seqs; exactly the retained events follow."""

    conversation: str
    turn: str
    to_seq: int
    attempt: int
    reason: str

    def wire(self) -> dict[str, Any]:
        return {
            "conversation": self.conversation,
            "turn": self.turn,
            "to_seq": self.to_seq,
            "attempt": self.attempt,
            "reason": self.reason,
        }


Frame = Event | Reset


@dataclass(frozen=True, slots=True)
class Gone:
    """A frame without an id, the last of its stream: the conversation was deleted. There is nothing to come back to."""

    conversation: str

    def wire(self) -> dict[str, Any]:
        return {"conversation": self.conversation}


@dataclass(frozen=True, slots=True)
class Unfollowed:
    """A frame without an id, the last of its stream: this gateway has waited for the turn's end as long as it may
    (`turn_deadline_seconds`) and follows it no more. The turn goes on; reading the conversation asks its agent again."""

    conversation: str
    turn: str
    seconds: float

    def wire(self) -> dict[str, Any]:
        """As a `chat-error` that ends nothing: its `status` is `running`."""
        return {
            "conversation": self.conversation,
            "turn": self.turn,
            "status": "running",
            "code": "DEADLINE",
            "reason": "deadline",
            "message": f"No end after {self.seconds:g} s. The agent still works on it; open the conversation again to ask.",
        }


FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Reached:
    """A frame without an id of the stream of summaries: whether an agent can be asked now; `FORGOTTEN`: it is known no more."""

    agent: str
    reach: str

    def wire(self) -> dict[str, Any]:
        return {"agent": self.agent, "reach": self.reach}


@dataclass(frozen=True, slots=True)
class ListsReset:
    """A frame without an id of the stream of summaries: what the lists show may be stale, read them again. The changes
    that follow are those after the cursor that are retained, or those from now on when there can be none."""

    reason: str

    def wire(self) -> dict[str, Any]:
        return {"reason": self.reason}


@dataclass(slots=True)
class FoldedTurn:
    """What a watcher shows of one turn."""

    messages: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    traces: list[Mapping[str, Any]] = field(default_factory=list)
    approvals: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    ending: Mapping[str, Any] | None = None
    seen: set[int] = field(default_factory=set)


class Fold:
    """Applies frames in order, each seq once. The reference for every client; the panel's reducer does the same."""

    def __init__(self) -> None:
        self.turns: dict[str, FoldedTurn] = {}

    def apply(self, frame: Frame) -> None:
        if isinstance(frame, Reset):
            self.turns[frame.turn] = FoldedTurn()
            return
        turn = self.turns.setdefault(frame.turn, FoldedTurn())
        if frame.kind is EventKind.REWIND or frame.seq in turn.seen:
            return
        turn.seen.add(frame.seq)
        _apply_event(turn, frame)

    def apply_all(self, frames: Iterable[Frame]) -> Fold:
        for frame in frames:
            self.apply(frame)
        return self


def _apply_event(turn: FoldedTurn, event: Event) -> None:
    payload = event.payload
    if event.kind is EventKind.TOKEN:
        known = turn.tokens.get(payload["message_id"], "")
        turn.tokens[payload["message_id"]] = known + payload["text"]
    elif event.kind is EventKind.MESSAGE:
        message = payload["message"]
        turn.tokens.pop(message["id"], None)
        if message.get("status") == "removed":
            turn.messages.pop(message["id"], None)
        else:
            turn.messages[message["id"]] = message
    elif event.kind is EventKind.TRACE:
        turn.traces.append(payload)
    elif event.kind is EventKind.APPROVAL:
        turn.approvals[payload["card"]] = payload
    elif event.terminal:
        turn.tokens.clear()
        turn.ending = payload


def end_payload(status: TurnStatus) -> dict[str, Any]:
    return {"status": str(status)}
