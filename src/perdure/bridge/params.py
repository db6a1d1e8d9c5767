"""What each method takes. All of it is foreign input: strict, bounded, unknown fields refused with their names.

A caller without `person` is an operator: who may publish on an agent's subject is trusted (NATS permissions say who may).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from perdure.agent.people import LOCAL_OWNER
from perdure.forks import check_one_place
from perdure.plain import REQUEST_KEY, check_plain, one_line
from perdure.turns import Person, Role

MAX_PAGE = 200
MAX_EVENTS = 500
MAX_WAIT_SECONDS = 3_600.0
NATS_NAME = "nats"
"""Who asked, in audit rows and decisions, where the caller did not say for whom."""

Id = Annotated[str, Field(min_length=1, max_length=200)]
Cursor = Annotated[str, Field(max_length=500)]
Key = Annotated[str, Field(pattern=REQUEST_KEY)]
Digest = Annotated[str, Field(min_length=1, max_length=200)]
Number = Annotated[int, Field(ge=0, le=2**62)]
Limit = Annotated[int, Field(ge=1, le=MAX_PAGE)]
Title = Annotated[str, Field(max_length=200)]
Note = Annotated[str, Field(max_length=4_000)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class PersonParam(Strict):
    name: Annotated[str, Field(min_length=1, max_length=64)]
    owner: Annotated[str, Field(min_length=1, max_length=64)]
    role: Literal["user", "operator"] = "user"
    admin: bool = False

    def person(self) -> Person:
        return Person(self.name, self.owner, Role(self.role), self.admin)


NOBODY_NAMED = Person(NATS_NAME, LOCAL_OWNER, Role.OPERATOR)


class Params(Strict):
    """Of every method: for whom it is asked."""

    person: PersonParam | None = None

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, given: Any) -> Any:
        check_plain(given, "The request")
        return given

    def asker(self) -> Person:
        return NOBODY_NAMED if self.person is None else self.person.person()


class Keyed(Params):
    """A request that is done once however often it arrives."""

    idempotency_key: Key | None = None
    request_digest: Digest | None = None
    """Of what the request means, where the caller has computed it; else it is computed here."""

    @model_validator(mode="after")
    def _digest_of_a_key(self) -> Keyed:
        if self.request_digest is not None and self.idempotency_key is None:
            raise ValueError("`request_digest` goes with an `idempotency_key`.")
        return self


class Page(Params):
    limit: Limit = 50
    cursor: Cursor | None = None


# -- responses --------------------------------------------------------------------------------------------------------


class Create(Keyed):
    """`responses/createDetached`. Exactly one of `message` and `input`."""

    message: str | None = None
    input: dict[str, Any] | None = None
    conversation: Id | None = None
    when_busy: Literal["reject", "enqueue", "interrupt"] = "reject"
    discard_pending: bool = False

    @model_validator(mode="after")
    def _one_input(self) -> Create:
        if (self.message is None) == (self.input is None):
            raise ValueError("Send exactly one of `message` and `input`.")
        if self.message is not None and not self.message.strip():
            raise ValueError("`message`: the message is empty.")
        if self.discard_pending and self.when_busy != "interrupt":
            raise ValueError('`discard_pending` goes with `"when_busy": "interrupt"` only.')
        return self


class CreateAndWait(Create):
    """`responses/create`."""

    timeout_seconds: Annotated[float, Field(gt=0, le=MAX_WAIT_SECONDS, strict=False)] = 900.0
    """How long the answer may take. After it the turn is told as it is then, and goes on."""


class OfTurn(Params):
    """`responses/turnStatus`, `responses/cancel`, `turns/get`."""

    turn_id: Id


class ResumeDetached(Keyed):
    """`responses/resumeDetached`: what a parked turn asked, answered."""

    turn_id: Id
    resume: Any
    """`{interrupt_id: value}`, or the value itself where one question is open. Of a card about a tool call the value is an
    object: `{"decision": "approve", …}`, as in `approvals/decide`."""


class Resume(Keyed):
    """`responses/resume`: the last turn, failed or interrupted, is opened again."""

    conversation: Id


# -- threads ----------------------------------------------------------------------------------------------------------


class ListThreads(Page):
    agent: Id | None = None
    text: Annotated[str, Field(max_length=500)] | None = None


class OfThread(Params):
    """`threads/get`, `threads/branches`."""

    conversation: Id


class Rename(OfThread):
    title: Title

    @field_validator("title")
    @classmethod
    def _one_line(cls, title: str) -> str:
        return one_line(title)


class Delete(OfThread):
    cancel: bool = False


class Export(OfThread):
    cursor: Cursor | None = None


class Fork(Keyed):
    """`threads/fork`. Exactly one of `message` and `checkpoint`."""

    conversation: Id
    message: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    """Begin before the message with this id."""

    checkpoint: Id | None = None
    text: str | None = None
    """What the person says first in the fork."""

    title: Title | None = None

    @field_validator("title")
    @classmethod
    def _one_line(cls, title: str | None) -> str | None:
        return None if title is None else one_line(title)

    @model_validator(mode="after")
    def _one_place(self) -> Fork:
        check_one_place(self.message, self.checkpoint)
        if self.text is not None and not self.text.strip():
            raise ValueError("`text`: the message is empty.")
        return self


class Checkpoints(OfThread):
    limit: Annotated[int, Field(ge=1, le=50)] = 20
    cursor: Cursor | None = None


class OfCheckpoint(OfThread):
    checkpoint: Id


# -- approvals --------------------------------------------------------------------------------------------------------


class ListApprovals(Page):
    conversation: Id | None = None


class OfCard(Params):
    card: Id


class Said(Strict):
    """One decision: `approve` with `arguments?`, `deny`, `happened` with `result?`, `retry`, `give_up`, `answer` with `value`;
    each with a `note?`."""

    decision: Annotated[str, Field(max_length=40)]
    arguments: dict[str, Any] | None = None
    note: Note | None = None
    result: Any = None
    value: Any = None


class Decide(OfCard, Said):
    """`approvals/decide`."""


class Answer(Keyed):
    """`approvals/answer`: by interrupt id, all or none."""

    conversation: Id
    answers: Annotated[dict[Id, Said], Field(min_length=1, max_length=1_000)]


# -- journal ----------------------------------------------------------------------------------------------------------


class ReadJournal(Params):
    """Where the copy stands, or which turns and conversations it wants whatever it has."""

    journal: Annotated[str, Field(max_length=200)] = ""
    change: Number = 0
    audit: Number = 0
    limit: Annotated[int, Field(ge=1, le=1_000)] = 200
    turns: Annotated[list[Id], Field(max_length=MAX_PAGE)] = Field(default_factory=list)
    conversations: Annotated[list[Id], Field(max_length=MAX_PAGE)] = Field(default_factory=list)


class ReadEvents(OfThread):
    after: Number = 0
    limit: Annotated[int, Field(ge=1, le=MAX_EVENTS)] = MAX_EVENTS


class ReadTokens(OfThread):
    after: Number = 0
