"""Where a conversation, a turn or a card is: in the copy, else with an agent that is asked for it before anybody is told that
there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.agent.calls import Calls
from perdure.agent.codec import from_json
from perdure.agent.directory import Directory
from perdure.errors import AgentUnavailable, NotFound, NotReady
from perdure.replication import JournalRows, Reach
from perdure.store.replica import Replica
from perdure.turns import Card, Conversation, Person, Turn


class Whereabouts:
    """Each answer is within the person's scope, and names the agent that has it."""

    def __init__(self, replica: Replica, calls: Calls, directory: Directory) -> None:
        self._replica = replica
        self._calls = calls
        self._directory = directory

    async def conversation(self, person: Person, conversation: str) -> tuple[Conversation, str]:
        """Raises NotFound; AgentUnavailable where nobody can know: an agent that may have accepted it since is away."""
        try:
            known = await self._replica.conversation(None, conversation)
        except NotFound:
            if await self._replica.is_deleted(conversation):
                raise
            holder = await self._holder(conversations=[conversation])
            return await self._replica.conversation(person.scope, conversation), holder or ""
        if known.owner != person.owner:
            known = await self._replica.conversation(person.scope, conversation)
        return known, await self._agent_of(known)

    async def turn(self, person: Person, turn: str) -> tuple[Turn, str]:
        """As `conversation`."""
        try:
            known = await self._replica.turn(None, turn)
        except NotFound:
            holder = await self._holder(turns=[turn])
            return await self._replica.turn(person.scope, turn), holder or ""
        known = await self._replica.turn(person.scope, turn)
        return known, await self._agent_of(await self._replica.conversation(None, known.conversation))

    async def card(self, person: Person, card: str) -> tuple[Card, str]:
        """Raises UnknownCard; AgentUnavailable as `conversation`."""
        try:
            known = await self._replica.card(person.scope, person.name, card)
        except NotFound:
            return await self._card_elsewhere(person, card)
        return known, await self._agent_of(await self._replica.conversation(None, known.conversation))

    async def _card_elsewhere(self, person: Person, card: str) -> tuple[Card, str]:
        holder: str | None = None
        found = await self._everywhere("approvals/get", {"card": card}, person)
        if not found:
            self._check_complete()
        for result in found.values():
            holder = await self._holder(turns=[from_json(Card, result["card"]).turn])
        return await self._replica.card(person.scope, person.name, card), holder or ""

    async def _agent_of(self, conversation: Conversation) -> str:
        """Whose process has it: the agent it belongs to, or the one that was given the database of that agent."""
        if conversation.agent in self._directory:
            return conversation.agent
        return await self._holder(conversations=[conversation.id]) or conversation.agent

    async def _holder(self, *, conversations: Sequence[str] = (), turns: Sequence[str] = ()) -> str | None:
        """The agent whose journal has it; what it has of it is in the copy then. Raises AgentUnavailable where nobody can
        know."""
        wanted = {"conversations": list(conversations), "turns": list(turns)}
        for agent, result in (await self._everywhere("journal/read", wanted, None)).items():
            rows = from_json(JournalRows, result)
            if rows.conversations:
                await self._calls.take(agent, rows)
                return agent
        self._check_complete()
        return None

    async def _everywhere(
        self, method: str, params: Mapping[str, Any], person: Person | None
    ) -> Mapping[str, Mapping[str, Any]]:
        """The results of those agents that had one. Raises AgentUnavailable when none had one and one did not answer."""
        asked = [agent for agent, reach in self._directory.reaches().items() if reach is Reach.REACHABLE]
        within = self._calls.times.lookup
        results = await asyncio.gather(
            *(self._calls.read(agent, method, params, person, within_seconds=within) for agent in asked),
            return_exceptions=True,
        )
        found: dict[str, Mapping[str, Any]] = {}
        silent: NotReady | None = None
        for agent, result in zip(asked, results, strict=True):
            if isinstance(result, NotReady):
                silent = result
            elif isinstance(result, BaseException):
                if not isinstance(result, NotFound):
                    raise result
            else:
                found[agent] = result
        if silent is not None and not found:
            raise silent
        return found

    def _check_complete(self) -> None:
        """Raises AgentUnavailable when an agent is away: whatever was copied of it, it may have accepted more, by another server
        for one."""
        for agent, reach in self._directory.reaches().items():
            if reach is not Reach.REACHABLE:
                raise AgentUnavailable(
                    f"Nothing with this id is known here, and the agent {agent!r}, which may have it, does not answer. "
                    "Try again when it is back."
                )
