"""Whatever is lost, repeated, late or restarted between agents and a gateway: the copy becomes the journal, and what each
watcher was told folds to what the journal's log folds to.

The journals, the copy and the watchers are real; the way between them is a list of moves that Hypothesis makes up.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.events import Event, Fold, FoldedTurn, Frame, Gone
from perdure.store.base import LeasedAttempt
from perdure.transport.nats.live import EventHeard, GapReason, Heard, TokenHeard
from perdure.turns import ACTIVE, ENDED, Outcome, TurnStatus
from tests.conformance.journal import BROKEN, ask, step
from tests.unit.agent.air import Air, Gateway, Station, Watcher, eventually

AGENTS = ("one", "two")

MOVES = (
    *("accept", "claim", "claim", *["say"] * 8, "trace", "step", "step", "step"),
    *("park", "answer", "answer", "finish", "fail", "resume", "release"),
    *(*["send"] * 6, *["lose_some"] * 3, "shuffle", "repeat", "mute", "news", *["settle"] * 5),
    *("overflow", "disconnect", "connect", "connect", "silence", "speak", "speak", "wipe"),
    *("restart_agent", "restart_gateway", "watch", "watch"),
)

OPENING = tuple((name, agent) for agent in range(2) for name in ("accept", "claim", "step", "send", "news"))
"""Each agent works on something, and somebody watches it."""

Move = tuple[str, int]
moves = st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 1_000)), min_size=20, max_size=80)


class World:
    def __init__(self, folder: Path) -> None:
        self.air = Air(folder)
        self.gateway = Gateway(self.air, folder / "gateway.db")
        self.stations: list[Station] = []
        self.attempts: dict[str, tuple[Station, LeasedAttempt]] = {}
        self.pieces: dict[tuple[str, int, str], int] = {}
        self.watchers: list[tuple[Watcher, set[str]]] = []
        self.heard: list[Heard] = []

    async def begin(self) -> None:
        for name in AGENTS:
            self.stations.append(await self.air.station(name))
        await self.gateway.open()
        for name, choice in OPENING:
            await self.move(name, choice)
        await eventually(self.is_copied)
        for choice in range(len(AGENTS)):
            await self.move("watch", choice)

    async def end(self) -> None:
        for watcher, _ in self.watchers:
            await watcher.leave()
        await self.gateway.close()
        await self.air.close()

    async def move(self, name: str, choice: int) -> None:
        station = self.stations[choice % len(self.stations)]
        await getattr(self, f"_{name}")(station, choice // len(self.stations))

    # -- in the journals ----------------------------------------------------------------------------------------------------

    async def _conversations(self, station: Station) -> list[str]:
        return [conversation.id for conversation in (await station.store.conversations(None, limit=100)).items]

    async def _accept(self, station: Station, choice: int) -> None:
        known = await self._conversations(station)
        chosen = known[choice % len(known)] if known and choice % 3 else None
        await station.journal.accept(conversation=chosen, when_busy="enqueue")

    async def _claim(self, station: Station, choice: int) -> None:
        station.journal.clock.advance(100.0)
        attempt = await station.journal.claim() or await station.journal.claim(suspects=True)
        if attempt is not None:
            self.attempts[attempt.turn.id] = (station, attempt)

    def _chosen(self, station: Station, choice: int) -> LeasedAttempt | None:
        mine = [attempt for owner, attempt in self.attempts.values() if owner is station]
        return mine[choice % len(mine)] if mine else None

    async def _say(self, station: Station, choice: int) -> None:
        attempt = self._chosen(station, choice)
        if attempt is None:
            return
        message = f"{attempt.turn.id}-{attempt.number}-{'ab'[choice % 2]}"
        for _ in range(1 + choice % 4):
            key = (attempt.turn.id, attempt.number, message)
            number = self.pieces[key] = self.pieces.get(key, -1) + 1
            attempt.token(message, f"<{number}>")

    async def _trace(self, station: Station, choice: int) -> None:
        attempt = self._chosen(station, choice)
        if attempt is not None:
            attempt.trace("node", f"name-{choice}", 1, "enter")

    async def _step(self, station: Station, choice: int) -> None:
        attempt = self._chosen(station, choice)
        if attempt is not None:
            await step(attempt)

    async def _park(self, station: Station, choice: int) -> None:
        attempt = self._chosen(station, choice)
        if attempt is not None:
            self.attempts.pop(attempt.turn.id)
            await attempt.park([ask(f"i-{attempt.number}")])

    async def _answer(self, station: Station, choice: int) -> None:
        cards = (await station.store.approvals(None, "", limit=50)).items
        if cards:
            card = cards[choice % len(cards)]
            await station.journal.answer(card.conversation, {card.interrupt_id: "yes"})

    async def _finish(self, station: Station, choice: int) -> None:
        attempt = self._chosen(station, choice)
        if attempt is not None:
            self.attempts.pop(attempt.turn.id)
            await attempt.finish(TurnStatus.COMPLETED)

    async def _fail(self, station: Station, choice: int) -> None:
        attempt = self._chosen(station, choice)
        if attempt is not None:
            self.attempts.pop(attempt.turn.id)
            await attempt.finish(TurnStatus.FAILED, BROKEN)

    async def _resume(self, station: Station, choice: int) -> None:
        for conversation in await self._conversations(station):
            last = await station.store.last_turn(None, conversation)
            if last is not None and last.status is TurnStatus.FAILED:
                await station.store.resume(None, conversation)
                return

    async def _release(self, station: Station, choice: int) -> None:
        attempt = self._chosen(station, choice)
        if attempt is not None:
            self.attempts.pop(attempt.turn.id)
            await attempt.release(Outcome.RELEASED)

    # -- on the way ------------------------------------------------------------------------------------------------------------

    async def _send(self, station: Station, choice: int) -> None:
        await station.send(all_text=bool(choice % 2))

    async def _lose_some(self, station: Station, choice: int) -> None:
        """Without a word of it."""
        luck = random.Random(choice)
        with self.air.holding() as held:
            await station.send()
        for heard in held:
            if luck.random() < 0.6:
                self.air.hear(heard)

    async def _shuffle(self, station: Station, choice: int) -> None:
        """Each conversation in its order, the conversations among each other in any."""
        luck = random.Random(choice)
        with self.air.holding() as held:
            await station.send()
        lanes: dict[str, list[Heard]] = {}
        for heard in held:
            lanes.setdefault(_conversation_of(heard), []).append(heard)
        while lanes:
            chosen = luck.choice(sorted(lanes))
            self.air.hear(lanes[chosen].pop(0))
            if not lanes[chosen]:
                del lanes[chosen]

    async def _repeat(self, station: Station, choice: int) -> None:
        for stored in self.air.stored[-1 - choice % 8 :]:
            self.air.hear(EventHeard(stored.address.agent, stored.message))

    async def _mute(self, station: Station, choice: int) -> None:
        await station.send(no_text=True)

    async def _news(self, station: Station, choice: int) -> None:
        await station.news()

    async def _settle(self, station: Station, choice: int) -> None:
        for _ in range(choice % 50):
            await asyncio.sleep(0)

    async def _overflow(self, station: Station, choice: int) -> None:
        del self.air.queue[choice % 5 :]
        self.air.hear_gap(GapReason.OVERFLOW)

    async def _disconnect(self, station: Station, choice: int) -> None:
        if self.air.connected:
            self.air.lose()

    async def _connect(self, station: Station, choice: int) -> None:
        if not self.air.connected:
            self.air.find()

    async def _silence(self, station: Station, choice: int) -> None:
        station.silent = True

    async def _speak(self, station: Station, choice: int) -> None:
        station.silent = False
        await station.news()

    async def _wipe(self, station: Station, choice: int) -> None:
        self.air.wipe()

    async def _restart_agent(self, station: Station, choice: int) -> None:
        orphans = [turn for turn, (owner, _) in self.attempts.items() if owner is station]
        await station.start_again()
        for turn in orphans:
            _, attempt = self.attempts.pop(turn)
            await station.journal.recover(attempt)
        await station.news()

    async def _restart_gateway(self, station: Station, choice: int) -> None:
        await self.gateway.close()
        self.air.queue.clear()
        await self.gateway.open()

    async def _watch(self, station: Station, choice: int) -> None:
        copied = (await self.gateway.replica.conversations(None, limit=100, agent=station.name)).items
        if copied and len(self.watchers) < 6:
            conversation = copied[choice % len(copied)].id
            turns = (await self.gateway.replica.turns(None, limit=100, conversation=conversation)).items
            over = {turn.id for turn in turns if turn.status not in ACTIVE}
            self.watchers.append((Watcher(self.gateway, station, conversation), over))

    # -- at the end --------------------------------------------------------------------------------------------------------------

    async def come_to_rest(self) -> None:
        """All is there again, every turn ends, everything is sent."""
        await self._connect(self.stations[0], 0)
        for station in self.stations:
            station.silent = False
            while not await self._is_at_rest(station):
                await self._answer(station, 0)
                await self._claim(station, 0)
                for _ in range(2):
                    await self._finish(station, 0)
            await station.send()
            await station.news()

    async def _is_at_rest(self, station: Station) -> bool:
        turns = (await station.store.turns(None, limit=200)).items
        return all(turn.status in ENDED for turn in turns)

    async def is_copied(self) -> bool:
        for station in self.stations:
            if not await self.gateway.holds(station):
                self.gateway.clock.advance(1.0)
                return False
        return True

    async def violations(self) -> list[str]:
        found: list[str] = []
        for watcher, over in self.watchers:
            found += watcher.violations()
            frames = _frames(watcher)
            if frames and isinstance(frames[0], Event) and frames[0].terminal:
                over.add(frames[0].turn)  # it had ended when the stream began: its end is all that is told
            told = Fold().apply_all(frames)
            expected = Fold().apply_all(await watcher.station.store.events(watcher.conversation))
            for turn in expected.turns.keys() - over:
                if _shown(told.turns.get(turn)) != _shown(expected.turns[turn]):
                    found.append(f"{turn} is {told.turns.get(turn)}, not {expected.turns[turn]}")
        return found

    async def has_told_all(self) -> bool:
        return await self.violations() == []


def _frames(watcher: Watcher) -> list[Frame]:
    return [frame for frame in watcher.frames if not isinstance(frame, Gone)]


def _shown(turn: FoldedTurn | None) -> object:
    return None if turn is None else (turn.messages, turn.tokens, turn.traces, turn.approvals, turn.ending)


def _conversation_of(heard: Heard) -> str:
    event: Event | None = None
    if isinstance(heard, EventHeard):
        event = heard.message.event
    elif isinstance(heard, TokenHeard):
        event = heard.event
    return "" if event is None else event.conversation


async def live_through(made_up: list[Move], folder: Path) -> None:
    world = World(folder)
    await world.begin()
    try:
        for name, choice in made_up:
            await world.move(name, choice)
        await world.come_to_rest()
        await eventually(world.is_copied)
        try:
            await eventually(world.has_told_all)
        except TimeoutError:
            raise AssertionError(await world.violations()) from None
    finally:
        await world.end()


def _live_through(made_up: list[Move]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(live_through(made_up, Path(folder)))


quiet = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], database=None)


@given(moves)
@settings(quiet, max_examples=4, derandomize=True)
def test_the_copy_becomes_the_journal_and_watchers_lose_and_repeat_nothing(made_up: list[Move]) -> None:
    _live_through(made_up)


@pytest.mark.proof
@pytest.mark.timeout(3600)
@given(moves)
@settings(quiet, max_examples=400)
def test_it_does_so_for_many_ways(made_up: list[Move]) -> None:
    _live_through(made_up)
