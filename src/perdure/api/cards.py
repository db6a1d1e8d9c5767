"""Cards, decisions and tool calls as the HTTP API shows and takes them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from perdure.api.errors import sentence
from perdure.api.shapes import PageQuery, Reply, Request
from perdure.effects import INTERRUPT
from perdure.errors import BadRequest
from perdure.ledger import NOT_UNCERTAIN, CallState
from perdure.store.base import Decided, StoredCall
from perdure.turns import DECISION_FIELDS, DECISIONS, Card, CardState, DecisionKind, Turn, TurnStatus, Verdict

MAX_NOTE = 4_000


# -- what it takes ----------------------------------------------------------------------------------------------------


class ApprovalsQuery(PageQuery):
    conversation: Annotated[str, Field(max_length=64)] | None = Field(None, description="Only what waits in this one.")


class DecisionRequest(Request):
    """Which decisions a card takes follows from its kind: `approval` approve, deny; `uncertain` happened, retry, give_up;
    `interrupt` answer."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {"decision": "approve"},
                {"decision": "approve", "arguments": {"name": "db"}},
                {"decision": "deny", "note": "Not during business hours."},
                {"decision": "happened", "result": "restarted"},
                {"decision": "answer", "value": {"go": True}},
            ]
        },
    )

    decision: Annotated[str, Field(max_length=40)] = Field(description="`approve` … `answer`, by the kind of card.")
    arguments: dict[str, Any] | None = Field(None, description="With `approve`: run it with exactly these instead.")
    note: Annotated[str, Field(max_length=MAX_NOTE)] | None = Field(
        None, description="Why. Told to the model with `deny` and `give_up`."
    )
    result: Any = Field(None, description="With `happened`: what the call gave, text or JSON.")
    value: Any = Field(None, description="With `answer`: any JSON value.")

    @model_validator(mode="after")
    def _fields_that_fit(self) -> DecisionRequest:
        allowed = DECISION_FIELDS.get(self.decision)
        if allowed is None:
            return self  # refused with the names that the card takes, once it is known
        for name in ("arguments", "note", "result", "value"):
            if getattr(self, name) is not None and name not in allowed:
                fits = " and ".join(f"`{kind}`" for kind, fields in DECISION_FIELDS.items() if name in fields)
                raise ValueError(f"`{name}` goes with {fits}, not with `{self.decision}`.")
        if self.decision == DecisionKind.ANSWER and "value" not in self.model_fields_set:
            raise ValueError("`answer` needs the `value`; null is one, too.")
        return self

    def verdict(self, kind: str) -> Verdict:
        """For a card of this kind. Raises BadRequest with the decisions that it takes."""
        allowed = DECISIONS[kind]
        if self.decision not in allowed:
            names = " or ".join(f"`{each}`" for each in DecisionKind if each in allowed)
            what = "a question of the graph's own" if kind == INTERRUPT else f"an {kind} card"
            raise BadRequest(f"`decision`: {what} takes {names}.")
        note = (self.note or "").strip() or None
        return Verdict(DecisionKind(self.decision), self.arguments, note, self.result, self.value)


def decision_in_resume(question: str, said: Any, kind: str) -> Verdict:
    """The decision on a gate's card as `resume` of `POST /api/chat` holds it. Raises BadRequest."""
    try:
        return DecisionRequest.model_validate(said).verdict(kind)
    except ValidationError as error:
        problem = sentence(error.errors())
        raise BadRequest(f"`resume.{question}` decides on a tool call: {problem}") from error
    except BadRequest as error:
        raise BadRequest(f"`resume.{question}`: {error.message}") from error


# -- what it answers --------------------------------------------------------------------------------------------------


class CardReply(Reply):
    """One question that waits, or waited, for a person. What has no meaning for its kind or state is left out from `request`
    on; dump it with `exclude_unset`."""

    id: str
    turn: str
    conversation: str
    interrupt_id: str
    kind: Literal["approval", "uncertain", "interrupt"]
    state: CardState
    tool: str | None = Field(description="Null for a question of the graph's own, as the seven that follow.")
    call_id: str | None = Field(description="The call, as the model named it.")
    message_id: str | None = Field(description="The message that holds the call.")
    server: str | None = Field(description="The MCP server; null also for a Python tool.")
    arguments: dict[str, Any] | None = Field(description="Exactly what runs when it is approved.")
    digest: str | None = Field(description="SHA-256 of the arguments' canonical JSON.")
    effect_class: Literal["read", "keyed", "checkable", "once"] | None
    key: str | None = Field(
        description="The call's idempotency key: what to look for where it took effect, or did not."
    )
    opened_at: datetime
    expires_at: datetime | None = Field(description="Denied by `expiry` then.")
    request: Any = Field(None, description="Of an `interrupt`: what the graph asked.")
    why: str | None = Field(None, description="Of an `uncertain` call: what became of it.")
    deciders: list[str] | None = Field(None, description="The only ones who may decide it.")
    decision: DecisionKind | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None
    note: str | None = None
    decided_arguments: dict[str, Any] | None = Field(None, description="Approved with these instead.")
    result: Any = Field(None, description="With `happened`.")
    value: Any = Field(None, description="With `answer`.")

    @classmethod
    def of(cls, card: Card) -> CardReply:
        call = card.call
        return cls.model_validate(
            {
                "id": card.id,
                "turn": card.turn,
                "conversation": card.conversation,
                "interrupt_id": card.interrupt_id,
                "kind": card.kind,
                "state": card.state,
                "tool": call.tool if call else None,
                "call_id": call.call_id if call else None,
                "message_id": call.message_id if call else None,
                "server": call.server if call else None,
                "arguments": dict(call.arguments) if call else None,
                "digest": call.digest if call else None,
                "effect_class": call.effect_class if call else None,
                "key": call.key if call else None,
                "opened_at": card.opened_at,
                "expires_at": card.expires_at,
                **_asked(card),
                **_decided(card.verdict),
            }
        )


def _asked(card: Card) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if card.kind == INTERRUPT:
        more["request"] = card.request
    if card.why:
        more["why"] = card.why
    if card.deciders:
        more["deciders"] = list(card.deciders)
    return more


def _decided(verdict: Verdict | None) -> dict[str, Any]:
    if verdict is None:
        return {}
    more: dict[str, Any] = {"decision": verdict.decision, "decided_by": verdict.by, "decided_at": verdict.at}
    if verdict.note:
        more["note"] = verdict.note
    if verdict.arguments is not None:
        more["decided_arguments"] = dict(verdict.arguments)
    if verdict.decision is DecisionKind.HAPPENED:
        more["result"] = verdict.result
    if verdict.decision is DecisionKind.ANSWER:
        more["value"] = verdict.value
    return more


class DecidedReply(Reply):
    """The decision that counted."""

    card: CardReply
    turn_status: TurnStatus = Field(description="`queued`: it goes on; `parked`: other cards of it are open.")

    @classmethod
    def of(cls, decided: Decided) -> DecidedReply:
        return cls(card=CardReply.of(decided.card), turn_status=decided.turn_status)


class CallReply(Reply):
    """A tool call of a turn, as its ledger has it."""

    id: str = Field(description="As the model named it; it may come again in another message.")
    message_id: str = Field(description="The message that holds the call; empty where a graph of yours does not tell.")
    key: str = Field(description="The idempotency key.")
    name: str
    server: str | None
    arguments: dict[str, Any] = Field(description="What ran last: the model's, or those a person approved.")
    effect_class: Literal["read", "keyed", "checkable", "once"]
    state: Literal["running", "done", "paused", "unknown"] = Field(
        description="`unknown`: it was started, and what came of it was never recorded. `paused`: its tool asked a question "
        "of its own, or was never reached; it runs from its start when the turn goes on."
    )
    status: Literal["success", "error"] | None
    starts: int = Field(description="How often it was started, over all attempts.")
    attempt: int = Field(description="The attempt that started it last.")
    started_at: datetime
    ended_at: datetime | None
    error: str | None = Field(description="Why it is `paused`, or why the outcome is not known.")

    @classmethod
    def of(cls, call: StoredCall, turn: Turn) -> CallReply:
        return cls.model_validate(
            {
                "id": call.call.id,
                "message_id": call.call.message_id,
                "key": call.key,
                "name": call.call.name,
                "server": call.call.server,
                "arguments": dict(call.call.arguments),
                "effect_class": call.call.effect,
                "state": _shown(call, turn),
                "status": call.status,
                "starts": call.starts,
                "attempt": call.attempt,
                "started_at": call.started_at,
                "ended_at": call.ended_at,
                "error": call.error,
            }
        )


def _shown(call: StoredCall, turn: Turn) -> str:
    """A started call is under way only while the attempt that started it lives."""
    if call.state is not CallState.STARTED:
        return "done"
    if call.error in NOT_UNCERTAIN:
        return "paused"
    alive = turn.status is TurnStatus.RUNNING and call.epoch == turn.epoch and call.error is None
    return "running" if alive else "unknown"
