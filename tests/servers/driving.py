"""Drives a hosted graph in a test, as the engine does in essence: a checkpointer, a ledger, streamed messages."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Interrupt

from perdure import ledger
from perdure.effects import ToolPolicy
from perdure.graph.load import Graph, HostedGraph
from perdure.ledger import CallRecord, CallState, ToolCall, idempotency_key
from perdure.turns import Verdict


@dataclass
class RecordingLedger:
    """A ledger in memory. What a test scripts: `policy`, `verdicts` (by gate id), `records`, `grace`."""

    turn: str = "turn-1"
    attempt: int = 1
    policy: ToolPolicy = field(default_factory=ToolPolicy)
    calls: list[ToolCall] = field(default_factory=list)
    """Every start, in order."""

    notes: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    records: dict[str, CallRecord] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    grace: float = 0.0

    def record(self, key: str) -> CallRecord | None:
        return self.records.get(key)

    def verdict(self, gate_id: str) -> Verdict | None:
        return self.verdicts.get(gate_id)

    async def intend(self, call: ToolCall) -> None:
        self.calls.append(call)
        key = idempotency_key(self.turn, call)
        known = self.records.get(key)
        starts = known.starts + 1 if known else 1
        self.records[key] = CallRecord(key, CallState.STARTED, call, starts, self.attempt)

    def result(self, call: ToolCall, result: Any) -> None:
        key = idempotency_key(self.turn, call)
        self.records[key] = replace(self.records[key], state=CallState.RECORDED, result=result, error=None)

    def unknown(self, call: ToolCall, error: str) -> None:
        key = idempotency_key(self.turn, call)
        self.records[key] = replace(self.records[key], error=error)

    async def count_model_call(self) -> None:
        return None

    @property
    def draining(self) -> bool:
        return False

    def grace_seconds(self) -> float:
        return self.grace

    def note(self, node: str, name: str, phase: str, data: Mapping[str, Any]) -> None:
        self.notes.append((phase, data))


@dataclass
class Conversation:
    """One thread of one agent. `tokens` holds the streamed text by message id, over all turns."""

    hosted: HostedGraph
    saver: BaseCheckpointSaver[str] = field(default_factory=InMemorySaver)
    record: RecordingLedger = field(default_factory=RecordingLedger)
    tokens: dict[str, str] = field(default_factory=dict)
    turns: int = 0

    async def say(self, text: str) -> list[BaseMessage]:
        """One turn; the thread's messages after it."""
        self.turns += 1
        self.record.turn = f"turn-{self.turns}"
        return await self.drive({"messages": [HumanMessage(text, id=f"human-{self.turns}")]})

    def _graph(self) -> Graph:
        graph = copy.copy(self.hosted.graph)
        graph.checkpointer = self.saver
        return graph

    async def interrupts(self) -> tuple[Interrupt, ...]:
        """What the thread waits for."""
        return (await self._graph().aget_state({"configurable": {"thread_id": "thread"}})).interrupts

    async def results(self) -> list[Any]:
        """What the tasks of the step that is under way have stored."""
        tasks = (await self._graph().aget_state({"configurable": {"thread_id": "thread"}})).tasks
        return [task.result for task in tasks if task.result is not None]

    async def drive(self, input: Any) -> list[BaseMessage]:
        graph = self._graph()
        config: Any = {"configurable": {"thread_id": "thread"}, "recursion_limit": 25}
        token = ledger.current.set(self.record)
        try:
            async for part in graph.astream(input, config, stream_mode=["messages"], version="v2", durability="sync"):
                if part["type"] == "messages" and isinstance(part["data"][0], AIMessageChunk):
                    self.stream(part["data"][0])
        finally:
            ledger.current.reset(token)
        messages: list[BaseMessage] = (await graph.aget_state(config)).values["messages"]
        return messages

    def stream(self, chunk: AIMessageChunk) -> None:
        if chunk.content:
            self.tokens[chunk.id or ""] = self.tokens.get(chunk.id or "", "") + str(chunk.content)
