"""What the saver's arguments mean for the turn: messages, tool results, progress. Pure; derives `StepPlan`s.

Supersteps are counted as LangGraph's recursion limit counts them: every `loop` checkpoint of the root graph but the first
after an input. So with `n` of them committed a fresh run under `recursion_limit = limit` has `limit - n` left.

Progress is work of the agent: not the input's own checkpoint, nor the step that only hands the input on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP

from perdure.messages import usage_of, wire_message
from perdure.store.sqlite.authority import StepPlan
from perdure.store.sqlite.elements import Element
from perdure.store.sqlite.memory import ListValue, View

MESSAGES = "messages"
"""The channel whose messages people see."""

_PULLED = re.compile(r"^~__pregel_pull, ([^,]+)")
_PUSHED = re.compile(r"^~__pregel_push, (\d{10})")
_HIDDEN = "__start__"


@dataclass(frozen=True, slots=True)
class MessageChanges:
    """Wire forms of new, changed and removed messages, each with the element that holds it (None for a removal)."""

    wires: Sequence[Mapping[str, Any]] = ()
    elements: Sequence[Element | None] = ()
    usage: Mapping[str, int] | None = None
    count: int | None = None


def message_changes(
    base: ListValue | None, elements: Sequence[Element], values: Sequence[Any], same: int, counted: int | None
) -> MessageChanges:
    """From the channel's list at the parent checkpoint to its list now. The first `same` elements are the same; there were
    `counted` messages, if anybody knows. The work is in proportion to what changed when the list only grew."""
    length = base.length if base is not None else 0
    if same == length == len(elements):
        return MessageChanges()
    old = base.stored.elements[same:length] if base is not None else []
    known, old_ids = set(map(id, old)), {element.message_id for element in old}
    changed = [pair for pair in zip(elements[same:], values[same:], strict=True) if isinstance(pair[1], BaseMessage)]
    fresh = [(element, message) for element, message in changed if id(element) not in known]
    ids = {message.id for _, message in changed}
    removed = [name for name in (element.message_id for element in old) if name is not None and name not in ids]
    return MessageChanges(
        wires=[
            *(wire_message(message) for _, message in fresh),
            *({"id": name, "status": "removed"} for name in removed),
        ],
        elements=[*(element for element, _ in fresh), *(None for _ in removed)],
        usage=_usage(message for _, message in fresh if message.id not in old_ids),
        count=counted + len(changed) if counted is not None and not old else _count(values),
    )


def _usage(messages: Iterable[BaseMessage]) -> dict[str, int]:
    usage: dict[str, int] = {}
    for message in messages:
        for name, tokens in usage_of(message).items() if isinstance(message, AIMessage) else ():
            usage[name] = usage.get(name, 0) + tokens
    return usage


def _count(values: Iterable[Any]) -> int:
    return sum(isinstance(value, BaseMessage) for value in values)


def checkpoint_plan(ns: str, metadata: Mapping[str, Any], parent: View | None, changes: MessageChanges) -> StepPlan:
    """The plan of an `aput`."""
    source = metadata.get("source")
    works = source == "loop" and not (parent is not None and parent.source == "input")
    return StepPlan(
        messages=changes.wires,
        input_stored=source == "input" and not ns,
        supersteps=int(works and not ns),
        progress=works,
        message_count=changes.count,
        usage=changes.usage or {},
    )


def writes_plan(
    view: View | None, task_id: str, task_path: str, writes: Iterable[tuple[str, Any]], fresh: set[str]
) -> StepPlan:
    """The plan of an `aput_writes`. `fresh`: ids of the tool messages that this thread did not hold before."""
    node = node_of(task_path, view)
    writes = list(writes)
    traces = [
        {
            "node": node,
            "name": message.name or "",
            "step": (view.step if view else -1) + 1,
            "phase": "result",
            "call_id": message.tool_call_id,
            "data": {"status": message.status},
        }
        for channel, value in writes
        if channel not in WRITES_IDX_MAP
        for message in _tool_messages(value)
        if message.id is None or message.id in fresh
    ]
    results = any(channel not in WRITES_IDX_MAP for channel, _ in writes)
    works = node != _HIDDEN and results
    return StepPlan(traces=traces, progress=works, patient=True, task=task_id if results else "")


def node_of(task_path: str, view: View | None) -> str:
    """The node's name, as far as the task's path tells; "" when it does not."""
    if pulled := _PULLED.match(task_path):
        return pulled[1]
    if view is not None and (pushed := _PUSHED.match(task_path)):
        place = int(pushed[1])
        return view.sends[place] if place < len(view.sends) else ""
    return ""


def _tool_messages(value: Any) -> list[ToolMessage]:
    parts = (
        value if isinstance(value, (list, tuple)) else value.get(MESSAGES, ()) if isinstance(value, dict) else [value]
    )
    if not isinstance(parts, (list, tuple)):
        parts = [parts]
    return [part for part in parts if isinstance(part, ToolMessage)]
