"""The attempt as the graph sees it: `perdure.ledger.Ledger` over a leased attempt.

What earlier attempts did and what people decided is loaded once, at the start of an attempt: decisions are made while a turn
is parked, so they do not change while one runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.config import get_config
from langgraph.types import Command

from perdure.config import AgentSettings
from perdure.effects import EffectClass, GateRequest, ToolPolicy
from perdure.engine import failures
from perdure.graph import gates
from perdure.graph.errors import LimitReached
from perdure.ledger import CallRecord, CallState, ToolCall, idempotency_key
from perdure.store.base import LeasedAttempt, StoredCall, StoredResult
from perdure.turns import Card, Failure, Verdict

TASK_ID = "__pregel_task_id"
"""Where LangGraph names the running task."""


@dataclass(frozen=True, slots=True)
class Known:
    """A call of the turn as it stands now. The result is kept as bytes: whoever asks gets a copy of its own."""

    key: str
    state: CallState
    call: ToolCall
    starts: int
    attempt: int
    result: StoredResult | None = None
    error: str | None = None

    def record(self, result: Any = None) -> CallRecord:
        return CallRecord(self.key, self.state, self.call, self.starts, self.attempt, result, self.error)


class Calls:
    """The tool calls of one turn and the decisions on them, whichever attempt made them: what can be read of its ledger."""

    def __init__(
        self,
        turn: str,
        policy: ToolPolicy,
        calls: Sequence[StoredCall],
        cards: Mapping[str, Card],
        serializer: SerializerProtocol,
    ) -> None:
        """`cards`: the decided ones, by interrupt id."""
        self.turn = turn
        self.policy = policy
        self.known = {
            each.key: Known(each.key, each.state, each.call, each.starts, each.attempt, each.result, each.error)
            for each in calls
        }
        self.cards = cards
        self.serializer = serializer

    def record(self, key: str) -> CallRecord | None:
        """Raises StateTypeNotAllowed when a recorded result may not be read back any more."""
        found = self.known.get(key)
        if found is None:
            return None
        return found.record(self._loaded(found.result) if found.state is CallState.RECORDED else None)

    def _loaded(self, result: StoredResult | None) -> Any:
        return None if result is None else self.serializer.loads_typed((result.kind, result.data))

    def verdict(self, gate_id: str) -> Verdict | None:
        card = self.cards.get(gate_id)
        return card.verdict if card is not None and card.call is not None else None

    def uncertain(self) -> Iterator[GateRequest]:
        """The questions about `once` calls whose outcome nobody knows and nobody has decided on."""
        for known in self.known.values():
            record = known.record()
            if known.state is not CallState.STARTED or known.call.effect is not EffectClass.ONCE or record.paused:
                continue
            asked = gates.uncertain(record, self.policy)
            if self.verdict(asked.id) is None:
                yield asked

    def add(self, known: Known) -> None:
        self.known[known.key] = known


class AttemptLedger:
    def __init__(
        self,
        attempt: LeasedAttempt,
        settings: AgentSettings,
        calls: Calls,
        grace_seconds: Callable[[], float],
        reached: Callable[[Failure, bool], object] = lambda *_: None,
        *,
        draining: Callable[[], bool] = lambda: False,
    ) -> None:
        """`settings`: of the agent. `grace_seconds`, `draining`: see `Ledger`. `reached` is told of a limit, on any thread, for a
        node may swallow what is raised; and whether the work must be cut at once: calls that were granted are not cut for one
        that was not."""
        self._attempt = attempt
        self._settings = settings
        self._grace_seconds = grace_seconds
        self._reached = reached
        self._draining = draining
        self._lock = threading.Lock()
        self._over: LimitReached | None = None
        """Of tool calls: nothing more is asked of a model then."""

        self._model_calls = attempt.turn.spent.model_calls
        self.calls = calls
        self.calling: set[str] = set()
        """Ids of the tasks that made tool calls in this attempt."""

    @property
    def turn(self) -> str:
        return self._attempt.turn.id

    @property
    def attempt(self) -> int:
        return self._attempt.number

    @property
    def policy(self) -> ToolPolicy:
        return self.calls.policy

    def record(self, key: str) -> CallRecord | None:
        return self.calls.record(key)

    def verdict(self, gate_id: str) -> Verdict | None:
        return self.calls.verdict(gate_id)

    # -- tool calls ---------------------------------------------------------------------------------------------------

    async def intend(self, call: ToolCall) -> None:
        key = idempotency_key(self.turn, call)
        known = self.calls.known.get(key)
        if known is None:
            self._check_tool_call(call)
        task, node, step = _place()
        self.calling.add(task)
        await self._attempt.intend(call, key, task, node, step)
        self.calls.add(Known(key, CallState.STARTED, call, 1 + (known.starts if known else 0), self.attempt))

    def _check_tool_call(self, call: ToolCall) -> None:
        """For its first start: a call that was granted is not refused, nor counted, when it must be started again."""
        limits = self._settings
        if limits.max_tool_calls is not None and self._attempt.spent.tool_calls >= limits.max_tool_calls:
            raise self._refused(failures.tool_call_limit(limits.max_tool_calls))
        if limits.max_identical_calls is None or call.polls:
            return
        last, times = self._attempt.repeats
        if last == call.likeness and times >= limits.max_identical_calls:
            raise self._refused(failures.identical_call_limit(call.name, limits.max_identical_calls))

    def _refused(self, limit: LimitReached) -> LimitReached:
        self._over = limit
        self._reached(limit.failure, False)
        return limit

    def result(self, call: ToolCall, result: Any) -> None:
        key = idempotency_key(self.turn, call)
        kind, data = self.calls.serializer.dumps_typed(result)
        stored = StoredResult(kind, data)
        self._attempt.record(key, stored, status_of(result, call.id))
        known = self.calls.known.get(key) or Known(key, CallState.STARTED, call, 1, self.attempt)
        self.calls.add(replace(known, state=CallState.RECORDED, result=stored, error=None))

    def unknown(self, call: ToolCall, error: str) -> None:
        key = idempotency_key(self.turn, call)
        self._attempt.unknown(key, error)
        known = self.calls.known.get(key) or Known(key, CallState.STARTED, call, 1, self.attempt)
        self.calls.add(replace(known, error=error))

    @property
    def draining(self) -> bool:
        return self._draining()

    def grace_seconds(self) -> float:
        return self._grace_seconds()

    # -- model calls --------------------------------------------------------------------------------------------------

    async def count_model_call(self) -> None:
        self.grant_model_call()
        await self.store_model_call()

    def grant_model_call(self) -> None:
        """From any thread; counts in memory alone. Raises LimitReached."""
        limits = self._settings
        if self._over is not None:
            raise self._refusal(self._over)
        if limits.max_tokens is not None and self._attempt.spent.tokens >= limits.max_tokens:
            raise self._refusal(failures.token_limit(limits.max_tokens))
        with self._lock:
            if limits.max_model_calls is not None and self._model_calls >= limits.max_model_calls:
                raise self._refusal(failures.model_call_limit(limits.max_model_calls))
            self._model_calls += 1

    def _refusal(self, limit: LimitReached) -> LimitReached:
        self._reached(limit.failure, True)
        return limit

    async def store_model_call(self) -> None:
        """Of a call that was granted: durable before it returns where a limit counts on it."""
        await self._attempt.count_model_call(durable=self._settings.max_model_calls is not None)

    def note(self, node: str, name: str, phase: str, data: Mapping[str, Any]) -> None:
        _, _, step = _place()
        self._attempt.trace(node, name, step, phase, data=dict(data))


def status_of(result: Any, call_id: str) -> str:
    """`error` when the tool message that answers the call says so, else `success`."""
    for message in messages_in(result):
        if isinstance(message, ToolMessage) and message.tool_call_id == call_id:
            return message.status
    return "success"


def messages_in(result: Any) -> Iterator[Any]:
    """The messages that a tool node's answer adds to the thread: of a message, a command, an update or a list of them."""
    if isinstance(result, list | tuple):
        for each in result:
            yield from messages_in(each)
    elif isinstance(result, Command):
        yield from messages_in(result.update)
    elif isinstance(result, Mapping):
        found = result.get("messages")
        yield from found if isinstance(found, list | tuple) else [] if found is None else [found]
    elif result is not None:
        yield result


def _place() -> tuple[str, str, int]:
    """LangGraph's id of the running task, its node and its superstep."""
    config = get_config()
    metadata = config.get("metadata") or {}
    task = (config.get("configurable") or {}).get(TASK_ID, "")
    return str(task), str(metadata.get("langgraph_node", "")), int(metadata.get("langgraph_step", 0))
