"""The Agent port over the journal of this process: people's verbs, transcripts and streams."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Unpack

from perdure.agent.accepting import STOPPING, check_accepting
from perdure.agent.approvals import Approvals
from perdure.agent.base import AgentInfo, BranchPoint, ForkAsked, ForkedFrom, ServerInfo, Transcript, TurnDetail
from perdure.agent.forks import Forks
from perdure.agent.ids import new_id
from perdure.agent.operations import server_info
from perdure.agent.people import Entrance, check_own, require_operator
from perdure.agent.records import events_of, turns_of
from perdure.agent.streams import Streams
from perdure.agent.threads import Threads
from perdure.errors import (
    AgentInUse,
    BadRequest,
    Forbidden,
    NotFound,
    NotReady,
    PerdureError,
    TurnInProgress,
    TurnNotResumable,
)
from perdure.events import Event, EventKind, Frame, Gone, ListsReset, Reached
from perdure.graph.load import HostedGraph
from perdure.store.base import Decided, Page, Store
from perdure.transport.base import SlowWatcher, Subscription, Transport
from perdure.turns import (
    ENDED,
    Accepted,
    Card,
    CardState,
    Change,
    Conversation,
    NewTurn,
    Person,
    RequestKey,
    Turn,
    TurnStatus,
    Verdict,
)

TITLE_CHARACTERS = 80


class LocalAgents(Entrance):
    """Implements `AgentPort` over a store, a transport and the hosted agents."""

    def __init__(
        self,
        store: Store,
        transport: Transport,
        agents: Mapping[str, HostedGraph],
        default: str,
        *,
        draining: Callable[[], bool] = lambda: False,
        warnings: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """`draining`: whether this server stops. `warnings`: what is wrong with the engine now, one sentence each."""
        super().__init__(store)
        self._store = store
        self._transport = transport
        self._agents = agents
        self._default = default
        self._draining = draining
        self._warnings = warnings
        self._threads = Threads(store, agents)
        self._approvals = Approvals(store, agents)
        self._forks = Forks(store, self._threads, self._check_input)
        self._streams = Streams(store, transport)

    def agents(self) -> Sequence[AgentInfo]:
        common = list(self._warnings())
        return [
            AgentInfo(
                name=agent.name,
                input=agent.input_kind,
                model=agent.model.name if agent.model else None,
                default=agent.name == self._default,
                problems=[*agent.problems(), *common],
                uncovered_tools=agent.uncovered_tools,
            )
            for agent in self._agents.values()
        ]

    async def forget(self, person: Person, agent: str) -> None:
        require_operator(person)
        if agent not in self._agents:
            raise NotFound(f"There is no agent {agent!r} here.")
        raise AgentInUse(
            f"{agent!r} is an agent of this process: it is taken away in perdure.toml. Its conversations stay in the database."
        )

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
        self._check_accepting()
        chosen = await self._choose(person, conversation, agent)
        _check_input(chosen, input)
        new = NewTurn(
            turn_id=new_id(),
            owner=person.owner,
            agent=chosen.name,
            input=dict(input),
            conversation=conversation,
            new_conversation_id=new_id(),
            title=title_of(input),
            when_busy=when_busy,
            discard_pending=discard_pending,
            request_key=request_key,
            by=person.name,
        )
        return await self._store.accept(new)

    def _check_accepting(self) -> None:
        check_accepting(self._draining())

    async def _choose(self, person: Person, conversation: str | None, agent: str | None) -> HostedGraph:
        name = agent
        if conversation is not None:
            known = await self._store.conversation(person.scope, conversation)
            check_own(person, known, agent)
            name = known.agent
        return self._hosted(name or self._default)

    def _hosted(self, name: str) -> HostedGraph:
        chosen = self._agents.get(name)
        if chosen is None:
            raise BadRequest(f"There is no agent {name!r} here. Agents of this server: {', '.join(self._agents)}.")
        return chosen

    def _check_input(self, agent: str, input: Mapping[str, Any]) -> None:
        _check_input(self._hosted(agent), input)

    async def resume(self, person: Person, conversation: str, request_key: RequestKey | None = None) -> Accepted:
        self._check_accepting()
        known = await self._store.conversation(person.scope, conversation)
        repeated = await self._store.repeated(known.owner, request_key) if request_key is not None else None
        if repeated is not None:
            return repeated
        turn = await self._store.last_turn(person.scope, conversation)
        why_not = self._threads.why_not_resumable(turn, await self._threads.head(known))
        if why_not is not None:
            raise TurnNotResumable(why_not, conversation=conversation, turn=turn.id if turn else None)
        return await self._store.resume(person.scope, conversation, request_key, by=person.name)

    async def answer(
        self, person: Person, conversation: str, answers: Mapping[str, Verdict], request_key: RequestKey | None = None
    ) -> Accepted:
        self._check_accepting()
        return await self._approvals.answer(person, conversation, answers, request_key)

    async def cancel(self, person: Person, turn: str) -> Turn:
        return await self._store.cancel(person.scope, turn, by=person.name)

    async def turn(self, person: Person, turn: str) -> TurnDetail:
        scope = person.scope
        found = await self._store.turn(scope, turn)
        attempts = await self._store.attempts(scope, turn)
        cards = await self._store.cards(scope, turn)
        calls = await self._store.calls(scope, turn)
        last = await self._store.last_turn(scope, found.conversation)
        resumable = False
        if last is not None and last.id == turn:
            conversation = await self._store.conversation(scope, found.conversation)
            resumable = await self._resumable(conversation, last)
        return TurnDetail(found, attempts, cards, calls, resumable)

    async def events(
        self, person: Person, turn: str, *, limit: int, cursor: str | None, kind: EventKind | None
    ) -> Page[Event]:
        return await events_of(self._store, person, turn, limit=limit, cursor=cursor, kind=kind)

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
        return await self._store.turns(
            person.scope,
            limit=limit,
            cursor=cursor,
            status=status,
            agent=agent,
            attempts_min=attempts_min,
            text=text,
        )

    async def turn_counts(self, person: Person, *, agent: str | None) -> Mapping[TurnStatus, int]:
        return await self._store.turn_counts(person.scope, agent=agent)

    async def _resumable(self, conversation: Conversation, last: Turn | None) -> bool:
        if last is None or last.status not in ENDED:
            return False
        return self._threads.why_not_resumable(last, await self._threads.head(conversation)) is None

    # -- approvals ----------------------------------------------------------------------------------------------------

    async def approvals(
        self, person: Person, *, limit: int, cursor: str | None, conversation: str | None = None
    ) -> Page[Card]:
        return await self._store.approvals(
            person.scope, person.name, limit=limit, cursor=cursor, conversation=conversation
        )

    async def card(self, person: Person, card: str) -> Card:
        return await self._store.card(person.scope, person.name, card)

    async def decide(self, person: Person, card: str, verdict: Verdict) -> Decided:
        self._check_accepting()
        return await self._approvals.decide(person, card, verdict)

    # -- conversations ------------------------------------------------------------------------------------------------

    async def conversations(
        self, person: Person, *, limit: int, cursor: str | None, agent: str | None, text: str | None = None
    ) -> Page[Conversation]:
        return await self._store.conversations(person.scope, limit=limit, cursor=cursor, agent=agent, text=text)

    async def conversation(self, person: Person, conversation: str) -> Transcript:
        scope = person.scope
        found = await self._store.conversation(scope, conversation)
        turns = await turns_of(self._store, scope, conversation)
        last = await self._store.last_turn(scope, conversation)
        head = await self._threads.head(found)
        return Transcript(
            conversation=found,
            resumable=self._threads.why_not_resumable(last, head) is None,
            messages=self._threads.messages(head.state),
            turns=turns,
            state=self._threads.values(found, head.state),
        )

    async def rename(self, person: Person, conversation: str, title: str) -> Conversation:
        scope = await self._may_change(person, conversation)
        return await self._store.rename(scope, conversation, title, by=person.name)

    async def _may_change(self, person: Person, conversation: str) -> str | None:
        """The scope in which a conversation may be renamed and deleted: one's own, and for the server's own token every one."""
        known = await self._store.conversation(person.scope, conversation)
        if known.owner == person.owner or person.admin:
            return known.owner
        raise Forbidden(
            f"This conversation is {known.owner}'s: only its owner and the server's own token may rename or delete it.",
            conversation=conversation,
        )

    async def delete(self, person: Person, conversation: str, *, cancel: bool) -> None:
        scope = await self._may_change(person, conversation)
        while not await self._deleted(scope, person.name, conversation, cancel=cancel):
            pass

    async def _deleted(self, scope: str | None, by: str, conversation: str, *, cancel: bool) -> bool:
        """False after a turn that stood in the way ended, or parked: then it is cancelled once more, which ends it."""
        with self._transport.subscribe(conversation) as live:
            try:
                await self._store.delete(scope, conversation, by=by, served=self._agents if cancel else None)
            except TurnInProgress:
                if not cancel:
                    raise
                await self._cancel_all(scope, by, conversation)
                await _moved(live)
                return False
        self._transport.forget(conversation)
        return True

    async def _cancel_all(self, scope: str | None, by: str, conversation: str) -> None:
        """The newest first, so that none that waits is started by the end of the one before it."""
        for turn in reversed(await turns_of(self._store, scope, conversation)):
            if turn.status not in ENDED:
                await self._store.cancel(scope, turn.id, by=by)

    async def export(self, person: Person, conversation: str) -> AsyncIterator[Mapping[str, Any]]:
        found = await self._store.conversation(person.scope, conversation)
        async for checkpoint in self._threads.export(found):
            yield checkpoint

    # -- forks --------------------------------------------------------------------------------------------------------

    async def fork(self, person: Person, conversation: str, **asked: Unpack[ForkAsked]) -> ForkedFrom:
        self._check_accepting()
        return await self._forks.fork(person, conversation, **asked)

    async def branches(self, person: Person, conversation: str) -> Sequence[BranchPoint]:
        return await self._forks.branches(person, conversation)

    async def checkpoints(
        self, person: Person, conversation: str, *, limit: int, cursor: str | None
    ) -> Page[Mapping[str, Any]]:
        return await self._forks.checkpoints(person, conversation, limit=limit, cursor=cursor)

    async def checkpoint(self, person: Person, conversation: str, checkpoint: str) -> Mapping[str, Any]:
        return await self._forks.checkpoint(person, conversation, checkpoint)

    # -- streams ------------------------------------------------------------------------------------------------------

    async def follow(
        self, person: Person, conversation: str, *, after: int | None, follow: bool
    ) -> AsyncIterator[Frame | Gone]:
        await self._store.conversation(person.scope, conversation)
        return self._streams.frames(person.scope, conversation, after, follow=follow)

    async def changes(self, person: Person, *, after: int | None) -> AsyncIterator[Change | ListsReset | Reached]:
        return await self._streams.changes(person.scope, after)

    # -- who ----------------------------------------------------------------------------------------------------------

    async def server(self, person: Person) -> ServerInfo:
        return await server_info(self._store, self._agents.values(), person, draining=self._draining())

    # -- health -------------------------------------------------------------------------------------------------------

    async def unready(self) -> str | None:
        if self._draining():
            return STOPPING
        try:
            await self._store.check()
        except PerdureError as error:
            return error.message
        return None


def _check_input(agent: HostedGraph, input: Mapping[str, Any]) -> None:
    wanted = "message" if agent.input_kind == "message" else "input"
    if set(input) != {wanted}:
        form = 'a text: {"message": "…"}' if wanted == "message" else 'JSON: {"input": {…}}'
        raise BadRequest(f"The agent {agent.name!r} takes {form}.")
    value = input[wanted]
    if wanted == "message" and (not isinstance(value, str) or not value.strip()):
        raise BadRequest("The message is empty: send some text.")
    if wanted == "input" and not isinstance(value, Mapping):
        raise BadRequest('"input" must be a JSON object with the keys of the graph\'s state.')


def title_of(input: Mapping[str, Any]) -> str:
    """The first line with text in it, at most 80 characters."""
    text = input["message"] if "message" in input else json.dumps(input.get("input"), ensure_ascii=False)
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= TITLE_CHARACTERS else line[: TITLE_CHARACTERS - 1].rstrip() + "…"


async def _moved(live: Subscription) -> None:
    """Returns after a turn of the conversation ended, or asked a person: a call that outlives its cancel parks the turn on a card
    about it. Also when too much was published to be read."""
    with suppress(SlowWatcher):
        while True:
            await live.wait()
            events = live.take()
            if any(event.terminal or _asks(event) for event in events):
                return
            if not events:
                raise NotReady("The server is shutting down; the conversation was not deleted.")


def _asks(event: Event) -> bool:
    return event.kind is EventKind.APPROVAL and event.payload["state"] == CardState.OPENED
