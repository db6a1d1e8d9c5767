"""Turns the stream of a running graph into tokens and traces of its attempt.

Only these two come from the stream. Messages, tool results, questions and the end come from commits, since the stream
runs ahead of what is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessageChunk
from langgraph.types import StateSnapshot

from perdure.clock import Clock
from perdure.messages import text_of
from perdure.store.base import LeasedAttempt

COALESCE_SECONDS = 0.04
COALESCE_CHARACTERS = 1024


@dataclass(frozen=True, slots=True)
class Partial:
    """What a model said so far, under the id of its message."""

    id: str
    text: str
    tasks: frozenset[str] = frozenset()
    """Ids of the task it spoke in, and of those around it."""


@dataclass(slots=True)
class _Speech:
    place: str
    """LangGraph's namespace of the task."""

    pieces: list[str] = field(default_factory=list)
    superseded: bool = False


class Relay:
    """One per drive. `feed` each part of the stream, then `close` (or `discard` when the drive was cut)."""

    def __init__(self, attempt: LeasedAttempt, clock: Clock, recorded: Collection[str], step: int) -> None:
        """`recorded`: ids of tasks whose writes were committed by an earlier attempt: they do not start again.
        `step`: the root superstep that comes next."""
        self._attempt = attempt
        self._clock = clock
        self._recorded = recorded
        self._steps: dict[tuple[str, ...], int] = {(): step}
        self._spoken: dict[str, _Speech] = {}
        self._buffer: tuple[str, list[str]] | None = None
        self._flushed_at = float("-inf")
        self._timer: asyncio.Task[None] | None = None
        self.at_end = False
        """Whether the root checkpoint that was made last leaves nothing to do. It is durable once the stream has ended."""

    def feed(self, part: Mapping[str, Any]) -> None:
        kind, namespace, data = part["type"], tuple(part["ns"]), part["data"]
        if kind == "messages":
            message, metadata = data
            self._hear(message, str(metadata.get("langgraph_checkpoint_ns", "")))
            return
        self._flush()  # a token may never follow the commit of its message
        if kind == "checkpoints":
            self._steps[namespace] = int(data["metadata"].get("step", -1)) + 1
            if not namespace:
                self.at_end = data.get("tasks") == []
        elif kind == "tasks":
            self._trace(namespace, data)

    def close(self) -> None:
        self._flush()

    def discard(self) -> None:
        self._buffer = None
        self._stop_timer()

    def spoken(self) -> Sequence[Partial]:
        """What tasks that have not ended said, in the order it began. A message that another one of the same task came after
        is left out: its call was made again, or was a step on the way; messages that are spoken side by side all count."""
        return [
            Partial(message_id, "".join(speech.pieces), _tasks_of(speech.place))
            for message_id, speech in self._spoken.items()
            if not speech.superseded
        ]

    def _hear(self, message: Any, place: str) -> None:
        if not isinstance(message, AIMessageChunk) or not message.id:
            return
        text = text_of(message)
        if not text:
            return
        self._keep(message.id, text, place)
        if self._buffer is not None and self._buffer[0] != message.id:
            self._flush()
        if self._buffer is None:
            self._buffer = (message.id, [])
        self._buffer[1].append(text)
        self._flush_or_wait()

    def _forget(self, task: str) -> None:
        """A task of the root has ended: what it had to say for the thread is in what it wrote."""
        self._spoken = {name: each for name, each in self._spoken.items() if task not in _tasks_of(each.place)}

    def _keep(self, message_id: str, text: str, place: str) -> None:
        speech = self._spoken.get(message_id)
        if speech is None:
            for other in self._spoken.values():
                other.superseded = other.superseded or other.place == place
            speech = self._spoken[message_id] = _Speech(place)
        speech.superseded = False
        speech.pieces.append(text)

    def _flush_or_wait(self) -> None:
        waited = self._clock.monotonic() - self._flushed_at
        size = sum(map(len, self._buffer[1])) if self._buffer else 0
        if waited >= COALESCE_SECONDS or size >= COALESCE_CHARACTERS:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.create_task(self._flush_later(COALESCE_SECONDS - waited))

    async def _flush_later(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._timer = None
        self._flush()

    def _flush(self) -> None:
        self._stop_timer()
        if self._buffer is None:
            return
        message_id, pieces = self._buffer
        self._buffer = None
        self._flushed_at = self._clock.monotonic()
        self._attempt.token(message_id, "".join(pieces))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _trace(self, namespace: tuple[str, ...], data: Mapping[str, Any]) -> None:
        if data["id"] in self._recorded:
            return
        node = str(data["name"])
        name = "/".join([*(part.partition(":")[0] for part in namespace), node])
        step = self._steps.get(namespace, 0)
        if "result" not in data:
            self._attempt.trace(node, name, step, "enter")
            return
        if not namespace:
            self._forget(str(data["id"]))
        outcome = _outcome(data)
        self._attempt.trace(node, name, step, "leave", **({"data": {"outcome": outcome}} if outcome else {}))


def _tasks_of(place: str) -> frozenset[str]:
    return frozenset(part.rpartition(":")[2] for part in place.split("|"))


def _outcome(data: Mapping[str, Any]) -> str | None:
    if data.get("error"):
        return "failed"
    return "interrupted" if data.get("interrupts") else None


def recorded_tasks(state: StateSnapshot) -> frozenset[str]:
    """Ids of pending tasks, subgraphs included, whose result is recorded already."""
    found: set[str] = set()
    for task in state.tasks:
        if task.result is not None:
            found.add(task.id)
        if isinstance(task.state, StateSnapshot):
            found |= recorded_tasks(task.state)
    return frozenset(found)
