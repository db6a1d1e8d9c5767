"""People decide, processes die: what becomes of tool calls, through whole drives of every shape of agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.testing import FakeClock
from perdure.turns import EXPIRY, Accepted, Card, CardState, DecisionKind, FailureCode, TurnStatus
from tests.unit.engine.guarded import SHAPES, Outside, guarded_agent
from tests.unit.engine.house import ME, OWNER, House, eventually, open_house

pytestmark = pytest.mark.parametrize("shape", SHAPES)


async def last_word(house: House, accepted: Accepted) -> str:
    """What the model answered: all that it was told of the calls."""
    return (await house.messages(accepted))[-1].removeprefix("assistant: ")


async def parked(house: House, accepted: Accepted) -> list[Card]:
    await house.until(accepted, TurnStatus.PARKED)
    return await house.waiting(accepted)


# -- approvals ----------------------------------------------------------------------------------------------------------


async def test_a_gated_call_runs_once_after_it_was_approved(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    async with open_house(tmp_path / "db", guarded_agent(shape, outside)) as house:
        accepted = await house.send("call restart:web")
        (card,) = await parked(house, accepted)
        assert outside.did == []
        assert card.call is not None
        assert (card.kind, card.call.tool, dict(card.call.arguments)) == ("approval", "restart", {"at": "web"})
        await house.decide(card, "approve")
        await house.until(accepted, TurnStatus.COMPLETED)
        assert [each[:2] for each in outside.did] == [("restart", "web")]
        assert await last_word(house, accepted) == "restart web done"


async def test_a_denied_call_does_not_run_and_the_model_hears_the_note(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    async with open_house(tmp_path / "db", guarded_agent(shape, outside)) as house:
        accepted = await house.send("call restart:web")
        (card,) = await parked(house, accepted)
        await house.decide(card, "deny", note="not on a Friday")
        assert (await house.until(accepted)).status is TurnStatus.COMPLETED
        assert outside.did == []
        assert "not on a Friday" in await last_word(house, accepted)
        transcript = await house.agents.conversation(ME, accepted.conversation)
        assert [each.get("status") for each in transcript.messages if each["role"] == "tool"] == ["denied"]


async def test_what_runs_are_the_arguments_that_were_approved(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    async with open_house(tmp_path / "db", guarded_agent(shape, outside)) as house:
        accepted = await house.send("call restart:web")
        (card,) = await parked(house, accepted)
        await house.decide(card, "approve", arguments={"at": "db"})
        await house.until(accepted, TurnStatus.COMPLETED)
        assert [each[:2] for each in outside.did] == [("restart", "db")]
        word = await last_word(house, accepted)
        assert "restart db done" in word
        assert "changed the arguments" in word


async def test_two_gated_calls_beside_an_ungated_one_run_once_each(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    async with open_house(tmp_path / "db", guarded_agent(shape, outside)) as house:
        accepted = await house.send("call restart:x restart:y look:z")
        first, second = await parked(house, accepted)
        await house.decide(second, "approve")
        assert (await house.turn(accepted)).status is TurnStatus.PARKED
        assert outside.count("restart") == 0
        await house.decide(first, "approve")
        await house.until(accepted, TurnStatus.COMPLETED)
        assert sorted(each[:2] for each in outside.did) == [("look", "z"), ("restart", "x"), ("restart", "y")]
        assert await last_word(house, accepted) == "restart x done | restart y done | look z done"


async def test_approved_and_denied_side_by_side(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    async with open_house(tmp_path / "db", guarded_agent(shape, outside)) as house:
        accepted = await house.send("call restart:x restart:y")
        cards = {card.call.arguments["at"]: card for card in await parked(house, accepted) if card.call}
        await house.decide(cards["x"], "deny")
        await house.decide(cards["y"], "approve")
        await house.until(accepted, TurnStatus.COMPLETED)
        assert [each[:2] for each in outside.did] == [("restart", "y")]


async def test_a_turn_that_meets_another_gate_parks_again(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    async with open_house(tmp_path / "db", guarded_agent(shape, outside)) as house:
        accepted = await house.send("call restart:x then restart:x then look:z")
        for _ in range(2):
            (card,) = await parked(house, accepted)
            await house.decide(card, "approve")
        await house.until(accepted, TurnStatus.COMPLETED)
        assert [each[:2] for each in outside.did] == [("restart", "x"), ("restart", "x"), ("look", "z")]
        assert len(outside.keys("restart")) == 2


async def test_a_parked_approval_outlives_the_process(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    agent = guarded_agent(shape, outside)
    async with open_house(tmp_path / "db", agent) as house:
        accepted = await house.send("call restart:web")
        await parked(house, accepted)
        await house.die()
    async with open_house(tmp_path / "db", agent) as house:
        (card,) = await parked(house, accepted)
        await house.decide(card, "approve")
        await house.until(accepted, TurnStatus.COMPLETED)
        assert outside.count("restart") == 1


# -- a death between effect and record ----------------------------------------------------------------------------------


async def recorded(house: House, accepted: Accepted, calls: int) -> bool:
    return sum(each.ended_at is not None for each in await house.store.ledger(accepted.turn)) == calls


@asynccontextmanager
async def after_a_death(
    path: Path, shape: str, call: str, outside: Outside, **settings: Any
) -> AsyncIterator[tuple[House, Accepted]]:
    """The process died between the effect of the (first) call and its record, those beside it were on record; this is the
    next one."""
    agent = guarded_agent(shape, outside, **settings)
    place = f"after {call.split(':', maxsplit=1)[0]}"
    outside.hold(place)
    async with open_house(path, agent) as house:
        accepted = await house.send(f"call {call}")
        await outside.met(place)
        await eventually(lambda: recorded(house, accepted, len(call.split()) - 1))
        await house.die()
    outside.let(place)
    async with open_house(path, agent) as house:
        yield house, accepted


@pytest.mark.parametrize("name", ["look", "save"])
async def test_what_may_be_repeated_runs_again_with_the_same_key(tmp_path: Path, shape: str, name: str) -> None:
    outside = Outside()
    async with after_a_death(tmp_path / "db", shape, f"{name}:a", outside) as (house, accepted):
        await house.until(accepted, TurnStatus.COMPLETED)
        assert outside.count(name) == 2
        assert len(outside.keys(name)) == 1
        assert await last_word(house, accepted) == f"{name} a done"


async def test_a_checkable_call_is_looked_up_and_not_repeated(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    async with after_a_death(tmp_path / "db", shape, "pay:a", outside) as (house, accepted):
        await house.until(accepted, TurnStatus.COMPLETED)
        assert outside.count("pay") == 1
        assert await last_word(house, accepted) == "found done"


DECISIONS: dict[str, tuple[dict[str, Any], int, Callable[[str], bool]]] = {
    "happened": ({"result": "it was charged"}, 1, lambda word: word == "it was charged"),
    "retry": ({}, 2, lambda word: word == "charge a done"),
    "give_up": ({"note": "ask the bank"}, 1, lambda word: "not known" in word and "ask the bank" in word),
}


@pytest.mark.parametrize("decision", DECISIONS)
async def test_a_once_call_waits_for_a_person_to_say_what_came_of_it(tmp_path: Path, shape: str, decision: str) -> None:
    said, times, right = DECISIONS[decision]
    outside = Outside()
    async with after_a_death(tmp_path / "db", shape, "charge:a", outside) as (house, accepted):
        (card,) = await parked(house, accepted)
        assert card.kind == "uncertain"
        assert outside.count("charge") == 1
        await house.decide(card, decision, **said)
        await house.until(accepted, TurnStatus.COMPLETED)
        assert outside.count("charge") == times
        assert right(await last_word(house, accepted))


async def test_a_retried_call_that_is_lost_again_is_another_question(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    async with after_a_death(tmp_path / "db", shape, "charge:a", outside) as (house, accepted):
        (card,) = await parked(house, accepted)
        outside.hold("after charge")
        await house.decide(card, "retry")
        await outside.met("after charge")
        await house.die()
    outside.let("after charge")
    async with open_house(tmp_path / "db", guarded_agent(shape, outside)) as house:
        (second,) = await parked(house, accepted)
        assert second.id != card.id
        assert outside.count("charge") == 2
        await house.decide(second, "happened", result="done after all")
        await house.until(accepted, TurnStatus.COMPLETED)
        assert outside.count("charge") == 2


async def test_finished_siblings_of_an_uncertain_call_are_used_from_their_record(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    async with after_a_death(tmp_path / "db", shape, "charge:a save:b look:c", outside) as (house, accepted):
        (card,) = await parked(house, accepted)
        await house.decide(card, "happened", result="charged")
        await house.until(accepted, TurnStatus.COMPLETED)
        assert (outside.count("charge"), outside.count("save")) == (1, 1)
        assert await last_word(house, accepted) == "charged | save b done | look c done"


async def test_unattended_agents_retry_or_fail_as_they_are_told(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    async with after_a_death(tmp_path / "retry", shape, "charge:a", outside, on_uncertain="retry") as (house, accepted):
        await house.until(accepted, TurnStatus.COMPLETED)
        assert outside.count("charge") == 2
    outside = Outside()
    async with after_a_death(tmp_path / "fail", shape, "charge:a", outside, on_uncertain="fail") as (house, accepted):
        turn = await house.until(accepted, TurnStatus.FAILED)
        assert turn.failure is not None
        assert turn.failure.code is FailureCode.OUTCOME_UNKNOWN
        assert outside.count("charge") == 1


# -- limits -------------------------------------------------------------------------------------------------------------


async def test_the_limit_of_tool_calls_ends_the_turn_before_the_next_one(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    agent = guarded_agent(shape, outside, max_tool_calls=2)
    async with open_house(tmp_path / "db", agent) as house:
        accepted = await house.send("call look:a then look:b then charge:c then look:d")
        turn = await house.until(accepted, TurnStatus.FAILED)
        assert turn.failure is not None
        assert turn.failure.reason == "tool_call_limit"
        assert [each[1] for each in outside.did] == ["a", "b"]
        assert turn.spent.tool_calls == 2
        await house.agents.resume(ME, accepted.conversation)
        await house.until(accepted, TurnStatus.COMPLETED)
        assert [each[1] for each in outside.did] == ["a", "b", "c", "d"]


async def test_calls_within_the_limit_run_although_one_of_their_message_is_beyond_it(
    tmp_path: Path, shape: str
) -> None:
    outside = Outside()
    agent = guarded_agent(shape, outside, max_tool_calls=2)
    async with open_house(tmp_path / "db", agent) as house:
        accepted = await house.send("call look:a look:b charge:c")
        turn = await house.until(accepted, TurnStatus.FAILED)
        assert turn.failure is not None
        assert turn.failure.reason == "tool_call_limit"
        assert sorted(each[1] for each in outside.did) == ["a", "b"]
        await house.agents.resume(ME, accepted.conversation)
        await house.until(accepted, TurnStatus.COMPLETED)
        assert sorted(each[1] for each in outside.did) == ["a", "b", "c"]


async def test_the_same_call_again_and_again_ends_the_turn_unless_it_polls(tmp_path: Path, shape: str) -> None:
    text = "call look:a then look:a then look:a"
    for poll, status in (((), TurnStatus.FAILED), (("look",), TurnStatus.COMPLETED)):
        outside = Outside()
        agent = guarded_agent(shape, outside, max_identical_calls=2, poll=poll)
        async with open_house(tmp_path / str(poll), agent) as house:
            accepted = await house.send(text)
            turn = await house.until(accepted, status)
            if turn.failure is not None:
                assert turn.failure.reason == "identical_call_limit"
                assert outside.count("look") == 2
                await house.agents.resume(ME, accepted.conversation)
                await house.until(accepted, TurnStatus.COMPLETED)
            assert outside.count("look") == 3


async def test_a_call_that_was_granted_is_not_counted_again_after_a_death(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    limits = {"max_tool_calls": 1, "max_identical_calls": 1}
    async with after_a_death(tmp_path / "db", shape, "look:a", outside, **limits) as (house, accepted):
        turn = await house.until(accepted, TurnStatus.COMPLETED)
        assert turn.spent.tool_calls == 1


async def test_a_result_that_could_not_be_read_back_ends_the_turn_with_the_line_to_add(
    tmp_path: Path, shape: str
) -> None:
    async with open_house(tmp_path / "db", guarded_agent(shape, Outside())) as house:
        accepted = await house.send("call odd:call-0-0")
        turn = await house.until(accepted, TurnStatus.FAILED)
        assert turn.failure is not None
        assert turn.failure.code is FailureCode.STATE_TYPE_NOT_ALLOWED
        assert "Unlisted" in turn.failure.message


async def test_an_approval_that_nobody_gives_in_time_is_denied_and_the_turn_goes_on(tmp_path: Path, shape: str) -> None:
    outside, clock = Outside(), FakeClock()
    agent = guarded_agent(shape, outside, approval_expires_seconds=600)
    async with open_house(tmp_path / "db", agent, clock=clock, sweep_seconds=1e6, lease_seconds=1e6) as house:
        accepted = await house.send("call restart:web look:a")
        (card,) = await parked(house, accepted)
        assert card.expires_at is not None
        await eventually(lambda: house.worker.running == 0 and 600 in clock.pending)
        clock.advance(599)
        assert 1 in clock.pending
        assert (await house.turn(accepted)).status is TurnStatus.PARKED
        clock.advance(1)
        await house.until(accepted, TurnStatus.COMPLETED)
        assert outside.count("restart") == 0
        (decided,) = await house.store.cards(OWNER, accepted.turn)
        assert decided.verdict is not None
        assert (decided.verdict.decision, decided.verdict.by) == (DecisionKind.DENY, EXPIRY)


async def test_an_approval_that_ran_out_while_nobody_served_is_denied_at_the_next_start(
    tmp_path: Path, shape: str
) -> None:
    outside, clock = Outside(), FakeClock()
    agent = guarded_agent(shape, outside, approval_expires_seconds=600)
    async with open_house(tmp_path / "db", agent, clock=clock) as house:
        accepted = await house.send("call restart:web")
        await parked(house, accepted)
    clock.advance(601)
    async with open_house(tmp_path / "db", agent, clock=clock) as house:
        await house.until(accepted, TurnStatus.COMPLETED)
        assert outside.count("restart") == 0


async def test_cards_are_decided_when_the_turn_is_over(tmp_path: Path, shape: str) -> None:
    outside = Outside()
    async with open_house(tmp_path / "db", guarded_agent(shape, outside)) as house:
        accepted = await house.send("call restart:web")
        (card,) = await parked(house, accepted)
        await house.decide(card, "approve")
        await house.until(accepted, TurnStatus.COMPLETED)
        assert [each.state for each in await house.store.cards(OWNER, accepted.turn)] == [CardState.DECIDED]
