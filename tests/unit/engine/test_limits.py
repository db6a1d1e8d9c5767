"""Limits of a turn: each ends it by name before anything more is started, and a resume grants as much again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig, RunnableParallel
from langgraph.graph import START, MessagesState, StateGraph

from perdure.clock import SystemClock
from perdure.config import AgentSettings, Settings
from perdure.engine.drive import Cut
from perdure.graph.load import load_agent
from perdure.testing import FakeClock
from perdure.turns import FailureCode, Turn, TurnStatus
from tests.unit.engine.graphs import AnyGraph, ScriptedModel, Values, World, chain
from tests.unit.engine.house import ME, eventually, hosted, open_house


@pytest.fixture(autouse=True)
def quiet_callbacks() -> Iterator[None]:
    """LangChain logs what a callback raises before it raises it."""
    log = logging.getLogger("langchain_core.callbacks.manager")
    before, log.disabled = log.disabled, True
    yield
    log.disabled = before


class Counted(BaseChatModel):
    """Answers at once; `calls` is what the outside saw."""

    calls: list[str]
    tokens: int = 0

    @property
    def _llm_type(self) -> str:
        return "counted"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        self.calls.append(str(messages[-1].content))
        usage: Any = {"input_tokens": 0, "output_tokens": self.tokens, "total_tokens": self.tokens}
        return ChatResult(generations=[ChatGeneration(message=AIMessage("said", usage_metadata=usage))])


def loop_of(node: Any) -> AnyGraph:
    """The node again and again."""
    graph = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", "node")
    return graph.compile()


def reached(turn: Turn) -> str:
    assert turn.failure is not None
    assert turn.failure.code is FailureCode.LIMIT_REACHED
    return turn.failure.reason


def ways(model: Counted) -> dict[str, Any]:
    """Every way a node may call a model, each once."""

    async def awaited(state: MessagesState, config: RunnableConfig) -> Any:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    async def from_the_context(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def streamed(state: MessagesState) -> Any:
        pieces = [piece async for piece in model.astream(state["messages"])]
        return {"messages": [AIMessage(pieces[0].content, usage_metadata=getattr(pieces[0], "usage_metadata", None))]}

    def in_a_thread(state: MessagesState) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    def streamed_in_a_thread(state: MessagesState) -> Any:
        return {"messages": [AIMessage(str(next(iter(model.stream(state["messages"]))).content))]}

    async def blocking_the_loop(state: MessagesState) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    async def in_threads_that_block_the_loop(state: MessagesState) -> Any:
        return {"messages": [RunnableParallel(one=model).invoke(state["messages"])["one"]]}

    async def bound(state: MessagesState) -> Any:
        return {"messages": [await model.bind(stop=["x"]).with_retry().ainvoke(state["messages"])]}

    async def with_callbacks_of_its_own(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"], {"callbacks": []})]}

    async def in_a_subgraph(state: MessagesState) -> Any:
        inner = StateGraph(MessagesState).add_node("inner", awaited).add_edge(START, "inner").compile()
        return {"messages": [(await inner.ainvoke({"messages": state["messages"]}))["messages"][-1]]}

    return {each.__name__: each for each in (
        awaited, from_the_context, streamed, in_a_thread, streamed_in_a_thread, blocking_the_loop,
        in_threads_that_block_the_loop, bound, with_callbacks_of_its_own, in_a_subgraph,
    )}  # fmt: skip


WAYS = list(ways(Counted(calls=[])))


@pytest.mark.parametrize("way", WAYS)
async def test_a_model_call_is_counted_once_and_before_it_starts(tmp_path: Path, way: str) -> None:
    model = Counted(calls=[])
    agent = hosted("agent", loop_of(ways(model)[way]), max_model_calls=3)
    async with open_house(tmp_path / "db", agent) as house:
        accepted = await house.send("hello")
        turn = await house.until(accepted)
        assert reached(turn) == "model_call_limit"
        assert len(model.calls) == 3
        assert turn.spent.model_calls == 3
        assert "max_model_calls" in (turn.failure.message if turn.failure else "")
        await house.agents.resume(ME, accepted.conversation)
        assert reached(await house.until(accepted, TurnStatus.FAILED)) == "model_call_limit"
        assert len(model.calls) == 6


async def test_the_built_in_agent_is_limited_too_and_its_model_is_not_to_blame(tmp_path: Path) -> None:
    agent = await load_agent(AgentSettings("agent", max_model_calls=1), Settings(), SystemClock())
    async with open_house(tmp_path / "db", agent) as house:
        accepted = await house.send("note it")
        turn = await house.until(accepted)
        assert reached(turn) == "model_call_limit"
        assert (turn.spent.model_calls, turn.spent.tool_calls) == (1, 1)
        assert agent.problems() == []
        await house.agents.resume(ME, accepted.conversation)
        assert (await house.until(accepted, TurnStatus.COMPLETED)).spent.model_calls == 1


async def test_without_a_limit_calls_are_counted_all_the_same(tmp_path: Path) -> None:
    model = Counted(calls=[])
    agent = hosted("agent", loop_of(ways(model)["in_a_thread"]), recursion_limit=4)
    async with open_house(tmp_path / "db", agent) as house:
        turn = await house.until(await house.send("hello"))
        assert turn.spent.model_calls == len(model.calls) == 4


async def test_parallel_calls_do_not_pass_the_limit_together(tmp_path: Path) -> None:
    model = Counted(calls=[])

    async def ask(state: MessagesState) -> Any:
        await asyncio.gather(*(model.ainvoke(state["messages"]) for _ in range(5)))
        return {}

    agent = hosted("agent", loop_of(ask), max_model_calls=3)
    async with open_house(tmp_path / "db", agent) as house:
        assert reached(await house.until(await house.send("hello"))) == "model_call_limit"
        assert len(model.calls) <= 3


async def test_a_node_that_swallows_the_limit_does_not_get_past_it(tmp_path: Path) -> None:
    model = Counted(calls=[])

    async def stubborn(state: MessagesState) -> Any:
        try:
            await model.ainvoke(state["messages"])
        except Exception:
            await asyncio.Event().wait()
        return {}

    agent = hosted("agent", loop_of(stubborn), max_model_calls=1)
    async with open_house(tmp_path / "db", agent) as house:
        assert reached(await house.until(await house.send("hello"))) == "model_call_limit"


async def test_the_count_survives_a_death(tmp_path: Path) -> None:
    world = World()
    world.hold("model")
    model = ScriptedModel(world=world)

    async def ask(state: MessagesState) -> Any:
        return {"messages": [AIMessage((await anext(model.astream(state["messages"]))).text)]}

    agent = hosted("agent", loop_of(ask), max_model_calls=2)
    async with open_house(tmp_path / "db", agent) as house:
        accepted = await house.send("hello")
        await world.met("model")
        await house.die()
    world.let("model")
    async with open_house(tmp_path / "db", agent) as house:
        turn = await house.until(accepted)
        assert reached(turn) == "model_call_limit"
        assert turn.spent.model_calls == 2
        assert world.ran.count("model") == 1


async def test_tokens_are_looked_at_before_the_next_model_call(tmp_path: Path) -> None:
    model = Counted(calls=[], tokens=60)
    agent = hosted("agent", loop_of(ways(model)["awaited"]), max_tokens=100)
    async with open_house(tmp_path / "db", agent) as house:
        accepted = await house.send("hello")
        assert reached(await house.until(accepted)) == "token_limit"
        assert len(model.calls) == 2
        await house.agents.resume(ME, accepted.conversation)
        assert reached(await house.until(accepted, TurnStatus.FAILED)) == "token_limit"
        assert len(model.calls) == 4


# -- wall time ----------------------------------------------------------------------------------------------------------


async def test_a_turn_that_takes_too_long_is_cut_and_a_resume_gives_it_as_long_again(tmp_path: Path) -> None:
    world, clock = World(), FakeClock()
    world.hold("two")
    agent = hosted("agent", chain(world, "one", "two"), max_turn_seconds=60)
    async with open_house(tmp_path / "db", agent, clock=clock, sweep_seconds=1e6, lease_seconds=1e6) as house:
        accepted = await house.send({"done": []})
        await world.met("two")
        await eventually(lambda: 60 in clock.pending)
        clock.advance(59)
        assert 1 in clock.pending, "the time is not over"
        assert (await house.turn(accepted)).status is TurnStatus.RUNNING
        clock.advance(1)
        turn = await house.until(accepted, TurnStatus.FAILED)
        assert reached(turn) == "time_limit"
        assert world.ran == ["one"]
        await house.agents.resume(ME, accepted.conversation)
        await world.met("two")
        await eventually(lambda: 60 in clock.pending)
        clock.advance(59)
        assert 1 in clock.pending, "the time is not over"
        world.let("two")
        await house.until(accepted, TurnStatus.COMPLETED)


async def test_the_time_of_earlier_attempts_counts_and_parked_time_does_not(tmp_path: Path) -> None:
    world, clock = World(), FakeClock()
    world.hold("one")
    world.hold("two")
    graph = chain(world, "one", "two", interrupt_before=["two"])
    agent = hosted("agent", graph, max_turn_seconds=60)
    async with open_house(tmp_path / "db", agent, clock=clock, sweep_seconds=1e6, lease_seconds=1e6) as house:
        accepted = await house.send({"done": []})
        await world.met("one")
        clock.advance(40)
        world.let("one")
        await house.until(accepted, TurnStatus.PARKED)
        clock.advance(10_000)
        (waiting,) = await house.waiting(accepted)
        await house.answer(accepted, {waiting.interrupt_id: True})
        await world.met("two")
        clock.advance(20)
        assert reached(await house.until(accepted, TurnStatus.FAILED)) == "time_limit"


async def test_a_cancel_after_the_time_was_over_is_a_cancel(tmp_path: Path) -> None:
    clock = FakeClock()
    entered, holding, let = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def clinging(state: Values) -> Values:
        try:
            entered.set()
            await asyncio.Event().wait()
        finally:
            holding.set()
            await let.wait()
        return {}

    graph = StateGraph(Values).add_node("cling", clinging).add_edge(START, "cling").compile()
    agent = hosted("agent", graph, max_turn_seconds=60)
    async with open_house(tmp_path / "db", agent, clock=clock, sweep_seconds=1e6, lease_seconds=1e6) as house:
        accepted = await house.send({"done": []})
        await eventually(entered.is_set)
        clock.advance(60)
        await eventually(holding.is_set)
        await house.agents.cancel(ME, accepted.turn)
        (drive,) = house.worker._drives.values()
        await eventually(lambda: drive._cause is Cut.CANCEL)
        let.set()
        await house.until(accepted, TurnStatus.CANCELLED)
