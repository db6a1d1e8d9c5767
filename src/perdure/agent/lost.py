"""What watchers are told when an agent's journal does not know any more what they watch: another database, an older backup."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from perdure.agent.foreign import Ownership
from perdure.clock import Clock
from perdure.events import Event, EventKind
from perdure.store.replica import Replica
from perdure.transport.local import LocalTransport

MAX_KEPT = 1_000

TURN_LOST = {
    "status": "failed",
    "code": "TURN_LOST",
    "reason": "turn_lost",
    "message": "The agent's database does not know this turn: it was replaced, or an older backup was restored. Send the "
    "message again.",
}


@dataclass(slots=True)
class _Watched:
    told: int
    """The highest seq its watchers may have seen."""

    unended: list[str]


class Lost:
    """Of one agent."""

    def __init__(self, replica: Replica, transport: LocalTransport, clock: Clock, ownership: Ownership) -> None:
        self._replica = replica
        self._transport = transport
        self._clock = clock
        self._ownership = ownership
        self._watched: dict[str, _Watched] = {}
        self._said: dict[str, None] = {}
        self._count = 0

    async def remember(self, conversations: Collection[str], told: Callable[[str], int]) -> None:
        """Call it before the copy of these is thrown away. `told`: the highest seq that watchers of one have seen live."""
        for conversation in conversations:
            if await self._ownership.owns(conversation):
                seen = max(await self._replica.last_seq(conversation) or 0, told(conversation))
                unended = await self._ownership.unended(conversation)
                self._watched[conversation] = _Watched(seen, unended)

    async def tell(self, conversations: Collection[str] | None = None) -> None:
        """Call it once the copy is made again: watchers of turns that are gone hear so; all of them come again and read.
        None: of all that is remembered."""
        for conversation in list(self._watched) if conversations is None else conversations:
            watched = self._watched.pop(conversation, None)
            if watched is None:
                continue
            for turn in watched.unended:
                if await self._ownership.place(turn) is None:
                    await self.say(conversation, turn, watched.told)
            if await self._replica.last_seq(conversation) is None:
                self._transport.forget(conversation)
            else:
                self._transport.cut_off(conversation)

    async def say(self, conversation: str, turn: str, told: int) -> None:
        """To the watchers of the conversation, once for a turn. `told`: as in `remember`."""
        if turn in self._said:
            return
        self._said[turn] = None
        self._count += 1
        if len(self._said) > MAX_KEPT:
            del self._said[next(iter(self._said))]
        seq = max(told, await self._replica.last_seq(conversation) or 0) + self._count
        now = self._clock.now()
        self._transport.publish(Event(seq, conversation, turn, 0, EventKind.CHAT_ERROR, now, dict(TURN_LOST)))
