"""Nobody reaches what is another's: every method, asked by a person for somebody else's turn, thread and card."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import Forbidden, NotFound, PerdureError
from perdure.turns import TurnStatus
from tests.unit.bridge.house import AGENT, AgentHouse, Desk, open_agent_house
from tests.unit.engine.graphs import World, agent
from tests.unit.engine.house import hosted

STRANGER = {"name": "eve", "owner": "eve", "role": "user"}

Params = Callable[[Mapping[str, Any]], dict[str, Any]]


def _thread(more: Mapping[str, Any] | None = None) -> Params:
    return lambda mine: {"conversation": mine["conversation"], **(more or {})}


def _turn(more: Mapping[str, Any] | None = None) -> Params:
    return lambda mine: {"turn_id": mine["turn"], **(more or {})}


def _card(more: Mapping[str, Any] | None = None) -> Params:
    return lambda mine: {"card": mine["card"], **(more or {})}


REFUSED: dict[str, tuple[Params, type[PerdureError]]] = {
    "responses/create": (_thread({"message": "x"}), NotFound),
    "responses/createDetached": (_thread({"message": "x"}), NotFound),
    "responses/resume": (_thread(), NotFound),
    "responses/resumeDetached": (_turn({"resume": "x"}), NotFound),
    "responses/cancel": (_turn(), NotFound),
    "turns/get": (_turn(), NotFound),
    "threads/get": (_thread(), NotFound),
    "threads/rename": (_thread({"title": "x"}), NotFound),
    "threads/delete": (_thread({"cancel": True}), NotFound),
    "threads/export": (_thread(), NotFound),
    "threads/fork": (lambda mine: {"conversation": mine["conversation"], "message": mine["message"]}, NotFound),
    "threads/branches": (_thread(), NotFound),
    "threads/checkpoints": (_thread(), NotFound),
    "threads/checkpoint": (
        lambda mine: {"conversation": mine["conversation"], "checkpoint": mine["checkpoint"]},
        NotFound,
    ),
    "approvals/get": (_card(), NotFound),
    "approvals/decide": (_card({"decision": "answer", "value": "x"}), NotFound),
    "approvals/answer": (
        lambda mine: {
            "conversation": mine["conversation"],
            "answers": {mine["interrupt"]: {"decision": "answer", "value": "x"}},
        },
        NotFound,
    ),
    "journal/read": (lambda mine: {"turns": [mine["turn"]]}, Forbidden),
    "events/read": (_thread(), NotFound),
    "tokens/read": (_thread(), NotFound),
}
"""Methods that name something."""

EMPTY: dict[str, Params] = {
    "threads/list": lambda mine: {},
    "approvals/list": lambda mine: {},
}
"""Methods that list: what is another's is not in them."""

TOLD: dict[str, tuple[Params, Callable[[Mapping[str, Any]], bool]]] = {
    "responses/turnStatus": (_turn(), lambda told: told["state"] == "unknown" and told["rows"] is None),
    "server/get": (lambda mine: {}, lambda told: told["database"] is None),
    "agent/describe": (lambda mine: {}, lambda told: told["agent"]["name"] == AGENT),
}
"""Methods that answer anybody, and what they must not say."""


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[AgentHouse]:
    async with open_agent_house(tmp_path / "a.db", hosted(AGENT, agent(World()))) as house:
        yield house


async def mine(house: AgentHouse) -> Mapping[str, Any]:
    """Ids of a parked turn, and of all that belongs to it."""
    accepted = await house.send("call ask")
    await house.until(accepted, TurnStatus.PARKED)
    card = (await house.waiting(accepted))[0]
    checkpoints = await house.store.checkpoints(None, accepted.conversation, limit=1)
    transcript = await house.agents._threads.head(await house.store.conversation(None, accepted.conversation))
    return {
        "turn": accepted.turn,
        "conversation": accepted.conversation,
        "card": card.id,
        "interrupt": card.interrupt_id,
        "checkpoint": checkpoints.items[0],
        "message": transcript.state.values["messages"][0].id,
    }


async def test_every_method_has_its_place_in_this_table(house: AgentHouse) -> None:
    assert set(REFUSED) | set(EMPTY) | set(TOLD) == set(Desk(house).methods)


async def test_a_stranger_reaches_nothing(house: AgentHouse) -> None:
    known, desk = await mine(house), Desk(house)
    before = await desk.ask("journal/read", turns=[known["turn"]])
    for name, (params, error) in REFUSED.items():
        with pytest.raises(error) as refused:
            await desk.ask(name, person=STRANGER, **params(known))
        assert type(refused.value) in {NotFound, Forbidden} or name.startswith("approvals/"), name
    for name, listing in EMPTY.items():
        assert (await desk.ask(name, person=STRANGER, **listing(known)))["items"] == [], name
    for name, (params, fits) in TOLD.items():
        assert fits(await desk.ask(name, person=STRANGER, **params(known))), name
    assert await desk.ask("journal/read", turns=[known["turn"]]) == before


async def test_the_owner_and_an_operator_reach_all_of_it(house: AgentHouse) -> None:
    """So that a refusal above is of the person, not of the request."""
    me = {"name": "me", "owner": "me", "role": "user"}
    operator = {"name": "op", "owner": "op", "role": "operator"}
    read_only = ["turns/get", "threads/get", "threads/export", "threads/branches", "threads/checkpoints"]
    read_only += ["threads/checkpoint", "approvals/get", "events/read", "tokens/read"]
    known, desk = await mine(house), Desk(house)
    for person in (me, operator):
        for name in read_only:
            assert await desk.ask(name, person=person, **REFUSED[name][0](known)), name
        for name, params in EMPTY.items():
            assert len((await desk.ask(name, person=person, **params(known)))["items"]) == 1, name
        assert (await desk.ask("responses/turnStatus", person=person, turn_id=known["turn"]))["state"] == "parked"
    decided = await desk.ask("approvals/decide", person=operator, **REFUSED["approvals/decide"][0](known))
    assert decided["card"]["verdict"]["by"] == "op"


async def test_an_operator_neither_writes_nor_deletes_in_anothers_conversation(house: AgentHouse) -> None:
    known, desk = await mine(house), Desk(house)
    operator = {"name": "op", "owner": "op", "role": "operator"}
    for name in ("responses/createDetached", "threads/rename", "threads/delete"):
        with pytest.raises(Forbidden):
            await desk.ask(name, person=operator, **REFUSED[name][0](known))
