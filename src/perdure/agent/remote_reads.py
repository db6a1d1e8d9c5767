"""What people read of agents on NATS: the agent's word where it can be had in time, else the copy, which says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from perdure.agent.base import BranchPoint, ServerInfo, Transcript, TurnDetail
from perdure.agent.calls import Calls
from perdure.agent.codec import from_json
from perdure.agent.directory import Directory
from perdure.agent.records import turns_of
from perdure.agent.transcripts import Told, Transcripts
from perdure.agent.whereabouts import Whereabouts
from perdure.errors import NotReady, PerdureError
from perdure.replication import Reach
from perdure.store.base import Page
from perdure.store.replica import Replica
from perdure.turns import Person


class RemoteReads:
    def __init__(
        self, replica: Replica, calls: Calls, directory: Directory, whereabouts: Whereabouts, wait_seconds: float
    ) -> None:
        self._replica = replica
        self._calls = calls
        self._directory = directory
        self._whereabouts = whereabouts
        self._wait_seconds = wait_seconds
        self._transcripts = Transcripts(replica)

    def forgot(self) -> None:
        """Call it when conversations were thrown away here that their agent still has."""
        self._transcripts.forgot()

    # -- with the copy where the agent is away -------------------------------------------------------------------------

    async def conversation(self, person: Person, conversation: str) -> Transcript:
        _, agent = await self._whereabouts.conversation(person, conversation)
        told = await self._told(person, agent, conversation)
        found = await self._replica.conversation(person.scope, conversation)
        turns = await turns_of(self._replica, person.scope, conversation)
        reach = Reach.REACHABLE if told is not None else self._away(agent)
        if told is None:
            last = await self._replica.last_turn(person.scope, conversation)
            told = await self._transcripts.kept(conversation, last)
        return Transcript(found, told.resumable, told.messages, turns, told.state, reach)

    async def _told(self, person: Person, agent: str, conversation: str) -> Told | None:
        """None when the agent does not say it in time."""
        try:
            result = await self._calls.read(agent, "threads/get", {"conversation": conversation}, person)
        except NotReady:
            return None
        told = from_json(Told, result)
        await self._transcripts.keep(conversation, told, int(result["last_seq"]))
        return told

    def _away(self, agent: str) -> Reach:
        """The reach of an agent that has just not answered."""
        reach = self._directory.reach(agent)
        return Reach.UNREACHABLE if reach is Reach.REACHABLE else reach

    async def turn(self, person: Person, turn: str) -> TurnDetail:
        _, agent = await self._whereabouts.turn(person, turn)
        resumable: bool | None = None
        with suppress(NotReady):
            resumable = bool((await self._calls.read(agent, "turns/get", {"turn_id": turn}, person))["resumable"])
        scope = person.scope
        found = await self._replica.turn(scope, turn)
        if resumable is None:
            last = await self._replica.last_turn(scope, found.conversation)
            kept = await self._transcripts.kept(found.conversation, last)
            resumable = last is not None and last.id == turn and kept.resumable
        return TurnDetail(
            found,
            await self._replica.attempts(scope, turn),
            await self._replica.cards(scope, turn),
            await self._replica.calls(scope, turn),
            resumable,
        )

    async def branches(self, person: Person, conversation: str) -> Sequence[BranchPoint]:
        """None while the agent is away: the conversation is read without its ways on."""
        _, agent = await self._whereabouts.conversation(person, conversation)
        try:
            result = await self._calls.read(agent, "threads/branches", {"conversation": conversation}, person)
        except NotReady:
            return ()
        return from_json(list[BranchPoint], result["branches"])

    async def server(self, person: Person, *, draining: bool) -> ServerInfo:
        """Of all agents that say it in time, and this server's own database."""
        reachable = [agent for agent, reach in self._directory.reaches().items() if reach is Reach.REACHABLE]
        told = await asyncio.gather(*(self._server_of(person, agent) for agent in reachable))
        found = [info for info in told if info is not None]
        return ServerInfo(
            draining=draining,
            workers=[worker for info in found for worker in info.workers],
            own="",
            mcp_servers=[health for info in found for health in info.mcp_servers],
            database=await self._replica.size() if person.scope is None else None,
            nats=self._directory.is_connected,
        )

    async def _server_of(self, person: Person, agent: str) -> ServerInfo | None:
        try:
            return from_json(ServerInfo, await self._calls.read(agent, "server/get", {}, person))
        except PerdureError:
            return None

    # -- from the agent alone ------------------------------------------------------------------------------------------

    async def export(self, person: Person, conversation: str) -> AsyncIterator[Mapping[str, Any]]:
        _, agent = await self._whereabouts.conversation(person, conversation)
        cursor: str | None = None
        within_seconds = self._calls.times.read
        while True:
            asked = {"conversation": conversation, "cursor": cursor}
            page = await self._calls.read(agent, "threads/export", asked, person, within_seconds=within_seconds)
            for checkpoint in page["checkpoints"]:
                yield checkpoint
            cursor = page["next"]
            if cursor is None:
                return
            within_seconds = self._wait_seconds

    async def checkpoints(
        self, person: Person, conversation: str, *, limit: int, cursor: str | None
    ) -> Page[Mapping[str, Any]]:
        asked = {"conversation": conversation, "limit": limit, "cursor": cursor}
        result = await self._of_thread(person, conversation, "threads/checkpoints", asked)
        return Page(result["items"], result["next"])

    async def checkpoint(self, person: Person, conversation: str, checkpoint: str) -> Mapping[str, Any]:
        asked = {"conversation": conversation, "checkpoint": checkpoint}
        result = await self._of_thread(person, conversation, "threads/checkpoint", asked)
        found: Mapping[str, Any] = result["checkpoint"]
        return found

    async def _of_thread(
        self, person: Person, conversation: str, method: str, asked: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Raises AgentUnavailable."""
        _, agent = await self._whereabouts.conversation(person, conversation)
        return await self._calls.read(agent, method, asked, person)
