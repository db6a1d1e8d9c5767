"""The Agent port: all that the API asks of agents, whichever shape serves them (`local`: the journal; `remote`: over NATS).

Every verb takes the person who asks first; what is not in that person's scope is `NotFound`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict, Unpack

from perdure.events import Event, EventKind, Frame, Gone, ListsReset, Reached, Unfollowed
from perdure.forks import Branch, DatabaseSize, Forked, WorkerInfo
from perdure.replication import Reach
from perdure.store.base import Decided, Page, StoredCall
from perdure.turns import (
    Accepted,
    Attempt,
    AuditEntry,
    Card,
    Change,
    Conversation,
    Origin,
    Person,
    RequestKey,
    Role,
    Token,
    Turn,
    TurnStatus,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """One agent of this server. `input` is `message` (it has a `messages` channel) or `json`."""

    name: str
    input: str
    model: str | None
    default: bool
    problems: Sequence[str] = ()
    """Why it is degraded now (model missing, MCP server failing), one sentence each with what to do."""

    uncovered_tools: Sequence[str] = ()
    """Tools of a user's graph that run outside our tool node: promises 3 and 4 do not hold for them."""

    reach: Reach = Reach.REACHABLE
    """Whether it can be asked now; an agent of this process always can."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation as a person reads it: index row, messages in wire form, turns oldest first."""

    conversation: Conversation
    resumable: bool
    messages: Sequence[Mapping[str, Any]]
    turns: Sequence[Turn]
    state: Mapping[str, Any] | None = None
    """For a graph without a `messages` channel: its JSON-able state values."""

    reach: Reach = Reach.REACHABLE
    """Not reachable: this is what was copied of the conversation before its agent went away."""


class ForkAsked(TypedDict):
    """`message` or `checkpoint`, exactly one of them."""

    message: str | None
    checkpoint: str | None
    text: str | None
    title: str | None
    request_key: RequestKey | None


@dataclass(frozen=True, slots=True)
class ForkedFrom:
    """A fork and where it begins."""

    forked: Forked
    origin: Origin


@dataclass(frozen=True, slots=True)
class WayOn:
    """A branch as a person sees it. `message`: the first one after the place; None when there is none yet."""

    branch: Branch
    message: str | None


@dataclass(frozen=True, slots=True)
class BranchPoint:
    checkpoint: str | None
    message: str | None
    """In the conversation that was asked about."""

    branches: Sequence[WayOn]


@dataclass(frozen=True, slots=True)
class McpHealth:
    """An MCP server of one agent. `state`: `connected`, `idle` (nobody needed it yet), `failing` (then `problem`)."""

    agent: str
    name: str
    state: str
    tools: int
    problem: str | None


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What serves. For who sees everything the database too."""

    draining: bool
    workers: Sequence[WorkerInfo]
    own: str
    """The owner of this process among the workers."""

    mcp_servers: Sequence[McpHealth]
    database: DatabaseSize | None
    nats: bool | None = None
    """Whether NATS is there, over which the agents are reached; None where they are in this process."""


@dataclass(frozen=True, slots=True)
class TurnDetail:
    turn: Turn
    attempts: Sequence[Attempt]
    cards: Sequence[Card]
    calls: Sequence[StoredCall]
    resumable: bool


class AgentPort(Protocol):
    """Verbs that need an agent which does not answer raise AgentUnavailable, within the time a person waits."""

    def agents(self) -> Sequence[AgentInfo]: ...

    async def forget(self, person: Person, agent: str) -> None:
        """Throws away all that this server copied of an agent that was taken away; nothing of it is lost where it ran, and
        it is met as a new one when it comes back. Raises Forbidden unless an operator asks, NotFound, AgentInUse for one that
        can be asked (or is in this process), AgentUnavailable while nobody can tell whether it is there."""
        ...

    # -- turns --------------------------------------------------------------------------------------------------------

    async def start(
        self,
        person: Person,
        *,
        input: Mapping[str, Any],
        conversation: str | None,
        agent: str | None,
        when_busy: str,
        request_key: RequestKey | None,
        discard_pending: bool = False,
    ) -> Accepted:
        """Returns after the fsynced commit that holds the message. `input` is `{"message": text}` or `{"input": {...}}`.
        Raises BadRequest (unknown agent or wrong kind of input, with the names), TurnInProgress, NotFound,
        IdempotencyConflict, StorageFull."""
        ...

    async def resume(self, person: Person, conversation: str, request_key: RequestKey | None = None) -> Accepted:
        """Re-opens the last turn. Raises TurnNotResumable with the reason."""
        ...

    async def answer(
        self, person: Person, conversation: str, answers: Mapping[str, Verdict], request_key: RequestKey | None = None
    ) -> Accepted:
        """Decisions by interrupt id, all or none. See Store.answer."""
        ...

    # -- approvals ----------------------------------------------------------------------------------------------------

    async def approvals(
        self, person: Person, *, limit: int, cursor: str | None, conversation: str | None = None
    ) -> Page[Card]:
        """Everything that waits for this person, oldest first."""
        ...

    async def card(self, person: Person, card: str) -> Card:
        """Raises UnknownCard."""
        ...

    async def decide(self, person: Person, card: str, verdict: Verdict) -> Decided:
        """The first decision counts. Checks edited arguments against the tool's schema where it is known (BadRequest). See
        Store.decide for the rest."""
        ...

    async def cancel(self, person: Person, turn: str) -> Turn: ...

    async def turn(self, person: Person, turn: str) -> TurnDetail: ...

    async def events(
        self, person: Person, turn: str, *, limit: int, cursor: str | None, kind: EventKind | None
    ) -> Page[Event]:
        """What is committed of the turn and retained, oldest first, rewinds included."""
        ...

    async def turns(
        self,
        person: Person,
        *,
        limit: int,
        cursor: str | None,
        status: TurnStatus | None,
        agent: str | None,
        attempts_min: int | None = None,
        text: str | None = None,
    ) -> Page[Turn]: ...

    async def turn_counts(self, person: Person, *, agent: str | None) -> Mapping[TurnStatus, int]:
        """How many turns are in each state."""
        ...

    # -- conversations ------------------------------------------------------------------------------------------------

    async def conversations(
        self, person: Person, *, limit: int, cursor: str | None, agent: str | None, text: str | None = None
    ) -> Page[Conversation]:
        """`text`: those of which one message, or the title, holds all its words."""
        ...

    async def conversation(self, person: Person, conversation: str) -> Transcript: ...

    async def rename(self, person: Person, conversation: str, title: str) -> Conversation: ...

    async def delete(self, person: Person, conversation: str, *, cancel: bool) -> None:
        """With `cancel`, cancels the active turn and waits for its end first. Raises TurnInProgress."""
        ...

    def export(self, person: Person, conversation: str) -> AsyncIterator[Mapping[str, Any]]:
        """Every checkpoint, oldest first: `{checkpoint, parent, step, source, turn, created_at, values, next, tasks}`."""
        ...

    # -- forks --------------------------------------------------------------------------------------------------------

    async def fork(
        self,
        person: Person,
        conversation: str,
        **asked: Unpack[ForkAsked],
    ) -> ForkedFrom:
        """A new conversation of this person's with the past before a `message`, or of a `checkpoint`: exactly one of them.
        `text` becomes its first turn; before an assistant's or a tool's message the person's own is sent once more without
        it. Raises NotFound, ForkPointGone, BadRequest, IdempotencyConflict, NotReady."""
        ...

    async def branches(self, person: Person, conversation: str) -> Sequence[BranchPoint]: ...

    async def checkpoints(
        self, person: Person, conversation: str, *, limit: int, cursor: str | None
    ) -> Page[Mapping[str, Any]]:
        """Newest first, without values: as `export` tells them, with `message_count` and all `interrupts`."""
        ...

    async def checkpoint(self, person: Person, conversation: str, checkpoint: str) -> Mapping[str, Any]:
        """With its values, bounded, and whether something was `truncated`. Raises NotFound."""
        ...

    # -- streams ------------------------------------------------------------------------------------------------------

    async def follow(
        self, person: Person, conversation: str, *, after: int | None, follow: bool
    ) -> AsyncIterator[Frame | Gone | Unfollowed]:
        """Frames after the cursor (None: from the start of the turn to watch), live. Ends with that turn's end unless
        `follow`; another turn's end is told and ends nothing. Ends with `Gone` when the conversation is deleted. Raises NotFound before the first frame, SlowWatcher while running. Costs nothing while idle."""
        ...

    async def changes(self, person: Person, *, after: int | None) -> AsyncIterator[Change | ListsReset | Reached]:
        """Summaries after the cursor (None: from now on), live, without end. Where agents may be away, what each one's reach
        is comes first, and again whenever it changes."""
        ...

    # -- who ----------------------------------------------------------------------------------------------------------

    async def audit(self, person: Person, *, limit: int, cursor: str | None) -> Page[AuditEntry]: ...

    async def create_token(self, person: Person, name: str, role: Role, secret_hash: str) -> Token:
        """Raises Forbidden unless `person.admin`, BadRequest for a name that is taken or not one."""
        ...

    async def revoke_token(self, person: Person, name: str) -> Token: ...

    async def tokens(self, person: Person) -> Sequence[Token]: ...

    async def token_of(self, secret_hash: str) -> Token | None:
        """Who holds the secret with this hash; None for an unknown or a revoked one."""
        ...

    async def server(self, person: Person) -> ServerInfo: ...

    # -- health -------------------------------------------------------------------------------------------------------

    async def unready(self) -> str | None:
        """Why nothing can be accepted now (database, draining), or None."""
        ...
