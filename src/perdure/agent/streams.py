"""What watchers are given, over a journal or a copy of some: the frames of a conversation, and the summaries of the lists."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping

from perdure.agent.watch import watch
from perdure.errors import NotFound, NotReady
from perdure.events import FORGOTTEN, Frame, Gone, ListsReset, Reached, ResetReason
from perdure.replication import Reach
from perdure.store.base import JournalReader
from perdure.transport.base import Subscription, Transport
from perdure.turns import Change

PAGE = 200


class Streams:
    """See `AgentPort.follow` and `AgentPort.changes`."""

    def __init__(
        self, journal: JournalReader, transport: Transport, reaches: Callable[[], Mapping[str, Reach]] = dict
    ) -> None:
        """`reaches`: of each agent that may be away; who changes it rings `changes`."""
        self._journal = journal
        self._transport = transport
        self._reaches = reaches

    async def frames(
        self, scope: str | None, conversation: str, after: int | None, *, follow: bool
    ) -> AsyncIterator[Frame | Gone]:
        with self._transport.subscribe(conversation) as live:
            async for frame in self.frames_of(live, scope, conversation, after, follow=follow):
                yield frame

    async def frames_of(
        self, live: Subscription, scope: str | None, conversation: str, after: int | None, *, follow: bool
    ) -> AsyncIterator[Frame | Gone]:
        """`live`: subscribed before this begins."""
        try:
            await self._journal.conversation(scope, conversation)  # it may have been deleted before `live` could tell
            turn = await self._journal.last_turn(scope, conversation)
            async for frame in watch(self._journal, live, turn, conversation, after, follow=follow):
                yield frame
        except NotReady:
            if not live.gone:
                raise
            yield Gone(conversation)
        except NotFound:
            yield Gone(conversation)

    async def changes(self, scope: str | None, after: int | None) -> AsyncIterator[Change | ListsReset | Reached]:
        last = await self._journal.last_change(scope)
        if after is None or await self._is_change(scope, after):
            return self._changes(scope, last if after is None else after, known=True)
        return self._changes(scope, min(after, last), known=False)

    async def _is_change(self, scope: str | None, number: int) -> bool:
        """Whether the journal still holds what a cursor names; 0 is the beginning. False after a restore of an older
        backup and when retention removed it: changes the watcher never saw may be gone."""
        page = await self._journal.changes(scope, number - 1, 1) if number > 0 else []
        return number == 0 or any(change.number == number for change in page)

    async def _changes(
        self, scope: str | None, after: int, *, known: bool
    ) -> AsyncIterator[Change | ListsReset | Reached]:
        told: dict[str, Reach] = {}
        if not known:
            yield ListsReset(ResetReason.CURSOR_UNKNOWN)
        with self._transport.listen("changes") as bell:
            while True:
                for reached in self._newly_reached(told):
                    yield reached
                page = await self._journal.changes(scope, after, PAGE)
                for change in page:
                    yield change
                    after = change.number
                if not page:
                    await bell.wait()

    def _newly_reached(self, told: dict[str, Reach]) -> list[Reached]:
        """What a watcher who was `told` so much does not know yet; keeps that it does."""
        now = self._reaches()
        news = {agent: reach for agent, reach in now.items() if told.get(agent) is not reach}
        forgotten = [agent for agent in told if agent not in now]
        told.clear()
        told.update(now)
        return [*(Reached(agent, FORGOTTEN) for agent in forgotten), *(Reached(*each) for each in news.items())]
