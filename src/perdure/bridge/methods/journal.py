"""The journal as copies of it read it, and what this process tells of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.agent.base import ServerInfo
from perdure.agent.codec import to_json
from perdure.agent.description import Description
from perdure.bridge.context import Context
from perdure.bridge.params import Params, ReadEvents, ReadJournal, ReadTokens
from perdure.errors import Forbidden
from perdure.events import Event
from perdure.replication import Position
from perdure.transport.nats.wire import encode, event_to_json, rows_to_json

MAX_PAGE_BYTES = 1_000_000
"""Of events in one answer; the one that reaches it is still in it."""

Result = Mapping[str, Any]


class JournalMethods:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._journal = context.journal

    async def read(self, params: ReadJournal) -> Result:
        """Everybody's rows: not for a person who sees but their own."""
        if params.asker().scope is not None:
            raise Forbidden("The journal is read by those who see everything.")
        after = Position(params.journal, params.change, params.audit)
        rows = await self._journal.journal_rows(
            after, limit=params.limit, turns=params.turns, conversations=params.conversations
        )
        return rows_to_json(rows)

    async def events(self, params: ReadEvents) -> Result:
        """Retained events, rewinds included. `last_seq`: up to where they are complete."""
        await self._journal.conversation(params.asker().scope, params.conversation)
        found = await self._journal.events(params.conversation, after=params.after, limit=params.limit + 1)
        page = _bounded(found[: params.limit])
        return {
            "events": page,
            "last_seq": page[-1]["seq"] if page else params.after,
            "more": len(page) < len(found),
        }

    async def tokens(self, params: ReadTokens) -> Result:
        """What streams now and no committed message has replaced."""
        await self._journal.conversation(params.asker().scope, params.conversation)
        with self._context.transport.subscribe(params.conversation) as live:
            retained = [event_to_json(event) for event in live.retained if event.seq > params.after]
        return {"events": retained}

    async def describe(self, params: Params) -> Result:
        info = next(info for info in self._context.agents.agents() if info.name == self._context.agent)
        described = Description(
            agent=info,
            version=self._context.version,
            journal=self._journal.journal,
            boot=self._context.boot,
            position=await self._journal.last_change(None),
        )
        told: Result = to_json(Description, described)
        return told

    async def server(self, params: Params) -> Result:
        served: Result = to_json(ServerInfo, await self._context.agents.server(params.asker()))
        return served


def _bounded(events: Sequence[Event]) -> list[dict[str, Any]]:
    page: list[dict[str, Any]] = []
    size = 0
    for event in events:
        if size > MAX_PAGE_BYTES:
            break
        page.append(event_to_json(event))
        size += len(encode(page[-1]))
    return page
