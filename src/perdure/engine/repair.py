"""Makes a thread valid for the next model call after a cancel, or before a new input on an unfinished turn.

What the state does not take is left out, pending tasks end with what finished siblings recorded, each call without a result
gets the one the ledger holds or an honest word, and the text that was already shown is kept. Every step is one
`aupdate_state` on a fresh head and every step looks first, so that a repair that was killed anywhere is simply done again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import StateSnapshot

from perdure.engine.heads import read_head, sound_place
from perdure.engine.hosting import AnyGraph
from perdure.engine.relay import Partial
from perdure.failpoints import failpoint
from perdure.graph.history import CANCELLED, NOT_RECORDED, Asked, calls_of, missing_results, result_id

MESSAGES = "messages"
MOST_ROUNDS = 100

Closing = Callable[[AIMessage, Asked], ToolMessage | None]
"""What is known of a call that has no result in the thread, as its result; None when nothing is known."""


def nothing_known(asker: AIMessage, asked: Asked) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Mend:
    """What a repair leaves behind. `human` is added when the thread does not hold it."""

    text: str = NOT_RECORDED
    """Of a call of which nothing is known."""

    human: HumanMessage | None = None
    closing: Closing = nothing_known
    partials: Sequence[Partial] = field(default=(), repr=False)
    """What models said and no message holds."""

    calling: Collection[str] = ()
    """The tasks that made tool calls: what a model says inside of one is not the agent's."""

    covers: Callable[[str], bool] = lambda tool: False
    """Whether all calls of a tool are known. While a call of another one is open, what was said may be its own, and is not
    kept."""


def cancelled(human: HumanMessage | None, partials: Sequence[Partial] = (), **known: Any) -> Mend:
    return Mend(CANCELLED, human, partials=partials, **known)


def open_turn(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """The messages from the last human one on: what an unfinished turn left. Older faults are mended for the model
    call alone."""
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], HumanMessage):
            return messages[index:]
    return messages


def messages_of(state: StateSnapshot) -> Sequence[BaseMessage]:
    values = state.values
    found = values.get(MESSAGES) if isinstance(values, dict) else None
    return found if isinstance(found, list) else []


def has_open_calls(state: StateSnapshot) -> bool:
    return bool(missing_results(open_turn(messages_of(state))))


async def repair(graph: AnyGraph, thread: str, turn: str, mend: Mend) -> None:
    """Leaves the thread without pending tasks and without open calls. `turn`: whose attempt writes it."""
    config: RunnableConfig = {"configurable": {"thread_id": thread}, "metadata": {"run_id": turn}}
    state = await _end_tasks(graph, config)
    writer = writer_node(graph)
    if writer is None:
        return
    found = additions(messages_of(state), mend)
    if found:
        await _update(graph, config, {MESSAGES: found}, writer)
        await _end_tasks(graph, config)


def additions(messages: Sequence[BaseMessage], mend: Mend) -> list[AnyMessage]:
    """What the thread lacks, in the order it is appended."""
    ids = {message.id for message in messages}
    human: list[AnyMessage] = [mend.human] if mend.human is not None and mend.human.id not in ids else []
    results = _results(open_turn(messages), mend)
    if human:
        return [*results, *human]
    if not all(mend.covers(each.name or "") for each in results):
        return list(results)
    return [*results, *(_kept(each) for each in mend.partials if _is_kept(each, ids, mend.calling))]


def _results(messages: Sequence[BaseMessage], mend: Mend) -> list[ToolMessage]:
    askers = {
        result_id(message.id or "", asked.id): (message, asked)
        for message in messages
        if isinstance(message, AIMessage)
        for asked in calls_of(message)
    }
    missing = missing_results(messages, mend.text)
    return [mend.closing(*askers[each.id]) or each if each.id in askers else each for each in missing]


def _is_kept(partial: Partial, ids: Collection[str | None], calling: Collection[str]) -> bool:
    return partial.id not in ids and bool(partial.text.strip()) and partial.tasks.isdisjoint(calling)


def _kept(partial: Partial) -> AIMessage:
    return AIMessage(id=partial.id, content=partial.text, additional_kwargs={"perdure_status": "cancelled"})


def writer_node(graph: AnyGraph) -> str | None:
    """A node in whose name messages can be appended: one without conditional edges if there is one, so that no code of the
    graph runs, and without joins, which would count it as done. None when the graph has no `messages`."""
    if not isinstance(graph, CompiledStateGraph) or MESSAGES not in graph.channels:
        return None
    builder = graph.builder
    joined = {start for starts, _ in builder.waiting_edges for start in starts}
    takes_messages = MESSAGES in builder.schemas.get(builder.input_schema, {})
    candidates = [*([START] if takes_messages else []), *builder.nodes]
    plain = [node for node in candidates if not builder.branches.get(node) and node not in joined]
    return next(iter(plain or candidates), None)


async def _end_tasks(graph: AnyGraph, config: RunnableConfig) -> StateSnapshot:
    for _ in range(MOST_ROUNDS):
        head = await read_head(graph, config)
        if head.fault is not None:
            reader, place = await sound_place(graph, config, head.fault)
            await _update(reader, place, None, END)
            continue
        if not head.state.tasks:
            return head.state
        await _update(graph, config, None, END)
    raise RuntimeError(f"the graph has new tasks after {MOST_ROUNDS} rounds of ending them")


async def _update(graph: AnyGraph, config: RunnableConfig, values: Any, node: str) -> None:
    failpoint("repair.before")
    await graph.aupdate_state(config, values, as_node=node)
    failpoint("repair.after")
