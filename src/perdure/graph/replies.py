"""A model's answer made fit for the thread: ids present and unique, so that nothing replaces or answers the wrong thing."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any

from langchain_core.messages import AIMessage


def settled(message: AIMessage, taken_ids: Collection[str]) -> AIMessage:
    """The same answer with an id that no message of the thread has, and an id of its own for each call.

    A thread replaces a message by its id: a server that repeats ids would overwrite history. A call without an id, or
    with the id of another call of the same answer, could not be told from it.
    """
    message_id = message.id if message.id and message.id not in taken_ids else f"msg-{uuid.uuid4().hex}"
    seen: set[str] = set()
    calls = [_named(call, message_id, seen) for call in message.tool_calls]
    invalid = [_named(call, message_id, seen) for call in message.invalid_tool_calls]
    return message.model_copy(update={"id": message_id, "tool_calls": calls, "invalid_tool_calls": invalid})


def _named(call: Any, message_id: str, seen: set[str]) -> Any:
    call_id = call["id"]
    if not call_id or call_id in seen:
        call_id = f"call_{message_id}_{len(seen)}"
    seen.add(call_id)
    return {**call, "id": call_id}
