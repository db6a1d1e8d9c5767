"""What people do with agents on NATS: done by the agent that owns the conversation, in the copy before it is told as done."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol, Unpack

from perdure.agent.base import ForkAsked, ForkedFrom
from perdure.agent.calls import Calls, DecidedBefore
from perdure.agent.codec import from_json, to_json
from perdure.agent.directory import Directory
from perdure.agent.ids import new_id
from perdure.agent.people import check_own
from perdure.agent.whereabouts import Whereabouts
from perdure.errors import AgentUnavailable, BadRequest, CardDecided
from perdure.replication import Reach
from perdure.store.base import Decided
from perdure.store.replica import Replica
from perdure.turns import ENDED, Accepted, Conversation, Person, RequestKey, Turn, TurnStatus, Verdict

DELETE_SECONDS = 60.0
"""For a turn to end that is cancelled so that its conversation can be deleted."""


class Waiting(Protocol):
    """Who waits for the ends of turns (`agent.persister`)."""

    async def dispatched(self, agent: str, conversation: str, turn: str) -> None:
        """Kept when it returns: this gateway waits for the end of the turn, after a restart too. A second time for one that it
        waits for changes nothing."""
        ...


class RemoteWrites:
    def __init__(
        self,
        replica: Replica,
        calls: Calls,
        directory: Directory,
        whereabouts: Whereabouts,
        *,
        waiting: Waiting,
        wait_seconds: float,
    ) -> None:
        self._replica = replica
        self._calls = calls
        self._directory = directory
        self._whereabouts = whereabouts
        self._waiting = waiting
        self._wait_seconds = wait_seconds

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
        discard_pending: bool,
    ) -> Accepted:
        owning = await self._choose(person, conversation, agent)
        asked = {**input, "when_busy": when_busy, "discard_pending": discard_pending, **_keyed(request_key)}
        if conversation is not None:
            asked["conversation"] = conversation
        return await self._accepted(owning, "responses/createDetached", asked, person)

    async def _choose(self, person: Person, conversation: str | None, agent: str | None) -> str:
        if conversation is not None:
            known, owning = await self._whereabouts.conversation(person, conversation)
            check_own(person, known, agent)
            return owning
        await self._met(agent)
        chosen = agent or self._directory.default
        names = ", ".join(self._directory.reaches())
        if chosen is None:
            raise BadRequest(f"Say with `agent` which one is meant. Agents of this server: {names}.")
        if chosen not in self._directory:
            raise BadRequest(f"There is no agent {chosen!r} here. Agents of this server: {names}.")
        return chosen

    async def _met(self, agent: str | None) -> None:
        """Returns when some agent is known; where a message names none, not before it is known which is meant. Raises
        AgentUnavailable when that took longer than a person waits."""
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._met_some()
                if agent is None and self._directory.default not in self._directory.reaches():
                    await self._directory.surveyed()
        except TimeoutError:
            where = "No agent has been met yet" if self._directory.is_connected else "This server has lost NATS"
            raise AgentUnavailable(
                f"{where}: nothing was sent. Start one with `perdure agent`, or try again."
            ) from None

    async def _met_some(self) -> None:
        if self._directory.reaches():
            return
        met = asyncio.Event()
        stop = self._directory.observe(lambda name, reach: met.set())
        try:
            await met.wait()
        finally:
            stop()

    async def resume(self, person: Person, conversation: str, request_key: RequestKey | None) -> Accepted:
        _, owning = await self._whereabouts.conversation(person, conversation)
        asked = {"conversation": conversation, **_keyed(request_key)}
        return await self._accepted(owning, "responses/resume", asked, person)

    async def answer(
        self, person: Person, conversation: str, answers: Mapping[str, Verdict], request_key: RequestKey | None
    ) -> Accepted:
        _, owning = await self._whereabouts.conversation(person, conversation)
        said = {question: _said(verdict) for question, verdict in answers.items()}
        asked = {"conversation": conversation, "answers": said, **_keyed(request_key)}
        return await self._accepted(owning, "approvals/answer", asked, person)

    async def _accepted(self, agent: str, method: str, asked: Mapping[str, Any], person: Person) -> Accepted:
        result = await self._calls.write(agent, method, asked, person)
        accepted = from_json(Accepted, {**result, "turn": result.get("turn_id")})
        await self._wait_for(agent, accepted.conversation, accepted.turn, accepted.status)
        return accepted

    async def _wait_for(self, agent: str, conversation: str, turn: str, status: TurnStatus) -> None:
        if status not in ENDED:
            await self._waiting.dispatched(agent, conversation, turn)

    async def decide(self, person: Person, card: str, verdict: Verdict) -> Decided:
        _, owning = await self._whereabouts.card(person, card)
        try:
            result = await self._calls.write(owning, "approvals/decide", {"card": card, **_said(verdict)}, person)
            decided = from_json(Decided, result)
        except DecidedBefore as before:
            decided = await self._decided_before(person, owning, card, verdict, before.error)
        if decided.turn_status is not TurnStatus.PARKED:
            known = decided.card
            await self._wait_for(owning, known.conversation, known.turn, decided.turn_status)
        return decided

    async def _decided_before(
        self, person: Person, owning: str, card: str, verdict: Verdict, error: CardDecided
    ) -> Decided:
        """The agent took the decision and died before it said so: it is the same one that the repetition was told of."""
        told, turn = error.details, error.turn
        if turn is None or (told.get("decided_by"), told.get("decision")) != (person.name, str(verdict.decision)):
            raise error
        await self._calls.read(owning, "turns/get", {"turn_id": turn}, person)  # its rows come into the copy
        known = await self._replica.card(person.scope, person.name, card)
        return Decided(known, (await self._replica.turn(person.scope, turn)).status)

    async def cancel(self, person: Person, turn: str) -> Turn:
        _, owning = await self._whereabouts.turn(person, turn)
        await self._calls.write(owning, "responses/cancel", {"turn_id": turn}, person)
        return await self._replica.turn(person.scope, turn)

    # -- conversations ------------------------------------------------------------------------------------------------

    async def rename(self, person: Person, conversation: str, title: str) -> Conversation:
        _, owning = await self._whereabouts.conversation(person, conversation)
        await self._calls.write(owning, "threads/rename", {"conversation": conversation, "title": title}, person)
        return await self._replica.conversation(person.scope, conversation)

    async def delete(self, person: Person, conversation: str, *, cancel: bool) -> None:
        """With `cancel` the agent waits for the turn's end; after `DELETE_SECONDS` it is left alone with it."""
        _, owning = await self._whereabouts.conversation(person, conversation)
        asked = {"conversation": conversation, "cancel": cancel}
        within_seconds = DELETE_SECONDS if cancel and self._directory.reach(owning) is Reach.REACHABLE else None
        try:
            await self._calls.write(owning, "threads/delete", asked, person, within_seconds=within_seconds)
        except AgentUnavailable as error:
            if within_seconds is None:
                raise
            raise AgentUnavailable(
                f"The turn was asked to stop and has not ended within {DELETE_SECONDS:g} s; the conversation goes as soon as it "
                "has. Look again in a moment.",
                conversation=conversation,
            ) from error

    async def fork(self, person: Person, conversation: str, **asked: Unpack[ForkAsked]) -> ForkedFrom:
        _, owning = await self._whereabouts.conversation(person, conversation)
        said = {name: asked.get(name) for name in ("message", "checkpoint", "text", "title")}
        params = {"conversation": conversation, **said, **_keyed(asked["request_key"])}
        made = from_json(ForkedFrom, await self._calls.write(owning, "threads/fork", params, person))
        forked = made.forked
        if forked.turn is not None and forked.status is not None:
            await self._wait_for(owning, forked.conversation, forked.turn, forked.status)
        return made


def _keyed(request_key: RequestKey | None) -> dict[str, Any]:
    """The client's key, or one of our own: what arrives twice, before and after a death of the agent, is done once."""
    if request_key is None:
        return {"idempotency_key": f"request-{new_id()}"}
    return {"idempotency_key": request_key.key, "request_digest": request_key.digest}


def _said(verdict: Verdict) -> dict[str, Any]:
    """Who decides, and when, is the agent's to note."""
    told: dict[str, Any] = to_json(Verdict, verdict)
    return {name: told[name] for name in ("decision", "arguments", "note", "result", "value")}
