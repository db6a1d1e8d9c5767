"""The same graph and the same random script on our saver and on the official one: LangGraph must not see a difference."""

from __future__ import annotations

import asyncio
import operator
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Interrupt, Send, StateSnapshot, interrupt

from tests.conformance.savers import Opened

EDITS = ("append", "edit", "in_place", "in_place_silently", "remove", "remove_all", "nothing")


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[Any], operator.add]
    vector: list[float]
    table: dict[str, Any]
    count: int


@dataclass
class Turn:
    """What the graph does in one run; the same object steers it under every saver."""

    edit: str = "nothing"
    at: int = 0
    text: str = ""
    fan: int = 0
    failing: int = -1
    asks: bool = False
    inner: bool = False


@dataclass(frozen=True)
class Action:
    kind: str
    turn: Turn = field(default_factory=Turn)
    back: int = 0


turns = st.builds(
    Turn,
    edit=st.sampled_from(EDITS),
    at=st.integers(0, 9),
    text=st.text(alphabet="abcdefgh é\n", max_size=300),
    fan=st.integers(0, 3),
    failing=st.integers(-2, 2),
    asks=st.booleans(),
    inner=st.booleans(),
)
actions = st.builds(
    Action,
    kind=st.sampled_from(("invoke", "invoke", "invoke", "fork", "replay", "update", "update_past", "resume", "reopen")),
    turn=turns,
    back=st.integers(0, 12),
)


class Machine:
    """One saver, its graph, and the script's effect on it."""

    def __init__(
        self, saver: BaseCheckpointSaver[Any], reopen: Callable[[], Awaitable[BaseCheckpointSaver[Any]]]
    ) -> None:
        self._reopen = reopen
        self.turn = Turn()
        self.serial = 0
        self.failed: list[str] = []
        self.graph = self._build(saver)

    def _build(self, saver: BaseCheckpointSaver[Any]) -> Any:
        inner = StateGraph(State)
        inner.add_node("think", lambda state: {"messages": [AIMessage("thought", id=self.name("thought"))]})
        inner.add_edge(START, "think")
        graph: Any = StateGraph(State)
        graph.add_node("act", self._act)
        graph.add_node("tool", self._tool)
        graph.add_node("inner", inner.compile())
        graph.add_node("close", self._close)
        graph.add_edge(START, "act")
        graph.add_conditional_edges("act", self._route, ["tool", "inner", "close"])
        graph.add_edge("tool", "close")
        graph.add_edge("inner", "close")
        graph.add_edge("close", END)
        return graph.compile(checkpointer=saver)

    def name(self, kind: str) -> str:
        return f"{kind}-{self.serial}-{self.turn.at}"

    async def _act(self, state: State) -> dict[str, Any]:
        turn, messages = self.turn, state["messages"]
        update: dict[str, Any] = {"log": [turn.text, {"at": turn.at}], "vector": [0.5] * turn.at}
        message = messages[turn.at % len(messages)]
        if turn.edit == "append":
            new = AIMessage(turn.text, id=self.name("answer"), usage_metadata=_usage(turn.at))
            update["messages"] = [new]
        elif turn.edit == "edit":
            update["messages"] = [type(message)(**{**message.model_dump(), "content": turn.text})]
        elif turn.edit == "in_place":
            message.content = turn.text
            message.additional_kwargs["n"] = bool(turn.at % 2) if turn.at % 3 else 1
            update["messages"] = [message]
        elif turn.edit == "in_place_silently":
            message.additional_kwargs["seen"] = turn.at
            update["messages"] = [AIMessage("noted", id=self.name("note"))]
        elif turn.edit == "remove":
            update["messages"] = [RemoveMessage(id=str(message.id))]
        elif turn.edit == "remove_all":
            update["messages"] = [RemoveMessage(id=str(each.id)) for each in messages[1:]]
        return update

    def _route(self, state: State) -> list[Send] | str:
        if self.turn.fan:
            return [Send("tool", {"n": n, "messages": state["messages"][-1:]}) for n in range(self.turn.fan)]
        return "inner" if self.turn.inner else "close"

    async def _tool(self, call: dict[str, Any]) -> dict[str, Any]:
        n = call["n"]
        if self.turn.asks and n == 0:
            answer = interrupt({"n": n, "text": self.turn.text})
            return {"messages": [ToolMessage(str(answer), tool_call_id=f"c{n}", id=self.name(f"tool-{n}"))]}
        if n == self.turn.failing:
            raise RuntimeError("this tool fails")
        return {"messages": [ToolMessage(f"did {n}", tool_call_id=f"c{n}", id=self.name(f"tool-{n}"))], "log": [n]}

    async def _close(self, state: State) -> dict[str, Any]:
        return {"count": len(state["messages"]), "table": {"messages": len(state["messages"]), "text": self.turn.text}}

    # -- the script ---------------------------------------------------------------------------------------------------

    async def do(self, action: Action, serial: int) -> str:
        """The name of the error, "" without one."""
        try:
            await self._do(action, serial)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    async def _do(self, action: Action, serial: int) -> None:
        config: dict[str, Any] = {"configurable": {"thread_id": "t"}, "metadata": {"run_id": f"run-{serial}"}}
        if action.kind == "reopen":
            self.graph = self._build(await self._reopen())
            return
        if action.kind in {"fork", "replay", "update_past"}:
            config["configurable"] |= await self._past(action.back)
        if action.kind == "resume":
            await self._resume(action, config)
        elif action.kind == "replay":
            await self.graph.ainvoke(None, config, durability="sync")
        elif action.kind in {"update", "update_past"}:
            message = HumanMessage(action.turn.text, id=f"update-{serial}")
            await self.graph.aupdate_state(config, {"messages": [message], "log": ["update"]}, as_node="close")
        else:
            self.turn, self.serial = action.turn, serial
            message = HumanMessage(action.turn.text, id=f"input-{serial}")
            await self.graph.ainvoke({"messages": [message]}, config, durability="sync")

    async def _resume(self, action: Action, config: dict[str, Any]) -> None:
        state = await self.graph.aget_state(config)
        if state.interrupts:
            answers: Command[Any] = Command(resume={each.id: action.turn.text for each in state.interrupts})
            await self.graph.ainvoke(answers, config, durability="sync")
        elif state.tasks:
            self.turn = replace(self.turn, failing=-1)
            await self.graph.ainvoke(None, config, durability="sync")

    async def _past(self, back: int) -> dict[str, Any]:
        history = [state async for state in self.graph.aget_state_history({"configurable": {"thread_id": "t"}})]
        if not history:
            return {}
        return dict(history[back % len(history)].config["configurable"])

    # -- what LangGraph shows -----------------------------------------------------------------------------------------

    async def head(self) -> Any:
        return _shown(await self.graph.aget_state({"configurable": {"thread_id": "t"}}, subgraphs=True), {})

    async def history(self) -> list[Any]:
        states = [state async for state in self.graph.aget_state_history({"configurable": {"thread_id": "t"}})]
        places = {state.config["configurable"]["checkpoint_id"]: len(states) - n for n, state in enumerate(states)}
        return [_shown(state, places) for state in states]


def _usage(at: int) -> Any:
    return {"input_tokens": at, "output_tokens": 1, "total_tokens": at + 1}


def _shown(state: StateSnapshot, places: dict[str, int]) -> Any:
    return {
        "values": repr({key: _value(value) for key, value in sorted(state.values.items())}),
        "next": state.next,
        "metadata": {key: value for key, value in (state.metadata or {}).items() if key != "parents"},
        "parent": places.get((state.parent_config or {"configurable": {}})["configurable"].get("checkpoint_id", "")),
        "tasks": [
            (
                task.name,
                task.error and repr(task.error),
                [_interrupt(each) for each in task.interrupts],
                repr(_value(task.result)),
                _shown(task.state, {}) if isinstance(task.state, StateSnapshot) else None,
            )
            for task in state.tasks
        ],
    }


def _interrupt(asked: Interrupt) -> Any:
    return asked.value


def _value(value: Any) -> Any:
    """Types matter: 1, 1.0 and True are three values."""
    if isinstance(value, list):
        return [_value(each) for each in value]
    if isinstance(value, dict):
        return {key: _value(each) for key, each in sorted(value.items())}
    if hasattr(value, "model_dump"):
        return type(value).__name__, _value(value.model_dump())
    return value


async def _play(script: list[Action], folder: Path, verify: bool, memory_bytes: int) -> None:
    path = folder / "ours.db"

    def open_it() -> Opened:
        return Opened(path, verify=verify, memory_bytes=memory_bytes)

    database = open_it()

    async def reopen() -> BaseCheckpointSaver[Any]:
        nonlocal database
        await database.close()
        database = open_it()
        return database.saver

    async with AsyncSqliteSaver.from_conn_string(str(folder / "official.db")) as official:
        memory = InMemorySaver()
        machines = [
            Machine(official, _same(official)),
            Machine(database.saver, reopen),
            Machine(memory, _same(memory)),
        ]
        try:
            for serial, action in enumerate(script):
                errors = [await machine.do(action, serial) for machine in machines]
                assert errors[1] == errors[0], (serial, action, errors)
                shown = [await machine.head() for machine in machines]
                assert shown[1] == shown[0], (serial, action, shown)
            histories = [await machine.history() for machine in machines]
            assert histories[1] == histories[0]
            assert histories[1] == histories[2]
        finally:
            await database.close()


def _same(saver: BaseCheckpointSaver[Any]) -> Callable[[], Awaitable[BaseCheckpointSaver[Any]]]:
    async def same() -> BaseCheckpointSaver[Any]:
        return saver

    return same


@pytest.mark.parametrize(
    ("verify", "memory_bytes"),
    [(False, 10**8), (False, 0), (True, 10**8)],
    ids=["remembering", "forgetful", "verifying"],
)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=st.lists(actions, min_size=1, max_size=9))
def test_langgraph_sees_no_difference_to_the_official_saver(
    verify: bool, memory_bytes: int, script: list[Action]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_play(script, Path(folder), verify, memory_bytes))
