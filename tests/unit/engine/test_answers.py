"""Answers are given by what was asked, never by position, whatever became of the attempt that used them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langgraph.errors import GraphInterrupt
from langgraph.graph import START, StateGraph
from langgraph.types import Interrupt, interrupt

from perdure import failpoints
from perdure.engine.answers import Answers
from perdure.turns import Accepted, CardState, TurnStatus
from tests.unit.engine.graphs import AnyGraph, Values, World
from tests.unit.engine.house import ME, House, hosted, open_house
from tests.unit.engine.test_plan import card


@dataclass
class Script:
    """What the node asks, and where it stops: `held` and `failing` name the question it stops after."""

    asks: Sequence[str]
    world: World = field(default_factory=World)
    got: list[list[str]] = field(default_factory=list)


def asking(script: Script, *, nested: bool = False) -> AnyGraph:
    async def ask(state: Values) -> Values:
        answers: list[str] = []
        script.got.append(answers)
        for question in script.asks:
            answers.append(f"{question}: {interrupt({'question': question})}")
            await script.world.pass_by(f"after {question}")
        return {"done": list(answers)}

    graph = StateGraph(Values)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    if not nested:
        return graph.compile()
    outer = StateGraph(Values)
    outer.add_node("inner", graph.compile())
    outer.add_edge(START, "inner")
    return outer.compile()


async def answer_next(house: House, accepted: Accepted, expected: str) -> None:
    """Waits for the one open question and answers it with a value made of it."""
    await house.until(accepted, TurnStatus.PARKED)
    (waiting,) = await house.waiting(accepted)
    assert waiting.request == {"question": expected}
    await house.answer(accepted, {waiting.interrupt_id: f"yes to {expected}"})


async def stop_after(house: House, accepted: Accepted, script: Script, question: str, way: str) -> None:
    """Answers up to `question`, after which the attempt ends without a park."""
    place = f"after {question}"
    if way == "kill":
        script.world.hold(place)
    else:
        script.world.failing.add(place)
    for each in script.asks[: script.asks.index(question) + 1]:
        await answer_next(house, accepted, each)
    if way == "kill":
        await script.world.met(place)
        await house.die()
        script.world.let(place)
    else:
        await house.until(accepted, TurnStatus.FAILED)
        script.world.failing.clear()


async def go_on(house: House, accepted: Accepted, way: str) -> None:
    if way == "exception":
        await house.agents.resume(ME, accepted.conversation)


WAYS = ["exception", "kill"]


@pytest.mark.parametrize("nested", [False, True], ids=["root", "subgraph"])
@pytest.mark.parametrize("question", ["q1", "q2", "q3"])
@pytest.mark.parametrize("way", WAYS)
async def test_the_same_questions_are_answered_from_their_decisions(
    tmp_path: Path, way: str, question: str, nested: bool
) -> None:
    script = Script(["q1", "q2", "q3"])
    agent = hosted("agent", asking(script, nested=nested))
    async with open_house(tmp_path / "db", agent) as house:
        accepted = await house.send({"done": []})
        await stop_after(house, accepted, script, question, way)
        if way == "exception":
            await go_on(house, accepted, way)
            await finish(house, accepted, script, question)
    if way == "kill":
        async with open_house(tmp_path / "db", agent) as house:
            await finish(house, accepted, script, question)


async def finish(house: House, accepted: Accepted, script: Script, question: str) -> None:
    """The questions after `question` are asked for the first time; none is asked twice."""
    for each in script.asks[script.asks.index(question) + 1 :]:
        await answer_next(house, accepted, each)
    await house.until(accepted, TurnStatus.COMPLETED)
    assert script.got[-1] == [f"{each}: yes to {each}" for each in script.asks]
    cards = await house.store.cards("me", accepted.turn)
    assert [each.state for each in cards] == [CardState.DECIDED] * len(script.asks)


@pytest.mark.parametrize("nested", [False, True], ids=["root", "subgraph"])
@pytest.mark.parametrize(
    ("question", "then"),
    [
        ("q1", ["other", "q2"]),
        ("q2", ["other", "q2"]),
        ("q2", ["q1", "other"]),
        ("q2", ["q2", "q1"]),
        ("q2", ["other"]),
        ("q3", ["q1", "other", "q3"]),
    ],
)
@pytest.mark.parametrize("way", WAYS)
async def test_a_question_that_was_not_asked_before_is_never_answered_by_an_old_answer(
    tmp_path: Path, way: str, question: str, then: list[str], nested: bool
) -> None:
    script = Script(["q1", "q2", "q3"])
    agent = hosted("agent", asking(script, nested=nested))
    async with open_house(tmp_path / "db", agent) as house:
        accepted = await house.send({"done": []})
        await stop_after(house, accepted, script, question, way)
        script.asks = then
        if way == "exception":
            await go_on(house, accepted, way)
            await answer_all_asked(house, accepted, script)
    if way == "kill":
        async with open_house(tmp_path / "db", agent) as house:
            await answer_all_asked(house, accepted, script)


async def answer_all_asked(house: House, accepted: Accepted, script: Script) -> None:
    while (await house.until(accepted)).status is TurnStatus.PARKED:
        (waiting,) = await house.waiting(accepted)
        await house.answer(accepted, {waiting.interrupt_id: f"yes to {waiting.request['question']}"})
        await house.until(accepted, TurnStatus.RUNNING, TurnStatus.COMPLETED, TurnStatus.FAILED, TurnStatus.PARKED)
    assert (await house.turn(accepted)).status is TurnStatus.COMPLETED
    assert script.got[-1] == [f"{each}: yes to {each}" for each in script.asks]
    for answers in script.got:
        for each in answers:
            question, _, answer = each.partition(": ")
            assert answer == f"yes to {question}"


async def test_a_death_while_the_graph_is_asked_anew_changes_nothing(tmp_path: Path) -> None:
    script = Script(["q1", "q2"])
    agent = hosted("agent", asking(script))
    async with open_house(tmp_path / "db", agent) as house:
        accepted = await house.send({"done": []})
        await stop_after(house, accepted, script, "q2", "kill")
    script.asks = ["other", "q2"]
    for at in range(1, 4):
        async with open_house(tmp_path / "db", agent, start=False) as house:
            failpoints.arm(f"task_writes.after:error@{at}")
            try:
                await house.worker.start()
                await house.until(accepted)
            finally:
                failpoints.arm("")
            if (await house.turn(accepted)).status is TurnStatus.FAILED:
                await house.agents.resume(ME, accepted.conversation)
                await house.until(accepted)
    async with open_house(tmp_path / "db", agent) as house:
        await answer_all_asked(house, accepted, script)


@pytest.mark.parametrize("way", WAYS)
async def test_siblings_keep_their_own_answers(tmp_path: Path, way: str) -> None:
    """`left` used its answer and failed; `right` had asked its second question by then."""
    world = World()
    got: dict[str, list[str]] = {}

    def asking_node(name: str, count: int) -> Any:
        async def run(state: Values) -> Values:
            got[name] = []
            for index in range(count):
                got[name].append(str(interrupt(f"{name}{index}")))
            await world.pass_by(name)
            return {"done": got[name]}

        return run

    graph = StateGraph(Values)
    for name, count in (("left", 1), ("right", 2)):
        graph.add_node(name, asking_node(name, count))
        graph.add_edge(START, name)
    agent = hosted("agent", graph.compile())
    async with open_house(tmp_path / "db", agent) as house:
        accepted = await house.send({"done": []})
        await house.until(accepted, TurnStatus.PARKED)
        if way == "kill":
            world.hold("left")
        else:
            world.failing.add("left")
        await house.answer(accepted, {each.interrupt_id: each.request for each in await house.waiting(accepted)})
        if way == "exception":
            await house.until(accepted, TurnStatus.FAILED)
            world.failing.clear()
            await house.agents.resume(ME, accepted.conversation)
            await finish_siblings(house, accepted, got)
        else:
            await world.met("left")
            await house.die()
            world.let("left")
    if way == "kill":
        async with open_house(tmp_path / "db", agent) as house:
            await finish_siblings(house, accepted, got)


async def finish_siblings(house: House, accepted: Accepted, got: dict[str, list[str]]) -> None:
    while (await house.until(accepted)).status is TurnStatus.PARKED:
        await house.answer(accepted, {each.interrupt_id: each.request for each in await house.waiting(accepted)})
        await house.until(accepted, TurnStatus.RUNNING, TurnStatus.COMPLETED, TurnStatus.FAILED, TurnStatus.PARKED)
    assert (await house.turn(accepted)).status is TurnStatus.COMPLETED
    assert got == {"left": ["left0"], "right": ["right0", "right1"]}


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("at", [1, 2])
async def test_an_answer_of_an_abandoned_turn_is_not_taken_by_the_next_one(tmp_path: Path, side: str, at: int) -> None:
    """The process fails between the calls of the repair that comes before the next turn's input."""
    script = Script(["q1", "q2"])
    async with open_house(tmp_path / "db", hosted("agent", asking(script))) as house:
        left = await house.send({"done": []})
        await stop_after(house, left, script, "q2", "exception")
        failpoints.arm(f"repair.{side}:error@{at}")
        try:
            accepted = await house.send({"done": []}, left.conversation)
            ended = await house.until(accepted)
        finally:
            failpoints.arm("")
        if ended.status is TurnStatus.FAILED:
            await house.agents.resume(ME, accepted.conversation)
        for question in script.asks:
            await answer_next(house, accepted, question)
        await house.until(accepted, TurnStatus.COMPLETED)
        assert script.got[-1] == ["q1: yes to q1", "q2: yes to q2"]


async def test_what_another_turn_left_in_a_subgraph_with_a_memory_of_its_own_is_left_alone(tmp_path: Path) -> None:
    """It is that turn's: this one may not write there, and need not."""
    script = Script(["i1", "i2"])
    world = World()
    world.failing.add("outer")
    inner = asking(script)
    inner.checkpointer = True

    async def ask(state: Values) -> Values:
        answer = str(interrupt({"question": "o1"}))
        await world.pass_by("outer")
        return {"done": [answer]}

    graph = StateGraph(Values)
    graph.add_node("ask", ask)
    graph.add_node("inner", inner)
    graph.add_conditional_edges(
        START, lambda state: "inner" if "inner" in state["done"][-1] else "ask", ["ask", "inner"]
    )
    async with open_house(tmp_path / "db", hosted("agent", graph.compile())) as house:
        left = await house.send({"done": ["inner"]})
        await stop_after(house, left, script, "i2", "exception")
        accepted = await house.send({"done": ["ask"]}, left.conversation)
        await answer_next(house, accepted, "o1")
        await house.until(accepted, TurnStatus.FAILED)
        world.failing.clear()
        await house.agents.resume(ME, accepted.conversation)
        await house.until(accepted, TurnStatus.COMPLETED)


async def test_a_question_that_no_answer_reaches_ends_the_turn_by_name(tmp_path: Path) -> None:
    """An id of the graph's own making cannot be answered: LangGraph would take the map of answers for the answer."""

    async def ask(state: Values) -> Values:
        raise GraphInterrupt((Interrupt(value="?", id="mine"),))

    graph = StateGraph(Values).add_node("ask", ask).add_edge(START, "ask").compile()
    async with open_house(tmp_path / "db", hosted("agent", graph)) as house:
        accepted = await house.send({"done": []})
        await house.until(accepted, TurnStatus.PARKED)
        await house.answer(accepted, {"mine": 1})
        turn = await house.until(accepted, TurnStatus.FAILED)
        assert turn.failure is not None
        assert turn.failure.reason == "question_repeated"


def test_a_value_that_json_cannot_hold_is_compared_by_what_is_kept_of_it() -> None:
    asked = Interrupt(value={"at": Path("/x"), "n": (1, 2)}, id="0" * 32)
    known = Answers({asked.id: card(asked.id, {"at": "/x", "n": [1, 2]}, "yes")})
    assert known.own([asked]) == {asked.id: "yes"}
    other = Interrupt(value={"at": Path("/y"), "n": (1, 2)}, id=asked.id)
    assert not known.decided(other)
    assert known.park([other]).questions[0].interrupt_id.startswith(asked.id + "~")
