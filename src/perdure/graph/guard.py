"""The one guard around every tool call: asks a person first where one must be asked, writes down what is about to
happen, uses what was written down, and never starts a call a second time that may not be repeated.

It talks to the ledger of the running attempt alone (`ledger.current`). Outside Perdure tools simply run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from langgraph.errors import GraphBubbleUp, GraphDrained, GraphInterrupt
from langgraph.prebuilt.tool_node import ToolCallRequest

from perdure import ledger
from perdure.effects import EffectClass, OnUncertain
from perdure.errors import PerdureError
from perdure.failpoints import failpoint
from perdure.graph import answers, gates
from perdure.graph.answers import Result
from perdure.graph.approved import ArgumentsChanged, expect
from perdure.graph.effect import NOT_HAPPENED, Lookup, declaration_of, look_up
from perdure.graph.errors import OutcomeUnknown, Unsettled
from perdure.graph.places import resuming
from perdure.graph.requests import cannot_start, holder_of, refusal_of, with_arguments
from perdure.graph.waiting import ended, error_of, why_of
from perdure.ledger import CallRecord, CallState, Ledger, ToolCall
from perdure.turns import DecisionKind, Verdict

Run = Callable[[ToolCallRequest], Awaitable[Result]]
"""Runs the tool of the request. An exception says that the outcome is not known, `Unsettled` says why."""

_REPEATABLE = frozenset({EffectClass.READ, EffectClass.KEYED})
_CUT = "it was cancelled while it was under way"


async def guarded(
    request: ToolCallRequest,
    run: Run,
    *,
    message_id: str | None = None,
    messages_key: str = "messages",
    direct: bool = False,
) -> Result:
    """The call's answer. `message_id`: of the assistant message that made the call, where it is known; else it is looked for
    under `messages_key` of the state. `direct`: nothing between here and the tool changes its arguments.

    Raises GraphInterrupt when a person must be asked, OutcomeUnknown, LimitReached, what the ledger raises, and what `run`
    raised of a call that may be repeated.
    """
    attempt = ledger.current.get()
    if attempt is None:
        return await _unguarded(request, run, message_id or "")
    declared = declaration_of(request.tool)
    policy = attempt.policy
    asked = request.tool_call
    holder, twin = holder_of(request, messages_key)
    call = ToolCall(
        id=asked["id"] or "",
        name=asked["name"],
        arguments=asked["args"],
        message_id=message_id or holder,
        server=getattr(request.tool, "server_name", None),
        effect=policy.effect_of(asked["name"], declared.effect),
        polls=policy.polls(asked["name"], declared.polls),
        twin="" if message_id else twin,
    )
    key = ledger.idempotency_key(attempt.turn, call)

    async def perform(given: ToolCall) -> Result:
        return await run(with_arguments(request, given, key))

    def refusal(given: ToolCall) -> str | None:
        return refusal_of(request.tool, given) if direct else None

    made = _GuardedCall(attempt, call, key, perform, refusal, declared.lookup, known=request.tool is not None)
    if direct and cannot_start(request) and made.untouched:
        return await _unguarded(request, run, call.message_id)
    return await made.answer()


async def not_startable(call: ToolCall, why: str) -> Result:
    """The answer to a call that cannot be started now: `why`, unless something is known of it already. What was recorded, said
    or left uncertain comes first: a tool that is gone does not make a call undone."""
    attempt = ledger.current.get()
    if attempt is None:
        return answers.error(call, why)

    async def perform(_: ToolCall) -> Result:
        raise AssertionError("it cannot be started")

    key = ledger.idempotency_key(attempt.turn, call)
    return await _GuardedCall(attempt, call, key, perform, lambda _: why, None, known=False).answer()


@dataclass(frozen=True, slots=True)
class _GuardedCall:
    attempt: Ledger
    call: ToolCall
    """As the model made it."""

    key: str
    perform: Callable[[ToolCall], Awaitable[Result]]
    refusal: Callable[[ToolCall], str | None]
    """Why the tool cannot be started with these arguments, for the model; None when nothing is known to be against it."""

    lookup: Lookup | None
    known: bool
    """Whether the tool is there: else nothing is declared of it now."""

    @property
    def untouched(self) -> bool:
        """Whether it was neither started nor decided about."""
        return self.attempt.record(self.key) is None and self._approval() is None

    async def answer(self) -> Result:
        record = self.attempt.record(self.key)
        if record is None:
            return await self._first()
        if record.state is CallState.RECORDED:
            result: Result = record.result
            return result
        return await self._again(record)

    async def _first(self) -> Result:
        """It was never started. A decision counts also when the settings have changed since it was asked for."""
        verdict = self._approval()
        if verdict is not None and verdict.decision is not DecisionKind.APPROVE:
            return answers.denied(self.call, verdict)
        call = self.call if verdict is None else self._approved(verdict)
        if verdict is None and self.refusal(call) is None and self.attempt.policy.gated(call.name):
            raise gates.asked(gates.approval(call, self.key, self.attempt.policy))
        return await self._start(call)

    def _approval(self) -> Verdict | None:
        return self.attempt.verdict(gates.approval(self.call, self.key, self.attempt.policy).id)

    def _approved(self, verdict: Verdict) -> ToolCall:
        return self.call if verdict.arguments is None else replace(self.call, arguments=verdict.arguments)

    async def _again(self, record: CallRecord) -> Result:
        """It was started before. What runs are the arguments it was started with: they were approved, where that is needed.
        What a person said of it comes first; and a call that was `once` when it was started stays so, whatever its tool is
        called by now."""
        before = record.call.effect
        effect = before if before is EffectClass.ONCE or not self.known else self.call.effect
        call = replace(self.call, arguments=record.call.arguments, effect=effect)
        if record.paused:
            return await self._start(call, resumed=record.error == ledger.PAUSED)
        verdict = self.attempt.verdict(gates.uncertain(record, self.attempt.policy).id)
        if verdict is not None:
            return await self._said(call, record, verdict)
        if call.effect in _REPEATABLE:
            why = self.refusal(call)
            return await self._start(call) if why is None else answers.stuck(call, record, why)
        if call.effect is EffectClass.CHECKABLE:
            found = await look_up(self.lookup, self.key)
            if found is NOT_HAPPENED:
                return await self._start(call)
            if found is not None:
                return self._recorded(call, answers.happened(call, found))
        return await self._uncertain(call, record)

    async def _uncertain(self, call: ToolCall, record: CallRecord) -> Result:
        """Nobody but a person can tell what came of it, and nobody has."""
        if self.attempt.policy.on_uncertain is OnUncertain.RETRY:
            return await self._start(call)
        raise self._asked(replace(record, call=call))

    async def _said(self, call: ToolCall, record: CallRecord, verdict: Verdict) -> Result:
        if verdict.decision is DecisionKind.HAPPENED:
            return self._recorded(call, answers.happened(call, verdict.result))
        if verdict.decision is DecisionKind.RETRY:
            return await self._start(call)
        return answers.given_up(call, replace(record, call=call), verdict)

    def _asked(self, record: CallRecord) -> GraphBubbleUp:
        if self.attempt.policy.on_uncertain is OnUncertain.FAIL:
            return OutcomeUnknown(
                f"The outcome of the call of `{self.call.name}` is not known: {gates.why(record)}. {answers.MAY_HAVE} It is "
                "not run a second time. Look what became of it; set `on_uncertain` to `ask` to decide such calls."
            )
        return gates.asked(gates.uncertain(record, self.attempt.policy))

    # -- one start ----------------------------------------------------------------------------------------------------

    async def _start(self, call: ToolCall, *, resumed: bool = False) -> Result:
        why = self.refusal(call)
        if why is not None:
            return answers.error(call, why)
        await self._intend(call)
        failpoint("tool_call.before")
        work = asyncio.create_task(self._run(call, resumed))
        cut = await ended(work, self._grace)
        if cut is not None:
            with suppress(PerdureError):
                self._note(call, work)
            raise cut
        return await self._outcome(call, work)

    async def _intend(self, call: ToolCall) -> None:
        """A cancel while it is written down leaves no doubt that was not there before."""
        before = self.attempt.record(self.key)
        try:
            await self.attempt.intend(call)
        except asyncio.CancelledError:
            why = ledger.NOT_BEGUN if before is None else before.error
            with suppress(PerdureError):
                if why is not None:
                    self.attempt.unknown(call, why)
            raise

    async def _run(self, call: ToolCall, resumed: bool) -> Result:
        """In a context of its own: the key is that of this call, for the tool and all it starts."""
        ledger.current_key.set(self.key)
        resuming.set(resumed)
        expect(call.arguments if self._approval() is not None else None)
        return await self.perform(call)

    def _grace(self) -> float:
        return self.attempt.grace_seconds() if self.call.effect is EffectClass.ONCE else 0.0

    async def _outcome(self, call: ToolCall, work: asyncio.Task[Result]) -> Result:
        error = error_of(work)
        if error is None:
            failpoint("tool_call.after")
            return self._recorded(call, work.result())
        if isinstance(error, ArgumentsChanged):
            return self._recorded(call, answers.error(call, str(error)))
        if self._paused(error):
            self.attempt.unknown(call, ledger.PAUSED)
            raise error
        if isinstance(error, GraphDrained):
            return await self._lost(call, error)
        if isinstance(error, PerdureError) or (isinstance(error, GraphBubbleUp) and not isinstance(error, Unsettled)):
            raise error
        if isinstance(error, Exception | asyncio.CancelledError):
            return await self._lost(call, error)
        raise error

    def _note(self, call: ToolCall, work: asyncio.Task[Result]) -> None:
        """Of a call that was cut: what came of it in the time it had left."""
        error = error_of(work)
        if error is None:
            self._recorded(call, work.result())
        elif self._paused(error):
            self.attempt.unknown(call, ledger.PAUSED)
        else:
            self.attempt.unknown(call, _CUT if isinstance(error, asyncio.CancelledError) else why_of(error))

    def _paused(self, error: BaseException) -> bool:
        """Whether the tool stopped by itself to go on later: for an answer, or because the attempt was asked to stop. A tool
        that says it was stopped, and nobody asked, has failed."""
        return isinstance(error, GraphInterrupt) or (isinstance(error, GraphDrained) and self.attempt.draining)

    async def _lost(self, call: ToolCall, error: BaseException) -> Result:
        """It was started in this attempt, and nobody knows what came of it."""
        why = why_of(error)
        self.attempt.unknown(call, why)
        checked = False
        if call.effect is EffectClass.CHECKABLE:
            found = await look_up(self.lookup, self.key)
            checked = found is NOT_HAPPENED
            if found is not None and not checked:
                return self._recorded(call, answers.happened(call, found))
        policy = self.attempt.policy
        if call.effect in _REPEATABLE or checked or policy.on_uncertain is OnUncertain.RETRY:
            if isinstance(error, Unsettled):
                return self._recorded(call, answers.lost(call, why, checked=checked))
            raise error
        known = self.attempt.record(self.key)
        starts = known.starts if known is not None else 1
        record = CallRecord(self.key, CallState.STARTED, call, starts, self.attempt.attempt, error=why)
        raise self._asked(record) from error

    def _recorded(self, call: ToolCall, result: Result) -> Result:
        """In the ledger, as the model will get it."""
        verdict = self._approval()
        if verdict is not None and verdict.decision is DecisionKind.APPROVE and verdict.arguments is not None:
            result = answers.changed(result, call, verdict.arguments)
        settled = answers.identified(result, call)
        self.attempt.result(call, settled)
        return settled


async def _unguarded(request: ToolCallRequest, run: Run, message_id: str) -> Result:
    """A call without effect, or outside Perdure."""
    try:
        return await run(request)
    except Unsettled as error:
        asked = request.tool_call
        return answers.lost(ToolCall(asked["id"] or "", asked["name"], asked["args"], message_id), why_of(error))
