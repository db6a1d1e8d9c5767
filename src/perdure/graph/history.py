"""Makes a message list valid and small enough for one model call. Pure; the thread itself is never changed here.

A model server refuses a history in which a tool call has no result, has two, or a result has no call. Crashes, cancels
and old versions leave such lists behind. A result belongs to the nearest assistant message before it that made a call
with its id, since some servers number their calls from `call_0` in every answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

NOT_RECORDED = (
    "The outcome of this call was not recorded: the turn ended before. It may or may not have been started, and may or may not "
    "have taken effect."
)
"""Of a call of which nothing more is known (see `answers.closing` for those that a ledger knows)."""

CANCELLED = "This call was cancelled by the user before its result was recorded. It may or may not have taken effect."
"""The same, of a turn that a person cancelled."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One call of an assistant message. `problem` tells why its arguments cannot be read, None when they can."""

    id: str
    name: str
    problem: str | None = None


def calls_of(message: AIMessage) -> Iterator[Asked]:
    """Every call of the message, readable ones first: each needs exactly one result."""
    for call in message.tool_calls:
        yield Asked(call["id"] or "", call["name"])
    for invalid in message.invalid_tool_calls:
        problem = f"its arguments are not valid JSON: {(invalid['args'] or '')[:500]}"
        yield Asked(invalid["id"] or "", invalid["name"] or "", problem)


def result_id(message_id: str, call_id: str, twin: str = "") -> str:
    """The id of a call's tool message: stable across attempts, so that a result that comes twice replaces itself. `twin`: see
    `ledger.ToolCall`."""
    parts = [message_id, call_id, *([twin] if twin else ())]
    return "tool-" + hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:32]


def sendable(messages: Sequence[BaseMessage], text: str = NOT_RECORDED) -> list[BaseMessage]:
    """The same history with exactly one result per call, directly behind its message and in the order of the calls.

    Results without a call are left out, of two results the first is kept, a missing one says `text`.
    """
    results = _first_results(messages)
    ready: list[BaseMessage] = []
    for index, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            continue
        ready.append(message)
        if isinstance(message, AIMessage):
            ready.extend(results.get((index, call.id)) or _absent(message, call, text) for call in calls_of(message))
    return ready


def missing_results(messages: Sequence[BaseMessage], text: str = NOT_RECORDED) -> list[ToolMessage]:
    """The tool messages that a repair appends: one for each call without a result, ids derived from the call."""
    return [_absent(message, call, text) for message, call in open_calls(messages)]


def open_calls(messages: Sequence[BaseMessage]) -> list[tuple[AIMessage, Asked]]:
    """The calls without a result, each with the message that made it."""
    results = _first_results(messages)
    return [
        (message, call)
        for index, message in enumerate(messages)
        if isinstance(message, AIMessage)
        for call in calls_of(message)
        if (index, call.id) not in results
    ]


def _first_results(messages: Sequence[BaseMessage]) -> dict[tuple[int, str], ToolMessage]:
    """(index of the assistant message, call id) → its first recorded result."""
    owners: dict[str, int] = {}
    results: dict[tuple[int, str], ToolMessage] = {}
    for index, message in enumerate(messages):
        if isinstance(message, AIMessage):
            owners.update((call.id, index) for call in calls_of(message))
        elif isinstance(message, ToolMessage) and message.tool_call_id in owners:
            results.setdefault((owners[message.tool_call_id], message.tool_call_id), message)
    return results


def _absent(message: AIMessage, call: Asked, text: str) -> ToolMessage:
    return ToolMessage(
        id=result_id(message.id or "", call.id),
        content=text,
        name=call.name,
        tool_call_id=call.id,
        status="error",
        additional_kwargs={"perdure_status": "unknown"},
    )


@dataclass(frozen=True, slots=True)
class Trimmed:
    """`dropped` counts messages left out, `tokens` is the approximate size of what remains (the prompt included)."""

    messages: list[BaseMessage]
    dropped: int
    tokens: int


def trim(messages: Sequence[BaseMessage], limit: int, reserved: int = 0) -> Trimmed:
    """Drops whole exchanges, oldest first, until at most `limit` tokens remain beside `reserved` ones.

    An exchange is a human message and all up to the next, so a call is never split from its result. The last human
    message and what follows always stay, even where they alone are larger than the limit.
    """
    exchanges = _exchanges(messages)
    sizes = [count_tokens_approximately(exchange) for exchange in exchanges]
    total = reserved + sum(sizes)
    first = 0
    while total > limit and first < len(exchanges) - 1:
        total -= sizes[first]
        first += 1
    kept = [message for exchange in exchanges[first:] for message in exchange]
    return Trimmed(messages=kept, dropped=len(messages) - len(kept), tokens=total)


def _exchanges(messages: Sequence[BaseMessage]) -> list[list[BaseMessage]]:
    exchanges: list[list[BaseMessage]] = []
    for message in messages:
        if isinstance(message, HumanMessage) or not exchanges:
            exchanges.append([])
        exchanges[-1].append(message)
    return exchanges
