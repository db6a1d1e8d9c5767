"""What to do with a claimed turn, decided on heads that real graphs left behind."""

from __future__ import annotations

import contextlib
import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END
from langgraph.types import StateSnapshot

from perdure.engine.answers import Answers
from perdure.engine.plan import (
    AskAnew,
    Begin,
    Breakpoints,
    Cancel,
    Close,
    Continue,
    ParkAtBreakpoint,
    Plan,
    Refuse,
    Resume,
    Stay,
    breakpoint_id,
    finished,
    plan,
)
from perdure.turns import Card, CardState, DecisionKind, Turn, TurnStatus, Verdict
from tests.unit.engine.graphs import AnyGraph, World, agent, chain, questions

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MESSAGE = {"message": "hello"}


def turn(id: str = "T1", *, input: Any = None, cancelled: bool = False) -> Turn:
    return Turn(
        id=id,
        conversation="thread",
        agent="agent",
        owner="me",
        status=TurnStatus.RUNNING,
        accept_number=1,
        input=input,
        epoch=1,
        attempts=1,
        attempts_without_progress=1,
        supersteps=0,
        budget_from=0,
        first_seq=1,
        committed_seq=0,
        cancel_requested_at=NOW if cancelled else None,
        superseded=False,
        failure=None,
        usage={},
        accepted_at=NOW,
        ended_at=None,
    )


def card(interrupt_id: str, request: Any, value: Any) -> Card:
    verdict = Verdict(DecisionKind.ANSWER, value=value, by="me", at=NOW)
    state = CardState.DECIDED
    return Card("card", "T1", "thread", "me", interrupt_id, "interrupt", request, state, NOW, verdict)


class Thread:
    def __init__(self, graph: AnyGraph) -> None:
        self.graph = copy.copy(graph)
        self.graph.checkpointer = InMemorySaver()

    def config(self, run: str) -> Any:
        return {"configurable": {"thread_id": "thread"}, "metadata": {"run_id": run}}

    async def run(self, given: Any, run: str = "T1") -> Thread:
        with contextlib.suppress(RuntimeError):
            await self.graph.ainvoke(given, self.config(run), durability="sync")
        return self

    async def head(self) -> StateSnapshot:
        return await self.graph.aget_state(self.config(""), subgraphs=True)

    async def plan(
        self, claimed: Turn, answers: Any = None, breakpoints: Breakpoints | None = None, *, again: bool = False
    ) -> Plan:
        """`answers`: interrupt id → (what was asked, the answer)."""
        cards = Answers({name: card(name, *each) for name, each in (answers or {}).items()})
        return plan(claimed, await self.head(), cards, breakpoints or Breakpoints(), again=again)


def said(text: str, id: str = "h1") -> dict[str, Any]:
    return {"messages": [HumanMessage(text, id=id)]}


async def test_a_turn_of_a_new_thread_begins_without_repair() -> None:
    assert await Thread(agent(World())).plan(turn(input=MESSAGE)) == Begin(repair=False)


async def test_a_cancel_comes_before_everything_else() -> None:
    thread = await Thread(agent(World())).run(said("hello"))
    assert await thread.plan(turn(cancelled=True)) == Cancel()
    assert await thread.plan(turn("T2", input=MESSAGE, cancelled=True)) == Cancel()


async def test_a_finished_turn_is_closed_without_a_model_call() -> None:
    thread = await Thread(agent(World())).run(said("hello"))
    assert await thread.plan(turn()) == Close()


async def test_a_new_turn_behind_a_finished_one_begins_without_repair() -> None:
    thread = await Thread(agent(World())).run(said("hello"))
    assert await thread.plan(turn("T2", input=MESSAGE)) == Begin(repair=False)


async def test_a_new_turn_behind_a_failed_one_repairs_first() -> None:
    thread = await Thread(agent(World(failing={"a"}))).run(said("call a"))
    assert await thread.plan(turn("T2", input=MESSAGE)) == Begin(repair=True)


async def test_open_calls_alone_ask_for_a_repair() -> None:
    thread = await Thread(agent(World(failing={"a"}))).run(said("call a"))
    await thread.graph.aupdate_state(thread.config("T1"), None, as_node=END)
    head = await thread.head()
    assert head.tasks == ()
    assert plan(turn("T2", input=MESSAGE), head, Answers({}), Breakpoints(), open_calls=True) == Begin(repair=True)


async def test_a_repaired_thread_whose_head_is_already_this_turns_still_takes_its_input() -> None:
    thread = await Thread(agent(World(failing={"a"}))).run(said("call a"))
    await thread.graph.aupdate_state(thread.config("T2"), None, as_node=END)
    assert await thread.plan(turn("T2", input=MESSAGE)) == Begin(repair=False)


async def test_an_unfinished_turn_goes_on_from_its_last_commit() -> None:
    thread = await Thread(agent(World(failing={"a"}))).run(said("call a b"))
    assert await thread.plan(turn()) == Continue()


async def test_a_turn_whose_thread_went_on_is_refused() -> None:
    thread = await Thread(agent(World(failing={"a"}))).run(said("call a"))
    await thread.run(said("next", "h2"), "T2")
    decided = await thread.plan(turn())
    assert isinstance(decided, Refuse)
    assert decided.failure.reason == "superseded"


async def test_a_task_with_recorded_writes_and_no_step_is_not_a_finished_turn() -> None:
    """LangGraph's `next` is empty there."""
    world = World()
    thread = Thread(chain(world, "one", "two"))
    saver = thread.graph.checkpointer
    assert isinstance(saver, InMemorySaver)
    put = saver.aput

    async def die_before_step_one(config: Any, checkpoint: Any, metadata: Any, versions: Any) -> Any:
        if metadata["step"] == 1:
            raise RuntimeError("killed")
        return await put(config, checkpoint, metadata, versions)

    saver.aput = die_before_step_one  # type: ignore[method-assign,assignment]
    await thread.run({"done": []})
    head = await thread.head()
    assert head.next == ()
    assert not finished("T1", head)
    assert await thread.plan(turn()) == Continue()


async def test_it_stays_parked_until_every_question_is_answered() -> None:
    thread = await Thread(questions(World(), ["q1", "q2"], parallel=True)).run({"done": []})
    first, second = (await thread.head()).interrupts
    waiting = await thread.plan(turn(), {first.id: (first.value, "yes")})
    assert isinstance(waiting, Stay)
    assert [question.id for question in waiting.questions] == [first.id, second.id]
    all_of_them = {first.id: (first.value, 1), second.id: (second.value, 2), "of another step": ("?", 3)}
    assert await thread.plan(turn(), all_of_them) == Resume({first.id: 1, second.id: 2})


async def test_an_answer_to_another_question_under_the_same_id_is_none() -> None:
    thread = await Thread(questions(World(), ["q1"])).run({"done": []})
    (question,) = (await thread.head()).interrupts
    assert isinstance(await thread.plan(turn(), {question.id: ({"question": "q0"}, "yes")}), Stay)


async def test_after_an_attempt_that_ended_without_a_park_the_graph_is_asked_anew() -> None:
    thread = await Thread(questions(World(), ["q1"])).run({"done": []})
    (question,) = (await thread.head()).interrupts
    assert await thread.plan(turn(), {question.id: (question.value, "a1")}, again=True) == AskAnew()
    assert await thread.plan(turn(), {question.id: ({"question": "q0"}, "a1")}, again=True) == AskAnew()
    assert await thread.plan(turn(), {question.id: (question.value, "a1")}) == Resume({question.id: "a1"})


async def test_a_question_that_nobody_was_asked_yet_parks_without_running_anything() -> None:
    """The process died between the commit of the question and the park."""
    thread = await Thread(questions(World(), ["q1"])).run({"done": []})
    assert isinstance(await thread.plan(turn(), {}, again=True), Stay)


@pytest.mark.parametrize(
    ("compiled", "ran"), [({"interrupt_before": ["two"]}, []), ({"interrupt_after": ["one"]}, ["one"])]
)
async def test_a_static_breakpoint_is_passed_only_by_its_own_answer(compiled: dict[str, Any], ran: list[str]) -> None:
    thread = await Thread(chain(World(), "one", "two", **compiled)).run({"done": []})
    head = await thread.head()
    stop = Breakpoints(compiled.get("interrupt_before", ()), compiled.get("interrupt_after", ()), ran)
    assert await thread.plan(turn(), {}, stop) == ParkAtBreakpoint(breakpoint_id(head), ["two"])
    assert await thread.plan(turn(), {"breakpoint-elsewhere": (None, True)}, stop) == ParkAtBreakpoint(
        breakpoint_id(head), ["two"]
    )
    assert await thread.plan(turn(), {breakpoint_id(head): (None, True)}, stop) == Continue()


def test_a_star_stops_at_every_node_but_the_hidden_ones() -> None:
    assert Breakpoints(before=("*",)).stops(["one"])
    assert not Breakpoints(before=("*",)).stops(["__start__"])
    assert not Breakpoints(after=("*",), ran=["__start__"]).stops(["one"])
    assert not Breakpoints(before=("*",)).stops([])
