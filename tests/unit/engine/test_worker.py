"""Claiming, limits, drains, deaths and the turn that kills its process, over the real store."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from perdure import ToolNode
from perdure.agent.local import LocalAgents
from perdure.clock import SystemClock
from perdure.engine import worker as worker_module
from perdure.engine.recovery import UNCLEAN_BOOTS
from perdure.errors import StorageError, StorageFull
from perdure.events import EventKind
from perdure.store.sqlite.attempt import SQLiteAttempt
from perdure.store.sqlite.store import open_store
from perdure.testing import FakeClock
from perdure.transport.local import LocalTransport
from perdure.turns import Accepted, CardState, FailureCode, Limits, TurnStatus
from tests.unit.engine.graphs import PATIENCE_SECONDS, Values, World, agent, chain, questions
from tests.unit.engine.guarded import Outside, guarded_agent, tools_of
from tests.unit.engine.house import ME, OWNER, House, eventually, hosted, make_house, open_house

# -- limits -------------------------------------------------------------------------------------------------------------


async def test_no_more_turns_run_at_once_than_allowed_and_the_rest_follow(tmp_path: Path) -> None:
    world = World()
    world.hold("one")
    async with open_house(tmp_path / "db", hosted("agent", chain(world, "one")), max_running=2) as house:
        accepted = [await house.send({"done": []}) for _ in range(5)]
        await house.until(accepted[1], TurnStatus.RUNNING)
        await house.looked()
        assert [(await house.turn(each)).status for each in accepted[2:]] == [TurnStatus.QUEUED] * 3
        assert house.worker.running == 2
        world.let("one")
        for each in accepted:
            await house.until(each, TurnStatus.COMPLETED)


async def test_an_agents_own_limit_leaves_room_for_others(tmp_path: Path) -> None:
    world = World()
    world.hold("one")
    narrow = hosted("narrow", chain(world, "one"), max_running=1)
    async with open_house(tmp_path / "db", narrow, hosted("wide", chain(World(), "two"))) as house:
        first = await house.send({"done": []}, agent="narrow")
        second = await house.send({"done": []}, agent="narrow")
        other = await house.send({"done": []}, agent="wide")
        await house.until(other, TurnStatus.COMPLETED)
        await house.looked()
        assert (await house.turn(second)).status is TurnStatus.QUEUED
        world.let("one")
        await house.until(first, TurnStatus.COMPLETED)
        await house.until(second, TurnStatus.COMPLETED)


async def test_a_waiting_message_starts_when_the_one_before_it_ends(tmp_path: Path) -> None:
    world = World()
    world.hold("model")
    async with open_house(tmp_path / "db", hosted("agent", agent(world))) as house:
        first = await house.send("one")
        second = await house.send("two", first.conversation, busy="enqueue")
        assert second.status is TurnStatus.WAITING
        world.let("model")
        await house.until(second, TurnStatus.COMPLETED)
        assert await house.messages(second) == [
            "user: one",
            "assistant: answer one",
            "user: two",
            "assistant: answer two",
        ]


# -- shutdown -----------------------------------------------------------------------------------------------------------


async def test_a_drain_hands_the_turn_back_between_two_steps_and_spends_no_attempt(tmp_path: Path) -> None:
    world = World()
    world.hold("one")
    graph = hosted("agent", chain(world, "one", "two"))
    async with open_house(tmp_path / "db", graph) as house:
        accepted = await house.send({"done": []})
        await world.met("one")
        drained = asyncio.create_task(house.worker.drain(PATIENCE_SECONDS))
        await eventually(lambda: house.worker.draining)
        world.let("one")
        await drained
        turn = await house.turn(accepted)
        assert turn.status is TurnStatus.QUEUED
        assert (turn.attempts, turn.attempts_without_progress) == (0, 0)
        assert await house.outcomes(accepted) == ["released"]
        assert world.ran == ["one"]
    async with open_house(tmp_path / "db", graph) as house:
        await house.until(accepted, TurnStatus.COMPLETED)
        assert world.ran == ["one", "two"]


async def test_at_the_deadline_the_work_is_cut_awaited_and_handed_back(tmp_path: Path) -> None:
    world = World()
    world.hold("one")
    graph = hosted("agent", chain(world, "one"))
    async with open_house(tmp_path / "db", graph) as house:
        accepted = await house.send({"done": []})
        await world.met("one")
        await house.worker.drain(0.01)
        assert (await house.turn(accepted)).status is TurnStatus.QUEUED
        assert await house.outcomes(accepted) == ["released"]
        assert house.worker.running == 0
    world.let("one")
    async with open_house(tmp_path / "db", graph) as house:
        await house.until(accepted, TurnStatus.COMPLETED)


async def test_a_synchronous_node_that_blocks_its_thread_does_not_hold_up_the_shutdown(tmp_path: Path) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def block(state: Values) -> Values:
        entered.set()
        go_on.wait(PATIENCE_SECONDS)
        return {"done": ["late"]}

    graph = StateGraph(Values)
    graph.add_node("block", block)
    graph.add_edge(START, "block")
    async with open_house(tmp_path / "db", hosted("agent", graph.compile())) as house:
        accepted = await house.send({"done": []})
        await eventually(entered.is_set)
        await house.worker.drain(0.01)
        assert (await house.turn(accepted)).status is TurnStatus.QUEUED
        go_on.set()


async def test_nothing_is_claimed_after_a_drain_began(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        await house.worker.drain(1)
        house.agents = LocalAgents(house.store, house.transport, house.hosted, "agent")  # one that does not know
        accepted = await house.send("hello")
        assert house.worker._claiming is not None
        assert house.worker._claiming.done()
        assert (await house.turn(accepted)).status is TurnStatus.QUEUED


# -- deaths -------------------------------------------------------------------------------------------------------------


async def test_a_turn_whose_process_died_is_driven_on_from_its_last_commit(tmp_path: Path) -> None:
    world = World()
    world.hold("b")
    graph = hosted("agent", agent(world))
    async with open_house(tmp_path / "db", graph) as house:
        accepted = await house.send("call a b")
        await world.met("b")
        await house.stored(accepted)
        await house.die()
    world.let("b")
    async with open_house(tmp_path / "db", graph) as house:
        await house.until(accepted, TurnStatus.COMPLETED)
        assert world.ran.count("a") == 1
        assert await house.outcomes(accepted) == ["died", "completed"]


async def test_an_agent_with_manual_policy_waits_for_a_person(tmp_path: Path) -> None:
    world = World()
    world.hold("one")
    graph = hosted("agent", chain(world, "one"), redrive="manual")
    async with open_house(tmp_path / "db", graph) as house:
        accepted = await house.send({"done": []})
        await world.met("one")
        await house.die()
    world.let("one")
    async with open_house(tmp_path / "db", graph) as house:
        turn = await house.until(accepted, TurnStatus.INTERRUPTED)
        assert turn.failure is not None
        assert turn.failure.code is FailureCode.OWNER_DIED
        assert world.ran == []
        await house.agents.resume(ME, accepted.conversation)
        await house.until(accepted, TurnStatus.COMPLETED)


async def test_orphans_of_an_agent_that_is_not_hosted_are_left_alone(tmp_path: Path) -> None:
    world = World()
    world.hold("one")
    async with open_house(tmp_path / "db", hosted("agent", chain(world, "one"))) as house:
        accepted = await house.send({"done": []})
        await world.met("one")
        await house.die()
    world.let("one")
    async with open_house(tmp_path / "db", hosted("other", agent(World()))) as house:
        assert (await house.turn(accepted)).status is TurnStatus.RUNNING
    async with open_house(tmp_path / "db", hosted("agent", chain(world, "one"))) as house:
        await house.until(accepted, TurnStatus.COMPLETED)


async def test_a_turn_that_a_broken_drive_left_is_found_when_its_lease_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()

    async def broken(attempt: SQLiteAttempt, *given: Any) -> None:
        raise RuntimeError("nobody foresaw it")

    async with open_house(tmp_path / "db", hosted("agent", agent(World())), clock=clock) as house:
        with monkeypatch.context() as patch:
            patch.setattr(SQLiteAttempt, "finish", broken)
            accepted = await house.send("hello")
            await house.until(accepted, TurnStatus.RUNNING)
            await house.looked()
            await eventually(lambda: house.worker.running == 0)
        assert (await house.turn(accepted)).status is TurnStatus.RUNNING
        await eventually(lambda: house.settings.sweep_seconds in clock.pending)
        clock.advance(house.settings.lease_seconds)
        assert (await house.until(accepted, TurnStatus.COMPLETED)).attempts == 2
        assert await house.outcomes(accepted) == ["died", "completed"]


async def test_a_lost_lease_stops_the_drive_and_leaves_the_turn_to_its_next_owner(tmp_path: Path) -> None:
    world = World()
    world.hold("one")
    async with open_house(tmp_path / "db", hosted("agent", chain(world, "one"))) as house:
        accepted = await house.send({"done": []})
        await world.met("one")
        (drive,) = house.worker._drives.values()
        drive.lose()
        await eventually(lambda: house.worker.running == 0)
        assert not any(event.terminal for event in await house.journal(accepted))
        assert await house.outcomes(accepted) == ["None"]
        assert (await house.turn(accepted)).status is TurnStatus.RUNNING
        world.let("one")


# -- the turn that kills its process ------------------------------------------------------------------------------------


async def die_while_driving(path: Path, clock: FakeClock, world: World, *agents: Any) -> House:
    house = await make_house(path, *agents, clock=clock)
    await world.met("poison")
    await house.die()
    clock.advance(3600)
    return house


async def test_a_turn_with_two_attempts_without_progress_is_driven_alone_and_given_up_at_the_third(
    tmp_path: Path,
) -> None:
    path, clock, poison, other = tmp_path / "db", FakeClock(), World(), World()
    poison.hold("poison")
    other.hold("good")
    agents = [hosted("poison", chain(poison, "poison")), hosted("good", chain(other, "good"))]
    house = await make_house(path, *agents, clock=clock, start=False)
    bad = await house.send({"done": []}, agent="poison")
    await house.die()
    for _ in range(2):
        house = await die_while_driving(path, clock, poison, *agents)

    house = await make_house(path, *agents, clock=clock, start=False)
    good = await house.send({"done": []}, agent="good")
    await house.worker.start()
    clock.advance(1)
    await poison.met("poison")
    assert (await house.turn(bad)).attempts_without_progress == 3
    assert (await house.turn(good)).status is TurnStatus.QUEUED
    assert house.worker.running == 1
    await house.die()

    clock.advance(3600)
    async with open_house(path, *agents, clock=clock) as last:
        turn = await last.until(bad, TurnStatus.FAILED)
        assert turn.failure is not None
        assert turn.failure.code is FailureCode.ATTEMPTS_EXHAUSTED
        other.let("good")
        assert (await last.until(good, TurnStatus.COMPLETED)).attempts == 1


async def test_a_suspect_that_commits_something_is_driven_beside_others_again(tmp_path: Path) -> None:
    path, clock, poison = tmp_path / "db", FakeClock(), World()
    poison.hold("poison")
    poison.hold("later")
    agents = [hosted("poison", chain(poison, "poison", "later")), hosted("good", chain(World(), "good"))]
    house = await make_house(path, *agents, clock=clock, start=False)
    bad = await house.send({"done": []}, agent="poison")
    await house.die()
    for _ in range(2):
        await die_while_driving(path, clock, poison, *agents)
    async with open_house(path, *agents, clock=clock) as house:
        clock.advance(1)
        await poison.met("poison")
        good = await house.send({"done": []}, agent="good")
        poison.let("poison")
        await poison.met("later")
        await house.until(good, TurnStatus.COMPLETED)
        assert (await house.turn(bad)).status is TurnStatus.RUNNING
        poison.let("later")
        await house.until(bad, TurnStatus.COMPLETED)


async def test_new_turns_wait_for_a_suspect_only_after_its_patience(tmp_path: Path) -> None:
    path, clock, poison, good = tmp_path / "db", FakeClock(), World(), World()
    poison.hold("poison")
    good.hold("good")
    agents = [hosted("poison", chain(poison, "poison")), hosted("good", chain(good, "good"))]
    house = await make_house(path, *agents, clock=clock, start=False)
    bad = await house.send({"done": []}, agent="poison")
    await house.die()
    await die_while_driving(path, clock, poison, *agents)
    # The second death: its wait of one second is still running when the neighbour starts.
    house = await make_house(path, *agents, clock=clock)
    await poison.met("poison")
    await house.die()
    async with open_house(path, *agents, clock=clock) as house:
        first = await house.send({"done": []}, agent="good")
        await house.until(first, TurnStatus.RUNNING)
        clock.advance(20)
        second = await house.send({"done": []}, agent="good")
        await house.until(second, TurnStatus.RUNNING)
        clock.advance(worker_module.SUSPECT_PATIENCE_SECONDS)
        third = await house.send({"done": []}, agent="good")
        await house.looked()
        assert (await house.turn(third)).status is TurnStatus.QUEUED
        assert (await house.turn(bad)).status is TurnStatus.QUEUED
        good.let("good")
        await poison.met("poison")
        assert (await house.turn(third)).status is TurnStatus.QUEUED
        poison.let("poison")
        await house.until(bad, TurnStatus.COMPLETED)
        await house.until(third, TurnStatus.COMPLETED)


async def _suspect_beside_an_uncertain_call(path: Path, clock: FakeClock, outside: Outside, *agents: Any) -> Accepted:
    """A turn that charged, and whose next step then killed two processes."""
    outside.hold("after charge")
    outside.hold("before look")
    house = await make_house(path, *agents, clock=clock)
    accepted = await house.send("call charge:a look:b", agent="agent")
    await outside.met("after charge")
    await house.die()
    clock.advance(60)
    for _ in range(Limits().suspect_after):
        outside.entered["before look"].clear()
        house = await make_house(path, *agents, clock=clock)
        await outside.met("before look")
        await house.die()
        clock.advance(60)
    return accepted


async def test_a_suspect_asks_beside_others_what_became_of_its_call_and_is_driven_alone_after_it(
    tmp_path: Path,
) -> None:
    path, clock, outside, good = tmp_path / "db", FakeClock(), Outside(), World()
    good.hold("good")
    agents = [guarded_agent("ToolNode", outside), hosted("good", chain(good, "good"))]
    bad = await _suspect_beside_an_uncertain_call(path, clock, outside, *agents)
    outside.entered["before look"].clear()
    async with open_house(path, *agents, clock=clock, max_running=1) as house:
        neighbour = await house.send({"done": []}, agent="good")
        await house.until(neighbour, TurnStatus.RUNNING)
        clock.advance(1)
        await house.until(bad, TurnStatus.PARKED)
        assert (await house.turn(neighbour)).status is TurnStatus.RUNNING
        (card,) = await house.waiting(bad)
        assert (card.kind, card.call.tool if card.call else None) == ("uncertain", "charge")
        assert not outside.entered["before look"].is_set()
        await house.decide(card, "happened", result="it was charged")
        await house.until(bad, TurnStatus.QUEUED)
        good.let("good")
        await outside.met("before look")
        assert (await house.turn(neighbour)).status is TurnStatus.COMPLETED
        later = await house.send({"done": []}, agent="good")
        await house.looked()
        assert (await house.turn(later)).status is TurnStatus.QUEUED
        outside.let("before look")
        await house.until(bad, TurnStatus.COMPLETED)
        await house.until(later, TurnStatus.COMPLETED)
        assert outside.count("charge") == 1
        assert "it was charged" in (await house.messages(bad))[-1]


async def test_an_answer_sent_before_a_suspect_asked_is_for_its_own_question_alone(tmp_path: Path) -> None:
    path, clock, outside, question = tmp_path / "db", FakeClock(), Outside(), ["first?"]
    outside.hold("after charge")
    outside.hold("answered")
    call: Any = {"name": "charge", "args": {"at": "a"}, "id": "c", "type": "tool_call"}

    async def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("", id="asks", tool_calls=[call])]}

    async def ask(state: MessagesState) -> dict[str, Any]:
        await outside.pass_by("asking")
        answer = interrupt(question[0])
        await outside.pass_by("answered")
        return {"messages": [AIMessage(f"{question[0]} {answer}", id="told")]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", think)
    graph.add_node("tools", ToolNode(tools_of(outside)))
    graph.add_node("ask", ask)
    graph.add_edge(START, "model")
    graph.add_edge("model", "tools")
    graph.add_edge("model", "ask")
    agent = hosted("agent", graph.compile(), needs_approval=("charge",))
    house = await make_house(path, agent, clock=clock)
    accepted = await house.send("go")
    await house.until(accepted, TurnStatus.PARKED)
    for card in await house.waiting(accepted):
        await house.decide(card, *(["approve"] if card.call else ["answer"]), **({} if card.call else {"value": "yes"}))
    for place in ("after charge", "answered"):
        await outside.met(place)
    await house.die()
    outside.hold("asking")
    clock.advance(60)
    house = await make_house(path, agent, clock=clock)
    await outside.met("asking")
    await house.die()
    clock.advance(60)
    house = await make_house(path, agent, clock=clock)
    clock.advance(1)
    await house.until(accepted, TurnStatus.PARKED)
    question[0] = "second?"
    (card,) = await house.waiting(accepted)
    assert card.kind == "uncertain"
    outside.let("asking")
    outside.let("answered")
    await house.decide(card, "happened", result="charged")
    await house.until(accepted, TurnStatus.PARKED, TurnStatus.COMPLETED)
    (card,) = await house.waiting(accepted)
    assert card.request == "second?"
    await house.decide(card, "answer", value="no")
    await house.until(accepted, TurnStatus.COMPLETED)
    assert "assistant: second? no" in await house.messages(accepted)
    await house.die()


async def test_a_suspect_asks_only_where_the_agent_asks_about_such_calls(tmp_path: Path) -> None:
    path, clock, outside, good = tmp_path / "db", FakeClock(), Outside(), World()
    good.hold("good")
    agents = [guarded_agent("ToolNode", outside), hosted("good", chain(good, "good"))]
    bad = await _suspect_beside_an_uncertain_call(path, clock, outside, *agents)
    agents = [guarded_agent("ToolNode", outside, on_uncertain="retry"), agents[1]]
    async with open_house(path, *agents, clock=clock) as house:
        neighbour = await house.send({"done": []}, agent="good")
        await house.until(neighbour, TurnStatus.RUNNING)
        clock.advance(1)
        await house.looked()
        assert (await house.turn(bad)).status is TurnStatus.QUEUED
        outside.let("after charge")
        outside.let("before look")
        good.let("good")
        await house.until(bad, TurnStatus.COMPLETED)


async def test_after_too_many_unclean_starts_running_turns_are_left_alone_until_it_is_quiet(tmp_path: Path) -> None:
    path, clock, world = tmp_path / "db", FakeClock(), World()
    world.hold("poison")
    graph = hosted("agent", chain(world, "poison"))
    house = await make_house(path, graph, clock=clock)
    bad = await house.send({"done": []})
    await world.met("poison")
    await house.die()
    await unclean_starts(path, clock, UNCLEAN_BOOTS + 1)
    async with open_house(path, graph, hosted("good", chain(World(), "good")), clock=clock) as house:
        assert house.worker.safe_mode
        good = await house.send({"done": []}, agent="good")
        await house.until(good, TurnStatus.COMPLETED)
        assert (await house.turn(bad)).status is TurnStatus.RUNNING
        world.let("poison")
        await eventually(lambda: house.settings.sweep_seconds in clock.pending)
        clock.advance(301)
        await house.until(bad, TurnStatus.COMPLETED)
        assert not house.worker.safe_mode


async def test_what_a_person_stops_is_closed_also_while_running_turns_are_left_alone(tmp_path: Path) -> None:
    path, clock, world = tmp_path / "db", FakeClock(), World()
    world.hold("poison")
    graph = hosted("agent", chain(world, "poison"))
    house = await make_house(path, graph, clock=clock)
    orphan = await house.send({"done": []})
    await world.met("poison")
    await house.die()
    await unclean_starts(path, clock, UNCLEAN_BOOTS + 1)
    async with open_house(path, graph, clock=clock) as house:
        assert house.worker.safe_mode
        await house.store.cancel(None, orphan.turn)
        await eventually(lambda: house.settings.sweep_seconds in clock.pending)
        clock.advance(house.settings.sweep_seconds)
        await house.until(orphan, TurnStatus.CANCELLED)
        assert house.worker.safe_mode


async def test_a_suspect_that_a_person_stops_is_closed_beside_others(tmp_path: Path) -> None:
    path, clock, outside, good = tmp_path / "db", FakeClock(), Outside(), World()
    good.hold("good")
    agents = [guarded_agent("ToolNode", outside, on_uncertain="retry"), hosted("good", chain(good, "good"))]
    bad = await _suspect_beside_an_uncertain_call(path, clock, outside, *agents)
    async with open_house(path, *agents, clock=clock) as house:
        neighbour = await house.send({"done": []}, agent="good")
        await house.until(neighbour, TurnStatus.RUNNING)
        await house.store.cancel(None, bad.turn)
        await house.until(bad, TurnStatus.CANCELLED)
        good.let("good")


async def unclean_starts(path: Path, clock: FakeClock, count: int) -> None:
    """Starts that did not end: as the journal would show them after kills."""
    for _ in range(count):
        store = await open_store(path, clock=clock, limits=Limits(), notify=LocalTransport())
        await store.close()
        connection = apsw.Connection(str(path))
        connection.execute("UPDATE boots SET ended_at = NULL")
        connection.close()


# -- storage ------------------------------------------------------------------------------------------------------------


async def test_a_claim_that_fails_on_the_disk_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World())), start=False, sweep_seconds=0.05) as house:
        claim, failed = house.store.claim, asyncio.Event()

        async def full(**asked: Any) -> Any:
            if not failed.is_set():
                failed.set()
                raise StorageError("the disk does not answer")
            return await claim(**asked)

        monkeypatch.setattr(house.store, "claim", full)
        accepted = await house.send("hello")
        await house.worker.start()
        await house.until(accepted, TurnStatus.COMPLETED)
        assert failed.is_set()


async def limit_pages(house: House, pages: int) -> None:
    """What SQLite may use of the disk: at its present size the next larger write finds it full."""
    await house.store._writer.submit(lambda connection: connection.execute(f"PRAGMA max_page_count={pages}").fetchall())


async def handed_back(house: House, accepted: Accepted, clock: FakeClock, step_seconds: float) -> None:
    """Returns when the turn rests. The clock goes on only while the next try waits for it: what was handed back does not fall
    due."""

    async def rests() -> bool:
        if max(clock.pending, default=0.0) >= 1:
            clock.advance(step_seconds)
        return (await house.turn(accepted)).status is not TurnStatus.RUNNING

    await eventually(rests)


async def test_a_full_disk_fails_no_turn_and_spends_no_attempt(tmp_path: Path) -> None:
    world, clock = World(), FakeClock()
    world.hold("one")
    async with open_house(tmp_path / "db", hosted("agent", chain(world, "one", "x" * 20_000)), clock=clock) as house:
        accepted = await house.send({"done": []})
        await world.met("one")
        await limit_pages(house, 1)
        world.let("one")
        await handed_back(house, accepted, clock, 1)
        assert (await house.turn(accepted)).attempts == 0
        await limit_pages(house, 1_000_000)
        clock.advance(5)
        house.transport.ring("queue")
        await house.until(accepted, TurnStatus.COMPLETED)
        assert (await house.outcomes(accepted))[0] == "released"


@pytest.mark.parametrize("minutes", [1, 30])
async def test_a_disk_that_stays_full_spends_no_attempt_however_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    world, clock, refused = World(), FakeClock(), 0
    world.hold("one")
    give_up = SQLiteAttempt.give_up

    async def full(attempt: SQLiteAttempt, **given: Any) -> None:
        nonlocal refused
        if clock.monotonic() < 60 * minutes:
            refused += 1
            raise StorageFull
        await give_up(attempt, **given)

    monkeypatch.setattr(SQLiteAttempt, "give_up", full)
    async with open_house(tmp_path / "db", hosted("agent", chain(world, "one", "x" * 20_000)), clock=clock) as house:
        accepted = await house.send({"done": []})
        await world.met("one")
        await limit_pages(house, 1)
        world.let("one")
        await handed_back(house, accepted, clock, 5 * minutes)
        assert refused > 5
        assert clock.monotonic() >= 60 * minutes
        await limit_pages(house, 1_000_000)
        clock.advance(5)
        house.transport.ring("queue")
        turn = await house.until(accepted, TurnStatus.COMPLETED)
        assert turn.attempts == 1
        assert await house.outcomes(accepted) == ["released", "completed"]


async def test_a_shutdown_does_not_wait_for_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, clock, tried = World(), FakeClock(), asyncio.Event()
    world.hold("one")

    async def full(attempt: SQLiteAttempt, **given: Any) -> None:
        tried.set()
        raise StorageFull

    monkeypatch.setattr(SQLiteAttempt, "give_up", full)
    async with open_house(tmp_path / "db", hosted("agent", chain(world, "one", "x" * 20_000)), clock=clock) as house:
        accepted = await house.send({"done": []})
        await world.met("one")
        await limit_pages(house, 1)
        world.let("one")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await tried.wait()
            await house.worker.drain(0.0)
        assert house.worker.running == 0
        assert (await house.turn(accepted)).status is TurnStatus.RUNNING


async def test_a_question_that_was_parked_costs_no_attempt_when_the_process_dies(tmp_path: Path) -> None:
    graph = hosted("agent", questions(World(), ["q1"]))
    async with open_house(tmp_path / "db", graph) as house:
        accepted = await house.send({"done": []})
        await house.until(accepted, TurnStatus.PARKED)
        await house.die()
    async with open_house(tmp_path / "db", graph, clock=SystemClock()) as house:
        turn = await house.turn(accepted)
        assert (turn.status, turn.attempts) == (TurnStatus.PARKED, 1)
        (card,) = await house.store.cards(OWNER, accepted.turn)
        await house.answer(accepted, {card.interrupt_id: "yes"})
        await house.until(accepted, TurnStatus.COMPLETED)
        kinds = [event.kind for event in await house.journal(accepted)]
        assert EventKind.REWIND not in kinds


async def _asked(house: House, accepted: Accepted) -> bool:
    return bool((await house.state(accepted)).interrupts)


async def test_a_death_between_two_nodes_questions_asks_the_second_after_the_first_is_answered(tmp_path: Path) -> None:
    """A pending question is never passed without its answer, so the node that had not asked yet runs after it."""
    world = World()
    world.hold("second")

    async def first(state: Values) -> Values:
        return {"done": [str(interrupt({"question": "q1"}))]}

    async def second(state: Values) -> Values:
        await world.pass_by("second")
        return {"done": [str(interrupt({"question": "q2"}))]}

    graph = StateGraph(Values).add_node("first", first).add_node("second", second)
    agent = hosted("agent", graph.add_edge(START, "first").add_edge(START, "second").compile())
    house = await make_house(tmp_path / "db", agent)
    accepted = await house.send({"done": []})
    await world.met("second")
    await eventually(lambda: _asked(house, accepted))
    await house.die()
    world.held.clear()
    async with open_house(tmp_path / "db", agent) as house:
        for question in ("q1", "q2"):
            await house.until(accepted, TurnStatus.PARKED)
            opened = [card for card in await house.store.cards(OWNER, accepted.turn) if card.state is CardState.OPENED]
            assert [card.request for card in opened] == [{"question": question}]
            answer = {opened[0].interrupt_id: f"answer to {question}"}
            await house.answer(accepted, answer)
        await house.until(accepted, TurnStatus.COMPLETED)
        done = (await house.state(accepted)).values["done"]
        assert sorted(done) == ["answer to q1", "answer to q2"]
