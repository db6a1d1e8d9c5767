"""Who sees, decides and changes what, over the real store: users, operators, deciders and the server's own token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from perdure.agent.local import LocalAgents
from perdure.api.auth import ADMIN
from perdure.config import AgentSettings
from perdure.effects import EffectClass, Gate, GateRequest
from perdure.errors import BadRequest, CardDecided, Forbidden, NotFound, TurnInProgress, UnknownCard
from perdure.graph.load import HostedGraph
from perdure.graph.tools import ToolRegistry
from perdure.store.base import Question
from perdure.store.sqlite.store import SQLiteStore, open_store
from perdure.testing import FakeClock
from perdure.transport.local import LocalTransport
from perdure.turns import Accepted, Card, DecisionKind, Limits, Person, RequestKey, Role, TurnStatus, Verdict

ANN = Person("ann", "ann", Role.USER)
BOB = Person("bob", "bob", Role.USER)
OLGA = Person("olga", "olga", Role.OPERATOR)

APPROVE = Verdict(DecisionKind.APPROVE)
DENY = Verdict(DecisionKind.DENY, note="no")


@tool
def restart_service(name: str, force: bool = False) -> str:
    """Restarts a service."""
    return name


@tool
def on_server(name: str) -> str:
    """Stands in for a tool of an MCP server."""
    return name


def _graph(*nodes: tuple[str, Any]) -> Any:
    graph = StateGraph(MessagesState)
    for name, node in nodes:
        graph.add_node(name, node)
    return graph.add_edge(START, nodes[0][0]).compile()


@dataclass
class Desk:
    """A store without a worker: turns are claimed and parked by hand."""

    store: SQLiteStore
    agents: LocalAgents
    clock: FakeClock

    async def send(self, person: Person, conversation: str | None = None, **more: Any) -> Accepted:
        fields: dict[str, Any] = {"agent": None, "when_busy": "reject", "request_key": None} | more
        return await self.agents.start(person, input={"message": "hello"}, conversation=conversation, **fields)

    async def park(self, person: Person, *questions: Question, agent: str = "built-in") -> tuple[Accepted, list[Card]]:
        accepted = await self.send(person, agent=agent)
        now = self.clock.now()
        attempt = await self.store.claim(
            agents={agent: None}, suspects=False, now=now, lease_expires_at=now + timedelta(seconds=30)
        )
        assert attempt is not None and attempt.turn.id == accepted.turn
        await attempt.park(questions)
        return accepted, list(await self.store.cards(None, accepted.turn))


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    clock, transport = FakeClock(), LocalTransport()
    store = await open_store(tmp_path / "db", clock=clock, limits=Limits(), notify=transport)
    plain = _graph(("model", lambda state: {"messages": [AIMessage("hi")]}))
    nodes = _graph(("tools", ToolNode([restart_service])))
    inner = _graph(("inside", nodes))
    agents = {
        "built-in": HostedGraph(
            "built-in", AgentSettings("built-in"), plain, "message", tools=ToolRegistry([restart_service, on_server])
        ),
        "own": HostedGraph("own", AgentSettings("own"), inner, "message"),
        "bare": HostedGraph("bare", AgentSettings("bare"), plain, "message"),
    }
    yield Desk(store, LocalAgents(store, transport, agents, "built-in"), clock)
    transport.close()
    await store.close()


def gate(name: str = "restart_service", *, server: str | None = None, deciders: Sequence[str] = ()) -> Question:
    request = GateRequest(
        gate=Gate.APPROVAL,
        key=f"key-{name}",
        call_id=f"call-{name}",
        message_id="m-1",
        tool=name,
        server=server,
        arguments={"name": "web"},
        effect=EffectClass.ONCE,
        deciders=deciders,
    )
    return Question(request.id, request.value(), request)


# -- who sees what ----------------------------------------------------------------------------------------------------


async def test_nothing_of_another_owner_is_found_by_a_user_whatever_the_verb(desk: Desk) -> None:
    accepted, (card,) = await desk.park(ANN, gate())
    agents = desk.agents
    conversation, turn = accepted.conversation, accepted.turn
    verbs: Mapping[str, Callable[[Person], Awaitable[Any]]] = {
        "start": lambda person: desk.send(person, conversation),
        "resume": lambda person: agents.resume(person, conversation),
        "answer": lambda person: agents.answer(person, conversation, {card.interrupt_id: APPROVE}),
        "card": lambda person: agents.card(person, card.id),
        "decide": lambda person: agents.decide(person, card.id, APPROVE),
        "edit": lambda person: agents.decide(person, card.id, Verdict(DecisionKind.APPROVE, {"name": "db"})),
        "cancel": lambda person: agents.cancel(person, turn),
        "turn": lambda person: agents.turn(person, turn),
        "conversation": lambda person: agents.conversation(person, conversation),
        "rename": lambda person: agents.rename(person, conversation, "mine"),
        "delete": lambda person: agents.delete(person, conversation, cancel=True),
        "follow": lambda person: agents.follow(person, conversation, after=None, follow=False),
        "export": lambda person: anext(agents.export(person, conversation)),
    }
    for name, verb in verbs.items():
        with pytest.raises(NotFound):
            await verb(BOB)
            pytest.fail(name)
    assert (await agents.approvals(BOB, limit=10, cursor=None)).items == []
    assert (await agents.conversations(BOB, limit=10, cursor=None, agent=None)).items == []
    assert (await agents.turns(BOB, limit=10, cursor=None, status=None, agent=None)).items == []
    assert (await agents.audit(BOB, limit=10, cursor=None)).items == []
    assert (await agents.turn(ANN, turn)).turn.status is TurnStatus.PARKED, "and nothing happened to it"


async def test_an_operator_reads_decides_cancels_and_resumes_what_is_anothers_but_does_not_speak_in_it(
    desk: Desk,
) -> None:
    accepted, (card,) = await desk.park(ANN, gate())
    agents = desk.agents
    assert [each.id for each in (await agents.approvals(OLGA, limit=10, cursor=None)).items] == [card.id]
    assert (await agents.turn(OLGA, accepted.turn)).turn.owner == "ann"
    assert (await agents.conversation(OLGA, accepted.conversation)).conversation.owner == "ann"
    with pytest.raises(Forbidden, match="ann's"):
        await desk.send(OLGA, accepted.conversation, when_busy="enqueue")
    decided = await agents.decide(OLGA, card.id, DENY)
    assert decided.card.verdict is not None
    assert (decided.card.verdict.by, decided.turn_status) == ("olga", TurnStatus.QUEUED)
    assert (await agents.cancel(OLGA, accepted.turn)).cancel_requested_at is not None
    entries = (await agents.audit(OLGA, limit=10, cursor=None)).items
    assert [(entry.by, entry.action, entry.turn) for entry in entries] == [
        ("olga", "cancel", accepted.turn),
        ("olga", "decide", accepted.turn),
    ]
    assert [entry.by for entry in (await agents.audit(ANN, limit=10, cursor=None)).items] == ["olga", "olga"]


async def test_only_the_owner_and_the_servers_own_token_rename_and_delete(desk: Desk) -> None:
    accepted, _ = await desk.park(ANN, gate())
    with pytest.raises(Forbidden):
        await desk.agents.rename(OLGA, accepted.conversation, "mine")
    with pytest.raises(Forbidden):
        await desk.agents.delete(OLGA, accepted.conversation, cancel=False)
    assert (await desk.agents.rename(ANN, accepted.conversation, "hers")).title == "hers"
    assert (await desk.agents.rename(ADMIN, accepted.conversation, "named")).title == "named"
    with pytest.raises(TurnInProgress):
        await desk.agents.delete(ADMIN, accepted.conversation, cancel=False)
    entries = (await desk.agents.audit(ANN, limit=10, cursor=None)).items
    assert [(entry.by, entry.action) for entry in entries] == [("admin", "rename"), ("ann", "rename")]


async def test_a_decider_sees_its_card_alone_and_nobody_else_decides_it(desk: Desk) -> None:
    accepted, (card,) = await desk.park(ANN, gate(deciders=("bob",)))
    assert [each.id for each in (await desk.agents.approvals(BOB, limit=10, cursor=None)).items] == [card.id]
    assert (await desk.agents.card(BOB, card.id)).deciders == ("bob",)
    for verb in (desk.agents.turn(BOB, accepted.turn), desk.agents.conversation(BOB, accepted.conversation)):
        with pytest.raises(NotFound):
            await verb
    for person in (ANN, OLGA, ADMIN):
        with pytest.raises(Forbidden):
            await desk.agents.decide(person, card.id, APPROVE)
        with pytest.raises(Forbidden):
            await desk.agents.answer(person, accepted.conversation, {card.interrupt_id: APPROVE})
    with pytest.raises(BadRequest, match="nmae"):
        await desk.agents.decide(BOB, card.id, Verdict(DecisionKind.APPROVE, {"nmae": "db"}))
    decided = await desk.agents.decide(BOB, card.id, APPROVE)
    assert decided.card.verdict is not None and decided.card.verdict.by == "bob"


async def test_a_verdict_cannot_be_signed_with_another_name(desk: Desk) -> None:
    accepted, (card,) = await desk.park(ANN, gate())
    forged = Verdict(DecisionKind.APPROVE, by="olga")
    answered = await desk.agents.answer(ANN, accepted.conversation, {card.interrupt_id: forged})
    assert answered.status is TurnStatus.QUEUED
    verdict = (await desk.agents.card(ANN, card.id)).verdict
    assert verdict is not None and verdict.by == "ann"


async def test_the_loser_is_told_who_decided_what(desk: Desk) -> None:
    _, (card,) = await desk.park(ANN, gate())
    await desk.agents.decide(ANN, card.id, DENY)
    with pytest.raises(CardDecided) as caught:
        await desk.agents.decide(OLGA, card.id, Verdict(DecisionKind.APPROVE, {"nmae": "db"}))
    assert (caught.value.details["decided_by"], caught.value.details["decision"]) == ("ann", "deny")


async def test_an_unknown_card_lists_what_waits_for_the_asker_alone(desk: Desk) -> None:
    _, (hers,) = await desk.park(ANN, gate())
    await desk.park(BOB, gate())
    for unknown in ("nope", ""):
        with pytest.raises(UnknownCard) as caught:
            await desk.agents.card(ANN, unknown)
        assert caught.value.details["pending"] == [hers.id]


async def test_a_message_may_interrupt_a_parked_turn_only_when_it_discards_what_waits(desk: Desk) -> None:
    accepted, (card,) = await desk.park(ANN, gate())
    with pytest.raises(TurnInProgress) as caught:
        await desk.send(ANN, accepted.conversation, when_busy="interrupt")
    assert caught.value.details["pending"] == [card.id]
    waits = await desk.send(ANN, accepted.conversation, when_busy="interrupt", discard_pending=True)
    assert waits.status is TurnStatus.WAITING
    assert (await desk.agents.card(ANN, card.id)).state == "closed"
    assert (await desk.agents.audit(ANN, limit=10, cursor=None)).items[0].by == "ann"


async def test_a_repeated_answer_with_its_key_is_the_same_turn_whoever_asks(desk: Desk) -> None:
    accepted, (card,) = await desk.park(ANN, gate())
    key = RequestKey("k", "d" * 64)
    first = await desk.agents.answer(OLGA, accepted.conversation, {card.interrupt_id: APPROVE}, key)
    again = await desk.agents.answer(OLGA, accepted.conversation, {card.interrupt_id: APPROVE}, key)
    assert (first.turn, first.repeated) == (accepted.turn, False)
    assert (again.turn, again.repeated) == (accepted.turn, True)


# -- edited arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", ["built-in", "own"])
@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, "name"),
        ({"name": 5}, "name"),
        ({"name": "db", "force": "perhaps"}, "force"),
        ({"name": "db", "nmae": "x"}, "nmae"),
        ({"name": "db", "forse": True}, "forse"),
    ],
)
async def test_edited_arguments_that_the_tool_does_not_take_decide_nothing(
    desk: Desk, agent: str, arguments: dict[str, Any], field: str
) -> None:
    accepted, (card,) = await desk.park(ANN, gate(), agent=agent)
    edited = Verdict(DecisionKind.APPROVE, arguments)
    for attempt in (
        desk.agents.decide(ANN, card.id, edited),
        desk.agents.answer(ANN, accepted.conversation, {card.interrupt_id: edited}),
    ):
        with pytest.raises(BadRequest, match=field):
            await attempt
    assert (await desk.agents.card(ANN, card.id)).state == "opened"


@pytest.mark.parametrize("agent", ["built-in", "own"])
async def test_edited_arguments_that_fit_are_kept_as_they_were_said(desk: Desk, agent: str) -> None:
    _, (card,) = await desk.park(ANN, gate(), agent=agent)
    edited = Verdict(DecisionKind.APPROVE, {"name": "db", "force": True})
    decided = await desk.agents.decide(ANN, card.id, edited)
    assert decided.card.verdict is not None
    assert decided.card.verdict.arguments == {"name": "db", "force": True}
    assert decided.card.call is not None and decided.card.call.arguments == {"name": "web"}


@pytest.mark.parametrize(
    ("agent", "question"),
    [("bare", gate()), ("built-in", gate("long_gone")), ("built-in", gate("fs__write", server="fs"))],
)
async def test_where_the_tool_is_not_known_here_the_person_is_believed(
    desk: Desk, agent: str, question: Question
) -> None:
    _, (card,) = await desk.park(ANN, question, agent=agent)
    decided = await desk.agents.decide(ANN, card.id, Verdict(DecisionKind.APPROVE, {"anything": 1}))
    assert decided.turn_status is TurnStatus.QUEUED


# -- tokens -----------------------------------------------------------------------------------------------------------


async def test_tokens_are_made_listed_found_and_revoked_by_the_admin_alone(desk: Desk) -> None:
    made = await desk.agents.create_token(ADMIN, "ann", Role.USER, "h" * 64)
    assert (made.name, made.role, made.created_by) == ("ann", Role.USER, "admin")
    found = await desk.agents.token_of("h" * 64)
    assert found is not None and found.name == "ann"
    for person in (ANN, OLGA):
        for verb in (
            desk.agents.create_token(person, "eve", Role.OPERATOR, "e" * 64),
            desk.agents.revoke_token(person, "ann"),
            desk.agents.tokens(person),
        ):
            with pytest.raises(Forbidden):
                await verb
    revoked = await desk.agents.revoke_token(ADMIN, "ann")
    assert revoked.revoked_at is not None
    assert await desk.agents.token_of("h" * 64) is None
    assert [each.name for each in await desk.agents.tokens(ADMIN)] == ["ann"]
    with pytest.raises(BadRequest):
        await desk.agents.create_token(ADMIN, "ann", Role.USER, "i" * 64)
    with pytest.raises(NotFound):
        await desk.agents.revoke_token(ADMIN, "nobody")


@pytest.mark.parametrize("name", ["admin", "local", "expiry", "ADMIN", "", " ann", "a b", "x" * 65, "../x"])
async def test_a_name_that_would_be_taken_for_somebody_else_holds_no_token(desk: Desk, name: str) -> None:
    with pytest.raises(BadRequest, match="`name`"):
        await desk.agents.create_token(ADMIN, name, Role.USER, "h" * 64)
    assert await desk.agents.tokens(ADMIN) == []
