"""Whatever a node or a tool raises, it ends its own work: the turn fails by name or the model hears of it, and others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Send, interrupt

from perdure.clock import SystemClock
from perdure.engine.drive import Drive
from perdure.engine.endings import Park
from perdure.graph.build import ToolsNode
from perdure.graph.containment import contain
from perdure.graph.tools import ToolRegistry
from perdure.store.base import Question
from perdure.turns import FailureCode, TurnStatus
from tests.unit.engine.graphs import AnyGraph, Values
from tests.unit.engine.house import ME, House, hosted, open_house


class Final(BaseException):
    pass


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


RAISED: dict[str, Callable[[], BaseException]] = {
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "Final": Final,
    "CancelledError": lambda: asyncio.CancelledError("mine"),
    "Speechless": Speechless,
    "bad": lambda: ValueError("bad \ud800 \x00 text"),
}


def one_node(run: Any) -> AnyGraph:
    return StateGraph(Values).add_node("n", run).add_edge(START, "n").compile()


def in_a_thread(name: str) -> AnyGraph:
    def run(state: Values) -> Values:
        raise RAISED[name]()

    return one_node(run)


def on_the_loop(name: str) -> AnyGraph:
    async def run(state: Values) -> Values:
        raise RAISED[name]()

    return one_node(run)


def in_a_task_of_its_own(name: str) -> AnyGraph:
    async def fail() -> None:
        raise RAISED[name]()

    async def run(state: Values) -> Values:
        await asyncio.gather(asyncio.create_task(fail()), asyncio.sleep(0))
        return {}

    return one_node(run)


def in_a_subgraph(name: str) -> AnyGraph:
    return StateGraph(Values).add_node("n", on_the_loop(name)).add_edge(START, "n").compile()


async def goes_on(house: House) -> None:
    """The loop still turns, and another conversation's turn completes."""
    fine = await house.send({"done": []}, agent="fine")
    assert (await house.until(fine)).status is TurnStatus.COMPLETED


@pytest.mark.parametrize("name", RAISED)
@pytest.mark.parametrize("place", [in_a_thread, on_the_loop, in_a_task_of_its_own, in_a_subgraph])
async def test_what_a_node_raises_fails_its_turn_at_once(tmp_path: Path, name: str, place: Any) -> None:
    fine = hosted("fine", one_node(lambda state: {"done": ["fine"]}))
    async with open_house(tmp_path / "db", fine, hosted("agent", place(name)), lease_seconds=3600.0) as house:
        accepted = await house.send({"done": []}, agent="agent")
        turn = await house.until(accepted)
        assert turn.failure is not None
        assert (turn.status, turn.failure.code) == (TurnStatus.FAILED, FailureCode.AGENT_FAILURE)
        assert "'n'" in turn.failure.message
        assert name in turn.failure.message
        assert await house.outcomes(accepted) == ["failed"]
        await goes_on(house)


def tools(name: str) -> ToolsNode:
    @tool
    def in_thread(text: str) -> str:
        """Raises."""
        raise RAISED[name]()

    @tool
    async def on_loop(text: str) -> str:
        """Raises."""
        raise RAISED[name]()

    return ToolsNode(ToolRegistry([in_thread, on_loop]), SystemClock(), 60)


@pytest.mark.parametrize("name", RAISED)
async def test_what_a_tool_raises_is_an_answer_for_the_model(tmp_path: Path, name: str) -> None:
    def ask(state: MessagesState) -> dict[str, Any]:
        if not isinstance(state["messages"][-1], HumanMessage):
            return {"messages": [AIMessage("heard it")]}
        names = ("in_thread", "on_loop")
        calls: list[Any] = [{"name": each, "args": {"text": ""}, "id": each, "type": "tool_call"} for each in names]
        return {"messages": [AIMessage("", id="asks", tool_calls=calls)]}

    def route(state: MessagesState) -> Any:
        calls = getattr(state["messages"][-1], "tool_calls", [])
        more = {"message_id": "asks", "problem": None}
        return [
            Send("tools", {"id": each["id"], "name": each["name"], "arguments": each["args"], **more}) for each in calls
        ] or END

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", tools(name).run)  # type: ignore[arg-type]
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", route, ["tools", END])
    graph.add_edge("tools", "ask")
    fine = hosted("fine", one_node(lambda state: {"done": ["fine"]}))
    async with open_house(tmp_path / "db", fine, hosted("agent", graph.compile())) as house:
        accepted = await house.send("hello", agent="agent")
        assert (await house.until(accepted)).status is TurnStatus.COMPLETED
        _, _, *answers, last = await house.messages(accepted)
        assert len(answers) == 2
        assert all("failed: " in each and name in each for each in answers)
        assert last == "assistant: heard it"
        await goes_on(house)


async def test_tasks_outside_an_attempt_are_left_as_they_are() -> None:
    loop = asyncio.get_running_loop()
    contain(loop)
    first = loop.get_task_factory()
    contain(loop)
    assert loop.get_task_factory() is first

    async def fail() -> None:
        raise Final

    with pytest.raises(Final):
        await asyncio.create_task(fail(), name="named")


# -- what nobody foresaw, and what cannot be stored ---------------------------------------------------------------------


async def test_a_drive_that_breaks_ends_its_turn_at_once_with_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: Drive) -> None:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(Drive, "_supervise", broken)
    fine = hosted("fine", one_node(lambda state: {"done": ["fine"]}))
    async with open_house(tmp_path / "db", fine, lease_seconds=3600.0) as house:
        accepted = await house.send({"done": []})
        turn = await house.until(accepted)
        assert turn.failure is not None
        assert turn.status is TurnStatus.FAILED
        assert "nobody foresaw this" in turn.failure.message
        monkeypatch.undo()
        await goes_on(house)


async def test_an_end_that_cannot_be_written_as_it_is_becomes_a_failure(tmp_path: Path) -> None:
    """A question that has no text, found only when the turn is parked."""

    class Asks(Drive):
        async def _supervise(self) -> Any:
            return Park([Question("i-1", Speechless())])

    fine = hosted("fine", one_node(lambda state: {"done": ["fine"]}))
    async with open_house(tmp_path / "db", fine, start=False) as house:
        accepted = await house.send({"done": []})
        now = house.worker._clock.now()
        attempt = await house.store.claim(
            agents={"fine": 1}, suspects=False, now=now, lease_expires_at=now + timedelta(hours=1)
        )
        assert attempt is not None
        await Asks(attempt, fine, house.store, house.worker._clock).run()
        turn = await house.turn(accepted)
        assert turn.status is TurnStatus.FAILED
        assert turn.failure is not None
        assert "no text" in turn.failure.message


TOO_LARGE = 2**70


async def test_a_number_that_no_state_holds_fails_its_turn_and_the_next_message_works(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", one_node(lambda state: {"done": ["fine"]}))) as house:
        accepted = await house.send({"done": [TOO_LARGE]})
        turn = await house.until(accepted)
        assert turn.failure is not None
        assert turn.status is TurnStatus.FAILED
        assert "64" in turn.failure.message
        after = await house.send({"done": []}, accepted.conversation)
        assert (await house.until(after)).status is TurnStatus.COMPLETED


async def test_an_answer_that_no_state_holds_fails_its_turn_and_the_next_message_works(tmp_path: Path) -> None:
    def run(state: Values) -> Any:
        return {"done": [interrupt("how many?")] if not state.get("done") else ["fine"]}

    async with open_house(tmp_path / "db", hosted("agent", one_node(run))) as house:
        accepted = await house.send({"done": []})
        await house.until(accepted, TurnStatus.PARKED)
        (card,) = (await house.agents.turn(ME, accepted.turn)).cards
        await house.answer(accepted, {card.interrupt_id: TOO_LARGE})
        turn = await house.until(accepted, TurnStatus.FAILED)
        assert turn.failure is not None
        assert "64" in turn.failure.message
        assert (await house.agents.conversation(ME, accepted.conversation)).resumable
        after = await house.send({"done": ["something"]}, accepted.conversation)
        assert (await house.until(after)).status is TurnStatus.COMPLETED


class Weird:
    pass


def asks_with_an_object(state: Values) -> Any:
    return {"done": [interrupt({"about": [Weird()]})]}


def writes_an_object(state: Values) -> Any:
    return {"done": [{"deep": (Weird(),)}]}


@pytest.mark.parametrize(
    ("run", "place"), [(asks_with_an_object, "a question of `interrupt`"), (writes_an_object, "the key 'done'")]
)
async def test_what_cannot_be_stored_is_named_with_its_place(tmp_path: Path, run: Any, place: str) -> None:
    async with open_house(tmp_path / "db", hosted("agent", one_node(run))) as house:
        turn = await house.until(await house.send({"done": []}))
        assert turn.failure is not None
        assert (turn.status, turn.failure.code) == (TurnStatus.FAILED, FailureCode.STATE_TYPE_NOT_ALLOWED)
        assert f"{__name__}:Weird" in turn.failure.message
        assert place in turn.failure.message
