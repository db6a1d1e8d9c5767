"""Transcripts as their agents told them last, for the time in which an agent is away: with what was committed since on top."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.events import Event, EventKind
from perdure.replication import StoredTranscript
from perdure.store.replica import Replica
from perdure.turns import REOPENABLE, Turn

PAGE = 500
REMEMBERED = 10_000
"""Conversations of which this process knows up to where their transcript is kept: a reader who changes nothing writes nothing."""


@dataclass(frozen=True, slots=True)
class Told:
    """What only an agent knows of a conversation, as of now or as it was kept."""

    messages: Sequence[Mapping[str, Any]]
    state: Mapping[str, Any] | None
    resumable: bool


class Transcripts:
    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._kept: OrderedDict[str, tuple[int, bool]] = OrderedDict()

    async def keep(self, conversation: str, told: Told, seq: int) -> None:
        """`seq`: everything up to it is in what was told."""
        version, kept = (seq, told.resumable), self._kept
        if kept.get(conversation) == version:
            return
        document = {"messages": list(told.messages), "state": told.state, "resumable": told.resumable}
        await self._replica.keep_transcript(conversation, StoredTranscript(seq, document))
        kept[conversation] = version
        if len(kept) > REMEMBERED:
            kept.popitem(last=False)

    def forgot(self) -> None:
        """Conversations were thrown away with what was kept of them: nothing counts as kept any more."""
        self._kept = OrderedDict()

    async def kept(self, conversation: str, last: Turn | None) -> Told:
        """`last`: the last turn of it. Whether that can be resumed is the agent's to say; what it said last counts while nothing
        has happened since."""
        stored = await self._replica.transcript(conversation)
        seq = 0 if stored is None else stored.seq
        document: Mapping[str, Any] = {} if stored is None else stored.document
        messages = {message["id"]: message for message in document.get("messages", ())}
        news = await self._since(conversation, seq)
        for event in news:
            _lay_on_top(messages, event)
        reopenable = last is not None and last.status in REOPENABLE and not last.superseded
        resumable = reopenable and (bool(news) or bool(document.get("resumable", True)))
        return Told(list(messages.values()), document.get("state"), resumable)

    async def _since(self, conversation: str, seq: int) -> Sequence[Event]:
        events: list[Event] = []
        while True:
            page = await self._replica.events(conversation, after=seq, limit=PAGE)
            events += page
            if len(page) < PAGE:
                return events
            seq = page[-1].seq


def _lay_on_top(messages: dict[str, Mapping[str, Any]], event: Event) -> None:
    if event.kind is not EventKind.MESSAGE:
        return
    message = event.payload["message"]
    if message.get("status") == "removed":
        messages.pop(message["id"], None)
    else:
        messages[message["id"]] = message
