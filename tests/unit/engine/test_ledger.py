"""The attempt's ledger as the guard and the repair see it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.graph import START, StateGraph
from langgraph.types import Command

from perdure.config import AgentSettings
from perdure.effects import EffectClass, ToolPolicy
from perdure.engine.ledger import AttemptLedger, Calls, messages_in, status_of
from perdure.errors import StateTypeNotAllowed
from perdure.graph import gates
from perdure.graph.errors import LimitReached
from perdure.ledger import PAUSED, CallState, ToolCall, idempotency_key
from perdure.store.base import LeasedAttempt, StoredCall, StoredResult
from perdure.store.sqlite.encoding import StrictSerializer
from perdure.turns import AskedCall, Card, CardState, DecisionKind, Failure, Spent, Turn, Verdict
from tests.unit.engine.graphs import Values
from tests.unit.engine.test_plan import turn

NOW = datetime(2030, 1, 1, tzinfo=UTC)
CALL = ToolCall("c1", "charge", {"at": "a"}, "ai", effect=EffectClass.ONCE)
KEY = idempotency_key("T1", CALL)


def stored(call: ToolCall = CALL, state: CallState = CallState.STARTED, **more: Any) -> StoredCall:
    key = idempotency_key("T1", call)
    return StoredCall(key, "T1", "thread", call, state, more.pop("starts", 1), 1, 1, NOW, **more)


def calls_of(*rows: StoredCall, cards: Any = None) -> Calls:
    return Calls("T1", ToolPolicy(), list(rows), cards or {}, StrictSerializer())


class Attempt:
    """What an attempt is asked to write."""

    def __init__(self, **spent: Any) -> None:
        self.turn: Turn = replace(turn("T1"), spent=Spent(**spent))
        self.number = 2
        self.spent = self.turn.spent
        self.repeats = ("", 0)
        self.wrote: list[tuple[Any, ...]] = []

    async def intend(self, call: ToolCall, key: str, task: str, node: str, step: int) -> None:
        self.wrote.append(("intend", key, bool(task), node, step))

    def record(self, key: str, result: StoredResult, status: str) -> None:
        self.wrote.append(("record", key, status))

    def unknown(self, key: str, error: str) -> None:
        self.wrote.append(("unknown", key, error))

    async def count_model_call(self, *, durable: bool) -> None:
        self.wrote.append(("model call", durable))


def ledger_of(attempt: Attempt, calls: Calls | None = None, **settings: Any) -> AttemptLedger:
    reached: list[Failure] = []
    made = AttemptLedger(
        cast("LeasedAttempt", attempt),
        AgentSettings("agent", **settings),
        calls or calls_of(),
        lambda: 7.0,
        lambda limit, _: reached.append(limit),
    )
    made.__dict__["told"] = reached
    return made


async def in_a_node(run: Any) -> None:
    async def node(state: Values) -> Values:
        await run()
        return {"done": ["ran"]}

    await StateGraph(Values).add_node("node", node).add_edge(START, "node").compile().ainvoke({"done": []})


# -- what is known ------------------------------------------------------------------------------------------------------


def test_a_recorded_result_is_given_out_as_a_copy() -> None:
    message = ToolMessage("done", tool_call_id="c1", id="r")
    calls = calls_of(stored(state=CallState.RECORDED, result=StoredResult(*StrictSerializer().dumps_typed(message))))
    first, second = calls.record(KEY), calls.record(KEY)
    assert first is not None and second is not None
    assert first.result == second.result == message
    assert first.result is not second.result
    assert calls.record("another") is None


def test_only_once_calls_that_nobody_decided_on_are_uncertain() -> None:
    others = [
        stored(replace(CALL, id="read", effect=EffectClass.READ)),
        stored(replace(CALL, id="checkable", effect=EffectClass.CHECKABLE)),
        stored(replace(CALL, id="recorded"), CallState.RECORDED, result=StoredResult("null", b"")),
        stored(replace(CALL, id="settled"), CallState.SETTLED),
        stored(replace(CALL, id="paused"), error=PAUSED),
    ]
    calls = calls_of(*others, stored(error="the server went away"))
    (asked,) = calls.uncertain()
    assert (asked.call_id, asked.why, asked.starts) == ("c1", "the server went away", 1)
    record = calls.record(KEY)
    assert record is not None
    assert asked == gates.uncertain(record, calls.policy)


def decided(gate_id: str, decision: DecisionKind) -> Card:
    call = AskedCall("charge", None, {}, "", "once", "c1", "ai", KEY)
    verdict = Verdict(decision, by="me", at=NOW)
    return Card("card", "T1", "thread", "me", gate_id, "uncertain", {}, CardState.DECIDED, NOW, verdict, call)


def test_a_decision_counts_for_the_start_that_it_was_asked_about() -> None:
    first = next(calls_of(stored()).uncertain())
    cards = {first.id: decided(first.id, DecisionKind.RETRY)}
    assert list(calls_of(stored(), cards=cards).uncertain()) == []
    assert len(list(calls_of(stored(starts=2), cards=cards).uncertain())) == 1


def test_an_answer_to_a_question_of_the_graph_is_no_verdict_on_a_gate() -> None:
    card = replace(decided("gate-1", DecisionKind.ANSWER), call=None)
    assert calls_of(cards={"gate-1": card}).verdict("gate-1") is None


# -- what is written ----------------------------------------------------------------------------------------------------


async def test_a_call_goes_from_its_start_to_its_record() -> None:
    attempt = Attempt()
    ledger = ledger_of(attempt)
    await in_a_node(lambda: ledger.intend(CALL))
    record = ledger.record(KEY)
    assert record is not None
    assert (record.state, record.starts, record.attempt) == (CallState.STARTED, 1, 2)
    assert len(ledger.calling) == 1
    ledger.unknown(CALL, "lost")
    assert [each.why for each in ledger.calls.uncertain()] == ["lost"]
    ledger.result(CALL, ToolMessage("no", tool_call_id="c1", status="error"))
    assert list(ledger.calls.uncertain()) == []
    assert attempt.wrote == [("intend", KEY, True, "node", 1), ("unknown", KEY, "lost"), ("record", KEY, "error")]


class Unlisted:
    pass


def test_a_result_that_could_not_be_read_back_is_not_recorded() -> None:
    attempt = Attempt()
    with pytest.raises(StateTypeNotAllowed, match="Unlisted"):
        ledger_of(attempt).result(CALL, ToolMessage("x", tool_call_id="c1", artifact=Unlisted()))
    assert attempt.wrote == []


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (ToolMessage("x", tool_call_id="c1", status="error"), "error"),
        ([Command(update={"messages": [ToolMessage("x", tool_call_id="c1", status="error")]})], "error"),
        ([ToolMessage("x", tool_call_id="other", status="error"), ToolMessage("x", tool_call_id="c1")], "success"),
        (Command(goto="elsewhere"), "success"),
        ({"messages": HumanMessage("x")}, "success"),
    ],
)
def test_the_status_of_a_result_is_that_of_the_calls_own_message(result: Any, status: str) -> None:
    assert status_of(result, "c1") == status
    assert all(hasattr(each, "content") for each in messages_in(result))


# -- limits -------------------------------------------------------------------------------------------------------------


async def test_a_limit_is_reached_before_anything_is_written_and_told_at_once() -> None:
    attempt = Attempt(tool_calls=3)
    ledger = ledger_of(attempt, max_tool_calls=3)
    with pytest.raises(LimitReached, match="max_tool_calls"):
        await ledger.intend(CALL)
    assert attempt.wrote == []
    assert [each.reason for each in ledger.__dict__["told"]] == ["tool_call_limit"]


async def test_identical_calls_are_those_in_a_row_and_polls_are_exempt() -> None:
    attempt = Attempt()
    attempt.repeats = (CALL.likeness, 2)
    ledger = ledger_of(attempt, max_identical_calls=2)
    with pytest.raises(LimitReached, match="charge"):
        await ledger.intend(CALL)
    await in_a_node(lambda: ledger.intend(replace(CALL, id="c2", polls=True)))
    await in_a_node(lambda: ledger.intend(replace(CALL, id="c3", arguments={"at": "b"})))
    assert len(attempt.wrote) == 2


async def test_a_call_that_was_granted_before_is_started_again_beyond_the_limit() -> None:
    attempt = Attempt(tool_calls=3)
    attempt.repeats = (CALL.likeness, 2)
    ledger = ledger_of(attempt, calls_of(stored()), max_tool_calls=3, max_identical_calls=2)
    await in_a_node(lambda: ledger.intend(CALL))
    record = ledger.record(KEY)
    assert record is not None
    assert record.starts == 2


async def test_model_calls_are_stored_before_they_start_where_a_limit_counts_on_it() -> None:
    free, limited = Attempt(), Attempt(model_calls=1)
    await ledger_of(free).count_model_call()
    ledger = ledger_of(limited, max_model_calls=2)
    await ledger.count_model_call()
    with pytest.raises(LimitReached, match="max_model_calls"):
        await ledger.count_model_call()
    assert (free.wrote, limited.wrote) == ([("model call", False)], [("model call", True)])
