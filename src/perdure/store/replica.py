"""The Replica protocol: a gateway's own database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from perdure.events import Event
from perdure.forks import DatabaseSize
from perdure.replication import Dispatch, JournalRows, Position, StoredTranscript, StreamPosition
from perdure.store.base import JournalReader
from perdure.turns import Role, Token


class Replica(JournalReader, Protocol):
    """A gateway's own database: a copy of its agents' journals that can be made again, and what is the gateway's alone (who
    may enter, what it has dispatched). One writer, group commit, a lock file beside it, as the agent's own."""

    # -- the copy -----------------------------------------------------------------------------------------------------

    async def position(self, agent: str) -> Position: ...

    async def apply(self, agent: str, rows: JournalRows) -> None:
        """One transaction: the rows, deletions, and the agent's position when `rows` continues it. Rows older than what is
        here (a lower `position.change` than the copy of that turn was made at) change nothing. Rings `changes`."""
        ...

    async def restart(self, agent: str, journal: str) -> None:
        """Forgets all that was copied of the agent: its journal is another one, or went back to an older backup."""
        ...

    async def forget(self, agent: str, *, by: str) -> Sequence[str]:
        """One transaction: all that was copied of the agent and that it told of itself, what is waited for in its
        conversations, its deeds in the audit; the audit notes who did it. Gives the space back. Returns the conversations.
        Raises NotFound when nothing is held of it. Rings `changes`."""
        ...

    async def last_seq(self, conversation: str) -> int | None:
        """The highest seq held, 0 before the first; None for a conversation that is not held."""
        ...

    async def is_deleted(self, conversation: str) -> bool:
        """Whether its agent told that it was deleted; it does not come back."""
        ...

    async def record(
        self,
        events: Sequence[Event],
        *,
        stream: StreamPosition | None = None,
        rows: Sequence[tuple[str, JournalRows]] = (),
    ) -> Sequence[Event]:
        """Keeps committed events of conversations that are held, and how far the stream was read, in one transaction; a rewind
        drops what it names. `rows`, each with its agent, are applied first in the same transaction, as by `apply`: nobody reads
        a turn as ended whose end is not here. Returns those events that were new, in order."""
        ...

    async def stream_position(self) -> StreamPosition | None: ...

    async def keep_transcript(self, conversation: str, transcript: StoredTranscript) -> None: ...

    async def transcript(self, conversation: str) -> StoredTranscript | None:
        """As kept last. With the events after its `seq` on top it is the conversation."""
        ...

    async def keep_agent(self, agent: str, document: Mapping[str, Any]) -> None:
        """What an agent told of itself last."""
        ...

    async def known_agents(self) -> Mapping[str, Mapping[str, Any]]: ...

    # -- what this gateway waits for ----------------------------------------------------------------------------------

    async def dispatched(self, dispatch: Dispatch) -> None:
        """Kept before the person is answered; replaces an earlier one of the same turn (a resume)."""
        ...

    async def dispatches(self) -> Sequence[Dispatch]:
        """Those that have not ended here."""
        ...

    async def parked_for(self, turn: str, seconds: float) -> None:
        """Adds to the time that the deadline does not count."""
        ...

    async def concluded(self, turn: str) -> None: ...

    # -- who may enter: as in `Store` ---------------------------------------------------------------------------------

    async def create_token(self, name: str, role: Role, secret_hash: str, *, by: str) -> Token: ...

    async def revoke_token(self, name: str, *, by: str) -> Token: ...

    async def tokens(self) -> Sequence[Token]: ...

    async def token_of(self, secret_hash: str) -> Token | None: ...

    # -- the house ----------------------------------------------------------------------------------------------------

    async def statistics(self) -> Mapping[str, float]: ...

    async def size(self) -> DatabaseSize: ...

    async def check(self) -> None: ...

    async def close(self) -> None: ...
