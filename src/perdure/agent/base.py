"""The Agent port: all that the API asks of agents, whichever shape serves them (`local`: the journal; later `remote`).

Every verb takes the person who asks first; what is not in that person's scope is `NotFound`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from perdure.events import Frame, Gone, ListsReset
from perdure.store.base import Decided, Page, StoredCall
from perdure.turns import (
    Accepted,
    Attempt,
    AuditEntry,
    Card,
    Change,
    Conversation,
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


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation as a person reads it: index row, messages in wire form, turns oldest first."""

    conversation: Conversation
    resumable: bool
    messages: Sequence[Mapping[str, Any]]
    turns: Sequence[Turn]
    state: Mapping[str, Any] | None = None
    """For a graph without a `messages` channel: its JSON-able state values."""


@dataclass(frozen=True, slots=True)
class TurnDetail:
    turn: Turn
    attempts: Sequence[Attempt]
    cards: Sequence[Card]
    calls: Sequence[StoredCall]
    resumable: bool


class AgentPort(Protocol):
    def agents(self) -> Sequence[AgentInfo]: ...

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

    async def turns(
        self, person: Person, *, limit: int, cursor: str | None, status: TurnStatus | None, agent: str | None
    ) -> Page[Turn]: ...

    # -- conversations ------------------------------------------------------------------------------------------------

    async def conversations(
        self, person: Person, *, limit: int, cursor: str | None, agent: str | None
    ) -> Page[Conversation]: ...

    async def conversation(self, person: Person, conversation: str) -> Transcript: ...

    async def rename(self, person: Person, conversation: str, title: str) -> Conversation: ...

    async def delete(self, person: Person, conversation: str, *, cancel: bool) -> None:
        """With `cancel`, cancels the active turn and waits for its end first. Raises TurnInProgress."""
        ...

    def export(self, person: Person, conversation: str) -> AsyncIterator[Mapping[str, Any]]:
        """Every checkpoint, oldest first: `{checkpoint, parent, step, source, turn, created_at, values, next, tasks}`."""
        ...

    # -- streams ------------------------------------------------------------------------------------------------------

    async def follow(
        self, person: Person, conversation: str, *, after: int | None, follow: bool
    ) -> AsyncIterator[Frame | Gone]:
        """Frames after the cursor (None: from the start of the turn to watch), live. Ends with that turn's end unless
        `follow`; another turn's end is told and ends nothing. Ends with `Gone` when the conversation is deleted. Raises NotFound before the first frame, SlowWatcher while running. Costs nothing while idle."""
        ...

    async def changes(self, person: Person, *, after: int | None) -> AsyncIterator[Change | ListsReset]:
        """Summaries after the cursor (None: from now on), live, without end."""
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

    # -- health -------------------------------------------------------------------------------------------------------

    async def unready(self) -> str | None:
        """Why nothing can be accepted now (database, draining), or None."""
        ...
