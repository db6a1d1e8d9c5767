"""What an agent answers on its subject, asked of the methods themselves over a real journal and engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from pydantic import ValidationError

from perdure.api.chat import checked_key
from perdure.bridge import exports
from perdure.errors import (
    AmbiguousResume,
    BadRequest,
    CardDecided,
    Forbidden,
    IdempotencyConflict,
    NotFound,
    NotReady,
    TooLarge,
    TurnInProgress,
    TurnNotParked,
    TurnNotResumable,
)
from perdure.transport.nats.wire import rows_from_json
from perdure.turns import CardState, TurnStatus
from tests.unit.bridge.house import AGENT, AgentHouse, Desk, eventually, open_agent_house, open_desk
from tests.unit.engine.graphs import AnyGraph, Values, World, agent, chain, questions
from tests.unit.engine.house import hosted

KEY = {"idempotency_key": "key-1"}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def house(tmp_path: Path, world: World) -> AsyncIterator[AgentHouse]:
    async with open_agent_house(tmp_path / "a.db", hosted(AGENT, agent(world))) as house:
        yield house


@pytest.fixture
async def desk(house: AgentHouse) -> AsyncIterator[Desk]:
    async with open_desk(house) as desk:
        yield desk


async def parked(desk: Desk, message: str = "call ask") -> Any:
    """The answer to a turn that waits for a person."""
    told = await desk.ask("responses/create", message=message)
    assert told["status"] == "parked"
    return told


# -- responses --------------------------------------------------------------------------------------------------------


async def test_a_turn_is_accepted_with_its_rows_and_the_subject_of_its_events(desk: Desk) -> None:
    told = await desk.ask("responses/createDetached", message="hello")
    assert told["status"] == "queued"
    assert told["subject"] == f"perdure.turns.default.{AGENT}.{told['turn_id']}"
    rows = rows_from_json(told["rows"])
    assert [row["id"] for row in rows.turns] == [told["turn_id"]]
    assert [row["id"] for row in rows.conversations] == [told["conversation"]]


async def test_the_same_key_is_the_same_turn_and_another_message_under_it_is_refused(
    desk: Desk, house: AgentHouse
) -> None:
    first = await desk.ask("responses/createDetached", message="hello", **KEY)
    second = await desk.ask("responses/createDetached", message="hello", when_busy="reject", **KEY)
    waited = await desk.ask("responses/create", message="hello", timeout_seconds=60, **KEY)
    assert second["turn_id"] == first["turn_id"] == waited["turn_id"]
    assert second["repeated"] and not first["repeated"]
    with pytest.raises(IdempotencyConflict):
        await desk.ask("responses/createDetached", message="another", **KEY)
    assert len((await house.store.turns(None, limit=10)).items) == 1


async def test_a_digest_that_the_caller_computed_decides_what_is_the_same(desk: Desk) -> None:
    first = await desk.ask("responses/createDetached", message="hello", **KEY, request_digest="d")
    second = await desk.ask("responses/createDetached", message="hello!", **KEY, request_digest="d")
    assert second["turn_id"] == first["turn_id"]


async def test_who_waits_for_the_end_gets_the_answer(desk: Desk) -> None:
    told = await desk.ask("responses/create", message="hello")
    assert (told["status"], told["text"], told["failure"]) == ("completed", "answer hello", None)
    assert [message["role"] for message in told["messages"]] == ["user", "assistant"]


async def test_who_waits_is_told_of_a_park_and_its_cards(desk: Desk) -> None:
    told = await parked(desk)
    assert [card["kind"] for card in told["cards"]] == ["interrupt"]


async def test_who_waits_as_long_as_it_wanted_is_told_that_the_turn_goes_on(desk: Desk, world: World) -> None:
    world.hold("model")
    told = await desk.ask("responses/create", message="hello", timeout_seconds=0.1)
    assert told["status"] in {"queued", "running"}
    world.let("model")
    assert (await desk.ask("responses/createDetached", message="x"))["status"] == "queued"


async def test_a_failure_is_told_with_its_reason(desk: Desk, world: World) -> None:
    world.failing.add("model")
    told = await desk.ask("responses/create", message="hello")
    assert told["status"] == "failed"
    assert told["failure"]["code"] == "AGENT_FAILURE"
    world.failing.clear()
    again = await desk.ask("responses/resume", conversation=told["conversation"], **KEY)
    assert again["turn_id"] == told["turn_id"]
    repeated = await desk.ask("responses/resume", conversation=told["conversation"], **KEY)
    assert repeated["repeated"]


async def test_the_state_of_a_turn_is_told_in_five_words(desk: Desk, world: World, house: AgentHouse) -> None:
    async def state(turn: str) -> str:
        return str((await desk.ask("responses/turnStatus", turn_id=turn))["state"])

    world.hold("model")
    running = await desk.ask("responses/createDetached", message="hello")
    waiting = await desk.ask(
        "responses/createDetached", message="then", conversation=running["conversation"], when_busy="enqueue"
    )
    await world.entered["model"].wait()
    assert [await state(each["turn_id"]) for each in (running, waiting)] == ["running", "running"]
    world.let("model")
    done = await desk.ask("responses/create", message="bye")
    assert await state(done["turn_id"]) == "done"
    assert await state((await parked(desk))["turn_id"]) == "parked"
    world.failing.add("model")
    assert await state((await desk.ask("responses/create", message="bad"))["turn_id"]) == "failed"
    unknown = await desk.ask("responses/turnStatus", turn_id="0" * 32)
    assert (unknown["state"], unknown["rows"]) == ("unknown", None)


async def test_a_status_says_up_to_where_events_are_committed(desk: Desk, house: AgentHouse) -> None:
    told = await desk.ask("responses/create", message="hello")
    status = await desk.ask("responses/turnStatus", turn_id=told["turn_id"])
    events = await house.store.events(told["conversation"])
    assert (status["status"], status["last_seq"]) == ("completed", events[-1].seq)


async def test_a_cancel_ends_the_turn(desk: Desk, world: World) -> None:
    world.hold("model")
    told = await desk.ask("responses/createDetached", message="hello")
    await world.entered["model"].wait()
    asked = await desk.ask("responses/cancel", turn_id=told["turn_id"])
    assert asked["turn_id"] == told["turn_id"]

    async def cancelled() -> bool:
        return bool((await desk.ask("responses/turnStatus", turn_id=told["turn_id"]))["status"] == "cancelled")

    await eventually(cancelled)
    again = await desk.ask("responses/cancel", turn_id=told["turn_id"])
    assert again["status"] == "cancelled"


async def test_a_busy_conversation_refuses_as_over_http(desk: Desk) -> None:
    told = await parked(desk)
    with pytest.raises(TurnInProgress) as refused:
        await desk.ask("responses/createDetached", message="x", conversation=told["conversation"])
    assert refused.value.details["pending"] == [told["cards"][0]["id"]]


async def test_a_bare_value_answers_the_only_question(desk: Desk, house: AgentHouse) -> None:
    told = await parked(desk)
    resumed = await desk.ask("responses/resumeDetached", turn_id=told["turn_id"], resume="yes", **KEY)
    assert resumed["status"] == "queued"
    again = await desk.ask("responses/resumeDetached", turn_id=told["turn_id"], resume="yes", **KEY)
    assert again["repeated"]
    with pytest.raises(IdempotencyConflict):
        await desk.ask("responses/resumeDetached", turn_id=told["turn_id"], resume="no", **KEY)
    assert (await desk.ask("turns/get", turn_id=told["turn_id"]))["rows"]["cards"][0]["state"] == "decided"


async def test_a_key_is_what_it_is_over_http(desk: Desk) -> None:
    told = await desk.ask("responses/createDetached", message="hello", idempotency_key="order  7")
    again = await desk.ask("responses/createDetached", message="hello", idempotency_key="order  7")
    assert again["turn_id"] == told["turn_id"]
    for key in ("", "a" * 201, "a\nb", "\u00e9"):
        with pytest.raises(ValidationError):
            await desk.ask("responses/createDetached", message="hello", idempotency_key=key)
        with pytest.raises(BadRequest):
            checked_key(key)
    assert checked_key("order  7") == "order  7"


async def test_an_object_may_be_the_answer_to_the_only_question(desk: Desk, house: AgentHouse) -> None:
    told = await parked(desk)
    await desk.ask("responses/resumeDetached", turn_id=told["turn_id"], resume={"city": "Kyiv"})
    card = (await house.store.cards(None, told["turn_id"]))[0]
    assert card.verdict is not None and card.verdict.value == {"city": "Kyiv"}


async def test_several_questions_need_their_ids(desk: Desk, house: AgentHouse) -> None:
    told = await parked(desk, "call ask ask2")
    ids = [card["interrupt_id"] for card in told["cards"]]
    with pytest.raises(AmbiguousResume) as refused:
        await desk.ask("responses/resumeDetached", turn_id=told["turn_id"], resume="yes")
    assert sorted(refused.value.details["pending"]) == sorted(ids)
    first = await desk.ask("responses/resumeDetached", turn_id=told["turn_id"], resume={ids[0]: "yes"})
    assert first["status"] == "parked"
    with pytest.raises(CardDecided):
        await desk.ask("responses/resumeDetached", turn_id=told["turn_id"], resume={ids[0]: "no"})
    second = await desk.ask("responses/resumeDetached", turn_id=told["turn_id"], resume="yes")
    assert second["status"] == "queued"


async def test_a_turn_that_does_not_wait_says_so(desk: Desk) -> None:
    told = await desk.ask("responses/create", message="hello")
    for more in ({}, KEY):
        with pytest.raises(TurnNotParked, match="it is completed"):
            await desk.ask("responses/resumeDetached", turn_id=told["turn_id"], resume="yes", **more)
    with pytest.raises(NotFound):
        await desk.ask("responses/resumeDetached", turn_id="0" * 32, resume="yes")
    with pytest.raises(TurnNotResumable):
        await desk.ask("responses/resume", conversation=told["conversation"])


async def test_a_message_over_the_limit_is_refused(house: AgentHouse) -> None:
    desk = Desk(house, max_message_bytes=50)
    with pytest.raises(TooLarge):
        await desk.ask("responses/createDetached", message="x" * 60)


async def test_an_agent_that_leaves_takes_nothing_new_and_answers_reads(desk: Desk) -> None:
    told = await desk.ask("responses/create", message="hello")
    desk.leaving = True
    with pytest.raises(NotReady, match="shutting down"):
        await desk.ask("responses/createDetached", message="hello")
    with pytest.raises(NotReady):
        await desk.ask("threads/fork", conversation=told["conversation"], checkpoint="x")
    assert (await desk.ask("threads/get", conversation=told["conversation"]))["messages"]


async def test_who_waits_when_the_agent_leaves_is_told_how_it_stands(desk: Desk, world: World) -> None:
    world.hold("model")
    asking = asyncio.create_task(desk.ask("responses/create", message="hello"))
    await world.entered["model"].wait()
    desk.resting.close()
    assert (await asking)["status"] == "running"
    world.let("model")


# -- threads ----------------------------------------------------------------------------------------------------------


async def test_a_conversation_is_read_with_how_far_its_messages_reach(desk: Desk, house: AgentHouse) -> None:
    told = await desk.ask("responses/create", message="hello")
    read = await desk.ask("threads/get", conversation=told["conversation"])
    events = await house.store.events(told["conversation"])
    assert read["last_seq"] == events[-1].seq
    assert [message["content"] for message in read["messages"]] == ["hello", "answer hello"]
    assert [row["id"] for row in read["rows"]["turns"]] == [told["turn_id"]]


async def test_conversations_are_listed_found_renamed_and_deleted(desk: Desk) -> None:
    told = await desk.ask("responses/create", message="hello")
    other = await desk.ask("responses/create", message="else")
    page = await desk.ask("threads/list", limit=1)
    assert [each["id"] for each in page["items"]] == [other["conversation"]]
    page = await desk.ask("threads/list", limit=1, cursor=page["next"])
    assert [each["id"] for each in page["items"]] == [told["conversation"]]
    found = await desk.ask("threads/list", text="hello")
    assert [each["id"] for each in found["items"]] == [told["conversation"]]
    renamed = await desk.ask("threads/rename", conversation=told["conversation"], title="Trip")
    assert renamed["conversation"]["title"] == renamed["rows"]["conversations"][0]["title"] == "Trip"
    deleted = await desk.ask("threads/delete", conversation=told["conversation"])
    assert deleted["rows"]["deleted"] == [told["conversation"]]
    with pytest.raises(NotFound):
        await desk.ask("threads/get", conversation=told["conversation"])


async def test_deleting_with_cancel_ends_the_turn_first(desk: Desk) -> None:
    told = await parked(desk)
    with pytest.raises(TurnInProgress):
        await desk.ask("threads/delete", conversation=told["conversation"])
    await desk.ask("threads/delete", conversation=told["conversation"], cancel=True)


async def test_a_fork_is_told_with_its_first_turn_and_repeated_once(desk: Desk) -> None:
    told = await desk.ask("responses/create", message="hello")
    asked = {"conversation": told["conversation"], "message": told["messages"][0]["id"], "text": "salut", **KEY}
    made = await desk.ask("threads/fork", **asked)
    again = await desk.ask("threads/fork", **asked)
    assert made["forked"]["conversation"] == again["forked"]["conversation"] != told["conversation"]
    assert made["origin"]["conversation"] == told["conversation"]
    assert [row["id"] for row in made["rows"]["turns"]] == [made["forked"]["turn"]]
    points = await desk.ask("threads/branches", conversation=told["conversation"])
    assert len(points["branches"][0]["branches"]) == 2


async def test_the_history_is_read_page_by_page(desk: Desk) -> None:
    told = await desk.ask("responses/create", message="hello")
    page = await desk.ask("threads/checkpoints", conversation=told["conversation"], limit=2)
    assert len(page["items"]) == 2
    found = await desk.ask("threads/checkpoint", conversation=told["conversation"], checkpoint=page["items"][0]["id"])
    assert found["checkpoint"]["values"]["messages"]


@pytest.mark.parametrize("forgets", [False, True])
async def test_an_export_comes_whole_in_pages(
    forgets: bool, desk: Desk, house: AgentHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the pages before were asked of a process that is gone."""
    told = await desk.ask("responses/create", message="call a b")
    whole = await desk.ask("threads/export", conversation=told["conversation"])
    assert whole["next"] is None
    monkeypatch.setattr(exports, "PAGE_BYTES", 1_000)
    pages, cursor = [], None
    while True:
        asked = Desk(house) if forgets else desk
        page = await asked.ask("threads/export", conversation=told["conversation"], cursor=cursor)
        pages.append(page["checkpoints"])
        cursor = page["next"]
        if cursor is None:
            break
    assert len(pages) > 2
    assert [checkpoint for page in pages for checkpoint in page] == whole["checkpoints"]
    with pytest.raises(BadRequest):
        await desk.ask("threads/export", conversation=told["conversation"], cursor="x")


# -- approvals --------------------------------------------------------------------------------------------------------


async def test_what_waits_is_listed_and_the_first_decision_counts(desk: Desk) -> None:
    told = await parked(desk)
    listed = await desk.ask("approvals/list", conversation=told["conversation"])
    card = listed["items"][0]["id"]
    assert (await desk.ask("approvals/get", card=card))["card"]["id"] == card
    with pytest.raises(BadRequest, match="`answer`"):
        await desk.ask("approvals/decide", card=card, decision="approve")
    with pytest.raises(BadRequest, match="needs the `value`"):
        await desk.ask("approvals/decide", card=card, decision="answer")
    with pytest.raises(BadRequest, match="does not go"):
        await desk.ask("approvals/decide", card=card, decision="answer", value=1, arguments={"a": 1})
    decided = await desk.ask("approvals/decide", card=card, decision="answer", value=None, note=" why ")
    assert decided["card"]["verdict"]["by"] == "nats"
    assert decided["card"]["verdict"]["note"] == "why"
    assert decided["turn_status"] == "queued"
    with pytest.raises(CardDecided):
        await desk.ask("approvals/decide", card=card, decision="answer", value=2)


async def test_several_answers_count_together_and_once(desk: Desk) -> None:
    told = await parked(desk, "call ask ask2")
    answers = {card["interrupt_id"]: {"decision": "answer", "value": "yes"} for card in told["cards"]}
    first = await desk.ask("approvals/answer", conversation=told["conversation"], answers=answers, **KEY)
    again = await desk.ask("approvals/answer", conversation=told["conversation"], answers=answers, **KEY)
    assert (first["turn_id"], first["status"]) == (told["turn_id"], "queued")
    assert again["repeated"]


# -- journal ----------------------------------------------------------------------------------------------------------


async def test_the_journal_is_read_to_its_end(desk: Desk, house: AgentHouse) -> None:
    turns = {(await desk.ask("responses/create", message=f"message {number}"))["turn_id"] for number in range(3)}
    position: dict[str, Any] = {}
    read: set[str] = set()
    more = True
    while more:
        page = await desk.ask("journal/read", limit=2, **position)
        position, more = page["position"], page["more"]
        read |= {row["id"] for row in page["turns"]}
    assert read == turns
    named = await desk.ask("journal/read", turns=[min(turns)])
    assert [row["id"] for row in named["turns"]] == [min(turns)]
    described = await desk.ask("agent/describe")
    assert described["position"] == position["change"]
    assert described["journal"] == position["journal"] == house.store.journal


async def test_events_are_read_in_pages_that_say_whether_they_are_all(
    desk: Desk, house: AgentHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = await desk.ask("responses/create", message="call a")
    journal = [event.seq for event in await house.store.events(told["conversation"])]
    read: list[int] = []
    after, more = 0, True
    while more:
        page = await desk.ask("events/read", conversation=told["conversation"], after=after, limit=3)
        after, more = page["last_seq"], page["more"]
        read += [event["seq"] for event in page["events"]]
    assert read == journal
    monkeypatch.setattr("perdure.bridge.methods.journal.MAX_PAGE_BYTES", 10)
    page = await desk.ask("events/read", conversation=told["conversation"])
    assert (len(page["events"]), page["more"]) == (1, True)
    empty = await desk.ask("events/read", conversation=told["conversation"], after=journal[-1])
    assert (empty["events"], empty["last_seq"], empty["more"]) == ([], journal[-1], False)


async def test_what_streams_now_can_be_asked_for(desk: Desk, world: World) -> None:
    world.hold("word 0")
    told = await desk.ask("responses/createDetached", message="hello")
    await world.entered["word 0"].wait()
    read: list[Any] = []
    async with asyncio.timeout(60):
        while not read:
            read = (await desk.ask("tokens/read", conversation=told["conversation"]))["events"]
            await asyncio.sleep(0.01)
    assert read[0]["payload"]["text"] == "answer "
    assert (await desk.ask("tokens/read", conversation=told["conversation"], after=read[0]["seq"]))["events"] == []
    world.let("word 0")


async def test_an_agent_describes_itself(desk: Desk) -> None:
    described = await desk.ask("agent/describe")
    assert described["agent"]["name"] == AGENT
    assert (described["boot"], described["version"]) == ("boot", "1")
    served = await desk.ask("server/get")
    assert served["database"]["bytes"] > 0


async def test_everything_that_is_answered_is_json(desk: Desk, house: AgentHouse) -> None:
    told = await parked(desk)
    card = told["cards"][0]["id"]
    asked: dict[str, dict[str, Any]] = {
        "threads/get": {"conversation": told["conversation"]},
        "threads/list": {},
        "approvals/list": {},
        "approvals/get": {"card": card},
        "turns/get": {"turn_id": told["turn_id"]},
        "journal/read": {},
        "events/read": {"conversation": told["conversation"]},
        "agent/describe": {},
        "server/get": {},
    }
    for name, params in asked.items():
        json.dumps(await desk.ask(name, **params), allow_nan=False)


# -- foreign input ----------------------------------------------------------------------------------------------------

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("responses/createDetached", {"message": "x", "colour": "red"}, "colour"),
    ("responses/createDetached", {}, "exactly one"),
    ("responses/createDetached", {"message": "x", "input": {}}, "exactly one"),
    ("responses/createDetached", {"message": " "}, "empty"),
    ("responses/createDetached", {"message": 1}, "message"),
    ("responses/createDetached", {"message": "x", "discard_pending": True}, "interrupt"),
    ("responses/createDetached", {"message": "x", "when_busy": "queue"}, "when_busy"),
    ("responses/createDetached", {"message": "x", "idempotency_key": "a\nb"}, "idempotency_key"),
    ("responses/createDetached", {"message": "x", "request_digest": "d"}, "idempotency_key"),
    ("responses/createDetached", {"message": "x", "person": {"name": "a", "owner": "a", "role": "root"}}, "role"),
    ("responses/createDetached", {"message": "x", "person": {"name": "a"}}, "owner"),
    ("responses/createDetached", {"message": "a\x00b"}, "NUL"),
    ("responses/createDetached", {"message": "a\ud800b"}, "surrogate"),
    ("responses/createDetached", {"input": {"n": 2**70}}, "64 bits"),
    ("responses/createDetached", {"input": {"n": 1e999}}, "float"),
    ("responses/resumeDetached", {"turn_id": "x"}, "resume"),
    ("threads/rename", {"conversation": "x", "title": "a\nb"}, "one line"),
    ("threads/fork", {"conversation": "x"}, "checkpoint"),
    ("journal/read", {"limit": 0}, "limit"),
    ("events/read", {"conversation": "x", "after": -1}, "after"),
    ("events/read", {"conversation": "x", "after": "1"}, "after"),
]


async def test_what_is_not_valid_is_refused_by_name(desk: Desk) -> None:
    for name, params, told in WRONG:
        with pytest.raises(ValidationError, match=told):
            await desk.ask(name, **params)


async def test_a_journal_is_not_read_by_who_sees_but_their_own(desk: Desk) -> None:
    with pytest.raises(Forbidden):
        await desk.ask("journal/read", person={"name": "a", "owner": "a"})


# -- graphs of one's own ----------------------------------------------------------------------------------------------


async def test_a_graph_with_its_own_input_is_started_and_asked(tmp_path: Path, world: World) -> None:
    graph = hosted(AGENT, questions(world, ["one", "two"], parallel=True))
    async with open_agent_house(tmp_path / "a.db", graph) as house, open_desk(house) as desk:
        told = await desk.ask("responses/create", input={"done": []})
        assert sorted(card["request"]["question"] for card in told["cards"]) == ["one", "two"]
        read = await desk.ask("threads/get", conversation=told["conversation"])
        assert read["state"] is not None
        with pytest.raises(BadRequest):
            await desk.ask("responses/createDetached", message="hello")


def asking_twice() -> AnyGraph:
    """One question, then two at once."""

    def asking(name: str) -> Any:
        def ask(state: Values) -> Values:
            return {"done": [str(interrupt({"question": name}))]}

        return ask

    graph = StateGraph(Values)
    for name, after in (("first", START), ("left", "first"), ("right", "first")):
        graph.add_node(name, asking(name))
        graph.add_edge(after, name)
    return graph.compile()


async def test_an_answer_that_is_sent_again_is_the_same_answer_though_the_turn_asks_something_else_by_now(
    tmp_path: Path,
) -> None:
    graph = hosted(AGENT, asking_twice())
    async with open_agent_house(tmp_path / "a.db", graph) as house, open_desk(house) as desk:
        told = await desk.ask("responses/create", input={"done": []})
        await desk.ask("responses/resumeDetached", turn_id=told["turn_id"], resume="yes", **KEY)

        async def asks_on() -> bool:
            cards = await house.store.cards(None, told["turn_id"])
            return [card.state for card in cards].count(CardState.OPENED) == 2

        await eventually(asks_on)
        again = await desk.ask("responses/resumeDetached", turn_id=told["turn_id"], resume="yes", **KEY)
        assert again["repeated"]
        assert await asks_on()
        with pytest.raises(AmbiguousResume):
            await desk.ask("responses/resumeDetached", turn_id=told["turn_id"], resume="yes")


async def test_a_conversation_of_an_agent_that_is_served_elsewhere_is_refused(tmp_path: Path, world: World) -> None:
    other = hosted("other", chain(world, "a"))
    async with open_agent_house(tmp_path / "a.db", hosted(AGENT, agent(world)), other) as house:
        accepted = await house.send({"done": []}, agent="other")
        await house.until(accepted, TurnStatus.COMPLETED)
        with pytest.raises(BadRequest, match="other"):
            await Desk(house).ask(
                "responses/createDetached",
                message="x",
                conversation=accepted.conversation,
                person={"name": "me", "owner": "me"},
            )
