"""The Store protocol: the journal's verbs, each one transaction. The API and the engine meet only here.

Every write by a worker goes through a `LeasedAttempt`, which names its turn and epoch in every statement; a guarded write
that touches no row latches the attempt and raises `LeaseLost`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from perdure.effects import GateRequest
from perdure.events import Event, RewindReason
from perdure.forks import DatabaseSize, Forked, ForkPoint, NewFork, Parting, WorkerInfo
from perdure.ledger import CallState, ToolCall
from perdure.turns import (
    Accepted,
    Attempt,
    AuditEntry,
    Card,
    Change,
    Conversation,
    Failure,
    NewTurn,
    Outcome,
    RequestKey,
    Role,
    Spent,
    Token,
    Turn,
    TurnStatus,
    Verdict,
)

if TYPE_CHECKING:  # a backup needs the port and not LangGraph
    from langgraph.checkpoint.base import BaseCheckpointSaver

T = TypeVar("T")


class Notify(Protocol):
    """Where the store tells what it committed: wired to a transport by `runtime`. Called on the event loop."""

    def publish(self, event: Event) -> None: ...

    def ring(self, topic: str) -> None:
        """`queue` after a commit that may have made a turn claimable, `changes` after one that wrote a summary,
        `cancel` after a cancel request."""
        ...


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """`next` is the opaque cursor of the following page, None at the end."""

    items: Sequence[T]
    next: str | None


@dataclass(frozen=True, slots=True)
class Question:
    """One interrupt of a parked turn, as the graph asked it. `gate`: the question about a tool call that it stands for."""

    interrupt_id: str
    request: Any
    gate: GateRequest | None = None


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A tool call's result as bytes: the store keeps it and does not read it. `kind` names the serializer's format."""

    kind: str
    data: bytes


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A row of the tool-call ledger. The key is unique within the journal."""

    key: str
    turn: str
    conversation: str
    call: ToolCall
    state: CallState
    starts: int
    attempt: int
    epoch: int
    started_at: datetime
    ended_at: datetime | None = None
    status: str | None = None
    """`success` or `error`, as the tool message says it; None while nobody knows."""

    result: StoredResult | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Spoken:
    """Text that a model had streamed when it was cut, under the id of its message."""

    message: str
    text: str


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision that counted: the card as it is now, and what became of its turn (`parked` while other cards are open)."""

    card: Card
    turn_status: TurnStatus


@dataclass(frozen=True, slots=True)
class Recovered:
    """What became of an orphan: `queued`, `failed` (attempts are spent) or `interrupted` (manual policy)."""

    turn: str
    conversation: str
    status: TurnStatus


class JournalReader(Protocol):
    """The verbs that only read: of a journal, and of a gateway's copy of several. Each filters by scope (an owner, or None for
    everything); another's id is NotFound."""

    async def conversation(self, scope: str | None, conversation: str) -> Conversation: ...

    async def conversations(
        self,
        scope: str | None,
        *,
        limit: int,
        cursor: str | None = None,
        agent: str | None = None,
        text: str | None = None,
    ) -> Page[Conversation]:
        """Newest activity first. `text`: those of which one message, or the title, holds all its words (the last one as a
        beginning), among the newest matches; any text is safe."""
        ...

    async def turn(self, scope: str | None, turn: str) -> Turn: ...

    async def turns(
        self,
        scope: str | None,
        *,
        limit: int,
        cursor: str | None = None,
        conversation: str | None = None,
        status: TurnStatus | None = None,
        agent: str | None = None,
        attempts_min: int | None = None,
        text: str | None = None,
    ) -> Page[Turn]:
        """Newest accepted first. `text`: an id, a failure's code or reason, or words of the conversation. `conversation` goes
        with neither of the last two."""
        ...

    async def turn_counts(self, scope: str | None, *, agent: str | None = None) -> Mapping[TurnStatus, int]:
        """How many turns are in each state."""
        ...

    async def last_turn(self, scope: str | None, conversation: str) -> Turn | None:
        """The one to watch: the active turn, else the first waiting one, else the last that began (one that was cancelled
        while it waited did not)."""
        ...

    async def attempts(self, scope: str | None, turn: str) -> Sequence[Attempt]: ...

    async def cards(self, scope: str | None, turn: str) -> Sequence[Card]: ...

    async def card(self, scope: str | None, name: str, card: str) -> Card:
        """Also of a card that names `name` as a decider. Raises UnknownCard."""
        ...

    async def calls(self, scope: str | None, turn: str) -> Sequence[StoredCall]:
        """The turn's tool calls in the order of their first start, without their results."""
        ...

    async def approvals(
        self, scope: str | None, name: str, *, limit: int, cursor: str | None = None, conversation: str | None = None
    ) -> Page[Card]:
        """Open cards that are in scope or name `name` as a decider, oldest first."""
        ...

    async def audit(self, scope: str | None, *, limit: int, cursor: str | None = None) -> Page[AuditEntry]:
        """Newest first; with an owner, what was done to that owner's conversations."""
        ...

    async def changes(self, scope: str | None, after: int, limit: int) -> Sequence[Change]: ...

    async def last_change(self, scope: str | None) -> int: ...

    async def events(
        self, conversation: str, *, after: int = 0, turn: str | None = None, limit: int = 1000
    ) -> Sequence[Event]:
        """Retained events (those no rewind dropped) with seq > after, in order, messages rendered; rewinds included."""
        ...

    async def rewound_after(self, turn: str, seq: int) -> Event | None:
        """The last rewind of the turn with a seq above the given one."""
        ...

    async def turn_at(self, conversation: str, seq: int) -> Turn | None:
        """The turn whose events include, or whose range of seqs spans, the given seq."""
        ...


class LeasedAttempt(Protocol):
    """The one writer of a claimed turn. Made by `Store.claim`; ends with `park`, `finish` or `release`.

    Allocates seqs in emission order, enqueues every write to the store's one FIFO writer before its first await, and
    publishes each event only after its commit; tokens wait behind uncommitted events, so watchers see seq order.
    Loop-bound: call it from the event loop that claimed it (`renew` alone is thread-safe).
    """

    turn: Turn
    """As claimed (its `epoch` and `attempts` are those of this attempt)."""

    number: int
    rewind: Event | None
    """The rewind this claim wrote, None for a first attempt and after a park."""

    asking: bool
    """Claimed to ask what became of its uncertain calls, and for nothing else. However it ends, the turn's attempts are
    what they were."""

    @property
    def latched(self) -> BaseException | None:
        """The first failure of a write, or None. Once set, every later write is refused."""
        ...

    def on_latch(self, call: Any) -> None:
        """Registers a no-argument callback, run once on the loop when the attempt latches (the drive cancels itself)."""
        ...

    @property
    def checkpointer(self) -> BaseCheckpointSaver[str]:
        """LangGraph's saver, fenced by this attempt; each commit carries its events and the journal's position."""
        ...

    @property
    def supersteps(self) -> int:
        """Root supersteps of the turn committed so far, over all attempts."""
        ...

    @property
    def progressed(self) -> bool: ...

    def reuse_read(self) -> None:
        """What the checkpointer read last went to nobody's code and is not needed any more: its next read, of the same
        checkpoint and with no write in between, may give out the same objects instead of new copies."""
        ...

    def token(self, message_id: str, text: str) -> None:
        """Publishes streamed text; nothing durable."""
        ...

    def trace(self, node: str, name: str, step: int, phase: str, **more: Any) -> None:
        """Buffers a trace event for the next commit."""
        ...

    @property
    def spent(self) -> Spent:
        """Of the turn since its last fresh budget; this attempt's work is in it as soon as it is enqueued, its time is not."""
        ...

    @property
    def repeats(self) -> tuple[str, int]:
        """What the last tool call was (`name` and digest in one text) and how often in a row; over all attempts."""
        ...

    async def intend(self, call: ToolCall, key: str, task: str, node: str, step: int) -> None:
        """Commits the intent, a `trace` event of phase `call` and everything buffered, before the call starts: a new row of
        the ledger, which counts as a call, or one more start of a known one, which does not. `task`: LangGraph's id of the
        task that makes it. Cancelled before it returns, a first start is withdrawn: the call is neither uncertain nor
        counted."""
        ...

    def record(self, key: str, result: StoredResult, status: str) -> None:
        """Enqueues the result of a call that has a row (`success` or `error`); it may wait for the writes of its task, which
        settle it. Never overtaken by a later write; a failure latches. What no task settles is settled when the turn, or a
        later one of its thread, is completed or cancelled."""
        ...

    def unknown(self, key: str, error: str) -> None:
        """Enqueues why the outcome of a started call is not known."""
        ...

    async def count_model_call(self, *, durable: bool) -> None:
        """One more model call; `durable`: committed before it returns, else with the next commit, and lost with the attempt
        when it dies before one."""
        ...

    async def park(
        self, questions: Sequence[Question], *, despite_cancel: bool = False, spoken: Sequence[Spoken] = ()
    ) -> None:
        """running → parked, with one card and one `approval opened` event per question (a known card is kept). A turn whose
        cancel was asked for goes on to queued at once and opens no card, unless `despite_cancel`: then a person must say what
        became of a call before the turn can be closed (not when its cards are discarded). `spoken` is kept for the repair
        after that, until the turn ends."""
        ...

    async def finish(self, status: TurnStatus, failure: Failure | None = None) -> None:
        """running → completed | failed | cancelled with the terminal event; queues the first waiting turn behind it.
        `failed` also after a latch by something that cannot be stored (StateTypeNotAllowed, TypeError, ValueError)."""
        ...

    async def release(self, outcome: Outcome, *, not_before: datetime | None = None, error: str | None = None) -> None:
        """running → queued. `RELEASED` takes the attempt back from the count; `RETRIED` leaves it counted."""
        ...

    async def give_up(self, *, not_before: datetime, error: str) -> None:
        """running → queued after a write failed on the disk (StorageError, StorageFull): the one thing such a latched attempt
        may still do. Takes the attempt back from the count. Raises LeaseLost after any other latch."""
        ...

    def renew(self, lease_expires_at: datetime) -> bool:
        """Extends the lease, from any thread; False when the lease is no longer ours. Blocks until committed."""
        ...


class Store(JournalReader, Protocol):
    # -- acceptance and people's verbs: every one filters by scope (an owner, or None for everything); another's id is
    # NotFound. `by` is the name that the audit row carries ---------------------------------------------------------------

    async def accept(self, new: NewTurn) -> Accepted:
        """Makes the turn (and conversation) durable, message included. With `when_busy="interrupt"` the same transaction asks
        to cancel the active turn; of a parked one, with `discard_pending` alone, it closes the cards. Raises TurnInProgress
        (of a parked turn with the ids of its cards in `details["pending"]`), NotFound, BadRequest, IdempotencyConflict,
        StorageFull."""
        ...

    async def repeated(self, owner: str, request_key: RequestKey) -> Accepted | None:
        """What a request with this key was answered before, None when the key is new. Raises IdempotencyConflict."""
        ...

    async def resume(
        self, scope: str | None, conversation: str, request_key: RequestKey | None = None, *, by: str = ""
    ) -> Accepted:
        """failed | interrupted → queued: resets the no-progress count, grants fresh budgets. Raises TurnNotResumable."""
        ...

    async def answer(
        self,
        scope: str | None,
        conversation: str,
        answers: Mapping[str, Verdict],
        decided_by: str,
        request_key: RequestKey | None = None,
    ) -> Accepted:
        """Records decisions by interrupt id, all or none (first wins); queues the turn when the last open card is decided.
        Raises NotFound, BadRequest (unknown ids, with the pending ones), CardDecided."""
        ...

    async def decide(self, scope: str | None, card: str, verdict: Verdict) -> Decided:
        """The one compare-and-set: the first decision on a card counts, and queues the turn when it was the last open one.
        `verdict.by` decides; it may do so when the card is in `scope` or names it as a decider. Raises UnknownCard (with the
        pending ids), CardDecided (`details`: decision, decided_by, decided_at, pending), Forbidden (the card names other
        deciders), BadRequest (the kind of card takes other decisions)."""
        ...

    async def cancel(self, scope: str | None, turn: str, *, by: str = "") -> Turn:
        """Durable request. waiting → cancelled at once; parked → its cards are closed, → queued so that a worker repairs and
        closes it; running: the owner sees it. Idempotent; an ended turn is returned as it is."""
        ...

    async def rename(self, scope: str | None, conversation: str, title: str, *, by: str = "") -> Conversation: ...

    async def delete(
        self, scope: str | None, conversation: str, *, by: str = "", served: Collection[str] | None = None
    ) -> None:
        """Removes everything of it and gives the space back. Raises TurnInProgress while a turn is active or waiting; where
        `served` names the agents whose turns are driven here, not for one of another agent that nobody drives: it never ends."""
        ...

    # -- forks --------------------------------------------------------------------------------------------------------

    async def fork_point(
        self,
        scope: str | None,
        conversation: str,
        *,
        message: str | None = None,
        turn: str | None = None,
        checkpoint: str | None = None,
    ) -> ForkPoint:
        """Where a fork from a checkpoint, or before the turn of a message, begins. `turn`: whose own message it is, if its
        id tells. Raises NotFound, ForkPointGone."""
        ...

    async def repeated_fork(self, owner: str, request_key: RequestKey) -> Forked | None:
        """As `repeated`, of a fork."""
        ...

    async def fork(self, new: NewFork) -> Forked:
        """A new conversation with the past of another one until a point, and its first turn, in one transaction. Stored
        messages are shared; each conversation stays whole when the other is deleted or pruned. What tasks had written on top
        of the point, and its questions, stay behind. Raises NotFound, IdempotencyConflict, StorageFull."""
        ...

    async def branches(self, scope: str | None, conversation: str) -> Sequence[Parting]:
        """Where it parts from its forks and from what it was forked from, within the scope. Forks within a turn are no
        branches."""
        ...

    async def checkpoints(
        self, scope: str | None, conversation: str, *, limit: int, cursor: str | None = None
    ) -> Page[str]:
        """Ids of the root graph's checkpoints, newest first."""
        ...

    async def workers(self, scope: str | None) -> Sequence[WorkerInfo]:
        """This process and every other one with a live lease, with how many turns (in scope) each drives."""
        ...

    # -- tokens -------------------------------------------------------------------------------------------------------

    async def create_token(self, name: str, role: Role, secret_hash: str, *, by: str) -> Token:
        """Raises BadRequest: a name is used once, also after it was revoked (audit rows would lie otherwise)."""
        ...

    async def revoke_token(self, name: str, *, by: str) -> Token:
        """Idempotent. Raises NotFound. A backup that is older than this knows the token as valid."""
        ...

    async def tokens(self) -> Sequence[Token]:
        """All, oldest first, the revoked ones too."""
        ...

    async def token_of(self, secret_hash: str) -> Token | None:
        """The valid token with this hash; also notes its use, once a minute, without a wait for the disk."""
        ...

    # -- the engine's verbs -------------------------------------------------------------------------------------------

    async def claim(
        self,
        *,
        agents: Mapping[str, int | None],
        suspects: bool,
        now: datetime,
        lease_expires_at: datetime,
        asking: bool = False,
    ) -> LeasedAttempt | None:
        """The next due queued turn of these agents (name → concurrency limit, None = unlimited), in accept order:
        queued → running, attempt counted, epoch + 1, a rewind event where an earlier attempt left something behind.
        `suspects` picks turns with `Limits.suspect_after` attempts without progress, otherwise they are passed over (unless
        they are only to be closed: a cancel was asked for).
        `asking` picks, whatever the limits and `suspects` say, a suspect with an uncertain `once` call that nobody has
        decided on (unless its cards are discarded), for an attempt that does no work and is not counted."""
        ...

    async def next_due(self, agents: Collection[str], *, suspects: bool = False) -> datetime | None:
        """When the earliest delayed queued turn (or suspect) becomes due, None when there is none."""
        ...

    async def suspects_due(self, agents: Collection[str], now: datetime) -> int: ...

    async def cancel_requested(self, turns: Collection[str]) -> set[str]:
        """Which of these running turns a person asked to cancel."""
        ...

    async def verdicts(self, turn: str) -> Mapping[str, Card]:
        """The turn's decided cards by interrupt id."""
        ...

    async def spoken(self, turn: str) -> Sequence[Spoken]:
        """What the parks of the turn kept, in the order it began."""
        ...

    async def ledger(self, turn: str) -> Sequence[StoredCall]:
        """The turn's tool calls, results included where they are not settled."""
        ...

    async def expire(self, now: datetime) -> datetime | None:
        """Denies the approvals whose time is over (by `turns.EXPIRY`), each as `decide` does. When the next one is over, None
        when none is bounded in time."""
        ...

    async def orphans(self, now: datetime, held: Collection[str]) -> Sequence[Turn]:
        """`running` turns that no live attempt of this process holds and whose lease is over, or whose owner's boot is."""
        ...

    async def recover(self, turn: str, epoch: int, *, now: datetime, manual: bool) -> Recovered | None:
        """The orphan's attempt died: running → queued (with the delay due) | failed (attempts spent) | interrupted (manual).
        None when the guard touched no row: somebody else was faster."""
        ...

    def reader(self) -> BaseCheckpointSaver[str]:
        """A saver that reads every thread and refuses every write."""
        ...

    # -- the house ----------------------------------------------------------------------------------------------------

    async def unclean_boots(self, since: datetime) -> int:
        """Starts since then that did not end cleanly (this one excluded)."""
        ...

    async def statistics(self) -> Mapping[str, float]:
        """Bounded-label numbers for /metrics: turns by status, oldest queued age, open cards and the age of the oldest, tool
        calls that are started or recorded, database and WAL bytes, commits."""
        ...

    @property
    def owner_name(self) -> str:
        """`host:pid:boot_id` of this process, as its leases name it."""
        ...

    async def size(self) -> DatabaseSize:
        """Of the files that hold the journal."""
        ...

    async def check(self) -> None:
        """Raises StorageError or StorageFull when a small write cannot be committed now."""
        ...

    async def prune(self, older_than: datetime, *, dry_run: bool) -> Mapping[str, int]:
        """Retention: superseded checkpoints, events and keys of turns that ended before; counts by table."""
        ...

    async def backup(self, target: Path) -> None:
        """Online copy, then verified (integrity, counts). Raises StorageError."""
        ...

    async def close(self) -> None:
        """Ends this boot cleanly, checkpoints the WAL, gives up the lock."""
        ...


def rewind_reason(last: Outcome | None) -> RewindReason:
    """Why the next attempt starts over, from how the last one ended."""
    if last is Outcome.RELEASED:
        return RewindReason.RELEASED
    if last is Outcome.RETRIED:
        return RewindReason.RETRIED
    if last in {Outcome.FAILED, Outcome.CANCELLED}:
        return RewindReason.RESUMED
    return RewindReason.RECOVERED
