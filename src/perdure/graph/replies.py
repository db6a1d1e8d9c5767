"""A model's answer made fit for the thread: ids present and unique, so that nothing replaces or answers the wrong thing."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, message_chunk_to_message
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.messages.tool import invalid_tool_call


def joined(chunks: Sequence[AIMessageChunk]) -> AIMessage:
    """The whole message of a stream, under the id its text was streamed with, so that it replaces exactly those tokens.

    Arguments are read strictly: the client library completes cut JSON by guessing, and a guessed argument is not what the
    model asked for. Such a call becomes an invalid one, which is answered with an error and not made.
    """
    whole = add_ai_message_chunks(chunks[0], *chunks[1:])
    message = message_chunk_to_message(whole)
    if not isinstance(message, AIMessage):
        raise TypeError(f"a model answered with a {type(message).__name__}")
    update: dict[str, Any] = {}
    cut = [each for each in whole.tool_call_chunks if not _is_object(each["args"])]
    if cut:
        update["tool_calls"] = [call for call in message.tool_calls if call["id"] not in {each["id"] for each in cut}]
        update["invalid_tool_calls"] = [
            invalid_tool_call(name=each["name"], args=each["args"], id=each["id"], error=None) for each in cut
        ]
    streamed = next((each.id for each in chunks if each.content and each.id), None)
    if streamed:
        update["id"] = streamed
    return message.model_copy(update=update)


def _is_object(arguments: str | None) -> bool:
    if not arguments:
        return True
    try:
        return isinstance(json.loads(arguments), dict)
    except json.JSONDecodeError:
        return False


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
