"""Steps that wait for several kinds of answers at once: gates of calls, and questions of the graph's own."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Send, interrupt

import perdure
from perdure.turns import Accepted, TurnStatus
from tests.unit.engine.graphs import AnyGraph
from tests.unit.engine.guarded import Outside, tools_of
from tests.unit.engine.house import ME, House, hosted, open_house

CALLS: list[Any] = [
    {"name": name, "args": {"at": at}, "id": f"call-{at}", "type": "tool_call"}
    for name, at in (("restart", "x"), ("restart", "y"), ("look", "z"))
]


def mixed(outside: Outside) -> AnyGraph:
    """In one step: a node that asks two questions, and a tool node with two gated calls beside an ungated one."""

    async def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("", id="asks", tool_calls=CALLS)]}

    async def ask(state: MessagesState) -> dict[str, Any]:
        answers = [str(interrupt({"question": name})) for name in ("q1", "q2")]
        await outside.pass_by("ask")
        return {"messages": [AIMessage(" and ".join(answers), id="asked")]}

    def route(state: MessagesState) -> list[Send]:
        return [Send("tools", state), Send("ask", state)]

    graph = StateGraph(MessagesState)
    graph.add_node("model", think)
    graph.add_node("tools", perdure.ToolNode(tools_of(outside)))
    graph.add_node("ask", ask)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", route, ["tools", "ask"])
    graph.add_edge("tools", END)
    graph.add_edge("ask", END)
    return graph.compile()


async def finish(house: House, accepted: Accepted) -> None:
    """Decides whatever waits, until nothing does."""
    while (await house.until(accepted)).status is TurnStatus.PARKED:
        for card in await house.waiting(accepted):
            await decide(house, card)
        await house.until(accepted, TurnStatus.RUNNING, TurnStatus.COMPLETED, TurnStatus.PARKED, TurnStatus.FAILED)
    assert (await house.turn(accepted)).status is TurnStatus.COMPLETED


async def decide(house: House, card: Any) -> None:
    if card.kind == "interrupt":
        await house.decide(card, "answer", value=f"yes to {card.request['question']}")
    else:
        await house.decide(card, "approve")


def right(outside: Outside) -> bool:
    return sorted(each[:2] for each in outside.did) == [("look", "z"), ("restart", "x"), ("restart", "y")]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_cards_of_every_kind_may_be_decided_in_any_order(tmp_path: Path, order: tuple[int, ...]) -> None:
    outside = Outside()
    async with open_house(tmp_path / "db", hosted("agent", mixed(outside), needs_approval=("restart",))) as house:
        accepted = await house.send("go")
        await house.until(accepted, TurnStatus.PARKED)
        cards = await house.waiting(accepted)
        assert sorted(card.kind for card in cards) == ["approval", "approval", "interrupt"]
        for place in order:
            assert (await house.turn(accepted)).status is TurnStatus.PARKED
            assert outside.count("restart") == 0
            await decide(house, cards[place])
        await finish(house, accepted)
        assert right(outside)
        assert (await house.messages(accepted))[-1] == "assistant: yes to q1 and yes to q2"


@pytest.mark.parametrize(("place", "rounds"), [("after restart", 1), ("ask", 2)])
async def test_a_death_in_a_mixed_step_runs_no_call_twice_and_takes_no_answer_for_another(
    tmp_path: Path, place: str, rounds: int
) -> None:
    outside = Outside()
    agent = hosted("agent", mixed(outside), needs_approval=("restart",))
    outside.hold(place)
    async with open_house(tmp_path / "db", agent) as house:
        accepted = await house.send("go")
        for _ in range(rounds):
            await house.until(accepted, TurnStatus.PARKED)
            for card in await house.waiting(accepted):
                await decide(house, card)
        await outside.met(place)
        await house.die()
    outside.let(place)
    async with open_house(tmp_path / "db", agent) as house:
        while (await house.until(accepted)).status is TurnStatus.PARKED:
            for card in await house.waiting(accepted):
                await (
                    house.decide(card, "happened", result="done") if card.kind == "uncertain" else decide(house, card)
                )
            await house.until(accepted, TurnStatus.RUNNING, TurnStatus.COMPLETED, TurnStatus.PARKED, TurnStatus.FAILED)
        assert (await house.turn(accepted)).status is TurnStatus.COMPLETED
        assert right(outside)
        assert "assistant: yes to q1 and yes to q2" in await house.messages(accepted)


def transferring(outside: Outside) -> AnyGraph:
    """One call of a tool that asks a question of its own."""

    @tool
    async def transfer(to: str) -> str:
        """Moves money, and asks how much."""
        amount = interrupt({"question": f"how much to {to}?"})
        return await outside.act("transfer", f"{amount} to {to}")

    async def think(state: MessagesState) -> dict[str, Any]:
        calls: Any = [{"name": "transfer", "args": {"to": "ann"}, "id": "c", "type": "tool_call"}]
        return {"messages": [AIMessage("", id="asks", tool_calls=calls)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", think)
    graph.add_node("tools", perdure.ToolNode([transfer]))
    graph.add_edge(START, "model")
    graph.add_edge("model", "tools")
    return graph.compile()


async def test_a_tool_that_asks_a_question_of_its_own_behind_its_gate(tmp_path: Path) -> None:
    """Its start is on record, and nobody is asked what came of it: it stopped by itself."""
    outside = Outside()
    agent = hosted("agent", transferring(outside), needs_approval=("transfer",))
    async with open_house(tmp_path / "db", agent) as house:
        accepted = await house.send("go")
        await house.until(accepted, TurnStatus.PARKED)
        (gate,) = await house.waiting(accepted)
        await house.decide(gate, "approve")
        await house.until(accepted, TurnStatus.RUNNING, TurnStatus.PARKED)
        await house.until(accepted, TurnStatus.PARKED)
        (own,) = await house.waiting(accepted)
        assert own.request == {"question": "how much to ann?"}
        await house.decide(own, "answer", value=5)
        await house.until(accepted, TurnStatus.COMPLETED)
        assert [each[1] for each in outside.did] == ["5 to ann"]


@pytest.mark.parametrize(("decision", "times"), [("happened", 1), ("retry", 2)])
async def test_a_tool_that_died_with_the_answer_to_its_question_is_uncertain(
    tmp_path: Path, decision: str, times: int
) -> None:
    outside = Outside()
    outside.hold("after transfer")
    agent = hosted("agent", transferring(outside))
    async with open_house(tmp_path / "db", agent) as house:
        accepted = await house.send("go")
        await house.until(accepted, TurnStatus.PARKED)
        (own,) = await house.waiting(accepted)
        await house.decide(own, "answer", value=5)
        await outside.met("after transfer")
        await house.die()
    outside.let("after transfer")
    async with open_house(tmp_path / "db", agent) as house:
        await house.until(accepted, TurnStatus.PARKED)
        (card,) = await house.waiting(accepted)
        assert card.kind == "uncertain"
        await house.decide(card, decision, **({"result": "done"} if decision == "happened" else {}))
        await house.until(accepted, TurnStatus.COMPLETED)
        assert [each[1] for each in outside.did] == ["5 to ann"] * times


async def test_a_turn_parked_by_a_tool_s_own_question_is_cancelled_without_another_question(tmp_path: Path) -> None:
    outside = Outside()
    async with open_house(tmp_path / "db", hosted("agent", mixed(outside), needs_approval=("restart",))) as house:
        accepted = await house.send("go")
        await house.until(accepted, TurnStatus.PARKED)
        await house.agents.cancel(ME, accepted.turn)
        await house.until(accepted, TurnStatus.CANCELLED)
        assert outside.count("restart") == 0
