"""The Outbox protocol: what a journal tells to others. Events that the stream must still get, and the rows of a copy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Protocol

from perdure.replication import JournalRows, Position


class Outbox(Protocol):
    @property
    def journal(self) -> str:
        """The identity of this database; a restored backup keeps it."""
        ...

    async def unpublished(self, stream: str, since: datetime) -> Mapping[str, int]:
        """Conversations with committed events that are not known to be in this stream (an identity: a stream made again is
        another one), each with the seq that was published last (0: none); of turns that are not ended or ended since."""
        ...

    async def published(self, stream: str, seqs: Mapping[str, int]) -> None:
        """Keeps that the events of these conversations up to these seqs are in the stream. Losing this is harmless."""
        ...

    async def journal_rows(
        self,
        after: Position,
        *,
        limit: int = 200,
        turns: Collection[str] = (),
        conversations: Collection[str] = (),
    ) -> JournalRows:
        """What changed after a position, or what belongs to the named turns and conversations. A position of another
        journal, or one ahead of this one (a backup was restored), is answered from the beginning, with `after` 0."""
        ...
