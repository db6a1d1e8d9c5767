"""Conversations: list, read, rename, delete, export, fork, and their history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.agent.base import BranchPoint, ForkedFrom
from perdure.agent.codec import to_json
from perdure.bridge.context import Context, request_key
from perdure.bridge.exports import Exports
from perdure.bridge.params import Checkpoints, Delete, Export, Fork, ListThreads, OfCheckpoint, OfThread, Rename
from perdure.failpoints import failpoint
from perdure.turns import Conversation

LATEST = 20
"""Turns of a conversation that are told with it; of those before them a copy knows since they ended."""

Result = Mapping[str, Any]


class Threads:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._agents = context.agents
        self._exports = Exports(context.agents)

    async def list(self, params: ListThreads) -> Result:
        page = await self._agents.conversations(
            params.asker(), limit=params.limit, cursor=params.cursor, agent=params.agent, text=params.text
        )
        return {"items": [to_json(Conversation, each) for each in page.items], "next": page.next}

    async def get(self, params: OfThread) -> Result:
        """`last_seq`: the messages hold at least all events up to there."""
        held = await self._context.rows(conversations=[params.conversation])
        transcript = await self._agents.conversation(params.asker(), params.conversation)
        latest = [turn.id for turn in transcript.turns[-LATEST:]]
        return {
            "resumable": transcript.resumable,
            "messages": [dict(message) for message in transcript.messages],
            "state": transcript.state,
            "last_seq": held["last_seqs"].get(params.conversation, 0),
            "rows": await self._context.rows(turns=latest, conversations=[params.conversation]),
        }

    async def rename(self, params: Rename) -> Result:
        renamed = await self._agents.rename(params.asker(), params.conversation, params.title)
        rows = await self._context.rows(conversations=[params.conversation])
        return {"conversation": to_json(Conversation, renamed), "rows": rows}

    async def delete(self, params: Delete) -> Result:
        await self._agents.delete(params.asker(), params.conversation, cancel=params.cancel)
        return {"rows": await self._context.rows(conversations=[params.conversation])}

    async def export(self, params: Export) -> Result:
        checkpoints, following = await self._exports.page(params.asker(), params.conversation, params.cursor)
        return {"checkpoints": checkpoints, "next": following}

    async def fork(self, params: Fork) -> Result:
        made = await self._agents.fork(
            params.asker(),
            params.conversation,
            message=params.message,
            checkpoint=params.checkpoint,
            text=params.text,
            title=params.title,
            request_key=request_key("fork", params),
        )
        failpoint("accept_reply.before")
        turns = [made.forked.turn] if made.forked.turn is not None else []
        rows = await self._context.rows(turns=turns, conversations=[made.forked.conversation])
        told = {**to_json(ForkedFrom, made), "rows": rows}
        failpoint("accept_reply.after")
        return told

    async def branches(self, params: OfThread) -> Result:
        points = await self._agents.branches(params.asker(), params.conversation)
        return {"branches": [to_json(BranchPoint, point) for point in points]}

    async def checkpoints(self, params: Checkpoints) -> Result:
        page = await self._agents.checkpoints(
            params.asker(), params.conversation, limit=params.limit, cursor=params.cursor
        )
        return {"items": list(page.items), "next": page.next}

    async def checkpoint(self, params: OfCheckpoint) -> Result:
        found = await self._agents.checkpoint(params.asker(), params.conversation, params.checkpoint)
        return {"checkpoint": found}
