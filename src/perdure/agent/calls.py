"""Calls to agents: how long each may take, and what their answers carry into the copy before anybody reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from perdure.agent.codec import Unreadable, from_json, to_json
from perdure.agent.directory import Asks, Directory
from perdure.agent.ids import new_id
from perdure.errors import AgentUnavailable, CardDecided, NotReady
from perdure.replication import NAMED, JournalRows, Reach
from perdure.store.replica import Replica
from perdure.turns import ENDED, Person

READ_SECONDS = 1.5
"""For what a person waits to see: every GET is answered within 2 s."""

LOOKUP_SECONDS = 0.5
"""Of that, for asking who has something."""

REFRESH_SECONDS = 0.5
"""For fetching the end of a turn with all before it."""

REPEAT_SECONDS = 2.0
"""A request without an answer is sent again after so long, by the same id: what an agent took with it when it died is lost, and
the one that follows it answers."""

PAUSE_SECONDS = 0.25
"""Before an agent that did not answer, or takes nothing now, is asked again."""


@dataclass(frozen=True, slots=True)
class Times:
    """How long an answer is waited for at most, in seconds; those of a server that people wait for."""

    read: float = READ_SECONDS
    lookup: float = LOOKUP_SECONDS
    refresh: float = REFRESH_SECONDS


class DecidedBefore(Exception):
    """A decision that was sent again was refused because the card is decided: perhaps by the one that was sent first. `error`
    says who decided what."""

    def __init__(self, error: CardDecided) -> None:
        super().__init__(error.message)
        self.error = error


class Feed(Protocol):
    """Who keeps the copy up to date (`agent.follower`)."""

    async def attend(self, agent: str, conversation: str) -> None:
        """A person is about to watch this conversation: what is committed and streamed of it is fetched when it is not here.
        Returns soon, whether the agent answers or not."""
        ...

    async def refresh(self, agent: str, conversation: str) -> None:
        """Asks the agent for what this copy lacks of the conversation: rows, events, text that streams. Raises
        AgentUnavailable."""
        ...


class Calls:
    def __init__(
        self,
        asks: Asks,
        replica: Replica,
        directory: Directory,
        feed: Feed,
        *,
        wait_seconds: float,
        times: Times | None = None,
    ) -> None:
        self._asks = asks
        self._replica = replica
        self._directory = directory
        self._feed = feed
        self._wait_seconds = wait_seconds
        self.times = times or Times()

    async def read(
        self,
        agent: str,
        method: str,
        params: Mapping[str, Any],
        person: Person | None,
        *,
        within_seconds: float | None = None,
    ) -> Mapping[str, Any]:
        """Within `times.read` unless told otherwise. Raises AgentUnavailable, at once when the agent is known to be away."""
        reach = self._directory.reach(agent)
        if reach is not Reach.REACHABLE:
            raise AgentUnavailable(_AWAY[reach].format(agent=agent))
        within = self.times.read if within_seconds is None else within_seconds
        return await self._once(agent, method, _with(params, person), within, new_id())

    async def write(
        self,
        agent: str,
        method: str,
        params: Mapping[str, Any],
        person: Person,
        *,
        within_seconds: float | None = None,
    ) -> Mapping[str, Any]:
        """Waits for an agent that is away or takes nothing now: one that starts again comes back within that time. The same
        request may arrive more than once. Raises AgentUnavailable, NotReady, and DecidedBefore after a repetition."""
        whole = self._wait_seconds if within_seconds is None else within_seconds
        now = asyncio.get_running_loop().time
        deadline, request_id, again = now() + whole, new_id(), False
        while True:
            left = deadline - now()
            within = REPEAT_SECONDS if left > REPEAT_SECONDS * 1.5 else max(left, PAUSE_SECONDS)
            try:
                return await self._once(agent, method, _with(params, person), within, request_id)
            except NotReady as error:
                if deadline - now() < PAUSE_SECONDS:
                    raise self._told(agent, whole, error) from error
                again = True
                await asyncio.sleep(PAUSE_SECONDS)
            except CardDecided as error:
                if not again:
                    raise
                raise DecidedBefore(error) from error

    def _told(self, agent: str, seconds: float, error: NotReady) -> NotReady:
        if not isinstance(error, AgentUnavailable):
            return error
        return AgentUnavailable(_silent(agent, self._directory.reach(agent), seconds))

    async def _once(
        self, agent: str, method: str, params: Mapping[str, Any], within_seconds: float, request_id: str
    ) -> Mapping[str, Any]:
        try:
            result = await self._asks.call(agent, method, params, within_seconds=within_seconds, request_id=request_id)
        except AgentUnavailable:
            self._directory.unanswered(agent)
            raise
        self._directory.answered(agent)
        if not isinstance(result, Mapping):
            raise Unreadable(f"The agent {agent!r} answered {method} with something that is no object.")
        if result.get("rows") is not None:
            await self.take(agent, from_json(JournalRows, result["rows"]))
        return result

    async def take(self, agent: str, rows: JournalRows) -> None:
        """Into the copy. Where they tell of an end that is not here yet, the end is fetched first with all before it; where it
        cannot be had, the turn is left out: one that reads as ended has its ending. What the copy holds already is not written
        again."""
        if await self._is_held(agent, rows):
            return
        for conversation in await self._ended_unseen(rows):
            try:
                async with asyncio.timeout(self.times.refresh):
                    await self._feed.refresh(agent, conversation)
            except (AgentUnavailable, TimeoutError):
                rows = _without_ended(rows, conversation)
        if self._directory.is_gone(agent):
            raise AgentUnavailable(f"The agent {agent!r} was forgotten here while it was asked.")
        await self._replica.apply(agent, rows)

    async def _is_held(self, agent: str, rows: JournalRows) -> bool:
        """Of a turn that has not ended, calls may be told that have moved no position yet."""
        held = await self._replica.position(agent)
        settled = not rows.deleted and all(turn.get("status") in ENDED for turn in rows.turns)
        return settled and held.journal == rows.journal and held.change >= rows.position.change

    async def _ended_unseen(self, rows: JournalRows) -> list[str]:
        ended = {str(turn["conversation"]) for turn in rows.turns if turn.get("status") in ENDED}
        return [
            conversation
            for conversation in sorted(ended)
            if rows.last_seqs.get(conversation, 0) > (await self._replica.last_seq(conversation) or 0)
        ]


_AWAY: Mapping[Reach, str] = {
    Reach.UNREACHABLE: "The agent {agent!r} does not answer now. Try again when it is back.",
    Reach.DISCONNECTED: "This server has lost NATS, over which it reaches the agent {agent!r}. Try again in a moment.",
}


def _without_ended(rows: JournalRows, conversation: str) -> JournalRows:
    """The conversation itself stays: what was accepted is known here when a person is told so. Named rows move no position, so the
    rest comes when the journal is read on."""
    ended = {turn["id"] for turn in rows.turns if turn["conversation"] == conversation and turn.get("status") in ENDED}
    return replace(
        rows,
        after=NAMED,
        turns=[row for row in rows.turns if row["id"] not in ended],
        attempts=[row for row in rows.attempts if row["turn"] not in ended],
        cards=[row for row in rows.cards if row["turn"] not in ended],
        calls=[row for row in rows.calls if row["turn"] not in ended],
    )


def _silent(agent: str, reach: Reach, seconds: float) -> str:
    lost = " This server has lost NATS." if reach is Reach.DISCONNECTED else ""
    return (
        f"The agent {agent!r} did not answer within {seconds:g} s.{lost} What was said may have arrived: send it again with the "
        "same Idempotency-Key."
    )


def _with(params: Mapping[str, Any], person: Person | None) -> Mapping[str, Any]:
    return dict(params) if person is None else {**params, "person": to_json(Person, person)}
