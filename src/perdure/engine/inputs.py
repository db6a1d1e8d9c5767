"""What the engine sends into a graph for a turn. Pure; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage

from perdure.turns import MESSAGE_PREFIX, Turn


def human_message(turn: Turn) -> HumanMessage | None:
    """The turn's message under an id made from the turn's: sent twice it replaces itself. None once the thread holds it
    and for JSON input."""
    if turn.input is None or "message" not in turn.input:
        return None
    return HumanMessage(id=MESSAGE_PREFIX + turn.id, content=turn.input["message"])


def turn_of(message: BaseMessage | None) -> str | None:
    """The turn whose message this is; None for what a graph put into the thread by itself."""
    if not isinstance(message, HumanMessage) or not (message.id or "").startswith(MESSAGE_PREFIX):
        return None
    return str(message.id).removeprefix(MESSAGE_PREFIX)


def graph_input(turn: Turn) -> Mapping[str, Any]:
    """What the graph is invoked with; only while `turn.input` is there."""
    message = human_message(turn)
    if message is not None:
        return {"messages": [message]}
    return dict((turn.input or {})["input"])
