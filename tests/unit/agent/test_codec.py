"""The vocabulary's records on their way between processes: what goes in comes out; what is not of the form is named."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.agent.base import AgentInfo, BranchPoint, ForkedFrom, McpHealth, ServerInfo, WayOn
from perdure.agent.codec import Unreadable, from_json, to_json
from perdure.agent.description import Description
from perdure.forks import Branch, DatabaseSize, Forked, WorkerInfo
from perdure.replication import JournalRows, Position
from perdure.store.base import Decided
from perdure.turns import (
    AskedCall,
    Card,
    CardState,
    Conversation,
    DecisionKind,
    Origin,
    Person,
    Role,
    TurnStatus,
    Verdict,
)

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
CALL = AskedCall("send", "mail", {"to": ["a", "b"], "n": None}, "digest", "once", "call", "message", "key")
VERDICT = Verdict(DecisionKind.APPROVE, {"to": []}, "go on", {"x": [1, 2.5, None]}, "value", "me", AT)
CARD = Card(
    id="card",
    turn="turn",
    conversation="conversation",
    owner="me",
    interrupt_id="interrupt",
    kind="approval",
    request={"any": "thing"},
    state=CardState.DECIDED,
    opened_at=AT,
    verdict=VERDICT,
    call=CALL,
    expires_at=AT,
    deciders=["ada"],
    why="because",
)

RECORDS: list[tuple[type[Any], Any]] = [
    (Person, Person("me", "me", Role.OPERATOR, admin=True)),
    (Verdict, VERDICT),
    (Verdict, Verdict(DecisionKind.ANSWER, value={"lone": "\ud800"})),
    (Card, CARD),
    (Decided, Decided(CARD, TurnStatus.QUEUED)),
    (Conversation, Conversation("c", "me", "agent", "title", 3, AT, AT, TurnStatus.FAILED, Origin("o", None, "cp"))),
    (ForkedFrom, ForkedFrom(Forked("c", "t", TurnStatus.QUEUED, repeated=True), Origin("o", "t", None))),
    (BranchPoint, BranchPoint("cp", "m", [WayOn(Branch("c", "title", None, AT, None, current=True), None)])),
    (
        ServerInfo,
        ServerInfo(
            draining=False,
            workers=[WorkerInfo("host:1:boot", "1.0", AT, 2)],
            own="host:1:boot",
            mcp_servers=[McpHealth("agent", "mail", "idle", 3, None)],
            database=DatabaseSize("/data/perdure.db", 1, 2),
        ),
    ),
    (
        Description,
        Description(AgentInfo("agent", "message", None, True, ["odd"], ["wipe"]), "1.0", "journal", "boot", 9),
    ),
    (
        JournalRows,
        JournalRows(
            "journal",
            3,
            Position("journal", 9, 2),
            more=True,
            conversations=[],
            attempts=[],
            cards=[],
            calls=[],
            audit=[],
            turns=[{"id": "t", "at": 1_700_000_000_000_000, "x": None}],
            deleted=["gone"],
            last_seqs={"c": 7},
        ),
    ),
]


@pytest.mark.parametrize(("kind", "value"), RECORDS, ids=lambda each: getattr(each, "__name__", ""))
def test_what_goes_in_comes_out(kind: type[Any], value: Any) -> None:
    assert from_json(kind, json.loads(json.dumps(to_json(kind, value)))) == value


def test_numbers_that_json_has_not_become_null() -> None:
    told = json.dumps(to_json(Verdict, replace(VERDICT, value=float("nan"))), allow_nan=False)
    assert from_json(Verdict, json.loads(told)).value is None


def test_fields_of_a_later_version_are_passed_over_and_those_of_an_earlier_one_have_their_defaults() -> None:
    assert from_json(Person, {"name": "me", "owner": "me", "shoe_size": 42}) == Person("me", "me")


@pytest.mark.parametrize("document", [None, [], "text", {"name": "me"}, {"name": "me", "owner": 7}])
def test_what_is_not_of_the_form_is_named(document: Any) -> None:
    with pytest.raises(Unreadable, match="A Person that cannot be read"):
        from_json(Person, document)
