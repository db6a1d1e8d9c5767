"""The shapes of the HTTP API: what it takes (strict, unknown fields refused with a suggestion) and what it answers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from perdure.agent.base import AgentInfo, Transcript, TurnDetail
from perdure.agent.ids import message_of_turn
from perdure.api.cards import CallReply, CardReply
from perdure.api.shapes import PageQuery, Reply, Request
from perdure.plain import one_line
from perdure.replication import Reach
from perdure.turns import Accepted, Attempt, Conversation, Origin, Spent, Turn, TurnStatus

WHEN_BUSY = ("reject", "enqueue", "interrupt")


# -- what it takes ----------------------------------------------------------------------------------------------------


class ChatRequest(Request):
    """Exactly one of `message`, `input` and `resume`."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {"message": "Hello"},
                {"message": "And then?", "conversation": "CONVERSATION", "when_busy": "enqueue"},
                {"input": {"city": "Kyiv"}, "agent": "weather"},
                {"resume": True, "conversation": "CONVERSATION"},
                {
                    "message": "Stop that.",
                    "conversation": "CONVERSATION",
                    "when_busy": "interrupt",
                    "discard_pending": True,
                },
                {"conversation": "CONVERSATION", "resume": {"INTERRUPT": "yes"}},
                {"conversation": "CONVERSATION", "resume": {"GATE": {"decision": "approve"}}},
            ]
        },
    )

    message: str | None = Field(None, description="What the person says. Starts a turn.")
    input: dict[str, Any] | None = Field(None, description="The input of a graph without a `messages` channel.")
    resume: bool | dict[str, Any] | None = Field(
        None,
        description="`true` re-opens the last turn, failed or interrupted; an object answers the questions of a parked "
        "turn: interrupt id → value, or, for a card about a tool call, `{decision, arguments?, note?, result?}`.",
    )
    conversation: str | None = Field(None, description="Continues this one; without it a new one begins.")
    agent: str | None = Field(None, description="Which agent a new conversation is with; the default one without it.")
    when_busy: Literal["reject", "enqueue", "interrupt"] | None = Field(
        None,
        description="When a turn is active: `reject` (default, 409), `enqueue` behind it, or `interrupt`: cancel it, then run. "
        "A parked turn is interrupted only with `discard_pending`.",
    )
    discard_pending: bool | None = Field(
        None, description="With `interrupt`: also when the active turn is parked; its cards are closed."
    )

    @field_validator("message")
    @classmethod
    def _says_something(cls, message: str | None) -> str | None:
        if message is not None and not message.strip():
            raise ValueError("The message is empty.")
        return message

    @field_validator("when_busy", mode="before")
    @classmethod
    def _known_choice(cls, choice: Any) -> Any:
        if choice is None or choice in WHEN_BUSY:
            return choice
        raise ValueError("must be `reject`, `enqueue` or `interrupt`")

    @field_validator("resume", mode="before")
    @classmethod
    def _resumes_something(cls, resume: Any) -> Any:
        if resume is None or resume is True or (isinstance(resume, dict) and resume):
            return resume
        raise ValueError("must be `true`, or an object of interrupt id → answer")

    @model_validator(mode="after")
    def _one_purpose(self) -> ChatRequest:
        given = [name for name in ("message", "input", "resume") if getattr(self, name) is not None]
        if len(given) != 1:
            told = " and ".join(f"`{name}`" for name in given) or "none of them"
            raise ValueError(f"Send exactly one of `message`, `input` and `resume`; this request has {told}.")
        if self.resume is not None:
            self._resume_only()
        elif self.discard_pending and self.when_busy != "interrupt":
            raise ValueError('`discard_pending` goes with `"when_busy": "interrupt"` only.')
        return self

    def _resume_only(self) -> None:
        if self.conversation is None:
            raise ValueError("`resume` needs the `conversation`.")
        for name in ("agent", "when_busy", "discard_pending"):
            if getattr(self, name) is not None:
                raise ValueError(f"`{name}` has no meaning with `resume`.")


class RenameRequest(Request):
    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"title": "Trip to Kyiv"}]})

    title: str = Field(max_length=200)

    @field_validator("title")
    @classmethod
    def _one_line(cls, title: str) -> str:
        return one_line(title)


class AgentPageQuery(PageQuery):
    agent: Annotated[str, Field(max_length=200)] | None = None


class ConversationsQuery(AgentPageQuery):
    q: Annotated[str, Field(max_length=500)] | None = Field(
        None, description="Only those of which one message, or the title, holds all these words."
    )


class TurnsQuery(AgentPageQuery):
    status: TurnStatus | None = None
    attempts_min: Annotated[int, Field(ge=0, le=10_000)] | None = Field(
        None, description="Only those that needed at least so many attempts."
    )
    q: Annotated[str, Field(max_length=500)] | None = Field(
        None, description="An id, a failure's code or reason, or words of the conversation."
    )

    @field_validator("status", mode="before")
    @classmethod
    def _known_status(cls, status: Any) -> Any:
        if status is None or status in list(TurnStatus):
            return status
        raise ValueError(f"must be one of {', '.join(TurnStatus)}")


class StreamQuery(Request):
    conversation: str
    after: Annotated[str, Field(max_length=40)] | None = Field(None, description="As the header Last-Event-ID.")
    follow: bool = Field(False, description="Stay open across turns.")


class ChangesQuery(Request):
    after: Annotated[str, Field(max_length=40)] | None = Field(None, description="As the header Last-Event-ID.")


class DeleteQuery(Request):
    cancel: bool = Field(False, description="Cancel the active turn first.")


class ExportQuery(Request):
    format: Literal["markdown", "jsonl"] = "markdown"


# -- what it answers --------------------------------------------------------------------------------------------------


class AcceptedReply(Reply):
    """The turn is durable: an fsynced commit holds the message."""

    conversation: str
    turn: str
    status: TurnStatus

    @classmethod
    def of(cls, accepted: Accepted) -> AcceptedReply:
        return cls(conversation=accepted.conversation, turn=accepted.turn, status=accepted.status)


class TurnError(Reply):
    code: str
    message: str


class TurnSummary(Reply):
    id: str
    conversation: str
    agent: str
    owner: str
    status: TurnStatus
    reason: str | None
    error: TurnError | None
    attempt_count: int
    supersteps: int
    usage: dict[str, int]
    accepted_at: datetime
    ended_at: datetime | None
    next_attempt_at: datetime | None = Field(description="A queued turn waits until then after a failed attempt.")
    cancel_requested_at: datetime | None

    @classmethod
    def of(cls, turn: Turn) -> TurnSummary:
        return cls(**_turn_fields(turn))


class TurnOfConversation(TurnSummary):
    input: dict[str, Any] | None = Field(
        description="`{message}` or `{input}` as it was sent, while `messages` does not hold it yet; null after."
    )

    @classmethod
    def of(cls, turn: Turn) -> TurnOfConversation:
        return cls(**_turn_fields(turn), input=None if turn.input is None else dict(turn.input))


def _turn_fields(turn: Turn) -> dict[str, Any]:
    failure = turn.failure
    return {
        "id": turn.id,
        "conversation": turn.conversation,
        "agent": turn.agent,
        "owner": turn.owner,
        "status": turn.status,
        "reason": failure.reason if failure else None,
        "error": TurnError(code=failure.code, message=failure.message) if failure else None,
        "attempt_count": turn.attempts,
        "supersteps": turn.supersteps,
        "usage": dict(turn.usage),
        "accepted_at": turn.accepted_at,
        "ended_at": turn.ended_at,
        "next_attempt_at": turn.not_before if turn.status is TurnStatus.QUEUED else None,
        "cancel_requested_at": turn.cancel_requested_at,
    }


class AttemptReply(Reply):
    number: int
    owner: str
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    error: str | None

    @classmethod
    def of(cls, attempt: Attempt) -> AttemptReply:
        return cls(
            number=attempt.number,
            owner=attempt.owner,
            started_at=attempt.started_at,
            ended_at=attempt.ended_at,
            outcome=attempt.outcome,
            error=attempt.error,
        )


class SpentReply(Reply):
    """Since the turn's accept, or a person's last resume."""

    model_calls: int
    tool_calls: int
    tokens: int
    seconds: float = Field(description="Time in attempts; waiting and parked time are not in it.")

    @classmethod
    def of(cls, spent: Spent) -> SpentReply:
        return cls(
            model_calls=spent.model_calls, tool_calls=spent.tool_calls, tokens=spent.tokens, seconds=spent.seconds
        )


class TurnReply(TurnSummary):
    """Dump it with `exclude_unset`: see CardReply."""

    resumable: bool
    spent: SpentReply
    attempts: list[AttemptReply]
    calls: list[CallReply] = Field(description="In the order of their first start.")
    cards: list[CardReply]

    @classmethod
    def of_detail(cls, detail: TurnDetail) -> TurnReply:
        return cls(
            **_turn_fields(detail.turn),
            resumable=detail.resumable,
            spent=SpentReply.of(detail.turn.spent),
            attempts=[AttemptReply.of(attempt) for attempt in detail.attempts],
            calls=[CallReply.of(call, detail.turn) for call in detail.calls],
            cards=[CardReply.of(card) for card in detail.cards],
        )


class OriginReply(Reply):
    conversation: str = Field(description="What it was forked from; it may be deleted by now.")
    message: str | None = Field(description="The message there that it begins before; null within a turn.")
    checkpoint: str | None = Field(description="The checkpoint it begins with; null: with nothing.")

    @classmethod
    def of(cls, origin: Origin | None) -> OriginReply | None:
        return None if origin is None else cls.of_one(origin)

    @classmethod
    def of_one(cls, origin: Origin) -> OriginReply:
        message = message_of_turn(origin.turn)
        return cls(conversation=origin.conversation, message=message, checkpoint=origin.checkpoint)


class ConversationSummary(Reply):
    id: str
    title: str
    agent: str
    owner: str
    status: TurnStatus | None
    message_count: int
    created_at: datetime
    updated_at: datetime
    forked_from: OriginReply | None = Field(description="Null unless it is a fork.")

    @classmethod
    def of(cls, conversation: Conversation) -> ConversationSummary:
        return cls(**_conversation_fields(conversation))


def _conversation_fields(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "title": conversation.title,
        "agent": conversation.agent,
        "owner": conversation.owner,
        "status": conversation.status,
        "message_count": conversation.message_count,
        "created_at": conversation.created_at,
        "updated_at": conversation.updated_at,
        "forked_from": OriginReply.of(conversation.forked_from),
    }


class ConversationReply(ConversationSummary):
    resumable: bool
    messages: list[dict[str, Any]] = Field(
        description="`{id, role, content, reasoning?, tool_calls?, tool_call_id?, name?, status?, usage?}`"
    )
    turns: list[TurnOfConversation] = Field(description="Oldest first.")
    state: dict[str, Any] | None = Field(description="The values of a graph without a `messages` channel.")
    reach: Reach = Field(
        description="Unless `reachable`, its agent is away: this is what was copied of it before. `disconnected`: this server has "
        "lost NATS."
    )

    @classmethod
    def of_transcript(cls, transcript: Transcript) -> ConversationReply:
        return cls(
            **_conversation_fields(transcript.conversation),
            resumable=transcript.resumable,
            messages=[dict(message) for message in transcript.messages],
            turns=[TurnOfConversation.of(turn) for turn in transcript.turns],
            state=None if transcript.state is None else dict(transcript.state),
            reach=transcript.reach,
        )


class AgentReply(Reply):
    name: str
    input: Literal["message", "json"]
    model: str | None
    default: bool
    problems: list[str]
    uncovered_tools: list[str] = Field(
        description="Tools of a user's graph outside Perdure's tool node: they are not gated and may run twice."
    )
    reach: Reach = Field(description="Whether it can be asked now. One that is in this process always can.")

    @classmethod
    def of(cls, agent: AgentInfo) -> AgentReply:
        return cls.model_validate(
            {
                "name": agent.name,
                "input": agent.input,
                "model": agent.model,
                "default": agent.default,
                "problems": list(agent.problems),
                "uncovered_tools": list(agent.uncovered_tools),
                "reach": agent.reach,
            }
        )


class AgentsReply(Reply):
    items: list[AgentReply]


class HealthReply(Reply):
    status: Literal["ok"] = "ok"


class ReadyReply(Reply):
    status: Literal["ready", "degraded", "unready"]
    reasons: list[str] | None = Field(None, description="Why it is degraded or unready. Only with a token.")
    notices: list[str] | None = Field(
        None,
        description="What should be known and keeps nothing from working: tools that are not covered. Only with a token.",
    )
