"""Forks over the real engine and store: what is sent first, what the model sees, and that a fork is as good as a fresh thread."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from perdure.agent.base import ForkedFrom
from perdure.errors import BadRequest, NotFound, NotReady
from perdure.graph.answers import NOT_APPROVED
from perdure.graph.history import NOT_RECORDED
from perdure.turns import Accepted, Person, Role, TurnStatus
from tests.unit.engine.graphs import World, agent
from tests.unit.engine.guarded import SHAPES, Outside, guarded_agent
from tests.unit.engine.house import ME, House, hosted, open_house

BORIS = Person("boris", "boris", Role.USER)
OPERATOR = Person("olga", "olga", Role.OPERATOR)


async def fork(
    house: House,
    conversation: str,
    *,
    message: str | None = None,
    checkpoint: str | None = None,
    text: str | None = None,
    person: Person = ME,
) -> ForkedFrom:
    return await house.agents.fork(
        person, conversation, message=message, checkpoint=checkpoint, text=text, title=None, request_key=None
    )


def accepted(made: ForkedFrom) -> Accepted:
    assert made.forked.turn is not None
    return Accepted(made.forked.conversation, made.forked.turn, TurnStatus.QUEUED)


async def said(house: House, messages: list[str], conversation: str | None = None) -> Accepted:
    last: Accepted | None = None
    for message in messages:
        last = await house.send(message, conversation)
        conversation = last.conversation
        await house.until(last)
    assert last is not None
    return last


async def wires(house: House, conversation: str) -> list[dict[str, Any]]:
    return [dict(each) for each in (await house.agents.conversation(ME, conversation)).messages]


def shape(messages: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """A transcript without what differs by nature: the ids of messages."""
    return [
        (each["role"], each["content"], each.get("status"), [call["name"] for call in each.get("tool_calls", ())])
        for each in messages
    ]


async def test_before_a_persons_message_nothing_is_said_until_somebody_does(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        source = await said(house, ["one", "two"])
        ids = [each["id"] for each in await wires(house, source.conversation)]
        made = await fork(house, source.conversation, message=ids[2])
        assert made.forked.turn is None
        assert await house.frames(Accepted(made.forked.conversation, "", TurnStatus.QUEUED)) == []
        went_on = await said(house, ["other"], made.forked.conversation)
        assert await house.messages(went_on) == [
            "user: one",
            "assistant: answer one",
            "user: other",
            "assistant: answer other",
        ]
        assert await house.messages(source) == [
            "user: one",
            "assistant: answer one",
            "user: two",
            "assistant: answer two",
        ]


async def test_before_an_answer_or_a_tools_result_the_same_is_asked_once_more(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        source = await said(house, ["one", "call a b"])
        messages = await wires(house, source.conversation)
        for each in messages[3:]:
            made = await fork(house, source.conversation, message=each["id"])
            await house.until(accepted(made))
            assert shape(await wires(house, made.forked.conversation)) == shape(messages)


async def test_a_fork_is_refused_where_there_is_nothing_to_fork(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        source = await said(house, ["one"])
        first = (await wires(house, source.conversation))[0]["id"]
        with pytest.raises(NotFound):
            await fork(house, source.conversation, message="msg-nobody")
        with pytest.raises(NotFound):
            await fork(house, source.conversation, message=first, person=BORIS)
        with pytest.raises(BadRequest):
            await fork(house, source.conversation, message=first, text=" ")
        theirs = await fork(house, source.conversation, message=first, text="by olga", person=OPERATOR)
        assert (await house.store.conversation("olga", theirs.forked.conversation)).owner == "olga"
        await house.worker.drain(1)
        with pytest.raises(NotReady):
            await fork(house, source.conversation, message=first)
        assert len((await house.store.conversations(None, limit=9)).items) == 2


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_fork_within_a_step_closes_its_calls_honestly_and_asks_nothing(tmp_path: Path, deleted: bool) -> None:
    world = World()
    async with open_house(tmp_path / "db", hosted("agent", agent(world))) as house:
        source = await said(house, ["call a ask"])
        assert (await house.turn(source)).status is TurnStatus.PARKED
        head = (await house.agents.checkpoints(ME, source.conversation, limit=1, cursor=None)).items[0]
        assert head["interrupts"] and {task["name"] for task in head["tasks"]} == {"tools"}
        made = await fork(house, source.conversation, checkpoint=head["id"])
        if deleted:
            await house.agents.delete(ME, source.conversation, cancel=True)
        ran = list(world.ran)
        went_on = await said(house, ["what now"], made.forked.conversation)
        assert (await house.turn(went_on)).status is TurnStatus.COMPLETED
        messages = await wires(house, made.forked.conversation)
        assert [each["tool_call_id"] for each in messages if each["role"] == "tool"] == ["call-a", "call-ask"]
        assert all("not" in each["content"] for each in messages if each["role"] == "tool")
        assert world.ran[len(ran) :].count("a") == 0, "no call of the other conversation is started"
        assert messages[-1]["content"] == "answer what now"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("deleted", [False, True])
async def test_of_a_call_that_waits_elsewhere_the_model_is_told_what_is_known(
    tmp_path: Path, shape: str, deleted: bool
) -> None:
    """Its model refuses what real providers refuse: an open call would fail the turn."""
    outside = Outside()
    async with open_house(tmp_path / "db", guarded_agent(shape, outside)) as house:
        source = await said(house, ["call restart:web"])
        assert (await house.turn(source)).status is TurnStatus.PARKED
        head = (await house.agents.checkpoints(ME, source.conversation, limit=1, cursor=None)).items[0]
        made = await fork(house, source.conversation, checkpoint=head["id"])
        if deleted:
            await house.agents.delete(ME, source.conversation, cancel=True)
        went_on = await said(house, ["what now"], made.forked.conversation)
        assert (await house.turn(went_on)).status is TurnStatus.COMPLETED
        (result,) = [each for each in await wires(house, made.forked.conversation) if each["role"] == "tool"]
        assert result["content"] == (NOT_RECORDED if deleted else NOT_APPROVED)
        assert outside.did == []


async def test_a_turn_that_failed_in_the_shared_past_can_be_forked_again(tmp_path: Path) -> None:
    world = World()
    async with open_house(tmp_path / "db", hosted("agent", agent(world))) as house:
        source = await said(house, ["one"])
        world.failing.add("b")
        await said(house, ["call a b"], source.conversation)
        world.failing.clear()
        await said(house, ["after", "last"], source.conversation)
        messages = await wires(house, source.conversation)
        first = await fork(house, source.conversation, message=messages[-2]["id"])
        for each in messages[2:6]:
            again = await fork(house, first.forked.conversation, message=each["id"], text="other")
            await house.until(accepted(again))
            assert await house.messages(accepted(again)) == [
                "user: one",
                "assistant: answer one",
                "user: other",
                "assistant: answer other",
            ]


@pytest.mark.parametrize("seed", range(6))
async def test_a_forks_later_turns_are_those_of_a_fresh_thread_with_the_same_past(tmp_path: Path, seed: int) -> None:
    """Any history, any message to fork before, twice over: the fork and a conversation to which the same was said from the
    start hold the same, also after a turn failed in the past that they share."""
    chosen = random.Random(seed)
    world = World()
    kinds = ["plain", "call a", "call a b c", "call b"]
    async with open_house(tmp_path / "db", hosted("agent", agent(world))) as house:
        past = [f"{chosen.choice(kinds)}" if chosen.random() < 0.5 else f"word {number}" for number in range(4)]
        source = await said(house, past)
        if chosen.random() < 0.5:
            world.failing.add("model")
            await said(house, ["breaks"], source.conversation)
            world.failing.clear()
            past.append("breaks")
            source = await said(house, ["after"], source.conversation)
            past.append("after")
        people = [each for each in await wires(house, source.conversation) if each["role"] == "user"]
        place = chosen.randrange(len(people))
        made = await fork(house, source.conversation, message=people[place]["id"], text="new way")
        await house.until(accepted(made))
        rest = ["call a", "end"]
        await said(house, rest, made.forked.conversation)
        untouched = shape(await wires(house, source.conversation))
        fresh: Accepted | None = None
        for text in [*past[:place], "new way", *rest]:
            if text == "breaks":
                world.failing.add("model")
            fresh = await said(house, [text], fresh.conversation if fresh else None)
            world.failing.clear()
        assert fresh is not None
        assert shape(await wires(house, made.forked.conversation)) == shape(await wires(house, fresh.conversation))
        assert shape(await wires(house, source.conversation)) == untouched
        counted = await house.store.conversation("me", made.forked.conversation)
        assert counted.message_count == len(await wires(house, made.forked.conversation))
        again = (await wires(house, made.forked.conversation))[0]["id"]
        second = await fork(house, made.forked.conversation, message=again, text="from the start")
        await house.until(accepted(second))
        assert await house.messages(accepted(second)) == ["user: from the start", "assistant: answer from the start"]
