"""Turns and attempts: their states, their allowed transitions, their records. Pure; no I/O.

A *turn* is one accepted input and all that the agent does for it. An *attempt* is one leased execution of a turn by
one process. `TRANSITIONS` is the only list of allowed moves; the schema repeats it as a trigger and a test tries every
other pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

MESSAGE_PREFIX = "msg-"
"""Before a turn's id: the id of its message in the thread."""


class TurnStatus(StrEnum):
    """Who moves a turn on from each state, and what a crash leaves there."""

    WAITING = "waiting"
    """Behind another turn of its thread; the transaction that ends the predecessor makes it `queued`."""

    QUEUED = "queued"
    """Ready; a worker claims it. A crash changes nothing."""

    RUNNING = "running"
    """Leased to one attempt. If the owner dies the sweep moves it on."""

    PARKED = "parked"
    """Waits for a person's decision; holds no lease and costs nothing. A crash changes nothing."""

    COMPLETED = "completed"
    FAILED = "failed"
    """Ended with a named reason; a person's resume may re-open it."""

    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    """The owner died and the agent's re-drive policy is `manual`; a person's resume re-opens it."""


ACTIVE = frozenset({TurnStatus.QUEUED, TurnStatus.RUNNING, TurnStatus.PARKED})
"""At most one turn of a thread is in one of these (a unique partial index keeps it so)."""

ENDED = frozenset({TurnStatus.COMPLETED, TurnStatus.FAILED, TurnStatus.CANCELLED, TurnStatus.INTERRUPTED})

REOPENABLE = frozenset({TurnStatus.FAILED, TurnStatus.INTERRUPTED})

INITIAL = frozenset({TurnStatus.QUEUED, TurnStatus.WAITING})

TRANSITIONS: Mapping[TurnStatus, frozenset[TurnStatus]] = {
    TurnStatus.WAITING: frozenset({TurnStatus.QUEUED, TurnStatus.CANCELLED}),
    TurnStatus.QUEUED: frozenset({TurnStatus.RUNNING}),
    TurnStatus.RUNNING: frozenset(
        {
            TurnStatus.QUEUED,
            TurnStatus.PARKED,
            TurnStatus.COMPLETED,
            TurnStatus.FAILED,
            TurnStatus.CANCELLED,
            TurnStatus.INTERRUPTED,
        }
    ),
    TurnStatus.PARKED: frozenset({TurnStatus.QUEUED}),
    TurnStatus.COMPLETED: frozenset(),
    TurnStatus.FAILED: frozenset({TurnStatus.QUEUED}),
    TurnStatus.CANCELLED: frozenset(),
    TurnStatus.INTERRUPTED: frozenset({TurnStatus.QUEUED}),
}


class Outcome(StrEnum):
    """How an attempt ended (`None` while it runs)."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PARKED = "parked"
    RELEASED = "released"
    """Handed back by a planned shutdown; does not count against the turn."""

    RETRIED = "retried"
    """Gave the turn back to the queue after an error that a later attempt may not meet."""

    DIED = "died"
    """The owner vanished: found by the lock at start or by an expired lease."""


class FailureCode(StrEnum):
    """Machine-readable codes a failed or interrupted turn carries, as the HTTP API shows them."""

    MODEL_UNAVAILABLE = "MODEL_UNAVAILABLE"
    RECURSION_LIMIT = "RECURSION_LIMIT"
    TOOL_FAILURE = "TOOL_FAILURE"
    AGENT_FAILURE = "AGENT_FAILURE"
    ATTEMPTS_EXHAUSTED = "ATTEMPTS_EXHAUSTED"
    OWNER_DIED = "OWNER_DIED"
    STATE_TYPE_NOT_ALLOWED = "STATE_TYPE_NOT_ALLOWED"
    LIMIT_REACHED = "LIMIT_REACHED"
    """A limit of the turn: `model_call_limit`, `tool_call_limit`, `token_limit`, `time_limit`, `identical_call_limit`. Continuable."""

    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    """A `once` call was started, its outcome is not known, and the agent's `on_uncertain` is `fail`."""

    NOT_RESUMABLE = "TURN_NOT_RESUMABLE"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a turn failed: `code` for machines, `reason` a stable snake_case name, `message` for people (what to do)."""

    code: FailureCode
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Limits:
    """When a turn is given up and how long a re-drive waits. Counted at claim, before any work."""

    max_attempts: int = 3
    """Attempts in a row without progress (a checkpoint or a task's recorded result)."""

    total_attempts: int = 50
    """All attempts of a turn; stops runaways and is not reset by a person's resume."""

    redrive_delays_seconds: tuple[float, ...] = (0.0, 1.0, 10.0, 60.0)
    """Wait before the n-th re-drive without progress; the last one repeats."""

    suspect_after: int = 2
    """From this many attempts without progress a turn is driven alone until it commits."""

    def delay_seconds(self, attempts_without_progress: int) -> float:
        index = min(max(attempts_without_progress - 1, 0), len(self.redrive_delays_seconds) - 1)
        return self.redrive_delays_seconds[index]


@dataclass(frozen=True, slots=True)
class Spent:
    """What a turn used since its last fresh budget (its accept, or a person's resume)."""

    model_calls: int = 0
    tool_calls: int = 0
    tokens: int = 0
    seconds: float = 0.0
    """Time in which an attempt worked on it. Waiting and parked time are not in it."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A row of the journal as read. Instants are aware UTC."""

    id: str
    conversation: str
    agent: str
    owner: str
    status: TurnStatus
    accept_number: int
    """Global order of acceptance; waiting turns of a thread are queued in this order."""

    input: Mapping[str, Any] | None
    """`{"message": str}` or `{"input": {...}}`; dropped (None) once the thread holds its input checkpoint."""

    epoch: int
    """Grows with every claim; every write of a worker names it."""

    attempts: int
    attempts_without_progress: int
    supersteps: int
    """Root supersteps committed so far, over all attempts."""

    budget_from: int
    """The value of `supersteps` at the last fresh budget (accept, or a person's resume)."""

    first_seq: int
    """Every event of this turn has a seq at or above this one."""

    committed_seq: int
    """The seq written with the last checkpoint or task result: the rewind boundary."""

    cancel_requested_at: datetime | None
    superseded: bool
    """A later message was accepted: this turn can no longer be resumed."""

    failure: Failure | None
    usage: Mapping[str, int]
    """Sums over the turn's committed model replies: `input_tokens`, `output_tokens`, `total_tokens`."""

    accepted_at: datetime
    ended_at: datetime | None
    not_before: datetime | None = None
    lease_expires_at: datetime | None = None
    spent: Spent = Spent()
    discards_cards: bool = False
    """A cancel was asked for while it was parked (or `discard_pending` was said): what its cards ask needs no answer."""

    @property
    def active(self) -> bool:
        return self.status in ACTIVE


@dataclass(frozen=True, slots=True)
class Attempt:
    """One leased execution of a turn, as read from the journal."""

    turn: str
    number: int
    epoch: int
    owner: str
    """`host:pid:boot_id` of the process."""

    started_at: datetime
    ended_at: datetime | None
    outcome: Outcome | None
    progressed: bool
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """What a fork was made from. The conversation may be deleted by now."""

    conversation: str
    turn: str | None
    """The turn there that the fork begins before; None within a turn."""

    checkpoint: str | None
    """What it begins with; None: with nothing."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a person sees in the list. `id` is LangGraph's `thread_id`."""

    id: str
    owner: str
    agent: str
    title: str
    message_count: int
    created_at: datetime
    updated_at: datetime
    status: TurnStatus | None = None
    """Status of the last turn, None when there is none."""

    forked_from: Origin | None = None


class CardState(StrEnum):
    OPENED = "opened"
    DECIDED = "decided"
    CLOSED = "closed"
    """No decision is needed any more (the turn was cancelled or superseded)."""


class DecisionKind(StrEnum):
    """What a person may say of a card. Which kinds a card takes: `DECISIONS`."""

    APPROVE = "approve"
    DENY = "deny"
    HAPPENED = "happened"
    RETRY = "retry"
    GIVE_UP = "give_up"
    ANSWER = "answer"


DECISIONS: Mapping[str, frozenset[DecisionKind]] = {
    "approval": frozenset({DecisionKind.APPROVE, DecisionKind.DENY}),
    "uncertain": frozenset({DecisionKind.HAPPENED, DecisionKind.RETRY, DecisionKind.GIVE_UP}),
    "interrupt": frozenset({DecisionKind.ANSWER}),
}
"""By the card's kind."""

DECISION_FIELDS: Mapping[str, frozenset[str]] = {
    DecisionKind.APPROVE: frozenset({"arguments", "note"}),
    DecisionKind.DENY: frozenset({"note"}),
    DecisionKind.HAPPENED: frozenset({"result", "note"}),
    DecisionKind.RETRY: frozenset({"note"}),
    DecisionKind.GIVE_UP: frozenset({"note"}),
    DecisionKind.ANSWER: frozenset({"value", "note"}),
}
"""What may be said with each decision."""

EXPIRY = "expiry"
"""Who denies an approval that nobody decided in time."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision and all that was said with it."""

    decision: DecisionKind
    arguments: Mapping[str, Any] | None = None
    """With `approve`: run it with these instead."""

    note: str | None = None
    """With any: told to the model with a denial, a give-up."""

    result: Any = None
    """With `happened`: what the call gave, for the model; text or JSON."""

    value: Any = None
    """With `answer`: what `interrupt()` returns."""

    by: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AskedCall:
    """The call a gate asks about, as the card shows it."""

    tool: str
    server: str | None
    arguments: Mapping[str, Any]
    digest: str
    effect_class: str
    call_id: str
    message_id: str
    key: str


@dataclass(frozen=True, slots=True)
class Card:
    """One pending question of a parked turn."""

    id: str
    turn: str
    conversation: str
    owner: str
    interrupt_id: str
    kind: str
    """`approval` or `uncertain` (a gate before a tool call, `call` is there), `interrupt` (the graph's own question)."""

    request: Any
    """What was asked: the JSON value given to `interrupt()`."""

    state: CardState
    opened_at: datetime
    verdict: Verdict | None = None
    """Once decided."""

    call: AskedCall | None = None
    expires_at: datetime | None = None
    deciders: Sequence[str] = ()
    """Names that may decide it; empty: the owner and every operator."""

    why: str = ""
    """Of an uncertain call: what became of it."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """A client's idempotency key and the digest of the body it came with: the same key with another digest is refused."""

    key: str
    digest: str


@dataclass(frozen=True, slots=True)
class NewTurn:
    """What `Store.accept` needs. `conversation=None` starts a new one. `turn_id` is made by the caller."""

    turn_id: str
    owner: str
    agent: str
    input: Mapping[str, Any]
    conversation: str | None
    new_conversation_id: str
    title: str
    when_busy: str = "reject"
    """`reject`, `enqueue` (wait behind it) or `interrupt` (wait behind it and cancel it)."""

    discard_pending: bool = False
    """With `interrupt`: also when the active turn is parked; its cards are closed."""

    request_key: RequestKey | None = None
    by: str = ""
    """Who sends it, for the audit row of an `interrupt`; empty: the owner."""


class Role(StrEnum):
    USER = "user"
    """Sees and decides what is its own."""

    OPERATOR = "operator"
    """Reads, decides, cancels and resumes everything; sends messages in its own conversations alone."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who asks. `name` is in audit rows and decisions, `owner` is whose conversations are its own."""

    name: str
    owner: str
    role: Role = Role.USER
    admin: bool = False
    """Came with the server's own token: may also make and revoke tokens."""

    @property
    def scope(self) -> str | None:
        """The owner to filter by; None: everything."""
        return None if self.role is Role.OPERATOR else self.owner


@dataclass(frozen=True, slots=True)
class Token:
    """A named token. The secret itself is told once, when it is made; only its hash is kept."""

    name: str
    role: Role
    created_at: datetime
    created_by: str
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    """To the minute."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what. Written in the transaction that does it."""

    number: int
    at: datetime
    by: str
    action: str
    """`resume`, `cancel`, `decide`, `expire`, `rename`, `delete`, `fork`, `token_create`, `token_revoke`, `agent_forget`. Who sent a
    message is its turn's owner."""

    conversation: str | None = None
    turn: str | None = None
    card: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The durable answer to a message. `repeated` tells that an idempotency key was met again."""

    conversation: str
    turn: str
    status: TurnStatus
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the summary stream for lists; `number` is its durable cursor."""

    number: int
    kind: str
    """`conversation` or `turn`."""

    conversation: str
    turn: str | None
    status: str
    """A turn's status; for conversations `created`, `updated` or `deleted`."""

    at: datetime
    detail: Mapping[str, Any] = field(default_factory=dict)
