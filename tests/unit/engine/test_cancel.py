"""A cancel is prompt, durable and honest: what ran is told, what may have run is asked about, what was seen is kept."""

from __future__ import annotations

import asyncio
import functools
import operator
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, message_chunk_to_message
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langgraph.graph import START, MessagesState, StateGraph

import perdure
from perdure import failpoints
from perdure.engine.drive import Cut
from perdure.errors import NotFound, TurnInProgress
from perdure.graph import answers
from perdure.turns import Accepted, CardState, TurnStatus
from tests.unit.engine.graphs import PATIENCE_SECONDS, AnyGraph, World
from tests.unit.engine.graphs import agent as scripted
from tests.unit.engine.guarded import SHAPES, Outside, guarded_agent, tools_of
from tests.unit.engine.house import ME, OWNER, House, eventually, hosted, open_house
from tests.unit.engine.test_decisions import after_a_death, recorded

shapes = pytest.mark.parametrize("shape", SHAPES)


async def cancel(house: House, accepted: Accepted) -> None:
    """Returns when the drive has heard of it."""
    (drive,) = house.worker._drives.values()
    await house.agents.cancel(ME, accepted.turn)
    await eventually(lambda: drive._cause is Cut.CANCEL)


async def told_again(house: House) -> None:
    """The same cancel once more, as it comes with every other one."""
    (drive,) = house.worker._drives.values()
    tell, told = drive.cancel, asyncio.Event()

    def heard() -> None:
        tell()
        told.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drive, "cancel", heard)
        house.transport.ring("cancel")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await told.wait()
    for _ in range(20):  # what it would have cut ends meanwhile
        await asyncio.sleep(0)


async def results(house: House, accepted: Accepted) -> list[str]:
    return [each.removeprefix("tool: ") for each in await house.messages(accepted) if each.startswith("tool: ")]


async def goes_on(house: House, accepted: Accepted) -> None:
    """The model takes the thread: each call has exactly one result."""
    later = await house.send("hello", accepted.conversation)
    assert (await house.until(later)).status is TurnStatus.COMPLETED
    assert (await house.messages(later))[-1] == "assistant: answer hello"


# -- a call that is under way -------------------------------------------------------------------------------------------


@shapes
async def test_a_once_call_under_way_is_not_cut_in_half(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    outside.hold("after charge")
    async with open_house(tmp_path / "db", guarded_agent(shape, outside)) as house:
        accepted = await house.send("call charge:a")
        await outside.met("after charge")
        await cancel(house, accepted)
        await told_again(house)
        assert (await house.turn(accepted)).status is TurnStatus.RUNNING
        outside.let("after charge")
        assert (await house.until(accepted)).status is TurnStatus.CANCELLED
        assert await results(house, accepted) == ["charge a done"]
        assert outside.count("charge") == 1
        await goes_on(house, accepted)


@shapes
async def test_a_call_that_may_be_repeated_is_cut_at_once(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    outside.hold("after look")
    async with open_house(tmp_path / "db", guarded_agent(shape, outside)) as house:
        accepted = await house.send("call look:a")
        await outside.met("after look")
        await house.agents.cancel(ME, accepted.turn)
        assert (await house.until(accepted)).status is TurnStatus.CANCELLED
        (told,) = await results(house, accepted)
        assert answers.MAY_HAVE in told
        assert "cancelled the turn" in told
        await goes_on(house, accepted)


SAID: dict[str, tuple[dict[str, Any], str]] = {
    "happened": ({"result": "it was charged"}, "it was charged"),
    "give_up": ({"note": "never mind"}, "never mind"),
    "retry": ({}, "did not take effect. It was not run again"),
}


@shapes
@pytest.mark.parametrize("decision", SAID)
async def test_a_once_call_that_does_not_end_in_time_is_asked_about_before_the_turn_is_closed(
    tmp_path: Path, shape: str, decision: str
) -> None:
    said, told = SAID[decision]
    outside = Outside()
    outside.hold("after charge")
    async with open_house(tmp_path / "db", guarded_agent(shape, outside), tool_timeout_seconds=0.05) as house:
        accepted = await house.send("call charge:a")
        await outside.met("after charge")
        await house.agents.cancel(ME, accepted.turn)
        await house.until(accepted, TurnStatus.PARKED)
        (card,) = await house.waiting(accepted)
        assert card.kind == "uncertain"
        await house.decide(card, decision, **said)
        assert (await house.until(accepted, TurnStatus.CANCELLED)).attempts == 2
        (result,) = await results(house, accepted)
        assert told in result
        assert outside.count("charge") == 1
        await goes_on(house, accepted)


@shapes
async def test_a_conversation_is_deleted_though_a_call_of_its_turn_does_not_end_in_time(
    tmp_path: Path, shape: str
) -> None:
    outside = Outside()
    outside.hold("after charge")
    async with open_house(tmp_path / "db", guarded_agent(shape, outside), tool_timeout_seconds=0.05) as house:
        accepted = await house.send("call charge:a")
        await outside.met("after charge")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await house.agents.delete(ME, accepted.conversation, cancel=True)
        with pytest.raises(NotFound):
            await house.agents.conversation(ME, accepted.conversation)


async def test_a_conversation_is_deleted_though_nobody_drives_its_agent_any_more(tmp_path: Path) -> None:
    world = World()
    world.hold("model")
    async with open_house(tmp_path / "db", hosted("gone", scripted(world))) as house:
        accepted = await house.send("hello")
        await house.send("and then", accepted.conversation, busy="enqueue")
        await world.met("model")
        await house.worker.drain(0)
    async with open_house(tmp_path / "db", hosted("here", scripted(World()))) as house:
        with pytest.raises(TurnInProgress):
            await house.agents.delete(ME, accepted.conversation, cancel=False)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await house.agents.delete(ME, accepted.conversation, cancel=True)
        with pytest.raises(NotFound):
            await house.agents.conversation(ME, accepted.conversation)


@shapes
async def test_a_second_cancel_closes_the_question(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    outside.hold("after charge")
    async with open_house(tmp_path / "db", guarded_agent(shape, outside), tool_timeout_seconds=0.05) as house:
        accepted = await house.send("call charge:a")
        await outside.met("after charge")
        await house.agents.cancel(ME, accepted.turn)
        await house.until(accepted, TurnStatus.PARKED)
        await house.agents.cancel(ME, accepted.turn)
        await house.until(accepted, TurnStatus.CANCELLED)
        (card,) = await house.store.cards(OWNER, accepted.turn)
        assert card.state is CardState.CLOSED
        (told,) = await results(house, accepted)
        assert answers.MAY_HAVE in told
        await goes_on(house, accepted)


@shapes
async def test_an_agent_that_is_not_to_ask_closes_the_turn_and_says_what_is_not_known(
    tmp_path: Path, shape: str
) -> None:
    outside = Outside()
    outside.hold("after charge")
    agent = guarded_agent(shape, outside, on_uncertain="fail")
    async with open_house(tmp_path / "db", agent, tool_timeout_seconds=0.05) as house:
        accepted = await house.send("call charge:a")
        await outside.met("after charge")
        await house.agents.cancel(ME, accepted.turn)
        await house.until(accepted, TurnStatus.CANCELLED)
        (told,) = await results(house, accepted)
        assert answers.MAY_HAVE in told


@shapes
async def test_a_cancel_just_before_a_death_is_a_cancel_after_it(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    outside.hold("after charge")
    agent = guarded_agent(shape, outside)
    async with open_house(tmp_path / "db", agent) as house:
        accepted = await house.send("call charge:a")
        await outside.met("after charge")
        await cancel(house, accepted)
        await house.die()
    outside.let("after charge")
    async with open_house(tmp_path / "db", agent) as house:
        await house.until(accepted, TurnStatus.PARKED)
        (card,) = await house.waiting(accepted)
        await house.decide(card, "happened", result="charged")
        await house.until(accepted, TurnStatus.CANCELLED)
        assert await results(house, accepted) == ["charged"]
        assert outside.count("charge") == 1


@shapes
async def test_each_call_of_a_cancelled_step_is_told_as_it_is(tmp_path: Path, shape: str) -> None:
    """One is done, one waits for an approval, one is under way; with `ToolNode` they are one task."""
    outside = Outside()
    outside.hold("after look")
    async with open_house(tmp_path / "db", guarded_agent(shape, outside)) as house:
        accepted = await house.send("call charge:a restart:b look:c")
        await outside.met("after look")
        await eventually(lambda: "after charge" in outside.ran)
        await house.agents.cancel(ME, accepted.turn)
        await house.until(accepted, TurnStatus.CANCELLED)
        told = await results(house, accepted)
        assert len(told) == 3
        assert {"charge a done", answers.NOT_APPROVED} < {*told}
        assert any(answers.MAY_HAVE in each for each in told)
        await goes_on(house, accepted)


@shapes
async def test_a_parked_approval_that_is_cancelled_was_not_started(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    async with open_house(tmp_path / "db", guarded_agent(shape, outside)) as house:
        accepted = await house.send("call restart:a look:b")
        await house.until(accepted, TurnStatus.PARKED)
        await house.agents.cancel(ME, accepted.turn)
        await house.until(accepted, TurnStatus.CANCELLED)
        assert sorted(await results(house, accepted)) == sorted([answers.NOT_APPROVED, "look b done"])
        assert [each.state for each in await house.store.cards(OWNER, accepted.turn)] == [CardState.CLOSED]
        await goes_on(house, accepted)


@shapes
async def test_what_a_failed_turn_recorded_is_in_the_thread_before_the_next_message(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    outside.hold("after charge")
    agent = guarded_agent(shape, outside, on_uncertain="fail")
    async with open_house(tmp_path / "db", agent) as house:
        left = await house.send("call charge:a save:b")
        await outside.met("after charge")
        await eventually(lambda: recorded(house, left, 1))
        await house.die()
    outside.let("after charge")
    async with open_house(tmp_path / "db", agent) as house:
        await house.until(left, TurnStatus.FAILED)
        later = await house.send("hello", left.conversation)
        assert (await house.until(later)).status is TurnStatus.COMPLETED
        told = await results(house, later)
        assert len(told) == 2
        assert "save b done" in told
        assert any(answers.MAY_HAVE in each for each in told)
        assert outside.count("save") == 1


@shapes
async def test_a_call_that_a_failed_turn_did_not_start_is_told_so(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    async with open_house(tmp_path / "db", guarded_agent(shape, outside, max_tool_calls=1)) as house:
        left = await house.send("call look:a then charge:b")
        await house.until(left, TurnStatus.FAILED)
        later = await house.send("hello", left.conversation)
        assert (await house.until(later)).status is TurnStatus.COMPLETED
        assert await results(house, later) == ["look a done", answers.NOT_STARTED]


# -- a process that must end, a sibling that fails ----------------------------------------------------------------------


@shapes
async def test_a_process_that_must_end_does_not_wait_for_a_call(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    outside.hold("after charge")
    agent = guarded_agent(shape, outside)
    async with open_house(tmp_path / "db", agent) as house:
        accepted = await house.send("call charge:a")
        await outside.met("after charge")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await house.worker.drain(0.0)
        assert (await house.turn(accepted)).status is TurnStatus.QUEUED
    outside.held.clear()
    async with open_house(tmp_path / "db", agent) as house:
        await house.until(accepted, TurnStatus.PARKED)
        (card,) = await house.waiting(accepted)
        assert card.kind == "uncertain"
        await house.decide(card, "happened", result="charged")
        await house.until(accepted, TurnStatus.COMPLETED)
        assert outside.count("charge") == 1


async def test_a_once_call_beside_a_node_that_fails_comes_to_its_end_and_is_on_record(tmp_path: Path) -> None:
    outside, failed = Outside(failing={"beside"}), asyncio.Event()
    outside.hold("after charge")
    call: Any = {"name": "charge", "args": {"at": "a"}, "id": "c", "type": "tool_call"}

    async def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("", id="asks", tool_calls=[call])]}

    async def beside(state: MessagesState) -> dict[str, Any]:
        try:
            if "after charge" in outside.held:
                await outside.met("after charge")
            await outside.pass_by("beside")
        finally:
            failed.set()
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("model", think)
    graph.add_node("tools", perdure.ToolNode(tools_of(outside)))
    graph.add_node("beside", beside)
    graph.add_edge(START, "model")
    graph.add_edge("model", "tools")
    graph.add_edge("model", "beside")
    async with open_house(tmp_path / "db", hosted("agent", graph.compile())) as house:
        accepted = await house.send("go")
        await failed.wait()
        for _ in range(20):  # the call is cut meanwhile
            await asyncio.sleep(0)
        outside.let("after charge")
        assert (await house.until(accepted)).status is TurnStatus.FAILED
        outside.failing.clear()
        await house.agents.resume(ME, accepted.conversation)
        await house.until(accepted, TurnStatus.COMPLETED)
        assert outside.count("charge") == 1
        assert await results(house, accepted) == ["charge a done"]


@shapes
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_repair_that_broke_half_way_still_knows_whose_calls_they_were(
    tmp_path: Path, shape: str, at: int
) -> None:
    outside = Outside()
    async with open_house(tmp_path / "db", guarded_agent(shape, outside, max_tool_calls=1)) as house:
        left = await house.send("call look:a then charge:b")
        await house.until(left, TurnStatus.FAILED)
        failpoints.arm(f"repair.after:error@{at}")
        try:
            later = await house.send("hello", left.conversation)
            ended = await house.until(later)
        finally:
            failpoints.arm("")
        if ended.status is TurnStatus.FAILED:
            await house.agents.resume(ME, later.conversation)
            await house.until(later, TurnStatus.COMPLETED)
        assert await results(house, later) == ["look a done", answers.NOT_STARTED]


@shapes
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_calls_are_told_by_the_ledger_of_their_own_turn_whoever_repairs(
    tmp_path: Path, shape: str, at: int
) -> None:
    """The turn behind the failed one is cancelled before it began, and its repair breaks half way."""
    outside = Outside()
    async with after_a_death(tmp_path / "db", shape, "charge:a", outside, on_uncertain="fail") as (house, left):
        await house.until(left, TurnStatus.FAILED)
    async with open_house(tmp_path / "db", guarded_agent(shape, outside), start=False) as house:
        between = await house.send("never mind", left.conversation)
        await house.agents.cancel(ME, between.turn)
        failpoints.arm(f"repair.after:error@{at}")
        try:
            await house.worker.start()
            await house.until(between, TurnStatus.CANCELLED)
        finally:
            failpoints.arm("")
        later = await house.send("hello", left.conversation)
        assert (await house.until(later)).status is TurnStatus.COMPLETED
        (told,) = await results(house, later)
        assert answers.MAY_HAVE in told
        assert outside.count("charge") == 1


# -- streamed text ------------------------------------------------------------------------------------------------------


class Talking(BaseChatModel):
    """Streams its words, then the beginning of a tool call; waits at `<name> <number of words said>`."""

    world: Any
    name: str
    words: list[str]
    calls: bool = False

    @property
    def _llm_type(self) -> str:
        return "talking"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for count, word in enumerate(self.words, 1):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))
            await self.world.pass_by(f"{self.name} {count}")
        if self.calls:
            begun = tool_call_chunk(name="look", args='{"at": "ha', id="half", index=0)
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[begun]))
            await self.world.pass_by(f"{self.name} call")


def talkers(*models: Talking) -> AnyGraph:
    """Each in a node of its own, all at once."""

    def node(model: Talking) -> Any:
        async def run(state: MessagesState) -> dict[str, Any]:
            pieces = [piece async for piece in model.astream(state["messages"])]
            return {"messages": [message_chunk_to_message(functools.reduce(operator.add, pieces))]}

        return run

    graph = StateGraph(MessagesState)
    for model in models:
        graph.add_node(model.name, node(model))
        graph.add_edge(START, model.name)
    return graph.compile()


async def test_the_text_of_every_model_that_was_speaking_is_kept(tmp_path: Path) -> None:
    world = World()
    left = Talking(world=world, name="left", words=["l1 ", "l2 ", "l3"])
    right = Talking(world=world, name="right", words=["r1 ", "r2"])
    quick = Talking(world=world, name="quick", words=["done"])
    world.hold("left 2")
    world.hold("right 1")
    async with open_house(tmp_path / "db", hosted("agent", talkers(left, right, quick))) as house:
        accepted = await house.send("hello")
        await house.stored(accepted)
        await house.heard("l1 l2 ", "r1 ")
        await house.agents.cancel(ME, accepted.turn)
        await house.until(accepted, TurnStatus.CANCELLED)
        transcript = await house.agents.conversation(ME, accepted.conversation)
        said = sorted((each["content"], each.get("status", "")) for each in transcript.messages[1:])
        assert said == [("done", ""), ("l1 l2 ", "cancelled"), ("r1 ", "cancelled")]


async def test_a_tool_call_that_was_half_said_is_not_kept_and_the_words_before_it_are(tmp_path: Path) -> None:
    world = World()
    world.hold("model call")
    model = Talking(world=world, name="model", words=["I will look. "], calls=True)
    async with open_house(tmp_path / "db", hosted("agent", talkers(model))) as house:
        accepted = await house.send("hello")
        await world.met("model call")
        await house.heard("I will look. ")
        await house.agents.cancel(ME, accepted.turn)
        await house.until(accepted, TurnStatus.CANCELLED)
        transcript = await house.agents.conversation(ME, accepted.conversation)
        (kept,) = transcript.messages[1:]
        assert (kept["content"], kept["status"], kept.get("tool_calls")) == ("I will look. ", "cancelled", None)


async def test_two_models_that_one_node_asks_at_once_are_both_kept(tmp_path: Path) -> None:
    world = World()
    models = [Talking(world=world, name=name, words=["1 ", "2 ", "3"]) for name in ("left", "right")]

    async def ask(model: Talking, messages: Any) -> None:
        async for _ in model.astream(messages):
            pass

    async def node(state: MessagesState) -> dict[str, Any]:
        await asyncio.gather(*(ask(model, state["messages"]) for model in models))
        return {}

    graph = StateGraph(MessagesState).add_node("ask", node).add_edge(START, "ask").compile()
    for name in ("left 1", "right 1", "left 2", "right 2"):
        world.hold(name)
    async with open_house(tmp_path / "db", hosted("agent", graph)) as house:
        accepted = await house.send("hello")
        for place in ("left 1", "right 1"):
            await world.met(place)
            world.let(place)
        for place in ("left 2", "right 2"):
            await world.met(place)
        await house.heard("1 2 ", "1 2 ")
        await house.agents.cancel(ME, accepted.turn)
        await house.until(accepted, TurnStatus.CANCELLED)
        assert await house.messages(accepted) == ["user: hello", "assistant: 1 2 ", "assistant: 1 2 "]


@pytest.mark.parametrize("second", [False, True])
async def test_text_beside_a_call_that_is_asked_about_is_kept_after_the_decision(tmp_path: Path, second: bool) -> None:
    """The cancel parks the turn; another process closes it, after a decision or a second cancel."""
    outside = Outside()
    outside.hold("after charge")
    outside.hold("beside 2")
    model = Talking(world=outside, name="beside", words=["I will ", "wait ", "for it."])
    call: Any = {"name": "charge", "args": {"at": "a"}, "id": "c", "type": "tool_call"}

    async def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("", id="asks", tool_calls=[call])]}

    async def talk(state: MessagesState) -> dict[str, Any]:
        pieces = [piece async for piece in model.astream("go on")]
        return {"messages": [message_chunk_to_message(functools.reduce(operator.add, pieces))]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", think)
    graph.add_node("tools", perdure.ToolNode(tools_of(outside)))
    graph.add_node("beside", talk)
    graph.add_edge(START, "model")
    graph.add_edge("model", "tools")
    graph.add_edge("model", "beside")
    agent = hosted("agent", graph.compile())
    async with open_house(tmp_path / "db", agent, tool_timeout_seconds=0.05) as house:
        accepted = await house.send("go")
        await outside.met("after charge")
        await outside.met("beside 2")
        await house.heard("I will wait ")
        await house.agents.cancel(ME, accepted.turn)
        await house.until(accepted, TurnStatus.PARKED)
    async with open_house(tmp_path / "db", agent) as house:
        (card,) = await house.waiting(accepted)
        if second:
            await house.agents.cancel(ME, accepted.turn)
        else:
            await house.decide(card, "happened", result="it was charged")
        await house.until(accepted, TurnStatus.CANCELLED)
        transcript = await house.agents.conversation(ME, accepted.conversation)
        assert [each["role"] for each in transcript.messages] == ["user", "assistant", "tool", "assistant"]
        assert (answers.MAY_HAVE if second else "it was charged") in transcript.messages[2]["content"]
        kept = transcript.messages[3]
        assert (kept["content"], kept["status"]) == ("I will wait ", "cancelled")
