"""Forks as people ask for them: what a message or a checkpoint means, what is sent first, and where conversations part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perdure.agent.base import BranchPoint, ForkedFrom, WayOn
from perdure.agent.ids import message_of_turn, new_id, turn_of_message
from perdure.agent.threads import Threads
from perdure.errors import BadRequest
from perdure.forks import FirstTurn, Forked, ForkPoint, NewFork, Parting
from perdure.store.base import Page, Store
from perdure.turns import Conversation, Person, RequestKey

CheckInput = Callable[[str, Mapping[str, Any]], None]
"""Raises BadRequest when the named agent does not take this input, or is not hosted here."""


class Forks:
    """See `AgentPort.fork` and its neighbours."""

    def __init__(self, store: Store, threads: Threads, check_input: CheckInput) -> None:
        self._store = store
        self._threads = threads
        self._check_input = check_input

    async def fork(
        self,
        person: Person,
        conversation: str,
        *,
        message: str | None,
        checkpoint: str | None,
        text: str | None,
        title: str | None,
        request_key: RequestKey | None,
    ) -> ForkedFrom:
        if request_key is not None:
            repeated = await self._store.repeated_fork(person.owner, request_key)
            if repeated is not None:
                return await self._made(person, repeated)
        source = await self._store.conversation(person.scope, conversation)
        held = self._threads.messages((await self._threads.head(source)).state) if message is not None else ()
        asked = None if message is None else _asked(held, message)
        point = await self._store.fork_point(
            person.scope,
            conversation,
            message=asked,
            turn=turn_of_message(asked) if asked is not None else None,
            checkpoint=checkpoint,
        )
        said = text if message is None or text is not None else _said_before(source, held, point, message)
        new = NewFork(
            id=new_id(),
            source=conversation,
            scope=person.scope,
            owner=person.owner,
            by=person.name,
            point=point,
            title=title,
            messages=await self._past(source, point),
            turn=self._first_turn(source, said),
            request_key=request_key,
        )
        return await self._made(person, await self._store.fork(new))

    async def _made(self, person: Person, forked: Forked) -> ForkedFrom:
        made = await self._store.conversation(person.owner, forked.conversation)
        assert made.forked_from is not None
        return ForkedFrom(forked, made.forked_from)

    def _first_turn(self, source: Conversation, said: str | None) -> FirstTurn | None:
        if said is None:
            return None
        given = {"message": said}
        self._check_input(source.agent, given)
        return FirstTurn(new_id(), given)

    async def _past(self, source: Conversation, point: ForkPoint) -> Sequence[Mapping[str, Any]]:
        if point.checkpoint is None:
            return ()
        return self._threads.messages((await self._threads.at(source, point.checkpoint)).state)

    async def branches(self, person: Person, conversation: str) -> Sequence[BranchPoint]:
        return [_seen(parting) for parting in await self._store.branches(person.scope, conversation)]

    async def checkpoints(
        self, person: Person, conversation: str, *, limit: int, cursor: str | None
    ) -> Page[Mapping[str, Any]]:
        source = await self._store.conversation(person.scope, conversation)
        page = await self._store.checkpoints(person.scope, conversation, limit=limit, cursor=cursor)
        found = [await self._threads.summary(source, checkpoint) for checkpoint in page.items]
        return Page([each for each in found if each is not None], page.next)

    async def checkpoint(self, person: Person, conversation: str, checkpoint: str) -> Mapping[str, Any]:
        source = await self._store.conversation(person.scope, conversation)
        return await self._threads.detail(source, checkpoint)


def _asked(held: Sequence[Mapping[str, Any]], message: str) -> str:
    """The person's message that another one came of: the last one before it whose id tells its turn; else itself. (A result
    that a repair has written was stored by a later turn than the one it belongs to.)"""
    asked = message
    for each in held:
        if turn_of_message(each["id"]) is not None:
            asked = each["id"]
        if each["id"] == message:
            return asked
    return message


def _said_before(source: Conversation, held: Sequence[Mapping[str, Any]], point: ForkPoint, message: str) -> str | None:
    """What is sent once more: the person's words that an assistant's or a tool's message came of. None where `message` is a
    person's own: the fork waits for another one."""
    found = {each["id"]: each for each in held}
    asked = message_of_turn(point.turn)
    if message == asked or found.get(message, {}).get("role") == "user":
        return None
    words = found.get(asked or "", {}).get("content")
    if not words:
        raise BadRequest(
            "What this message answers is not in the conversation any more: say with `message` what to send.",
            conversation=source.id,
        )
    return str(words)


def _seen(parting: Parting) -> BranchPoint:
    ways = [WayOn(branch, message_of_turn(branch.turn)) for branch in parting.branches]
    return BranchPoint(parting.checkpoint, message_of_turn(parting.turn), ways)
