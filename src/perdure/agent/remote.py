"""The Agent port over NATS: agents in processes of their own, read from a copy of their journals, written to by calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, Unpack

from perdure.agent.accepting import STOPPING, check_accepting
from perdure.agent.base import AgentInfo, BranchPoint, ForkAsked, ForkedFrom, ServerInfo, Transcript, TurnDetail
from perdure.agent.calls import Calls, Feed, Times
from perdure.agent.directory import Asks, Directory
from perdure.agent.people import Entrance, require_operator
from perdure.agent.records import events_of
from perdure.agent.remote_reads import RemoteReads
from perdure.agent.remote_writes import RemoteWrites
from perdure.agent.remote_writes import Waiting as Waits
from perdure.agent.streams import Streams
from perdure.agent.whereabouts import Whereabouts
from perdure.errors import NotReady, PerdureError
from perdure.events import Event, EventKind, Frame, Gone, ListsReset, Reached, Unfollowed
from perdure.replication import Reach
from perdure.store.base import Decided, Page
from perdure.store.replica import Replica
from perdure.transport.local import LocalTransport
from perdure.turns import (
    Accepted,
    Card,
    Change,
    Conversation,
    Person,
    RequestKey,
    Turn,
    TurnStatus,
    Verdict,
)


class Waiting(Waits, Protocol):
    """Who waits for the ends of turns (`agent.persister`), and tells when it waits for one no more."""

    def observe(self, conversation: str, observer: Callable[[Unfollowed], None]) -> Callable[[], None]:
        """Calls the observer, on the event loop, when a turn of the conversation is followed no more. Call what is returned
        to hear no more."""
        ...

    def forget(self, agent: str) -> None:
        """Waits for no turn of this agent any more."""
        ...


class Follows(Feed, Protocol):
    """Who keeps the copy up to date (`agent.follower`), and can leave an agent alone."""

    def without(self, agent: str) -> AbstractAsyncContextManager[None]:
        """Nothing of the agent is taken from the first line of the body until it is met anew; where the body fails, on as
        before."""
        ...


class RemoteAgents(Entrance):
    """Implements `AgentPort`."""

    def __init__(
        self,
        replica: Replica,
        transport: LocalTransport,
        asks: Asks,
        directory: Directory,
        *,
        waiting: Waiting,
        feed: Follows,
        wait_seconds: float,
        times: Times | None = None,
        draining: Callable[[], bool] = lambda: False,
    ) -> None:
        """`wait_seconds`: for an agent that does not answer (`agent_wait_seconds`); `times`: for one answer. `transport`: its `changes` is rung when an
        agent's reach changes."""
        super().__init__(replica)
        self._replica = replica
        self._transport = transport
        self._directory = directory
        self._waiting = waiting
        self._feed = feed
        self._draining = draining
        calls = Calls(asks, replica, directory, feed, wait_seconds=wait_seconds, times=times)
        self._whereabouts = Whereabouts(replica, calls, directory)
        self._reads = RemoteReads(replica, calls, directory, self._whereabouts, wait_seconds)
        self._writes = RemoteWrites(
            replica, calls, directory, self._whereabouts, waiting=waiting, wait_seconds=wait_seconds
        )
        self._streams = Streams(replica, transport, directory.reaches)
        directory.observe(lambda agent, reach: transport.ring("changes"))

    def agents(self) -> Sequence[AgentInfo]:
        return self._directory.agents()

    async def forget(self, person: Person, agent: str) -> None:
        require_operator(person)
        async with self._directory.forgetting(agent), self._feed.without(agent):
            gone = await self._replica.forget(agent, by=person.name)
            self._waiting.forget(agent)
            self._reads.forgot()
        for conversation in gone:
            self._transport.forget(conversation)

    # -- turns --------------------------------------------------------------------------------------------------------

    async def start(
        self,
        person: Person,
        *,
        input: Mapping[str, Any],
        conversation: str | None,
        agent: str | None,
        when_busy: str,
        request_key: RequestKey | None,
        discard_pending: bool = False,
    ) -> Accepted:
        check_accepting(self._draining())
        return await self._writes.start(
            person,
            input=input,
            conversation=conversation,
            agent=agent,
            when_busy=when_busy,
            request_key=request_key,
            discard_pending=discard_pending,
        )

    async def resume(self, person: Person, conversation: str, request_key: RequestKey | None = None) -> Accepted:
        check_accepting(self._draining())
        return await self._writes.resume(person, conversation, request_key)

    async def answer(
        self, person: Person, conversation: str, answers: Mapping[str, Verdict], request_key: RequestKey | None = None
    ) -> Accepted:
        check_accepting(self._draining())
        return await self._writes.answer(person, conversation, answers, request_key)

    async def cancel(self, person: Person, turn: str) -> Turn:
        return await self._writes.cancel(person, turn)

    async def turn(self, person: Person, turn: str) -> TurnDetail:
        return await self._reads.turn(person, turn)

    async def events(
        self, person: Person, turn: str, *, limit: int, cursor: str | None, kind: EventKind | None
    ) -> Page[Event]:
        await self._whereabouts.turn(person, turn)
        return await events_of(self._replica, person, turn, limit=limit, cursor=cursor, kind=kind)

    async def turns(
        self,
        person: Person,
        *,
        limit: int,
        cursor: str | None,
        status: TurnStatus | None,
        agent: str | None,
        attempts_min: int | None = None,
        text: str | None = None,
    ) -> Page[Turn]:
        return await self._replica.turns(
            person.scope,
            limit=limit,
            cursor=cursor,
            status=status,
            agent=agent,
            attempts_min=attempts_min,
            text=text,
        )

    async def turn_counts(self, person: Person, *, agent: str | None) -> Mapping[TurnStatus, int]:
        return await self._replica.turn_counts(person.scope, agent=agent)

    # -- approvals ----------------------------------------------------------------------------------------------------

    async def approvals(
        self, person: Person, *, limit: int, cursor: str | None, conversation: str | None = None
    ) -> Page[Card]:
        return await self._replica.approvals(
            person.scope, person.name, limit=limit, cursor=cursor, conversation=conversation
        )

    async def card(self, person: Person, card: str) -> Card:
        return (await self._whereabouts.card(person, card))[0]

    async def decide(self, person: Person, card: str, verdict: Verdict) -> Decided:
        check_accepting(self._draining())
        return await self._writes.decide(person, card, verdict)

    # -- conversations ------------------------------------------------------------------------------------------------

    async def conversations(
        self, person: Person, *, limit: int, cursor: str | None, agent: str | None, text: str | None = None
    ) -> Page[Conversation]:
        return await self._replica.conversations(person.scope, limit=limit, cursor=cursor, agent=agent, text=text)

    async def conversation(self, person: Person, conversation: str) -> Transcript:
        return await self._reads.conversation(person, conversation)

    async def rename(self, person: Person, conversation: str, title: str) -> Conversation:
        return await self._writes.rename(person, conversation, title)

    async def delete(self, person: Person, conversation: str, *, cancel: bool) -> None:
        """The agent does it; with `cancel` that may take long: see `DELETE_SECONDS`."""
        await self._writes.delete(person, conversation, cancel=cancel)
        self._transport.forget(conversation)

    def export(self, person: Person, conversation: str) -> AsyncIterator[Mapping[str, Any]]:
        return self._reads.export(person, conversation)

    # -- forks --------------------------------------------------------------------------------------------------------

    async def fork(self, person: Person, conversation: str, **asked: Unpack[ForkAsked]) -> ForkedFrom:
        check_accepting(self._draining())
        return await self._writes.fork(person, conversation, **asked)

    async def branches(self, person: Person, conversation: str) -> Sequence[BranchPoint]:
        return await self._reads.branches(person, conversation)

    async def checkpoints(
        self, person: Person, conversation: str, *, limit: int, cursor: str | None
    ) -> Page[Mapping[str, Any]]:
        return await self._reads.checkpoints(person, conversation, limit=limit, cursor=cursor)

    async def checkpoint(self, person: Person, conversation: str, checkpoint: str) -> Mapping[str, Any]:
        return await self._reads.checkpoint(person, conversation, checkpoint)

    # -- streams ------------------------------------------------------------------------------------------------------

    async def follow(
        self, person: Person, conversation: str, *, after: int | None, follow: bool
    ) -> AsyncIterator[Frame | Gone | Unfollowed]:
        _, agent = await self._whereabouts.conversation(person, conversation)
        await self._feed.attend(agent, conversation)
        await self._wait_again(person, agent, conversation)
        return self._frames(person.scope, conversation, after, follow=follow)

    async def _wait_again(self, person: Person, agent: str, conversation: str) -> None:
        """What somebody watches is waited for: a turn that another server started, or that was followed no more."""
        last = await self._replica.last_turn(person.scope, conversation)
        if last is not None and last.active:
            await self._waiting.dispatched(agent, conversation, last.id)

    async def _frames(
        self, scope: str | None, conversation: str, after: int | None, *, follow: bool
    ) -> AsyncIterator[Frame | Gone | Unfollowed]:
        left: list[Unfollowed] = []
        with self._transport.subscribe(conversation) as live:

            def leave(unfollowed: Unfollowed) -> None:
                left.append(unfollowed)
                live.close()

            stop = self._waiting.observe(conversation, leave)
            try:
                async for frame in self._streams.frames_of(live, scope, conversation, after, follow=follow):
                    yield frame
            except NotReady:
                if not left:
                    raise
                yield left[0]
            finally:
                stop()

    async def changes(self, person: Person, *, after: int | None) -> AsyncIterator[Change | ListsReset | Reached]:
        return await self._streams.changes(person.scope, after)

    # -- who ----------------------------------------------------------------------------------------------------------

    async def server(self, person: Person) -> ServerInfo:
        return await self._reads.server(person, draining=self._draining())

    # -- health -------------------------------------------------------------------------------------------------------

    async def unready(self) -> str | None:
        """Of this server's own database alone."""
        if self._draining():
            return STOPPING
        try:
            await self._replica.check()
        except PerdureError as error:
            return error.message
        return None

    async def statistics(self) -> Mapping[str, float]:
        """Bounded-label numbers for /metrics: of this server's own database, of NATS and of who can be asked."""
        reaches = list(self._directory.reaches().values())
        return {
            **await self._replica.statistics(),
            "nats_connected": float(self._directory.is_connected),
            "agents": float(len(reaches)),
            "agents_reachable": float(reaches.count(Reach.REACHABLE)),
        }
