"""The Agent port: all that the API asks of agents, whichever shape serves them (`local`: the journal; later `remote`).

Every verb takes the owner first; another owner's id is `NotFound`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from perdure.events import Frame, Gone, ListsReset
from perdure.store.base import Page
from perdure.turns import Accepted, Attempt, Card, Change, Conversation, RequestKey, Turn, TurnStatus


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """One agent of this server. `input` is `message` (it has a `messages` channel) or `json`."""

    name: str
    input: str
    model: str | None
    default: bool
    problems: Sequence[str] = ()
    """Why it is degraded now (model missing, MCP server failing), one sentence each with what to do."""


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
    resumable: bool


class AgentPort(Protocol):
    def agents(self) -> Sequence[AgentInfo]: ...

    # -- turns --------------------------------------------------------------------------------------------------------

    async def start(
        self,
        owner: str,
        *,
        input: Mapping[str, Any],
        conversation: str | None,
        agent: str | None,
        when_busy: str,
        request_key: RequestKey | None,
    ) -> Accepted:
        """Returns after the fsynced commit that holds the message. `input` is `{"message": text}` or `{"input": {...}}`.
        Raises BadRequest (unknown agent or wrong kind of input, with the names), TurnInProgress, NotFound,
        IdempotencyConflict, StorageFull."""
        ...

    async def resume(self, owner: str, conversation: str, request_key: RequestKey | None = None) -> Accepted:
        """Re-opens the last turn. Raises TurnNotResumable with the reason."""
        ...

    async def answer(
        self, owner: str, conversation: str, answers: Mapping[str, Any], request_key: RequestKey | None = None
    ) -> Accepted: ...

    async def cancel(self, owner: str, turn: str) -> Turn: ...

    async def turn(self, owner: str, turn: str) -> TurnDetail: ...

    async def turns(
        self, owner: str, *, limit: int, cursor: str | None, status: TurnStatus | None, agent: str | None
    ) -> Page[Turn]: ...

    # -- conversations ------------------------------------------------------------------------------------------------

    async def conversations(
        self, owner: str, *, limit: int, cursor: str | None, agent: str | None
    ) -> Page[Conversation]: ...

    async def conversation(self, owner: str, conversation: str) -> Transcript: ...

    async def rename(self, owner: str, conversation: str, title: str) -> Conversation: ...

    async def delete(self, owner: str, conversation: str, *, cancel: bool) -> None:
        """With `cancel`, cancels the active turn and waits for its end first. Raises TurnInProgress."""
        ...

    def export(self, owner: str, conversation: str) -> AsyncIterator[Mapping[str, Any]]:
        """Every checkpoint, oldest first: `{checkpoint, parent, step, source, turn, created_at, values, next, tasks}`."""
        ...

    # -- streams ------------------------------------------------------------------------------------------------------

    async def follow(
        self, owner: str, conversation: str, *, after: int | None, follow: bool
    ) -> AsyncIterator[Frame | Gone]:
        """Frames after the cursor (None: from the start of the turn to watch), live. Ends with that turn's end unless
        `follow`; another turn's end is told and ends nothing. Ends with `Gone` when the conversation is deleted. Raises NotFound before the first frame, SlowWatcher while running. Costs nothing while idle."""
        ...

    async def changes(self, owner: str, *, after: int | None) -> AsyncIterator[Change | ListsReset]:
        """Summaries after the cursor (None: from now on), live, without end."""
        ...

    # -- health -------------------------------------------------------------------------------------------------------

    async def unready(self) -> str | None:
        """Why nothing can be accepted now (database, draining), or None."""
        ...
