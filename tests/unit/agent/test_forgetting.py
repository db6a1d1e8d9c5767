"""An agent that was taken away is forgotten: wholly, whatever of it is on its way, and until it comes back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure.agent.persister import Persister
from perdure.agent.remote import RemoteAgents
from perdure.agent.transcripts import Told
from perdure.errors import AgentInUse, AgentUnavailable, NotFound, StorageFull
from perdure.events import FORGOTTEN, Gone, Reached, Unfollowed
from perdure.replication import Position, Reach
from perdure.store.base import LeasedAttempt
from perdure.transport.nats.wire import LEAVING, News
from perdure.turns import Person, Role, TurnStatus
from tests.conformance.apart import UNHURRIED
from tests.conformance.journal import ask, step
from tests.servers.process import LIMIT_SECONDS
from tests.unit.agent.air import Air, Gateway, Station, Watcher, eventually

BOSS = Person("boss", "boss", Role.OPERATOR)
DEADLINE_SECONDS = 900.0


@dataclass
class Office:
    """A gateway with all its parts, and the agent that will be taken away."""

    air: Air
    gateway: Gateway
    station: Station
    persister: Persister
    port: RemoteAgents

    async def running(self) -> LeasedAttempt:
        attempt = await self.station.journal.running()
        await step(attempt)
        await self.station.send()
        await self.station.news()
        await eventually(self.whole)
        return attempt

    async def whole(self) -> bool:
        return await self.gateway.holds(self.station)

    async def forget(self) -> None:
        """It is killed, and nobody is there who answers."""
        self.station.silent = True
        await self.port.forget(BOSS, "writer")

    async def back(self) -> None:
        self.station.silent = False
        await self.station.news()
        await eventually(lambda: self.gateway.directory.reach("writer") is Reach.REACHABLE)
        await eventually(self.whole)

    async def nothing(self) -> bool:
        replica = self.gateway.replica
        found = (await replica.conversations(None, limit=9)).items, (await replica.turns(None, limit=9)).items
        known = await replica.known_agents(), await replica.position("writer"), await replica.dispatches()
        return found == ([], []) and known == ({}, Position(), []) and self.port.agents() == []


async def _open(air: Air, gateway: Gateway, station: Station) -> Office:
    await gateway.open()
    persister = Persister(
        gateway.replica,
        gateway.follower,
        asks=air,
        directory=gateway.directory,
        clock=gateway.clock,
        deadline_seconds=DEADLINE_SECONDS,
    )
    await persister.start()
    port = RemoteAgents(
        gateway.replica,
        gateway.local,
        air,
        gateway.directory,
        waiting=persister,
        feed=gateway.follower,
        wait_seconds=LIMIT_SECONDS,
        times=UNHURRIED,
    )
    return Office(air, gateway, station, persister, port)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Office]:
    air = Air(folder)
    station = await air.station("writer")
    office = await _open(air, Gateway(air, folder / "gateway.db"), station)
    await eventually(lambda: office.gateway.directory.reach("writer") is Reach.REACHABLE)
    await office.gateway.follower.attach("writer")
    try:
        yield office
    finally:
        await office.persister.stop()
        await office.gateway.close()
        await air.close()


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with opened(tmp_path) as made:
        yield made


async def settled() -> None:
    """What can go on without the clock has, the file's writer included."""
    for _ in range(30):
        await asyncio.sleep(0.001)


def held(office: Office, method: str) -> tuple[asyncio.Event, Callable[[], None]]:
    """The next answer to this method is on its way until it is let go. Returns a bell that it is, and what lets it go."""
    call, under_way, let_go = office.air.call, asyncio.Event(), asyncio.Event()

    async def late(agent: str, asked: str, params: Any, **more: Any) -> Any:
        answer = await call(agent, asked, params, **more)
        if asked == method and not let_go.is_set():
            under_way.set()
            await let_go.wait()
        return answer

    office.air.call = late  # type: ignore[method-assign, assignment]
    return under_way, let_go.set


def slowed(monkeypatch: pytest.MonkeyPatch, replica: Any, verb: str) -> Callable[[], None]:
    """What is written is in the file's queue at once; who wrote it goes on when it is let go."""
    write, let_go = getattr(replica, verb), asyncio.Event()

    async def late(*arguments: Any) -> None:
        await write(*arguments)
        await let_go.wait()

    monkeypatch.setattr(replica, verb, late)
    return let_go.set


async def test_nothing_is_left_and_its_watchers_hear_that_their_conversation_is_gone(office: Office) -> None:
    attempt = await office.running()
    watcher = Watcher(office.gateway, office.station, attempt.turn.conversation)
    await eventually(lambda: len(watcher.frames) > 0)
    await office.forget()
    await eventually(lambda: isinstance(watcher.frames[-1], Gone))
    assert watcher.times == 1
    assert await office.nothing()
    with pytest.raises(NotFound):
        await office.port.conversation(BOSS, attempt.turn.conversation)
    with pytest.raises(NotFound):
        await office.port.forget(BOSS, "writer")
    await watcher.leave()


async def test_one_that_answers_is_not_forgotten(office: Office) -> None:
    await office.running()
    with pytest.raises(AgentInUse):
        await office.port.forget(BOSS, "writer")
    assert await office.whole()


async def test_without_nats_nobody_is_forgotten(office: Office) -> None:
    await office.running()
    office.air.lose()
    await eventually(lambda: office.gateway.directory.reach("writer") is Reach.DISCONNECTED)
    with pytest.raises(AgentUnavailable):
        await office.forget()
    assert await office.whole()


async def test_it_stays_forgotten_when_the_gateway_starts_again_and_nats_comes_back(office: Office) -> None:
    await office.running()
    await office.forget()
    await office.persister.stop()
    await office.gateway.close()
    again = await _open(office.air, office.gateway, office.station)
    office.persister = again.persister
    again.air.lose()
    again.air.find()
    await settled()
    assert await again.nothing()


async def test_who_comes_back_is_copied_wholly_with_what_was_before_and_what_came_since(office: Office) -> None:
    attempt = await office.running()
    await office.forget()
    await attempt.finish(TurnStatus.COMPLETED)
    office.station.out.unsent.clear()
    await office.station.journal.parked(ask())
    await office.back()
    assert (await office.gateway.replica.turn(None, attempt.turn.id)).status is TurnStatus.COMPLETED
    assert len((await office.port.approvals(BOSS, limit=9, cursor=None)).items) == 1


async def test_a_copy_whose_agent_is_in_no_list_can_be_forgotten_too(office: Office) -> None:
    """What it told of itself is of a version that nobody understands any more."""
    attempt = await office.running()
    await office.gateway.replica.keep_agent("writer", {"form": "of long ago"})
    office.station.silent = True
    await office.persister.stop()
    await office.gateway.close()
    again = await _open(office.air, office.gateway, office.station)
    office.persister = again.persister
    await eventually(lambda: again.gateway.directory.is_connected)
    assert again.port.agents() == []
    assert (await again.gateway.replica.turn(None, attempt.turn.id)).id == attempt.turn.id
    await again.port.forget(BOSS, "writer")
    assert await again.nothing()


async def test_lists_are_told_that_it_is_forgotten_and_that_it_is_back(office: Office) -> None:
    stream = await office.port.changes(BOSS, after=None)
    told = [await anext(stream)]
    await office.forget()
    while told[-1] != Reached("writer", FORGOTTEN):
        told.append(await anext(stream))
    await office.back()
    while told[-1] != Reached("writer", Reach.REACHABLE):
        told.append(await anext(stream))
    await stream.aclose()  # type: ignore[attr-defined]


async def test_what_it_sent_and_nobody_took_begins_no_copy(office: Office) -> None:
    attempt = await office.running()
    with office.air.holding() as late:
        await step(attempt)
        attempt.token("m3", "<0>")
        await attempt.finish(TurnStatus.COMPLETED)
        await office.station.send()
    await office.forget()
    for heard in late:
        office.air.hear(heard)
    await settled()
    assert await office.nothing()
    await office.back()


@pytest.mark.parametrize("method", ["journal/read", "events/read", "agent/describe"])
async def test_what_it_answered_before_begins_no_copy(office: Office, method: str) -> None:
    """A page of the journal, events of a conversation, a description: asked for, answered, and on their way."""
    attempt = await office.running()
    under_way, let_go = held(office, method)
    await step(attempt)
    office.gateway.directory.unanswered("writer")
    refreshing = asyncio.create_task(office.gateway.follower.refresh("writer", attempt.turn.conversation))
    await under_way.wait()
    office.gateway.directory.heard("writer", News(1, "boot-1", LEAVING))
    await office.forget()
    let_go()
    with suppress(AgentUnavailable):
        await refreshing
    await settled()
    assert await office.nothing()
    await office.back()


async def test_what_it_answered_to_a_person_is_not_kept(office: Office) -> None:
    await office.running()
    hidden = await office.station.journal.running()
    under_way, let_go = held(office, "journal/read")
    looking = asyncio.create_task(office.port.conversation(BOSS, hidden.turn.conversation))
    await under_way.wait()
    await office.forget()
    let_go()
    with pytest.raises((AgentUnavailable, NotFound)):
        await looking
    assert await office.nothing()


async def test_what_is_being_written_is_thrown_away_with_the_rest(office: Office) -> None:
    """The writes are in the file's queue: first what was taken, then the forgetting."""
    attempt = await office.running()
    await step(attempt)
    office.station.silent = True
    await office.station.send()
    forgetting = asyncio.create_task(office.port.forget(BOSS, "writer"))
    await office.station.send()
    await forgetting
    await settled()
    assert await office.nothing()


async def test_nobody_waits_for_its_turns_any_more(office: Office) -> None:
    attempt = await office.running()
    turn, told = attempt.turn, list[Unfollowed]()
    await office.persister.dispatched("writer", turn.conversation, turn.id)
    office.persister.observe(turn.conversation, told.append)
    await office.forget()
    assert office.persister.waiting == 0
    await office.persister.dispatched("writer", turn.conversation, turn.id)
    assert (office.persister.waiting, list(await office.gateway.replica.dispatches())) == (0, [])
    office.gateway.clock.advance(2 * DEADLINE_SECONDS)
    await settled()
    assert told == []
    await office.back()
    await office.persister.dispatched("writer", turn.conversation, turn.id)
    assert office.persister.waiting == 1


async def test_a_wait_that_was_being_noted_is_thrown_away_too(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = await office.running()
    let_go = slowed(monkeypatch, office.gateway.replica, "dispatched")
    noting = asyncio.create_task(office.persister.dispatched("writer", attempt.turn.conversation, attempt.turn.id))
    await asyncio.sleep(0)
    await office.forget()
    let_go()
    await noting
    assert office.persister.waiting == 0
    assert await office.nothing()


async def test_a_disk_that_is_full_changes_nothing(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = await office.running()

    async def full(agent: str, *, by: str) -> None:
        raise StorageFull

    with monkeypatch.context() as patched:
        patched.setattr(office.gateway.replica, "forget", full)
        with pytest.raises(StorageFull):
            await office.forget()
    assert office.gateway.directory.reach("writer") is Reach.UNREACHABLE
    assert await office.whole()
    await attempt.finish(TurnStatus.COMPLETED)
    await office.back()


async def test_kept_transcripts_are_kept_again(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an agent knows them: those of a fork's past come in no other way."""
    transcripts, replica = office.port._reads._transcripts, office.gateway.replica
    conversation = (await office.running()).turn.conversation
    told = Told((), None, False)
    with monkeypatch.context() as patched:
        let_go = slowed(patched, replica, "keep_transcript")
        keeping = asyncio.create_task(transcripts.keep(conversation, told, 1))
        await asyncio.sleep(0)
        await office.forget()
        let_go()
        await keeping
    await office.back()
    await transcripts.keep(conversation, told, 1)
    assert await replica.transcript(conversation) is not None


@pytest.mark.parametrize("seed", range(8))
async def test_at_any_moment_all_of_it_goes_or_none(tmp_path: Path, seed: int) -> None:
    """The agent works, sends and is killed while somebody insists on its being forgotten."""
    chance = random.Random(seed)
    async with opened(tmp_path) as office:
        killed, moment = chance.randrange(40), 0

        async def pass_by() -> None:
            nonlocal moment
            moment += 1
            office.station.silent = moment >= killed
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)

        async def insist() -> None:
            while True:
                with suppress(AgentInUse):
                    await office.port.forget(BOSS, "writer")
                    return
                await asyncio.sleep(0)

        insisting = asyncio.create_task(insist())
        for _ in range(4):
            attempt = await office.station.journal.running()
            await pass_by()
            await step(attempt)
            await office.station.send()
            await pass_by()
            asked = asyncio.create_task(office.gateway.follower.refresh("writer", attempt.turn.conversation))
            await pass_by()
            await attempt.finish(TurnStatus.COMPLETED)
            await office.station.send()
            await office.station.news()
            await pass_by()
            with suppress(AgentUnavailable):
                await asked
        office.station.silent = True
        await insisting
        await settled()
        assert await office.nothing()
        await office.back()
