"""Who waits for the ends of turns: silence makes it ask, and only the copy concludes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure.agent.persister import Persister
from perdure.errors import BadRequest, NotReady, PerdureError, StorageError
from perdure.events import Event, Unfollowed
from perdure.replication import Reach
from perdure.store.base import LeasedAttempt
from perdure.turns import TurnStatus
from tests.conformance.journal import ask, step
from tests.unit.agent.air import Air, Gateway, Station, Watcher, eventually

DEADLINE_SECONDS = 900.0


@dataclass
class Waiting:
    gateway: Gateway
    station: Station
    persister: Persister
    told: list[Unfollowed]

    async def dispatch(self) -> LeasedAttempt:
        """A turn that this gateway gave to the agent."""
        attempt = await self.station.journal.running()
        await step(attempt)
        await self.station.send()
        turn = attempt.turn
        await eventually(lambda: _held(self.gateway, turn.id))
        await self.persister.dispatched("writer", turn.conversation, turn.id)
        self.persister.observe(turn.conversation, self.told.append)
        return attempt

    async def silence(self, seconds: float) -> None:
        """Time in which nothing is heard, a step at a time as it passes."""
        await settled(self)
        for _ in range(int(seconds // 10)):
            self.gateway.clock.advance(10.0)
            self.station.journal.clock.advance(10.0)
            await settled(self)

    async def arrive(self) -> None:
        """What happened is sent, and taken."""
        await self.station.send()
        await self.station.news()
        await eventually(lambda: self.gateway.holds(self.station))

    @property
    def asked(self) -> int:
        return self.station.asked.count("responses/turnStatus")


async def settled(waiting: Waiting) -> None:
    """Everybody who waits, and the directory, waits for time again; nobody is asked anything."""
    following = waiting.gateway.follower._following("writer")
    await eventually(lambda: waiting.gateway.clock.sleeping == waiting.persister.waiting + 1 and not following._asked)


async def _held(gateway: Gateway, turn: str) -> bool:
    try:
        await gateway.replica.turn(None, turn)
    except Exception:
        return False
    return True


async def _open(gateway: Gateway, **more: Any) -> Persister:
    persister = Persister(
        gateway.replica,
        gateway.follower,
        asks=gateway.air,
        directory=gateway.directory,
        clock=gateway.clock,
        deadline_seconds=more.get("deadline_seconds", DEADLINE_SECONDS),
    )
    await persister.start()
    return persister


@pytest.fixture
async def waiting(tmp_path: Path) -> AsyncIterator[Waiting]:
    air = Air(tmp_path)
    station = await air.station("writer")
    gateway = await Gateway(air, tmp_path / "gateway.db").open()
    await eventually(lambda: gateway.directory.reach("writer") is Reach.REACHABLE)
    made = Waiting(gateway, station, await _open(gateway), [])
    yield made
    await made.persister.stop()
    await gateway.close()
    await air.close()


async def _dispatches(waiting: Waiting) -> list[str]:
    return [dispatch.turn for dispatch in await waiting.gateway.replica.dispatches()]


async def _concluded(waiting: Waiting) -> bool:
    return await _dispatches(waiting) == [] and waiting.persister.waiting == 0


async def test_the_end_of_a_turn_concludes_it_without_a_question(waiting: Waiting) -> None:
    attempt = await waiting.dispatch()
    assert await _dispatches(waiting) == [attempt.turn.id]
    await attempt.finish(TurnStatus.COMPLETED)
    await waiting.station.send()
    await eventually(lambda: _concluded(waiting))
    assert waiting.asked == 0


async def test_silence_makes_it_ask_and_a_turn_that_runs_is_waited_for(waiting: Waiting) -> None:
    attempt = await waiting.dispatch()
    await waiting.silence(60)
    assert waiting.asked == 6
    assert await _dispatches(waiting) == [attempt.turn.id]
    assert waiting.told == []


async def test_an_end_that_never_arrived_is_fetched(waiting: Waiting) -> None:
    attempt = await waiting.dispatch()
    watcher = Watcher(waiting.gateway, waiting.station, attempt.turn.conversation)
    await eventually(lambda: len(watcher.frames) > 0)
    await attempt.finish(TurnStatus.COMPLETED)
    waiting.station.out.unsent.clear()
    await waiting.silence(30)
    await eventually(lambda: _concluded(waiting))
    await eventually(lambda: any(isinstance(frame, Event) and frame.terminal for frame in watcher.frames))
    await watcher.leave()


async def test_events_that_never_arrived_are_fetched_of_a_turn_that_still_runs(waiting: Waiting) -> None:
    attempt = await waiting.dispatch()
    await step(attempt)
    waiting.station.out.unsent.clear()
    await waiting.silence(30)
    await eventually(lambda: waiting.gateway.holds(waiting.station))
    assert await _dispatches(waiting) == [attempt.turn.id]


async def test_an_agent_that_does_not_answer_is_waited_for(waiting: Waiting) -> None:
    attempt = await waiting.dispatch()
    waiting.station.silent = True
    await waiting.silence(60)
    assert await _dispatches(waiting) == [attempt.turn.id]
    assert waiting.persister.waiting == 1
    waiting.station.silent = False
    await attempt.finish(TurnStatus.COMPLETED)
    waiting.station.out.unsent.clear()
    await waiting.station.news()
    await eventually(lambda: _concluded(waiting))


async def test_at_the_deadline_its_watchers_are_told_and_a_later_end_still_lands(waiting: Waiting) -> None:
    attempt = await waiting.dispatch()
    await waiting.silence(DEADLINE_SECONDS)
    await eventually(lambda: len(waiting.told) == 1)
    assert (waiting.told[0].turn, waiting.told[0].seconds) == (attempt.turn.id, DEADLINE_SECONDS)
    assert waiting.persister.waiting == 0
    await attempt.finish(TurnStatus.COMPLETED)
    await waiting.station.send()
    await eventually(lambda: _concluded(waiting))
    assert (await waiting.gateway.replica.turn(None, attempt.turn.id)).status is TurnStatus.COMPLETED


async def test_the_time_in_which_a_turn_is_parked_does_not_count(waiting: Waiting) -> None:
    attempt = await waiting.dispatch()
    await waiting.silence(300)
    await attempt.park([ask()])
    await waiting.arrive()
    await waiting.silence(2 * DEADLINE_SECONDS)
    assert waiting.told == []
    await waiting.station.journal.answer(attempt.turn.conversation, {"i-1": "yes"})
    await waiting.arrive()
    await waiting.silence(500)
    assert waiting.told == []
    await waiting.silence(200)
    await eventually(lambda: len(waiting.told) == 1)


async def test_no_deadline_is_none(waiting: Waiting) -> None:
    await waiting.persister.stop()
    waiting.persister = await _open(waiting.gateway, deadline_seconds=0.0)
    await waiting.dispatch()
    await waiting.silence(2 * DEADLINE_SECONDS)
    assert waiting.told == [] and waiting.persister.waiting == 1


async def test_a_gateway_that_starts_again_goes_on_with_every_turn(waiting: Waiting) -> None:
    one, two = await waiting.dispatch(), await waiting.dispatch()
    await waiting.persister.stop()
    await waiting.gateway.close()
    await one.finish(TurnStatus.COMPLETED)
    waiting.station.out.unsent.clear()
    await waiting.gateway.open()
    waiting.persister = await _open(waiting.gateway)
    await eventually(lambda: _only(waiting, two.turn.id))


async def _only(waiting: Waiting, turn: str) -> bool:
    return await _dispatches(waiting) == [turn] and waiting.persister.waiting == 1


async def test_a_parked_turn_outlives_a_night_without_its_gateway(waiting: Waiting) -> None:
    attempt = await waiting.dispatch()
    await attempt.park([ask()])
    await waiting.arrive()
    await waiting.silence(30)
    await waiting.persister.stop()
    await waiting.gateway.close()
    waiting.gateway.clock.advance(8 * 3600)
    waiting.station.journal.clock.advance(8 * 3600)
    await waiting.gateway.open()
    waiting.persister = await _open(waiting.gateway)
    waiting.persister.observe(attempt.turn.conversation, waiting.told.append)
    await eventually(lambda: waiting.gateway.directory.reach("writer") is Reach.REACHABLE)
    await waiting.silence(60)
    await waiting.station.journal.answer(attempt.turn.conversation, {"i-1": "yes"})
    await waiting.arrive()
    await waiting.silence(800)
    assert waiting.told == []


async def test_a_turn_that_the_agent_does_not_know_is_lost_and_its_watchers_hear_so(
    waiting: Waiting,
) -> None:
    attempt = await waiting.dispatch()
    watcher = Watcher(waiting.gateway, waiting.station, attempt.turn.conversation)
    await eventually(lambda: len(watcher.frames) > 0)
    await waiting.station.close()
    other = waiting.gateway.air.stations["writer"] = Station(
        waiting.gateway.air, "writer", waiting.station.folder.with_name("other")
    )
    await other.open()
    await waiting.silence(30)
    await eventually(lambda: _concluded(waiting))
    await eventually(watcher.task.done)
    ends = [frame.payload["code"] for frame in watcher.frames if isinstance(frame, Event) and frame.terminal]
    assert ends == ["TURN_LOST"]
    assert await waiting.gateway.replica.last_seq(attempt.turn.conversation) is None


async def test_who_looks_again_at_a_turn_followed_no_more_has_it_followed_again(waiting: Waiting) -> None:
    attempt = await waiting.dispatch()
    await waiting.silence(DEADLINE_SECONDS)
    await eventually(lambda: waiting.persister.waiting == 0)
    await waiting.persister.dispatched("writer", attempt.turn.conversation, attempt.turn.id)
    assert waiting.persister.waiting == 1
    await waiting.silence(60)
    assert len(waiting.told) == 1


@pytest.mark.parametrize(
    "refusal", [NotReady("no room"), PerdureError("a reply that cannot be read"), BadRequest("no such param")]
)
async def test_an_agent_that_answers_no_sense_to_the_question_does_not_put_the_deadline_off(
    refusal: PerdureError, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = await waiting.dispatch()

    async def refusing(turn: str) -> Any:
        raise refusal

    monkeypatch.setattr(waiting.station, "status", refusing)
    await waiting.silence(DEADLINE_SECONDS - 10)
    assert waiting.told == [] and waiting.asked > 0
    await waiting.silence(20)
    await eventually(lambda: [notice.turn for notice in waiting.told] == [attempt.turn.id])


async def test_a_copy_that_cannot_be_read_does_not_put_the_deadline_off(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    await waiting.dispatch()

    async def broken(*_: Any) -> Any:
        raise StorageError("the disk")

    monkeypatch.setattr(waiting.gateway.replica, "turn", broken)
    await waiting.silence(DEADLINE_SECONDS + 10)
    await eventually(lambda: len(waiting.told) == 1)
