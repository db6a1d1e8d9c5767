"""One attempt from claim to end, over the real store."""

from __future__ import annotations

import operator
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.errors import GraphDrained
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from perdure import failpoints
from perdure.events import EventKind
from perdure.graph.history import CANCELLED, NOT_RECORDED
from perdure.turns import FailureCode, TurnStatus
from tests.unit.engine.graphs import World, agent, chain, endless, questions
from tests.unit.engine.house import ME, OWNER, House, hosted, open_house


async def answer_all(house: House, accepted: Any, value: Any = "yes") -> None:
    cards = await house.store.cards(OWNER, accepted.turn)
    open_ones = {card.interrupt_id: value for card in cards if str(card.state) == "opened"}
    await house.answer(accepted, open_ones)


async def done(house: House, accepted: Any) -> list[str]:
    transcript = await house.agents.conversation(ME, accepted.conversation)
    assert transcript.state is not None
    found: list[str] = transcript.state["done"]
    return found


# -- plain ends ---------------------------------------------------------------------------------------------------------


async def test_a_message_is_answered(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        accepted = await house.send("hello")
        turn = await house.until(accepted)
        assert turn.status is TurnStatus.COMPLETED
        assert await house.messages(accepted) == ["user: hello", "assistant: answer hello"]
        assert turn.input is None
        assert await house.outcomes(accepted) == ["completed"]


async def test_what_leaves_the_engine_is_in_the_order_of_the_work(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        accepted = await house.send("call a")
        await house.until(accepted)
        told = [
            f"{event.payload['node']} {event.payload['phase']}"
            if event.kind is EventKind.TRACE
            else f"message {event.payload['message']['role']}"
            if event.kind is EventKind.MESSAGE
            else str(event.kind)
            for event in await house.journal(accepted)
        ]
        assert told == [
            "message user",
            "model enter",
            "model leave",
            "message assistant",
            "tools enter",
            "tools leave",
            "tools result",
            "message tool",
            "model enter",
            "model leave",
            "message assistant",
            "end",
        ]


async def test_a_graph_without_messages_takes_json(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", chain(World(), "one", "two"))) as house:
        accepted = await house.send({"done": ["zero"]})
        assert (await house.until(accepted)).status is TurnStatus.COMPLETED
        assert await done(house, accepted) == ["zero", "one", "two"]


async def test_synchronous_nodes_run_beside_the_loop(tmp_path: Path) -> None:
    class Values(TypedDict, total=False):
        done: Annotated[list[str], operator.add]

    def slow(state: Values) -> Values:
        time.sleep(0.05)
        return {"done": ["slow"]}

    graph = StateGraph(Values)
    graph.add_node("slow", slow)
    graph.add_edge(START, "slow")
    async with open_house(tmp_path / "db", hosted("agent", graph.compile())) as house:
        accepted = await house.send({"done": []})
        assert (await house.until(accepted)).status is TurnStatus.COMPLETED
        assert await done(house, accepted) == ["slow"]


async def test_a_subgraph_streams_under_its_own_name_and_saves_through_its_parent(tmp_path: Path) -> None:
    inner = StateGraph(MessagesState)
    inner.add_node("inside", agent(World()))
    inner.add_edge(START, "inside")
    outer = StateGraph(MessagesState)
    outer.add_node("outer", inner.compile(checkpointer=False))
    outer.add_edge(START, "outer")
    outer.add_edge("outer", END)
    async with open_house(tmp_path / "db", hosted("agent", outer.compile())) as house:
        accepted = await house.send("hello")
        assert (await house.until(accepted)).status is TurnStatus.COMPLETED
        assert await house.messages(accepted) == ["user: hello", "assistant: answer hello"]
        names = [event.payload["name"] for event in await house.journal(accepted) if event.kind is EventKind.TRACE]
        assert "outer/inside/model" in names


# -- failures -----------------------------------------------------------------------------------------------------------


async def test_a_node_that_fails_names_itself_and_the_resumed_turn_goes_on_where_it_stood(tmp_path: Path) -> None:
    world = World(failing={"two"})
    async with open_house(tmp_path / "db", hosted("agent", chain(world, "one", "two"))) as house:
        accepted = await house.send({"done": []})
        turn = await house.until(accepted)
        assert turn.failure is not None
        assert (turn.failure.code, turn.failure.reason) == (FailureCode.AGENT_FAILURE, "node_failed")
        assert turn.failure.message == "The node 'two' failed: RuntimeError: two broke"

        world.failing.clear()
        await house.agents.resume(ME, accepted.conversation)
        assert (await house.until(accepted, TurnStatus.COMPLETED)).attempts == 2
        assert world.ran == ["one", "two"]


async def test_an_error_behind_the_last_commit_does_not_make_a_finished_turn_a_failed_one(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", chain(World(), "one"))) as house:
        failpoints.arm("task_writes.after:error@2")
        try:
            accepted = await house.send({"done": []})
            turn = await house.until(accepted)
        finally:
            failpoints.arm("")
        assert (turn.status, turn.failure) == (TurnStatus.COMPLETED, None)
        assert await done(house, accepted) == ["one"]


async def test_a_node_that_says_it_was_drained_though_nobody_asked_ends_the_turn(tmp_path: Path) -> None:
    def node(state: MessagesState) -> MessagesState:
        raise GraphDrained("by itself")

    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()
    async with open_house(tmp_path / "db", hosted("agent", graph)) as house:
        accepted = await house.send("go")
        turn = await house.until(accepted)
        assert turn.status is TurnStatus.FAILED
        assert await house.outcomes(accepted) == ["failed"]


async def test_what_escapes_the_tools_node_is_a_tool_failure(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World(failing={"a"})))) as house:
        turn = await house.until(await house.send("call a"))
        assert turn.failure is not None
        assert turn.failure.code is FailureCode.TOOL_FAILURE
        assert "RuntimeError: a broke" in turn.failure.message


async def test_the_message_after_a_failed_turn_finds_a_repaired_thread(tmp_path: Path) -> None:
    world = World(failing={"b"})
    async with open_house(tmp_path / "db", hosted("agent", agent(world))) as house:
        failed = await house.send("call a b")
        await house.until(failed)
        accepted = await house.send("next", failed.conversation)
        assert (await house.until(accepted)).status is TurnStatus.COMPLETED
        assert await house.messages(accepted) == [
            "user: call a b",
            "assistant: Calling. ",
            "tool: done",
            f"tool: {NOT_RECORDED}",
            "user: next",
            "assistant: answer next",
        ]
        assert (await house.turn(failed)).superseded


async def test_a_process_that_dies_in_the_repair_before_a_message_loses_neither(tmp_path: Path) -> None:
    world = World(failing={"b"})
    one = hosted("agent", agent(world))
    for number, place in enumerate([f"repair.{side}:error@{at}" for side in ("before", "after") for at in (1, 2, 3)]):
        path = tmp_path / str(number) / "db"
        async with open_house(path, one) as house:
            failed = await house.send("call a b")
            await house.until(failed)
            failpoints.arm(place)
            try:
                accepted = await house.send("next", failed.conversation)
                await house.until(accepted, TurnStatus.FAILED)
            finally:
                failpoints.arm("")
            await house.agents.resume(ME, accepted.conversation)
            await house.until(accepted, TurnStatus.COMPLETED)
            messages = await house.messages(accepted)
            assert messages.count(f"tool: {NOT_RECORDED}") == 1
            assert messages[-2:] == ["user: next", "assistant: answer next"]


# -- steps --------------------------------------------------------------------------------------------------------------


async def test_a_turn_that_needs_exactly_its_limit_completes(tmp_path: Path) -> None:
    graph = chain(World(), "one", "two", "three")
    async with open_house(tmp_path / "db", hosted("agent", graph, recursion_limit=3)) as house:
        assert (await house.until(await house.send({"done": []}))).status is TurnStatus.COMPLETED


async def test_the_step_limit_ends_the_turn_and_a_continue_gives_it_once_more(tmp_path: Path) -> None:
    world = World()
    async with open_house(tmp_path / "db", hosted("agent", endless(world), recursion_limit=3)) as house:
        accepted = await house.send({"done": []})
        turn = await house.until(accepted)
        assert turn.failure is not None
        assert (turn.failure.code, turn.failure.reason) == (FailureCode.RECURSION_LIMIT, "recursion_limit")
        assert "used 3 steps" in turn.failure.message
        assert len(world.ran) == 3
        await house.agents.resume(ME, accepted.conversation)
        await house.until(accepted, TurnStatus.FAILED)
        assert len(world.ran) == 6


async def test_a_re_drive_does_not_start_the_count_of_steps_again(tmp_path: Path) -> None:
    world = World()
    graph = hosted("agent", chain(world, "one", "two", "three", "four"), recursion_limit=3)
    world.hold("three")
    async with open_house(tmp_path / "db", graph) as house:
        accepted = await house.send({"done": []})
        await world.met("three")
        await house.die()
    world.let("three")
    async with open_house(tmp_path / "db", graph) as house:
        turn = await house.until(accepted)
        assert turn.failure is not None
        assert turn.failure.code is FailureCode.RECURSION_LIMIT
        assert world.ran == ["one", "two", "three"]


# -- questions ----------------------------------------------------------------------------------------------------------


async def test_parallel_questions_wait_for_every_answer(tmp_path: Path) -> None:
    world = World()
    async with open_house(tmp_path / "db", hosted("agent", questions(world, ["q1", "q2"], parallel=True))) as house:
        accepted = await house.send({"done": []})
        assert (await house.until(accepted)).status is TurnStatus.PARKED
        cards = await house.store.cards(OWNER, accepted.turn)
        assert sorted(card.request["question"] for card in cards) == ["q1", "q2"]
        await house.answer(accepted, {cards[0].interrupt_id: "a"})
        assert (await house.turn(accepted)).status is TurnStatus.PARKED
        await house.answer(accepted, {cards[1].interrupt_id: "b"})
        assert (await house.until(accepted, TurnStatus.COMPLETED)).attempts_without_progress == 0
        assert sorted(await done(house, accepted)) == ["a", "b"]
        assert sorted(world.ran) == ["q1", "q2"]


async def test_one_node_may_ask_several_questions(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", questions(World(), ["q1", "q2"]))) as house:
        accepted = await house.send({"done": []})
        for value in ("a", "b"):
            await house.until(accepted, TurnStatus.PARKED)
            await answer_all(house, accepted, value)
        await house.until(accepted, TurnStatus.COMPLETED)
        assert await done(house, accepted) == ["a", "b"]


async def test_an_answer_outlives_the_process_that_works_with_it(tmp_path: Path) -> None:
    world = World()
    graph = hosted("agent", questions(world, ["q1"]))
    async with open_house(tmp_path / "db", graph) as house:
        accepted = await house.send({"done": []})
        await house.until(accepted, TurnStatus.PARKED)
        world.hold("ask")
        await answer_all(house, accepted, "yes")
        await world.met("ask")
        await house.die()
    world.let("ask")
    async with open_house(tmp_path / "db", graph) as house:
        await house.until(accepted, TurnStatus.COMPLETED)
        assert await done(house, accepted) == ["yes"]


async def test_a_question_inside_a_subgraph_parks_the_turn(tmp_path: Path) -> None:
    class Values(TypedDict, total=False):
        done: Annotated[list[str], operator.add]

    async def ask(state: Values) -> Values:
        return {"done": [interrupt("sure?")]}

    inner = StateGraph(Values)
    inner.add_node("ask", ask)
    inner.add_edge(START, "ask")
    outer = StateGraph(Values)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    async with open_house(tmp_path / "db", hosted("agent", outer.compile())) as house:
        accepted = await house.send({"done": []})
        await house.until(accepted, TurnStatus.PARKED)
        await answer_all(house, accepted)
        await house.until(accepted, TurnStatus.COMPLETED)
        assert "yes" in await done(house, accepted)


async def test_a_static_breakpoint_parks_before_and_after_nodes_until_a_person_lets_it_pass(tmp_path: Path) -> None:
    world = World()
    graph = chain(world, "one", "two", "three", interrupt_before=["two"], interrupt_after=["two"])
    async with open_house(tmp_path / "db", hosted("agent", graph)) as house:
        accepted = await house.send({"done": []})
        await house.until(accepted, TurnStatus.PARKED)
        assert world.ran == ["one"]
        (card,) = await house.store.cards(OWNER, accepted.turn)
        assert card.request == {"breakpoint": ["two"]}
        await answer_all(house, accepted)
        await house.until(accepted, TurnStatus.PARKED)
        assert world.ran == ["one", "two"]
        await answer_all(house, accepted)
        await house.until(accepted, TurnStatus.COMPLETED)
        assert world.ran == ["one", "two", "three"]


# -- cancel -------------------------------------------------------------------------------------------------------------


async def test_a_cancel_in_a_model_call_keeps_the_text_that_was_shown(tmp_path: Path) -> None:
    world = World()
    world.hold("word 0")
    async with open_house(tmp_path / "db", hosted("agent", agent(world))) as house:
        accepted = await house.send("hello")
        await world.met("word 0")
        await house.heard("answer ")
        await house.agents.cancel(ME, accepted.turn)
        assert (await house.until(accepted)).status is TurnStatus.CANCELLED
        transcript = await house.agents.conversation(ME, accepted.conversation)
        assert [each["content"] for each in transcript.messages] == ["hello", "answer "]
        assert transcript.messages[-1]["status"] == "cancelled"
        assert not transcript.resumable
        later = await house.send("next", accepted.conversation)
        world.held.clear()
        await house.until(later, TurnStatus.COMPLETED)
        assert await house.messages(later) == [
            "user: hello",
            "assistant: answer ",
            "user: next",
            "assistant: answer next",
        ]


async def test_a_cancel_in_a_tool_tells_the_model_that_the_user_cancelled(tmp_path: Path) -> None:
    world = World()
    world.hold("a")
    async with open_house(tmp_path / "db", hosted("agent", agent(world))) as house:
        accepted = await house.send("call a")
        await world.met("a")
        await house.agents.cancel(ME, accepted.turn)
        assert (await house.until(accepted)).status is TurnStatus.CANCELLED
        assert (await house.messages(accepted))[-1] == f"tool: {CANCELLED}"
        assert "a" not in world.ran
        state = await house.state(accepted)
        assert state.tasks == ()


async def test_a_parked_turn_is_cancelled_with_its_questions(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        accepted = await house.send("call ask a")
        await house.until(accepted, TurnStatus.PARKED)
        await house.agents.cancel(ME, accepted.turn)
        await house.until(accepted, TurnStatus.CANCELLED)
        (card,) = await house.store.cards(OWNER, accepted.turn)
        assert str(card.state) == "closed"
        assert (await house.messages(accepted))[-2:] == ["tool: done", f"tool: {CANCELLED}"]


async def test_a_turn_cancelled_before_it_began_leaves_its_message_and_calls_no_model(tmp_path: Path) -> None:
    world = World()
    async with open_house(tmp_path / "db", hosted("agent", agent(world)), start=False) as house:
        accepted = await house.send("hello")
        await house.agents.cancel(ME, accepted.turn)
        await house.worker.start()
        assert (await house.until(accepted)).status is TurnStatus.CANCELLED
        assert await house.messages(accepted) == ["user: hello"]
        assert world.ran == []


async def test_a_cancel_before_the_start_behind_a_failed_turn_does_not_blame_the_user_for_it(tmp_path: Path) -> None:
    world = World(failing={"a"})
    path = tmp_path / "db"
    async with open_house(path, hosted("agent", agent(world))) as house:
        failed = await house.send("call a")
        await house.until(failed)
    async with open_house(path, hosted("agent", agent(world)), start=False) as house:
        accepted = await house.send("next", failed.conversation)
        await house.agents.cancel(ME, accepted.turn)
        await house.worker.start()
        await house.until(accepted, TurnStatus.CANCELLED)
        assert (await house.messages(accepted))[-2:] == [f"tool: {NOT_RECORDED}", "user: next"]


async def test_a_cancel_that_comes_too_late_changes_nothing(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        accepted = await house.send("hello")
        await house.until(accepted, TurnStatus.COMPLETED)
        assert (await house.agents.cancel(ME, accepted.turn)).status is TurnStatus.COMPLETED


# -- what may be stored -------------------------------------------------------------------------------------------------


class Free(TypedDict, total=False):
    anything: Any


@dataclass
class Listed:
    value: int


async def test_a_type_that_could_not_be_read_back_ends_the_turn_with_the_line_to_add(tmp_path: Path) -> None:
    async def make(state: Free) -> Free:
        return {"anything": Listed(1)}

    graph = StateGraph(Free)
    graph.add_node("make", make)
    graph.add_edge(START, "make")
    async with open_house(tmp_path / "db", hosted("agent", graph.compile())) as house:
        accepted = await house.send({"anything": None})
        turn = await house.until(accepted)
        assert turn.failure is not None
        assert turn.failure.code is FailureCode.STATE_TYPE_NOT_ALLOWED
        assert f"{__name__}:Listed" in turn.failure.message


async def test_a_type_of_the_settings_is_stored_and_read_back(tmp_path: Path) -> None:
    async def make(state: Free) -> Free:
        return {"anything": Listed(1)}

    graph = StateGraph(Free)
    graph.add_node("make", make)
    graph.add_edge(START, "make")
    one = replace(hosted("agent", graph.compile()), state_types=(Listed,))
    async with open_house(tmp_path / "db", one) as house:
        accepted = await house.send({"anything": None})
        assert (await house.until(accepted)).status is TurnStatus.COMPLETED
        assert (await house.state(accepted)).values == {"anything": Listed(1)}
        transcript = await house.agents.conversation(ME, accepted.conversation)
        assert transcript.state == {"anything": {"value": 1}}
