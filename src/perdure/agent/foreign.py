"""What agents send is foreign: events are read with care, and an agent speaks of its own conversations alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from perdure.errors import NotFound
from perdure.events import Event, EventKind
from perdure.replication import JournalRows, Row
from perdure.store.replica import Replica
from perdure.turns import ENDED

NEWEST = 50


class Refused(Exception):
    """What an agent sent is not taken. Why."""


def check_event(event: Event) -> None:
    """Raises Refused for a payload that is not what its kind promises."""
    payload = event.payload
    if event.kind is EventKind.TOKEN:
        _need(isinstance(payload.get("message_id"), str) and isinstance(payload.get("text"), str), event)
    elif event.kind is EventKind.MESSAGE:
        message = payload.get("message")
        _need(isinstance(message, Mapping) and isinstance(message.get("id"), str), event)
    elif event.kind is EventKind.REWIND:
        to_seq = payload.get("to_seq")
        _need(type(to_seq) is int and 0 <= to_seq < event.seq and isinstance(payload.get("reason"), str), event)
    elif event.kind is EventKind.APPROVAL:
        _need(isinstance(payload.get("card"), str), event)
    elif event.terminal:
        _need(isinstance(payload.get("status"), str), event)


def _need(held: bool, event: Event) -> None:
    if not held:
        raise Refused(f"a `{event.kind}` event whose payload is not one")


class Ownership:
    """Whose conversations and turns are, by the copy. What it does not hold belongs to who speaks of it first."""

    def __init__(self, replica: Replica, agent: str) -> None:
        self._replica = replica
        self._agent = agent

    async def owns(self, conversation: str) -> bool | None:
        """None: nobody's yet."""
        try:
            return (await self._replica.conversation(None, conversation)).agent == self._agent
        except NotFound:
            return None

    async def place(self, turn: str) -> str | None:
        """The conversation of a turn; None: it is not held."""
        try:
            return (await self._replica.turn(None, turn)).conversation
        except NotFound:
            return None

    async def unended(self, conversation: str) -> list[str]:
        """Turns of a conversation that the copy shows as not ended, among its newest."""
        page = await self._replica.turns(None, limit=NEWEST, conversation=conversation)
        return [turn.id for turn in page.items if turn.status not in ENDED]

    async def own(self, rows: JournalRows) -> JournalRows:
        """The rows without those that are not this agent's."""
        conversations = [row for row in rows.conversations if await self._is_own_conversation(row)]
        mine = {str(row["id"]): True for row in conversations}
        turns = [row for row in rows.turns if await self._is_own_turn(row, mine)]
        ids = {row["id"] for row in turns}
        return replace(
            rows,
            conversations=conversations,
            turns=turns,
            attempts=[row for row in rows.attempts if row.get("turn") in ids],
            cards=[row for row in rows.cards if row.get("turn") in ids],
            calls=[row for row in rows.calls if row.get("turn") in ids],
            audit=[row for row in rows.audit if await self._may_tell_of(row.get("conversation"), mine)],
            deleted=[conversation for conversation in rows.deleted if await self.owns(conversation) is not False],
            last_seqs={key: seq for key, seq in rows.last_seqs.items() if await self._is_mine(key, mine)},
        )

    async def _is_own_conversation(self, row: Row) -> bool:
        if not isinstance(row.get("id"), str) or row.get("agent") != self._agent:
            return False
        return await self.owns(row["id"]) is not False

    async def _is_own_turn(self, row: Row, mine: dict[str, bool]) -> bool:
        conversation = row.get("conversation")
        if not isinstance(row.get("id"), str) or not await self._is_mine(conversation, mine):
            return False
        return await self.place(row["id"]) in {None, conversation}

    async def _is_mine(self, conversation: Any, mine: dict[str, bool]) -> bool:
        if not isinstance(conversation, str):
            return False
        known = mine.get(conversation)
        if known is None:
            known = mine[conversation] = await self.owns(conversation) is True
        return known

    async def _may_tell_of(self, conversation: Any, mine: dict[str, bool]) -> bool:
        """Rows of the record may speak of what is deleted by now."""
        if conversation is None or await self._is_mine(conversation, mine):
            return True
        return isinstance(conversation, str) and await self.owns(conversation) is None
