"""A turn as a terminal shows it: text as it streams, tool calls as thin lines, each thing once whatever was replayed.

A terminal cannot take text back. So what a reset withdraws stays above a thin line, and what was already shown complete is
not shown again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from perdure.cli.client import Line
from perdure.cli.output import clean, shortened
from perdure.events import Event, EventKind, Fold, Frame, Reset

_FAILED = frozenset({"error", "not_started", "stopped", "unknown"})
_RESTARTED = {
    "recovered": "resumed after a crash",
    "released": "resumed after a restart",
    "retried": "tried again",
    "resumed": "re-opened",
}


@dataclass(slots=True)
class Narrator:
    """`out` gets the answer, `notes` the rest. With `live` false nothing is streamed: `answer` has the text at the end."""

    out: TextIO
    notes: Console
    live: bool = True
    fold: Fold = field(default_factory=Fold)
    questions: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Open questions by card."""

    _shown: set[str] = field(default_factory=set)
    _streaming: str | None = None
    _streamed: str = ""

    def show(self, frame: Frame | Line) -> None:
        if isinstance(frame, Line):
            self._note("reconnecting …" if frame.state == "lost" else "connected again")
            return
        self.fold.apply(frame)
        if isinstance(frame, Reset):
            self._break()
            if frame.reason in _RESTARTED:
                self._note(f"── {_RESTARTED[frame.reason]} ──")
        elif frame.kind is EventKind.TOKEN:
            self._token(frame.payload["message_id"], frame.payload["text"])
        elif frame.kind is EventKind.MESSAGE:
            self._message(frame.payload["message"])
        elif frame.kind is EventKind.TRACE:
            self._trace(frame.payload)
        elif frame.kind is EventKind.APPROVAL:
            self._approval(frame.payload)
        elif frame.terminal:
            self._ending(frame)

    def answer(self, turn: str) -> str:
        """The assistant's texts of a turn, in order."""
        folded = self.fold.turns.get(turn)
        messages = folded.messages.values() if folded else ()
        return "\n\n".join(
            message["content"] for message in messages if message["role"] == "assistant" and message["content"]
        )

    def _token(self, message: str, text: str) -> None:
        if not self.live or message in self._shown:
            return
        if self._streaming != message:
            self._break()
            self._streaming, self._streamed = message, ""
        self._streamed += text
        self._write(text)

    def _message(self, message: Mapping[str, Any]) -> None:
        if message["id"] in self._shown:
            return
        self._shown.add(message["id"])
        if message["role"] == "assistant":
            self._assistant(message)
        elif message["role"] == "tool":
            failed = message.get("status") in _FAILED
            self._note(f"  {'✗' if failed else '✓'} {message.get('name', 'tool')}: {shortened(message['content'])}")

    def _assistant(self, message: Mapping[str, Any]) -> None:
        content = message["content"]
        if self.live and content:
            if self._streaming == message["id"] and content.startswith(self._streamed):
                self._write(content[len(self._streamed) :])
            else:
                self._break()
                self._write(content)
            self.out.write("\n")
        self._streaming, self._streamed = None, ""
        self.out.flush()

    def _trace(self, trace: Mapping[str, Any]) -> None:
        phase, call = trace.get("phase"), trace.get("call_id") or ""
        if phase == "call" and call not in self._shown:
            self._shown.add(call)
            self._note(f"  → {trace.get('name')}({shortened(_arguments(trace.get('data')))})")
        elif phase == "retry":
            self._note(f"  … {trace.get('name')}: trying again")

    def _approval(self, approval: Mapping[str, Any]) -> None:
        card = approval["card"]
        if approval["state"] != "opened":
            if self.questions.pop(card, None) is not None and approval["state"] == "decided":
                self._note(f"  {_decided(approval)}")
        elif card not in self.questions:
            self.questions[card] = approval
            self._note(_waits(approval), "yellow")

    def _ending(self, event: Event) -> None:
        self._break()
        if event.kind is EventKind.CHAT_ERROR:
            self._note(f"{event.payload['status']} ({event.payload['code']}): {event.payload['message']}", "red")
        elif event.payload["status"] == "cancelled":
            self._note("cancelled", "yellow")

    def _break(self) -> None:
        if self._streaming is not None:
            self._streaming = None
            self.out.write("\n")
            self.out.flush()

    def _write(self, text: str) -> None:
        self.out.write(clean(text))
        self.out.flush()

    def _note(self, text: str, style: str = "dim") -> None:
        self._break()
        self.notes.print(Text(clean(text), style=style))


def _waits(approval: Mapping[str, Any]) -> str:
    if not approval.get("tool"):  # a question of the graph's own
        return f"waits for a decision: {shortened(_arguments(approval.get('request')), 400)}"
    call = f"{approval['tool']}({shortened(_arguments(approval), 400)})"
    if approval.get("kind") == "uncertain":
        return f"waits for a decision: did {call} happen? {approval.get('why') or ''}"
    return f"waits for a decision: {call}"


def _decided(approval: Mapping[str, Any]) -> str:
    """`deny by ann: not now`"""
    note = f": {shortened(approval['note'])}" if approval.get("note") else ""
    return f"{approval.get('decision') or 'decided'} by {approval.get('decided_by') or 'somebody'}{note}"


def _arguments(data: Any) -> str:
    """`{"arguments": {"label": "one"}}` or any JSON value, as a person reads it."""
    if isinstance(data, Mapping):
        data = data.get("arguments", data)
    if isinstance(data, Mapping):
        return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in data.items())
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
