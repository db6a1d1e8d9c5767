"""The questions of the guard: how they are made, so that whoever parks a turn asks exactly the same one.

A gate never uses LangGraph's `interrupt()`: its answer is looked up in the ledger, by an id that follows from the
call. So no positional resume value is used, and no answer to another question can be taken for a gate's.
"""

from __future__ import annotations

from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt

from perdure.effects import Gate, GateRequest, ToolPolicy
from perdure.ledger import CallRecord, CallState, ToolCall

STOPPED = "it was started, and what came of it was never recorded"
ASKED_AGAIN = "its result went into the conversation, and the agent makes the same call once more"


def approval(call: ToolCall, key: str, policy: ToolPolicy) -> GateRequest:
    """May this call run? `call` as the model made it."""
    return GateRequest(
        gate=Gate.APPROVAL,
        key=key,
        call_id=call.id,
        message_id=call.message_id,
        tool=call.name,
        server=call.server,
        arguments=call.arguments,
        effect=call.effect,
        expires_seconds=policy.approval_expires_seconds,
        deciders=tuple(policy.approval_deciders),
    )


def uncertain(record: CallRecord, policy: ToolPolicy) -> GateRequest:
    """Did the call happen? `record` says what was started, and how often."""
    call = record.call
    return GateRequest(
        gate=Gate.UNCERTAIN,
        key=record.key,
        call_id=call.id,
        message_id=call.message_id,
        tool=call.name,
        server=call.server,
        arguments=call.arguments,
        effect=call.effect,
        starts=record.starts,
        why=why(record),
        deciders=tuple(policy.approval_deciders),
    )


def why(record: CallRecord) -> str:
    """Why its outcome is not known: the end of a sentence that begins with the call."""
    return record.error or (ASKED_AGAIN if record.state is CallState.SETTLED else STOPPED)


def asked(request: GateRequest) -> GraphInterrupt:
    """What a task raises to wait for the answer."""
    return GraphInterrupt((Interrupt(value=request.value(), id=request.id),))
