"""A model server's judgement of a history: what real providers refuse with a 400 is refused here, with a sentence that says why.

Used by scripted models, which raise, and by the crash suite's oracle, which reads the finished thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage


class HistoryRefused(ValueError):
    """The history is not one that a model server takes."""


@dataclass(frozen=True, slots=True)
class Said:
    """A message as far as validity goes. `calls`: ids of what an assistant message asks for; `answers`: of a tool message."""

    role: str
    calls: tuple[str, ...] = ()
    answers: str = ""


@dataclass(slots=True)
class _Group:
    """An assistant message whose calls are being answered."""

    calls: tuple[str, ...]
    answered: list[str] = field(default_factory=list)

    @property
    def missing(self) -> list[str]:
        return [call for call in self.calls if call not in self.answered]


def refuse(messages: Sequence[BaseMessage]) -> None:
    """Raises HistoryRefused for a history that a provider would not take as it is, now, with the question at its end."""
    said = [_said(message) for message in messages]
    found = list(problems(said))
    if said and said[-1].role not in {"user", "tool"}:
        found.append(f"the history ends with a message of the {said[-1].role}: there is nothing to answer")
    if found:
        raise HistoryRefused("; ".join(found))


def problems(history: Sequence[Said], *, unfinished: bool = False) -> Iterator[str]:
    """`unfinished`: the calls of the last assistant message may still lack results (the turn has not come to its end)."""
    group = _Group(())
    for place, message in enumerate(history):
        if message.role == "tool":
            yield from _answered(group, message.answers, place)
            continue
        yield from (f"the call {call!r} has no result before message {place}" for call in group.missing)
        group = _Group(message.calls)
        yield from _asked(message, place)
    if not unfinished:
        yield from (f"the call {call!r} has no result at the end" for call in group.missing)


def _asked(message: Said, place: int) -> Iterator[str]:
    if not all(message.calls):
        yield f"message {place} makes a call without an id"
    if len(set(message.calls)) != len(message.calls):
        yield f"message {place} makes two calls with one id: {list(message.calls)}"
    if message.role == "system" and place:
        yield f"message {place} is a system message that does not stand first"
    if place == 0 and message.role == "assistant":
        yield "the history begins with an assistant message"


def _answered(group: _Group, call: str, place: int) -> Iterator[str]:
    if not call:
        yield f"message {place} is a result without an id"
    elif call not in group.calls:
        yield f"message {place} is a result of {call!r}, which the assistant message before it did not ask for"
    elif call in group.answered:
        yield f"message {place} is a second result of {call!r}"
    else:
        group.answered.append(call)


def _said(message: BaseMessage) -> Said:
    if isinstance(message, ToolMessage):
        return Said("tool", answers=message.tool_call_id or "")
    if isinstance(message, AIMessage):
        asked = [*message.tool_calls, *message.invalid_tool_calls]
        return Said("assistant", tuple(call["id"] or "" for call in asked))
    return Said({"human": "user"}.get(message.type, message.type))


def from_wire(message: Mapping[str, Any]) -> Said:
    """Of a message as the HTTP API shows it."""
    calls = tuple(call["id"] or "" for call in message.get("tool_calls", ()))
    return Said(message["role"], calls, message.get("tool_call_id") or "")
