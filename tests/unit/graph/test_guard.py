"""Every row of what the guard may meet: what the ledger holds of a call, its effect class, what a person said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.errors import GraphDrained
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.prebuilt.tool_node import ToolCallRequest

from perdure import failpoints, ledger
from perdure.effects import EffectClass, Gate, OnUncertain
from perdure.errors import LeaseLost
from perdure.failpoints import FailpointError
from perdure.graph.effect import NOT_HAPPENED, effect
from perdure.graph.errors import LimitReached, OutcomeUnknown
from perdure.graph.guard import guarded
from perdure.graph.history import result_id
from perdure.graph.keys import call_key
from perdure.ledger import CallState, ToolCall
from perdure.turns import EXPIRY, DecisionKind, Verdict
from tests.servers.driving import RecordingLedger
from tests.unit.graph.scripted import KINDS, Driven, Make, asks, results, says


@pytest.fixture(params=list(KINDS))
def make(request: pytest.FixtureRequest) -> Make:
    return KINDS[request.param]


class Act:
    """A tool that counts its starts and does what a test says."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.do: Callable[[int], Any] = lambda amount: f"did {amount}"

    def tool(self, effect_class: str = "once", **more: Any) -> BaseTool:
        @effect(effect_class, **more)
        @tool
        async def act(amount: int) -> str:
            """Acts."""
            self.started.append((amount, call_key()))
            answer = self.do(amount)
            return str(await answer if asyncio.iscoroutine(answer) else answer)

        return act


@pytest.fixture
def act() -> Act:
    return Act()


def calling() -> list[AIMessage]:
    return [asks(("act", {"amount": 5})), says("done")]


def text(messages: list[BaseMessage]) -> str:
    return str(results(messages)["c0"].content)


async def died_during_the_call(driven: Driven) -> None:
    """The process dies after the tool had its effect and before that was recorded."""
    failpoints.arm("tool_call.after:error")
    with pytest.raises(FailpointError):
        await driven.say()
    failpoints.arm("")


# -- first starts -----------------------------------------------------------------------------------------------------


async def test_a_call_is_written_down_then_runs_with_its_key_and_its_result_is_written_down(
    make: Make, act: Act
) -> None:
    seen: list[CallState] = []
    driven = Driven(make, calling(), act.tool())
    act.do = lambda _: seen.extend(each.state for each in driven.record.records.values())
    messages = await driven.say()
    ((key, record),) = driven.record.records.items()
    assert seen == [CallState.STARTED]
    assert act.started == [(5, key)]
    assert key == ledger.idempotency_key("turn-1", ToolCall("c0", "act", {"amount": 5}, messages[1].id or ""))
    assert (record.state, record.starts, record.call.effect) == (CallState.RECORDED, 1, EffectClass.ONCE)
    assert results(messages)["c0"].id == result_id(messages[1].id or "", "c0")


async def test_a_limit_that_is_reached_ends_the_turn_and_not_the_call(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool())

    async def refuse(_: ToolCall) -> None:
        raise LimitReached("tool_call_limit", "enough")

    driven.record.intend = refuse  # type: ignore[method-assign,assignment]
    with pytest.raises(LimitReached):
        await driven.say()
    assert act.started == []


async def test_an_attempt_that_lost_its_lease_starts_nothing(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool())

    async def refuse(_: ToolCall) -> None:
        raise LeaseLost

    driven.record.intend = refuse  # type: ignore[method-assign,assignment]
    with pytest.raises(LeaseLost):
        await driven.say()
    assert act.started == []


async def test_what_the_settings_say_of_a_tool_goes_over_what_it_says_itself(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool("read"), effects=[("a*", EffectClass.KEYED)], poll=["act"])
    await driven.say()
    (call,) = driven.record.calls
    assert (call.effect, call.polls) == (EffectClass.KEYED, True)


# -- approvals --------------------------------------------------------------------------------------------------------


async def test_a_gated_call_waits_and_says_exactly_what_it_would_do(make: Make, act: Act) -> None:
    driven = Driven(
        make, calling(), act.tool(), needs_approval=["ac*"], approval_expires_seconds=60.0, approval_deciders=["ann"]
    )
    messages = await driven.say()
    assert [each.type for each in messages] == ["human", "ai"]
    gate = (await driven.gates())["act 5"]
    assert (gate.gate, gate.arguments, gate.effect) == (Gate.APPROVAL, {"amount": 5}, EffectClass.ONCE)
    assert (gate.expires_seconds, tuple(gate.deciders)) == (60.0, ("ann",))
    assert (act.started, driven.record.calls) == ([], [])
    await driven.again()
    assert (act.started, list(await driven.gates())) == ([], ["act 5"])


async def test_an_approved_call_runs_once(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool(), needs_approval=["act"])
    await driven.say()
    await driven.decide("act 5", DecisionKind.APPROVE)
    messages = await driven.again()
    assert text(messages) == "did 5"
    assert len(act.started) == 1


async def test_edited_arguments_run_in_the_place_of_the_models_and_the_model_is_told(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool(), needs_approval=["act"])
    await driven.say()
    await driven.decide("act 5", DecisionKind.APPROVE, arguments={"amount": 3})
    messages = await driven.again()
    assert [amount for amount, _ in act.started] == [3]
    assert driven.record.calls[0].arguments == {"amount": 3}
    assert 'A person changed the arguments of this call before it ran. It ran with: {"amount": 3}' in text(messages)
    assert text(messages).endswith("did 3")


async def test_a_denial_is_an_answer_with_its_note_and_no_error(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool(), needs_approval=["act"])
    await driven.say()
    await driven.decide("act 5", DecisionKind.DENY, note="not on a Friday")
    messages = await driven.again()
    answer = results(messages)["c0"]
    assert (answer.status, answer.additional_kwargs["perdure_status"]) == ("success", "denied")
    assert "ann" in text(messages) and "not on a Friday" in text(messages) and "was not run" in text(messages)
    assert (act.started, driven.record.calls) == ([], [])


async def test_an_approval_that_expired_says_so(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool(), needs_approval=["act"])
    await driven.say()
    gate = (await driven.gates())["act 5"]
    driven.record.verdicts[gate.id] = Verdict(DecisionKind.DENY, by=EXPIRY)
    assert "nobody gave it in time" in text(await driven.again())
    assert act.started == []


async def test_a_decision_for_other_arguments_is_none(make: Make, act: Act) -> None:
    other = Driven(
        make, [asks(("act", {"amount": 500})).model_copy(update={"id": "m"})], act.tool(), needs_approval=["*"]
    )
    await other.say()
    first = (await other.gates())["act 500"]
    replies = [asks(("act", {"amount": 5})).model_copy(update={"id": "m"}), says("done")]
    driven = Driven(make, replies, act.tool(), needs_approval=["*"])
    driven.record.verdicts[first.id] = Verdict(DecisionKind.APPROVE)
    await driven.say()
    assert list(await driven.gates()) == ["act 5"]
    assert act.started == []


async def test_an_approved_call_that_died_is_not_approved_for_a_second_start(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool(), needs_approval=["act"])
    await driven.say()
    await driven.decide("act 5", DecisionKind.APPROVE, arguments={"amount": 3})
    failpoints.arm("tool_call.after:error")
    with pytest.raises(FailpointError):
        await driven.again()
    failpoints.arm("")
    await driven.again()
    gate = (await driven.gates())["act 3"]
    assert (gate.gate, len(act.started)) == (Gate.UNCERTAIN, 1)
    await driven.decide("act 3", DecisionKind.RETRY)
    messages = await driven.again()
    assert [amount for amount, _ in act.started] == [3, 3]
    assert "A person changed the arguments" in text(messages)


async def test_a_decision_counts_also_when_the_settings_no_longer_ask_for_it(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool(), needs_approval=["act"])
    await driven.say()
    await driven.decide("act 5", DecisionKind.DENY)
    driven.record.policy = replace(driven.record.policy, needs_approval=())
    assert results(await driven.again())["c0"].additional_kwargs["perdure_status"] == "denied"
    assert act.started == []


async def test_edited_arguments_run_also_when_the_settings_no_longer_ask_for_approval(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool(), needs_approval=["act"])
    await driven.say()
    await driven.decide("act 5", DecisionKind.APPROVE, arguments={"amount": 3})
    driven.record.policy = replace(driven.record.policy, needs_approval=())
    assert "did 3" in text(await driven.again())
    assert [amount for amount, _ in act.started] == [3]


# -- calls that were started before -----------------------------------------------------------------------------------


async def test_a_recorded_result_is_used_when_the_task_is_run_again(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool())
    await died_during_the_call(driven)
    (call,) = driven.record.calls
    driven.record.result(call, ToolMessage("as it was recorded", tool_call_id=call.id, name=call.name, id="t"))
    assert text(await driven.again()) == "as it was recorded"
    assert len(act.started) == 1


@pytest.mark.parametrize("effect_class", ["read", "keyed"])
async def test_a_repeatable_call_that_died_runs_again_with_the_same_key(
    make: Make, act: Act, effect_class: str
) -> None:
    driven = Driven(make, calling(), act.tool(effect_class))
    await died_during_the_call(driven)
    assert text(await driven.again()) == "did 5"
    assert len(act.started) == 2
    assert len({key for _, key in act.started}) == 1


async def test_a_once_call_that_died_is_a_question_and_never_starts_by_itself(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool())
    await died_during_the_call(driven)
    for _ in range(3):
        await driven.again()
        gate = (await driven.gates())["act 5"]
        assert (gate.gate, gate.starts, len(act.started)) == (Gate.UNCERTAIN, 1, 1)


async def test_it_happened_gives_the_model_the_result_that_the_person_knows(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool())
    await died_during_the_call(driven)
    await driven.again()
    await driven.decide("act 5", DecisionKind.HAPPENED, result={"charge": 17})
    messages = await driven.again()
    assert (text(messages), len(act.started)) == ('{"charge": 17}', 1)
    (record,) = driven.record.records.values()
    assert (record.state, results(messages)["c0"].status) == (CallState.RECORDED, "success")


@pytest.mark.parametrize("effect_class", [EffectClass.READ, EffectClass.KEYED])
async def test_a_call_that_was_once_when_it_started_stays_so_whatever_its_tool_is_called_now(
    make: Make, act: Act, effect_class: EffectClass
) -> None:
    driven = Driven(make, calling(), act.tool())
    await died_during_the_call(driven)
    driven.record.policy = replace(driven.record.policy, effects=[("act", effect_class)])
    await driven.again()
    assert (await driven.gates())["act 5"].gate is Gate.UNCERTAIN
    await driven.decide("act 5", DecisionKind.HAPPENED, result="it did")
    assert text(await driven.again()) == "it did"
    assert len(act.started) == 1


@pytest.mark.parametrize("effect_class", ["once", "read"])
async def test_a_tool_that_says_it_was_drained_though_nobody_asked_has_failed(
    make: Make, act: Act, effect_class: str
) -> None:
    driven = Driven(make, calling(), act.tool(effect_class))

    def drained(_: int) -> str:
        raise GraphDrained("by itself")

    act.do = drained
    if effect_class == "once":
        await driven.say()
        assert (await driven.gates())["act 5"].gate is Gate.UNCERTAIN
    else:
        with pytest.raises(GraphDrained):
            await driven.say()
    (record,) = driven.record.records.values()
    assert record.error is not None and not record.paused
    assert len(act.started) == 1


# -- tools that are not what they were ----------------------------------------------------------------------------------


@tool
def unrelated() -> str:
    """Another tool."""
    return "unrelated"


@tool("act")
def act_with_a_unit(amount: int, unit: str) -> str:
    """A later version that cannot be called as the earlier one."""
    return f"{amount} {unit}"


@pytest.mark.parametrize("later", [unrelated, act_with_a_unit])
async def test_a_started_call_is_a_question_also_when_its_tool_is_gone_or_takes_other_arguments(
    make: Make, act: Act, later: BaseTool
) -> None:
    driven = Driven(make, calling(), act.tool())
    await died_during_the_call(driven)
    driven.deploy(later)
    await driven.again()
    assert (await driven.gates())["act 5"].gate is Gate.UNCERTAIN
    await driven.decide("act 5", DecisionKind.HAPPENED, result="it did")
    assert (text(await driven.again()), len(act.started)) == ("it did", 1)


@pytest.mark.parametrize("later", [unrelated, act_with_a_unit])
async def test_a_recorded_result_is_used_also_when_its_tool_is_gone(make: Make, act: Act, later: BaseTool) -> None:
    driven = Driven(make, calling(), act.tool())
    await died_during_the_call(driven)
    (call,) = driven.record.calls
    driven.record.result(call, ToolMessage("as it was recorded", tool_call_id=call.id, name=call.name, id="t"))
    driven.deploy(later)
    assert text(await driven.again()) == "as it was recorded"


async def test_a_denied_call_is_denied_also_when_its_tool_is_gone(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool(), needs_approval=["act"])
    await driven.say()
    await driven.decide("act 5", DecisionKind.DENY)
    driven.deploy(unrelated)
    assert results(await driven.again())["c0"].additional_kwargs["perdure_status"] == "denied"


@pytest.mark.parametrize("later", [unrelated, act_with_a_unit])
async def test_a_repeatable_call_whose_tool_is_gone_says_that_it_was_started(act: Act, later: BaseTool) -> None:
    driven = Driven(KINDS["built-in"], calling(), act.tool("read"))
    await died_during_the_call(driven)
    driven.deploy(later)
    driven.record.policy = replace(driven.record.policy, effects=[("act", EffectClass.READ)])
    assert "It had been started before" in text(await driven.again())


# -- calls that came with the same id ------------------------------------------------------------------------------------


@pytest.mark.parametrize("call_id", ["", "c"])
async def test_calls_of_one_message_with_the_same_id_are_told_apart_by_what_they_ask_for(
    act: Act, call_id: str
) -> None:
    """Some model servers give all calls of an answer one id, or none."""
    reply = asks(("act", {"amount": 5}), ("act", {"amount": 7}))
    for call in reply.tool_calls:
        call["id"] = call_id
    driven = Driven(KINDS["tool node"], [reply, says("done")], act.tool(), needs_approval=["act"])
    await driven.say()
    assert sorted(await driven.gates()) == ["act 5", "act 7"]
    await driven.decide("act 5", DecisionKind.DENY)
    await driven.decide("act 7", DecisionKind.APPROVE)
    messages = await driven.again()
    assert [amount for amount, _ in act.started] == [7]
    assert sorted(str(each.content)[:9] for each in messages if isinstance(each, ToolMessage)) == ["A person ", "did 7"]


async def test_give_up_is_an_error_that_says_that_the_outcome_is_unknown(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool())
    await died_during_the_call(driven)
    await driven.again()
    await driven.decide("act 5", DecisionKind.GIVE_UP, note="the bank is closed")
    messages = await driven.again()
    assert results(messages)["c0"].status == "error"
    words = ["not known", "ann", "gave it up", "may or may not have taken effect", "the bank is closed"]
    assert [word for word in words if word not in text(messages)] == []
    assert len(act.started) == 1


async def test_a_decision_on_one_start_is_none_on_the_next(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool())
    await died_during_the_call(driven)
    await driven.again()
    await driven.decide("act 5", DecisionKind.RETRY)
    failpoints.arm("tool_call.after:error")
    with pytest.raises(FailpointError):
        await driven.again()
    failpoints.arm("")
    assert len(act.started) == 2
    await driven.again()
    assert ((await driven.gates())["act 5"].starts, len(act.started)) == (2, 2)


async def test_on_uncertain_retry_runs_it_again(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool(), on_uncertain=OnUncertain.RETRY)
    await died_during_the_call(driven)
    assert text(await driven.again()) == "did 5"
    assert len(act.started) == 2


async def test_on_uncertain_fail_ends_the_turn(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool(), on_uncertain=OnUncertain.FAIL)
    await died_during_the_call(driven)
    with pytest.raises(OutcomeUnknown, match="`act` is not known"):
        await driven.again()
    assert len(act.started) == 1


async def test_a_settled_call_that_is_asked_again_is_uncertain(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool())
    await died_during_the_call(driven)
    ((key, record),) = driven.record.records.items()
    driven.record.records[key] = type(record)(key, CallState.SETTLED, record.call, 1, 1)
    await driven.again()
    gate = (await driven.gates())["act 5"]
    assert "makes the same call once more" in gate.why
    assert len(act.started) == 1


# -- lookups ----------------------------------------------------------------------------------------------------------


def sync_lookup(answer: Any) -> Callable[[str], Any]:
    def find(key: str) -> Any:
        found.append(key)
        return answer

    found: list[str] = []
    find.found = found  # type: ignore[attr-defined]
    return find


def async_lookup(answer: Any) -> Callable[[str], Any]:
    async def find(key: str) -> Any:
        found.append(key)
        return answer

    found: list[str] = []
    find.found = found  # type: ignore[attr-defined]
    return find


@pytest.mark.parametrize("kind", [sync_lookup, async_lookup])
async def test_a_lookup_that_finds_the_call_answers_it(make: Make, act: Act, kind: Any) -> None:
    lookup = kind("charged before")
    driven = Driven(make, calling(), act.tool("checkable", lookup=lookup))
    await died_during_the_call(driven)
    assert text(await driven.again()) == "charged before"
    assert lookup.found == [key for _, key in act.started]
    assert [each.state for each in driven.record.records.values()] == [CallState.RECORDED]


@pytest.mark.parametrize("kind", [sync_lookup, async_lookup])
async def test_a_lookup_that_says_no_lets_it_run(make: Make, act: Act, kind: Any) -> None:
    driven = Driven(make, calling(), act.tool("checkable", lookup=kind(NOT_HAPPENED)))
    await died_during_the_call(driven)
    assert text(await driven.again()) == "did 5"
    assert len(act.started) == 2


def broken(key: str) -> Any:
    raise ConnectionError("no answer")


@pytest.mark.parametrize("lookup", [sync_lookup(None), async_lookup(None), broken])
async def test_a_lookup_that_cannot_tell_leaves_it_to_a_person(make: Make, act: Act, lookup: Any) -> None:
    driven = Driven(make, calling(), act.tool("checkable", lookup=lookup))
    await died_during_the_call(driven)
    await driven.again()
    assert (await driven.gates())["act 5"].effect is EffectClass.CHECKABLE
    assert len(act.started) == 1


async def test_a_tool_called_checkable_by_the_settings_alone_has_no_lookup_and_is_asked_about(
    make: Make, act: Act
) -> None:
    driven = Driven(make, calling(), act.tool(), effects=[("act", EffectClass.CHECKABLE)])
    await died_during_the_call(driven)
    await driven.again()
    assert list(await driven.gates()) == ["act 5"]


# -- cuts -------------------------------------------------------------------------------------------------------------


class Slow:
    """A tool that is under way until a test lets it end."""

    def __init__(self, act: Act) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.cancelled = False
        act.do = lambda _: self._wait()

    async def _wait(self) -> str:
        self.entered.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return "in time"


async def the_cut_arrives() -> None:
    """It goes from task to task, one turn of the loop each, and needs nothing else."""
    for _ in range(100):
        await asyncio.sleep(0)


async def cut(driven: Driven, slow: Slow, *, finish: bool) -> None:
    work = asyncio.create_task(driven.say())
    await slow.entered.wait()
    work.cancel()
    if finish:
        await the_cut_arrives()
        assert not work.done()
        slow.release.set()
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_a_once_call_that_is_cut_may_finish_and_is_recorded(make: Make, act: Act) -> None:
    slow = Slow(act)
    driven = Driven(make, calling(), act.tool())
    driven.record.grace = 60
    await cut(driven, slow, finish=True)
    (record,) = driven.record.records.values()
    assert (record.state, slow.cancelled) == (CallState.RECORDED, False)
    assert text(await driven.again()) == "in time"
    assert len(act.started) == 1


async def test_a_once_call_that_does_not_finish_in_its_grace_stays_uncertain(make: Make, act: Act) -> None:
    slow = Slow(act)
    driven = Driven(make, calling(), act.tool())
    driven.record.grace = 0.01
    await cut(driven, slow, finish=False)
    (record,) = driven.record.records.values()
    assert (record.state, slow.cancelled) == (CallState.STARTED, True)
    assert "cancelled while it was under way" in str(record.error)


async def test_a_second_cut_ends_the_grace_when_there_is_none_any_more(act: Act) -> None:
    """LangGraph itself cancels a task twice when another one of its step fails."""
    slow = Slow(act)
    record = RecordingLedger(grace=3600)
    ledger.current.set(record)
    tool = act.tool()

    async def run(given: ToolCallRequest) -> Any:
        return await tool.ainvoke({**given.tool_call, "type": "tool_call"})

    work = asyncio.create_task(guarded(request_for(tool, {"amount": 5}), run))
    await slow.entered.wait()
    for _ in range(2):
        work.cancel()
        await the_cut_arrives()
        assert (work.done(), slow.cancelled) == (False, False)
    record.grace = 0
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert slow.cancelled


def request_for(tool: BaseTool, arguments: dict[str, Any]) -> ToolCallRequest:
    asked = asks((tool.name, arguments)).model_copy(update={"id": "m"})
    state = {"messages": [asked]}
    runtime = ToolRuntime(
        state=state, context=None, config={}, stream_writer=lambda _: None, tool_call_id="c0", store=None
    )
    return ToolCallRequest(tool_call=asked.tool_calls[0], tool=tool, state=state, runtime=runtime)


async def test_a_call_that_is_cut_before_it_began_starts_without_a_question(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool())
    writing = asyncio.Event()
    intend = driven.record.intend

    async def slowly(call: ToolCall) -> None:
        await intend(call)
        writing.set()
        await asyncio.Event().wait()

    driven.record.intend = slowly  # type: ignore[method-assign]
    work = asyncio.create_task(driven.say())
    await writing.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    driven.record.intend = intend  # type: ignore[method-assign]
    assert [each.paused for each in driven.record.records.values()] == [True]
    assert text(await driven.again()) == "did 5"
    assert len(act.started) == 1


async def test_a_repeatable_call_is_cut_at_once(make: Make, act: Act) -> None:
    slow = Slow(act)
    driven = Driven(make, calling(), act.tool("keyed"))
    driven.record.grace = 3600
    await cut(driven, slow, finish=False)
    assert slow.cancelled
    slow.release.set()
    assert text(await driven.again()) == "in time"


# -- outside of Perdure -----------------------------------------------------------------------------------------------


async def test_outside_of_perdure_tools_simply_run(make: Make, act: Act) -> None:
    driven = Driven(make, calling(), act.tool(), needs_approval=["*"])
    state = await driven.chat.hosted.graph.ainvoke({"messages": [("user", "go")]})
    assert text(state["messages"]) == "did 5"
    assert act.started == [(5, None)]


# -- approved calls of tools of every make ----------------------------------------------------------------------------


@tool
async def injected(
    amount: int,
    state: Annotated[dict[str, Any], InjectedState],
    runtime: ToolRuntime,
    call_id: Annotated[str, InjectedToolCallId],
) -> str:
    """Acts."""
    return f"{amount} {len(state['messages'])} {runtime.tool_call_id} {call_id}"


class Remote(BaseTool):
    """As a tool of a server: its schema is JSON."""

    name: str = "injected"
    description: str = "Acts."
    args_schema: dict[str, Any] = {"type": "object", "properties": {"amount": {"type": "integer"}}}  # noqa: RUF012

    def _run(self, **_: Any) -> str:
        raise NotImplementedError

    async def _arun(self, /, **arguments: Any) -> str:
        return f"remote {arguments}"


@pytest.mark.parametrize(
    ("made", "expected"), [(injected, "7 2 c0 c0"), (Remote(), "remote {'amount': 7}")], ids=["injected", "remote"]
)
async def test_an_approved_call_runs_whatever_the_tool_is_made_of(make: Make, made: BaseTool, expected: str) -> None:
    driven = Driven(make, [asks(("injected", {"amount": 5})), says("done")], made, needs_approval=["*"])
    await driven.say()
    await driven.decide("injected 5", DecisionKind.APPROVE, arguments={"amount": 7})
    assert text(await driven.again()).endswith(f"\n{expected}")


async def test_edited_arguments_that_do_not_fit_are_an_answer_and_nothing_runs(act: Act) -> None:
    for kind in ("built-in", "tool node"):
        driven = Driven(KINDS[kind], calling(), act.tool(), needs_approval=["act"])
        await driven.say()
        await driven.decide("act 5", DecisionKind.APPROVE, arguments={"amount": "a lot"})
        answer = results(await driven.again())["c0"]
        assert (answer.status, "was not called: amount" in str(answer.content)) == ("error", True)
        assert (act.started, driven.record.calls) == ([], [])
