"""Reads threads through LangGraph: transcripts, exports, and whether a turn can be resumed. Writes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import StateSnapshot
from pydantic import BaseModel

from perdure.agent.bounded import Bounded
from perdure.engine.heads import Head, read_head
from perdure.engine.hosting import AnyGraph, bind, host, saver_of
from perdure.engine.plan import finished, owns_head
from perdure.engine.repair import messages_of
from perdure.errors import NotFound
from perdure.graph.load import HostedGraph
from perdure.messages import wire_message
from perdure.store.base import Store
from perdure.turns import REOPENABLE, Conversation, Turn


class Threads:
    def __init__(self, store: Store, agents: Mapping[str, HostedGraph]) -> None:
        self._store = store
        self._agents = agents

    async def head(self, conversation: Conversation) -> Head:
        """With the state of pending subgraphs."""
        return await read_head(self._graph(conversation), _config(conversation.id), subgraphs=True)

    def messages(self, state: StateSnapshot) -> Sequence[Mapping[str, Any]]:
        return [wire_message(message) for message in messages_of(state)]

    def values(self, conversation: Conversation, state: StateSnapshot) -> Mapping[str, Any] | None:
        """JSON-able state values of a graph without messages, None for one with."""
        agent = self._agents.get(conversation.agent)
        if agent is None or agent.input_kind == "message":
            return None
        values = jsonable(state.values)
        return values if isinstance(values, dict) else {"value": values}

    async def export(self, conversation: Conversation) -> AsyncIterator[Mapping[str, Any]]:
        """Every checkpoint, oldest first. One state is in memory at a time."""
        graph = self._graph(conversation)
        root: RunnableConfig = {"configurable": {"thread_id": conversation.id, "checkpoint_ns": ""}}
        configs = [saved.config async for saved in saver_of(graph).alist(root)]
        for config in reversed(configs):
            yield _exported((await read_head(graph, config)).state)

    async def at(self, conversation: Conversation, checkpoint: str) -> Head:
        """The state of one checkpoint, without what tasks wrote on top of it."""
        return await read_head(self._graph(conversation), _config(conversation.id, checkpoint))

    async def summary(self, conversation: Conversation, checkpoint: str) -> Mapping[str, Any] | None:
        """As the history shows it; None when it is there no more."""
        head = await self.at(conversation, checkpoint)
        if not head.state.metadata:
            return None
        shown = dict(_exported(head.state))
        del shown["values"]
        return {
            "id": shown.pop("checkpoint"),
            **shown,
            "message_count": len(messages_of(head.state)),
            "interrupts": [each for task in shown["tasks"] for each in task["interrupts"]],
        }

    async def detail(self, conversation: Conversation, checkpoint: str) -> Mapping[str, Any]:
        """With its values, bounded. Raises NotFound."""
        shown = await self.summary(conversation, checkpoint)
        if shown is None:
            raise NotFound("There is no checkpoint with this id in the conversation.", conversation=conversation.id)
        values = jsonable((await self.at(conversation, checkpoint)).state.values)
        bounded = Bounded()
        cut = bounded.of(values if isinstance(values, dict) else {"value": values})
        return {**shown, "values": cut, "truncated": bounded.truncated}

    def why_not_resumable(self, turn: Turn | None, head: Head) -> str | None:
        """`turn`: the conversation's last turn. None when a person may resume it, else the reason in words. One that was given up
        between its last step and its end may: the resume writes the end."""
        if turn is None or turn.status not in REOPENABLE:
            status = "has no turn" if turn is None else f"is {turn.status}"
            return f"Only a failed or interrupted turn can be resumed; the last one {status}."
        if turn.agent not in self._agents:
            return f"This server does not host the agent {turn.agent!r} that the turn belongs to."
        if turn.superseded:
            return "A later message continued this conversation. Send the message again as a new one."
        if turn.input is not None:
            return None
        state = head.state
        if not owns_head(turn.id, state):
            return "The conversation went on after this turn. Send the message again as a new one."
        if head.fault is not None:
            return "The graph's state does not take what this turn's last step wrote. Send a new message: it goes on without it."
        if not state.tasks and not finished(turn.id, state):
            return "Nothing of this turn is left to do. Send a new message."
        return None

    def _graph(self, conversation: Conversation) -> AnyGraph:
        agent = self._agents.get(conversation.agent)
        reader = self._store.reader()
        return bind(_messages_only(), reader) if agent is None else host(agent, reader)


@cache
def _messages_only() -> AnyGraph:
    """Reads the messages of conversations whose agent is hosted no more."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: state)
    graph.add_edge(START, "model")
    return graph.compile()


def _config(thread: str, checkpoint: str | None = None) -> RunnableConfig:
    if checkpoint is None:
        return {"configurable": {"thread_id": thread}}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": checkpoint}}


def _exported(state: StateSnapshot) -> Mapping[str, Any]:
    metadata = state.metadata or {}
    return {
        "checkpoint": state.config["configurable"]["checkpoint_id"],
        "parent": state.parent_config["configurable"]["checkpoint_id"] if state.parent_config else None,
        "step": metadata.get("step"),
        "source": metadata.get("source"),
        "turn": metadata.get("run_id"),
        "created_at": state.created_at,
        "values": jsonable(state.values, said_aloud),
        "next": list(state.next),
        "tasks": [
            {
                "id": task.id,
                "name": task.name,
                "error": None if task.error is None else str(task.error),
                "interrupts": [{"id": each.id, "value": jsonable(each.value)} for each in task.interrupts],
            }
            for task in state.tasks
        ],
    }


def said_aloud(message: BaseMessage) -> Mapping[str, Any]:
    """Without what the model thought: an export is given to others."""
    return {name: part for name, part in wire_message(message).items() if name != "reasoning"}


def jsonable(value: Any, said: Callable[[BaseMessage], Mapping[str, Any]] = wire_message) -> Any:
    """The nearest JSON value; what has none becomes its text. `said`: the form of messages in it."""
    if value is None or isinstance(value, str | int | float | bool):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, BaseMessage):
        return said(value)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name), said) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): jsonable(item, said) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item, said) for item in value]
    if isinstance(value, Enum):
        return jsonable(value.value, said)
    return value.isoformat() if isinstance(value, datetime) else str(value)
