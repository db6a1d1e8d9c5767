"""What the model is told of a call that a person decided about, or that did not come to its end. The one place of these words."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.types import Command

from perdure.graph import gates
from perdure.graph.history import Asked, result_id
from perdure.graph.requests import twin_of
from perdure.ledger import NOT_BEGUN, CallRecord, CallState, Ledger, ToolCall, idempotency_key
from perdure.turns import EXPIRY, DecisionKind, Verdict

STATUS = "perdure_status"
DENIED = "denied"
NOT_BEGUN_STATUS = "not_started"
NO_EFFECT_STATUS = "stopped"
UNKNOWN_STATUS = "unknown"
"""What a message's status tells of a call that came to no end: it was never started; it was, and had no effect; nobody knows."""

NOT_STARTED = "This call was not started, because the turn ended before. It has had no effect."
CANCELLED_BEFORE = "This call was not started, because the user cancelled the turn. It has had no effect."
NOT_APPROVED = "This call waited for a person's approval when the turn ended. It was not started and has had no effect."
MAY_HAVE = "It may or may not have taken effect."

Result = ToolMessage | Command[Any] | list[Any]
"""What a tool node answers one call with: a message, a command, or a list of these."""


def message(call: ToolCall, content: Any, *, status: str = "success", **kwargs: Any) -> ToolMessage:
    """The call's tool message; its id follows from the call, so that one that comes twice replaces itself."""
    own = result_id(call.message_id, call.id, call.twin)
    return ToolMessage(
        id=own, content=content, name=call.name, tool_call_id=call.id, status=status, additional_kwargs=kwargs
    )


def error(call: ToolCall, text: str, **kwargs: Any) -> ToolMessage:
    return message(call, text, status="error", **kwargs)


def not_started(call: ToolCall, text: str) -> ToolMessage:
    return error(call, text, **{STATUS: NOT_BEGUN_STATUS})


def denied(call: ToolCall, verdict: Verdict) -> ToolMessage:
    """A person's no is an answer, not an error."""
    if verdict.by == EXPIRY:
        text = "This call needed a person's approval, and nobody gave it in time. It was not run."
    else:
        text = f"{_who(verdict)} denied this call. It was not run.{_note(verdict)}"
    return message(call, text, **{STATUS: DENIED})


def happened(call: ToolCall, result: Any) -> ToolMessage:
    """The result that a person, or a lookup, knows of."""
    if isinstance(result, ToolMessage):
        result = result.content
    content = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
    return message(call, "It has taken effect; nothing more is known." if result is None else content)


def given_up(call: ToolCall, record: CallRecord, verdict: Verdict) -> ToolMessage:
    text = (
        f"The outcome of this call is not known: {gates.why(record)}. {_who(verdict)} gave it up; it will not be tried "
        f"again. {MAY_HAVE}"
    )
    return error(call, text + _note(verdict), **{STATUS: UNKNOWN_STATUS})


def stuck(call: ToolCall, record: CallRecord, why: str) -> ToolMessage:
    """Of a call that was started, may be repeated, and cannot be repeated now."""
    return error(call, f"{why} It had been started before: {gates.why(record)}. {MAY_HAVE}")


def not_happened(call: ToolCall, verdict: Verdict) -> ToolMessage:
    """Of a call that a person wanted to run again, in a turn that ended before it could."""
    text = f"{_who(verdict)} says that this call did not take effect. It was not run again, because the turn ended."
    return error(call, text + _note(verdict), **{STATUS: NO_EFFECT_STATUS})


def unknown(call: ToolCall, record: CallRecord, *, cancelled: bool = False) -> ToolMessage:
    """Of a call that was started and that the turn ended without."""
    ended = " The user cancelled the turn." if cancelled else ""
    text = f"The outcome of this call is not known: {gates.why(record)}.{ended} {MAY_HAVE}"
    return error(call, text, **{STATUS: UNKNOWN_STATUS})


def lost(call: ToolCall, why: str, *, checked: bool = False) -> ToolMessage:
    """Of a call that may be repeated and whose outcome was lost while the agent waited for it. `checked`: a lookup said that
    it did not take effect."""
    fate = "It was looked up, and had not taken effect." if checked else MAY_HAVE
    said = not checked and MAY_HAVE.removeprefix("It ").rstrip(".") in why
    return error(call, f"This call came to no end: {why}." + ("" if said else f" {fate}"))


def changed(result: Result, call: ToolCall, arguments: Mapping[str, Any]) -> Result:
    """The call's result, with a word before it that a person changed the arguments, and to what."""
    given = json.dumps(arguments, ensure_ascii=False, default=str)
    word = f"[A person changed the arguments of this call before it ran. It ran with: {given}]"

    def told(each: BaseMessage) -> BaseMessage:
        if not isinstance(each, ToolMessage) or each.tool_call_id != call.id:
            return each
        content = each.content
        joined = f"{word}\n{content}" if isinstance(content, str) else [{"type": "text", "text": word}, *content]
        return each.model_copy(update={"content": joined})

    return mapped(result, told)


def mapped(result: Result, change: Callable[[BaseMessage], BaseMessage]) -> Result:
    """The same result with each message in it replaced, those in a command's update too."""
    if isinstance(result, list):
        return [mapped(each, change) for each in result]
    if isinstance(result, BaseMessage):
        return change(result)  # type: ignore[return-value]
    update = result.update
    if not isinstance(update, dict):
        return result
    values = {name: _changed(value, change) for name, value in update.items()}
    return replace(result, update=values)


def _changed(value: Any, change: Callable[[BaseMessage], BaseMessage]) -> Any:
    if isinstance(value, list):
        return [change(each) if isinstance(each, BaseMessage) else each for each in value]
    return change(value) if isinstance(value, BaseMessage) else value


def messages_in(result: Result) -> list[BaseMessage]:
    found: list[BaseMessage] = []

    def keep(each: BaseMessage) -> BaseMessage:
        found.append(each)
        return each

    mapped(result, keep)
    return found


def identified(result: Result, call: ToolCall) -> Result:
    """The result with an id on each of its messages, that follows from the call."""
    own = result_id(call.message_id, call.id, call.twin)
    count = 0

    def name(each: BaseMessage) -> BaseMessage:
        nonlocal count
        count += 1
        if each.id:
            return each
        mine = isinstance(each, ToolMessage) and each.tool_call_id == call.id
        return each.model_copy(update={"id": own if mine else f"{own}-{count}"})

    return mapped(result, name)


def closing(attempt: Ledger, asker: AIMessage, asked: Asked, *, covered: bool, cancelled: bool) -> ToolMessage | None:
    """What a repair answers a call with that has no result in the thread: the recorded result, the decision, or what is known.

    `covered`: the call would have passed the guard, so that a ledger without it knows that it was never started. None
    when nothing is known: then `history.NOT_RECORDED` is the text.
    """
    arguments = _arguments(asker, asked.id)
    twin = twin_of(asker, asked.id, asked.name, arguments)
    call = ToolCall(asked.id, asked.name, arguments, asker.id or "", twin=twin)
    key = idempotency_key(attempt.turn, call)
    record = attempt.record(key)
    if record is not None:
        return _of_started(attempt, call, record, cancelled=cancelled)
    if not covered:
        return None
    policy = attempt.policy
    verdict = attempt.verdict(gates.approval(call, key, policy).id)
    if verdict is not None and verdict.decision is DecisionKind.DENY:
        return denied(call, verdict)
    if verdict is None and policy.gated(call.name):
        return not_started(call, NOT_APPROVED)
    return not_started(call, CANCELLED_BEFORE if cancelled else NOT_STARTED)


def _of_started(attempt: Ledger, call: ToolCall, record: CallRecord, *, cancelled: bool) -> ToolMessage:
    if record.state is CallState.RECORDED:
        own = [each for each in messages_in(record.result) if isinstance(each, ToolMessage)]
        for each in own:
            if each.tool_call_id == call.id:
                return each
    if record.paused and record.error == NOT_BEGUN:
        return not_started(call, CANCELLED_BEFORE if cancelled else NOT_STARTED)
    verdict = attempt.verdict(gates.uncertain(record, attempt.policy).id)
    if verdict is not None and verdict.decision is DecisionKind.HAPPENED:
        return happened(call, verdict.result)
    if verdict is not None and verdict.decision is DecisionKind.GIVE_UP:
        return given_up(call, record, verdict)
    if verdict is not None and verdict.decision is DecisionKind.RETRY:
        return not_happened(call, verdict)
    return unknown(call, record, cancelled=cancelled)


def _arguments(asker: AIMessage, call_id: str) -> Mapping[str, Any]:
    return next((call["args"] for call in asker.tool_calls if call["id"] == call_id), {})


def _who(verdict: Verdict) -> str:
    return f"A person ({verdict.by})" if verdict.by else "A person"


def _note(verdict: Verdict) -> str:
    return f" The person says: {verdict.note}" if verdict.note else ""
