"""Events of a turn as one reads them afterwards; while it runs they come by the stream."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field, field_validator

from perdure.api.shapes import PageQuery, Reply
from perdure.events import Event, EventKind

# Streamed text is never in the journal.
_KEPT = [kind for kind in EventKind if kind is not EventKind.TOKEN]


class EventsQuery(PageQuery):
    kind: EventKind | None = Field(
        None, description="Only these. A page may then hold fewer than `limit` before its `next`."
    )

    @field_validator("kind", mode="before")
    @classmethod
    def _known_kind(cls, kind: Any) -> Any:
        if kind is None or kind in _KEPT:
            return kind
        raise ValueError(f"must be one of {', '.join(_KEPT)}")


class EventReply(Reply):
    seq: int
    event: EventKind
    attempt: int = Field(description="0 for what happened outside an attempt.")
    at: datetime
    data: dict[str, Any] = Field(description="As the stream carries it, without what stands beside it here.")

    @classmethod
    def of(cls, event: Event) -> EventReply:
        return cls(seq=event.seq, event=event.kind, attempt=event.attempt, at=event.at, data=dict(event.payload))
