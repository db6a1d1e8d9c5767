"""Makes a thread valid for the next model call after a cancel, or before a new input on an unfinished turn.

What the state does not take is left out, pending tasks end with what finished siblings recorded, calls without a result get one, the text that was already shown
is kept. Every step is one `aupdate_state` on a fresh head and every step looks first, so that a repair that was killed
anywhere is simply done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import StateSnapshot

from perdure.engine.heads import read_head, sound_place
from perdure.engine.hosting import AnyGraph
from perdure.engine.inputs import human_message
from perdure.engine.plan import owns_head
from perdure.failpoints import failpoint
from perdure.graph.history import CANCELLED, NOT_RECORDED, missing_results
from perdure.turns import Turn

MESSAGES = "messages"
MOST_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class Mend:
    """What a repair leaves behind. `human` is added when the thread does not hold it, `partial` (id, text) when no call
    is open: then the model was speaking."""

    text: str = NOT_RECORDED
    human: HumanMessage | None = None
    partial: tuple[str, str] | None = field(default=None, repr=False)


def cancelled(human: HumanMessage | None, partial: tuple[str, str] | None) -> Mend:
    return Mend(CANCELLED, human, partial)


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


async def undo(graph: AnyGraph, turn: Turn, spoken: tuple[str, str] | None) -> None:
    """The repair of a cancelled turn: its message and what was said stay. Of a turn that is cancelled before it began, what
    an earlier one left open was not cancelled by this person."""
    mend = cancelled(human_message(turn), spoken)
    if mend.human is not None:
        config: RunnableConfig = {"configurable": {"thread_id": turn.conversation}}
        head = await read_head(graph, config)
        state = head.state
        if not owns_head(turn.id, state) and (head.fault or state.tasks or has_open_calls(state)):
            await repair(graph, turn.conversation, turn.id, Mend())
    await repair(graph, turn.conversation, turn.id, mend)


def additions(messages: Sequence[BaseMessage], mend: Mend) -> list[AnyMessage]:
    """What the thread lacks, in the order it is appended."""
    ids = {message.id for message in messages}
    human: list[AnyMessage] = [mend.human] if mend.human is not None and mend.human.id not in ids else []
    results = missing_results(open_turn(messages), mend.text)
    spoken = mend.partial
    if spoken is None or results or human or spoken[0] in ids or not spoken[1].strip():
        return [*results, *human]
    status = {"perdure_status": "cancelled"}
    return [AIMessage(id=spoken[0], content=spoken[1], additional_kwargs=status)]


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
