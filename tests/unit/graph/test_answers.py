"""What a repair answers calls with that have no result in the thread."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.types import Command

from perdure import ledger
from perdure.effects import ToolPolicy
from perdure.graph import answers, gates
from perdure.graph.history import Asked, result_id
from perdure.ledger import CallRecord, CallState, ToolCall
from perdure.turns import DecisionKind, Verdict
from tests.servers.driving import RecordingLedger
from tests.unit.graph.scripted import asks

ASKER: AIMessage = asks(("act", {"n": 1})).model_copy(update={"id": "m"})
CALL = ToolCall("c0", "act", {"n": 1}, "m")
KEY = ledger.idempotency_key("turn-1", CALL)


def closing(attempt: RecordingLedger, *, covered: bool = True, cancelled: bool = False) -> ToolMessage | None:
    return answers.closing(attempt, ASKER, Asked("c0", "act"), covered=covered, cancelled=cancelled)


def told(attempt: RecordingLedger, **more: Any) -> ToolMessage:
    found = closing(attempt, **more)
    assert found is not None
    assert (found.tool_call_id, found.name, found.id) == ("c0", "act", result_id("m", "c0"))
    return found


def holding(state: CallState, **more: Any) -> RecordingLedger:
    return RecordingLedger(records={KEY: CallRecord(KEY, state, CALL, 1, 1, **more)})


@pytest.mark.parametrize(
    "result",
    [
        answers.message(CALL, "did it"),
        Command(update={"messages": [HumanMessage("x"), answers.message(CALL, "did it")]}),
        [Command(update={"n": 1}), answers.message(CALL, "did it")],
    ],
)
def test_a_recorded_result_is_the_result(result: Any) -> None:
    assert told(holding(CallState.RECORDED, result=result)).content == "did it"


def test_a_recorded_result_without_the_calls_own_message_is_not_known() -> None:
    assert "not known" in str(told(holding(CallState.RECORDED, result=Command(goto="x"))).content)


def test_a_call_that_was_never_started_says_so_and_who_ended_the_turn() -> None:
    assert told(RecordingLedger()).content == answers.NOT_STARTED
    assert told(RecordingLedger(), cancelled=True).content == answers.CANCELLED_BEFORE
    assert told(holding(CallState.STARTED, error=ledger.NOT_BEGUN)).content == answers.NOT_STARTED


def test_of_a_call_outside_of_the_guard_nothing_is_known() -> None:
    assert closing(RecordingLedger(), covered=False) is None
    assert told(holding(CallState.STARTED), covered=False).status == "error"


def test_a_call_that_waited_for_approval_says_so() -> None:
    attempt = RecordingLedger(policy=ToolPolicy(needs_approval=["act"]))
    assert told(attempt, cancelled=True).content == answers.NOT_APPROVED


@pytest.mark.parametrize(("decision", "status"), [(DecisionKind.DENY, "denied"), (DecisionKind.APPROVE, "not_started")])
def test_a_denied_call_has_its_denial_and_an_approved_one_was_not_started(decision: DecisionKind, status: str) -> None:
    policy = ToolPolicy(needs_approval=["act"])
    gate = gates.approval(CALL, KEY, policy)
    attempt = RecordingLedger(policy=policy, verdicts={gate.id: Verdict(decision, by="ann")})
    found = told(attempt)
    assert found.additional_kwargs.get("perdure_status") == status
    assert (found.content == answers.NOT_STARTED) == (status == "not_started")


def test_a_started_call_has_an_unknown_outcome_and_its_reason() -> None:
    found = told(holding(CallState.STARTED, error="the tool raised ValueError: boom"), cancelled=True)
    words = ["not known: the tool raised ValueError: boom.", "cancelled the turn", "may or may not have taken effect"]
    assert [word for word in words if word not in str(found.content)] == []
    assert found.additional_kwargs == {"perdure_status": "unknown"}
    assert gates.STOPPED in str(told(holding(CallState.STARTED)).content)


@pytest.mark.parametrize(
    ("verdict", "words", "status"),
    [
        (Verdict(DecisionKind.HAPPENED, result="it is done"), ["it is done"], None),
        (Verdict(DecisionKind.HAPPENED), ["It has taken effect"], None),
        (Verdict(DecisionKind.GIVE_UP, by="ann", note="too late"), ["ann", "gave it up", "too late"], "unknown"),
        (Verdict(DecisionKind.RETRY, by="ann"), ["ann", "did not take effect", "not run again"], "stopped"),
    ],
)
def test_what_a_person_said_of_a_started_call_is_kept(verdict: Verdict, words: list[str], status: str | None) -> None:
    attempt = holding(CallState.STARTED)
    gate = gates.uncertain(attempt.records[KEY], attempt.policy)
    attempt.verdicts[gate.id] = verdict
    found = told(attempt)
    assert [word for word in words if word not in str(found.content)] == []
    assert found.additional_kwargs.get("perdure_status") == status


def test_a_decision_on_an_earlier_start_says_nothing_of_this_one() -> None:
    attempt = holding(CallState.STARTED)
    gate = gates.uncertain(attempt.records[KEY], attempt.policy)
    attempt.verdicts[gate.id] = Verdict(DecisionKind.HAPPENED, result="it is done")
    attempt.records[KEY] = replace(attempt.records[KEY], starts=2)
    assert "not known" in str(told(attempt).content)


def test_a_changed_call_is_told_in_text_and_in_blocks_and_in_commands() -> None:
    plain = answers.changed(answers.message(CALL, "did it"), CALL, {"n": 2})
    assert isinstance(plain, ToolMessage)
    assert str(plain.content).startswith("[A person changed") and str(plain.content).endswith('{"n": 2}]\ndid it')
    blocks = answers.changed(answers.message(CALL, [{"type": "text", "text": "did it"}]), CALL, {"n": 2})
    assert isinstance(blocks, ToolMessage)
    assert len(blocks.content) == 2
    commanded = answers.changed(
        Command(update={"messages": [answers.message(CALL, "x")]}, goto="there"), CALL, {"n": 2}
    )
    assert isinstance(commanded, Command)
    assert commanded.goto == "there"
    assert "A person changed" in str(answers.messages_in(commanded)[0].content)
