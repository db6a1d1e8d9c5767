"""The publisher over a real journal, with a stream that a test steers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from perdure import failpoints
from perdure.bridge import publisher as module
from perdure.bridge.publisher import Publisher
from perdure.clock import SystemClock
from perdure.events import EventKind
from perdure.transport.nats.connection import Connection
from perdure.transport.nats.stream import StreamError, StreamMissing
from perdure.turns import Accepted, TurnStatus
from tests.unit.bridge.house import AGENT, AgentHouse, SteeredStream, applied, eventually, open_agent_house
from tests.unit.engine.graphs import World, agent, chain
from tests.unit.engine.house import ME, folded, hosted


def publisher_of(house: AgentHouse, stream: SteeredStream) -> Publisher:
    line = cast(Connection, stream.line)
    return Publisher(AGENT, house.store, stream, stream, connection=line, clock=SystemClock())


@asynccontextmanager
async def publishing(
    path: Path, *graphs: Any, stream: SteeredStream | None = None
) -> AsyncIterator[tuple[AgentHouse, SteeredStream]]:
    own = stream or SteeredStream()
    async with open_agent_house(path, *graphs) as house:
        publisher = publisher_of(house, own)
        house.bridged.attach(publisher)
        publisher.start()
        try:
            yield house, own
        finally:
            house.bridged.attach(None)
            await publisher.stop(0.0)


async def is_complete(house: AgentHouse, stream: SteeredStream, *accepted: Accepted) -> bool:
    """Whether a consumer of the stream holds exactly the journal."""
    return all([await _is_one(house, stream, each) for each in accepted])


async def _is_one(house: AgentHouse, stream: SteeredStream, accepted: Accepted) -> bool:
    journal = await house.journal(accepted)
    held = applied(stream.held).get(accepted.conversation, [])
    if held != journal:
        return False
    assert folded(list(held)) == folded(list(journal))
    check_chain(stream, accepted.conversation, [event.seq for event in journal])
    return True


async def complete(house: AgentHouse, stream: SteeredStream, *accepted: Accepted) -> None:
    await eventually(lambda: is_complete(house, stream, *accepted))


def check_chain(stream: SteeredStream, conversation: str, journal: list[int]) -> None:
    """No event of the journal lies between a message and the one it names as the one before it."""
    for message in stream.held:
        if message.event.conversation == conversation:
            assert not [seq for seq in journal if message.previous < seq < message.event.seq]


async def test_every_event_is_published_in_order_and_names_the_one_before_it(tmp_path: Path) -> None:
    async with publishing(tmp_path / "a.db", hosted(AGENT, agent(World()))) as (house, stream):
        first = await house.send("call a b")
        await house.until(first)
        second = await house.send("again", first.conversation)
        await house.until(second)
        await complete(house, stream, first)
        seqs = [message.event.seq for message in stream.held]
        assert seqs == sorted(seqs)
        assert [message.previous for message in stream.held] == [0, *seqs[:-1]]


async def test_what_changes_the_state_of_a_turn_carries_its_rows(tmp_path: Path) -> None:
    async with publishing(tmp_path / "a.db", hosted(AGENT, agent(World()))) as (house, stream):
        accepted = await house.send("call ask")
        await house.until(accepted, TurnStatus.PARKED)
        await complete(house, stream, accepted)
        told = [message for message in stream.held if message.rows is not None]
        assert told[0] is stream.held[0]
        assert told[-1].event.kind is EventKind.APPROVAL
        assert told[-1].rows is not None
        assert [row["status"] for row in told[-1].rows.turns] == ["parked"]
        assert [row["state"] for row in told[-1].rows.cards] == ["opened"]
        plain = [message for message in stream.held if message.event.kind is EventKind.TRACE][1:]
        assert plain and all(message.rows is None for message in plain)
        card = (await house.waiting(accepted))[0]
        await house.answer(accepted, {card.interrupt_id: "yes"})
        await house.until(accepted, TurnStatus.COMPLETED)
        await complete(house, stream, accepted)
        assert stream.held[-1].event.kind is EventKind.END
        assert stream.held[-1].rows is not None
        assert [row["status"] for row in stream.held[-1].rows.turns] == ["completed"]


async def test_tokens_leave_in_their_place_among_the_events(tmp_path: Path) -> None:
    async with publishing(tmp_path / "a.db", hosted(AGENT, agent(World()))) as (house, stream):
        await eventually(lambda: house.bridged._outward._open)  # type: ignore[union-attr]
        accepted = await house.send("hello")
        await house.until(accepted)
        await complete(house, stream, accepted)
        seqs = [event.seq for event in stream.order]
        assert seqs == sorted(seqs)
        tokens = [event for event in stream.order if event.kind is EventKind.TOKEN]
        assert "".join(event.payload["text"] for event in tokens) == "answer hello"
        assert tokens[0].payload["follows"] == 0


async def test_what_happened_before_the_start_is_published_too(tmp_path: Path) -> None:
    stream = SteeredStream()
    async with open_agent_house(tmp_path / "a.db", hosted(AGENT, agent(World()))) as house:
        accepted = await house.send("hello")
        await house.until(accepted)
    async with publishing(tmp_path / "a.db", hosted(AGENT, agent(World())), stream=stream) as (house, _):
        await complete(house, stream, accepted)


async def test_what_the_stream_has_is_not_sent_again_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEEP_SECONDS", 3_600.0)  # positions are kept by the stop, which cuts no keeping short
    stream = SteeredStream()
    graph = hosted(AGENT, agent(World()))
    async with publishing(tmp_path / "a.db", graph, stream=stream) as (house, _):
        accepted = await house.send("hello")
        await house.until(accepted)
        await complete(house, stream, accepted)
    sent = len(stream.sent)
    async with publishing(tmp_path / "a.db", graph, stream=stream) as (house, _):
        more = await house.send("and", accepted.conversation)
        await house.until(more)
        await complete(house, stream, accepted)
        assert len(stream.sent) == len(stream.held)
        assert stream.held[sent].previous == stream.held[sent - 1].event.seq


async def test_a_lost_line_costs_nothing_but_time(tmp_path: Path) -> None:
    async with publishing(tmp_path / "a.db", hosted(AGENT, agent(World()))) as (house, stream):
        stream.acknowledges = False
        accepted = await house.send("call a b")
        await eventually(lambda: len(stream.sent) > 2)
        stream.lose()
        await house.until(accepted)
        again = await house.send("meanwhile", accepted.conversation)
        await house.until(again)
        assert stream.held == []
        stream.acknowledges = True
        stream.line.find()
        await complete(house, stream, accepted)


async def test_a_stream_that_was_wiped_is_filled_again(tmp_path: Path) -> None:
    async with publishing(tmp_path / "a.db", hosted(AGENT, agent(World()))) as (house, stream):
        accepted = [await house.send(f"message {number}") for number in range(12)]
        for each in accepted:
            await house.until(each)
        await complete(house, stream, *accepted)
        stream.lose()
        stream.wipe()
        stream.line.find()
        await complete(house, stream, *accepted)


async def test_an_end_of_the_stream_that_was_acknowledged_and_lost_is_sent_again(tmp_path: Path) -> None:
    async with publishing(tmp_path / "a.db", hosted(AGENT, agent(World()))) as (house, stream):
        accepted = [await house.send(f"call a {number}") for number in range(3)]
        for each in accepted:
            await house.until(each)
        await complete(house, stream, *accepted)
        kept = len(stream.held) - 7
        stream.lose()
        del stream.held[kept:]
        sent = len(stream.sent)
        stream.line.find()
        await complete(house, stream, *accepted)
        assert len(stream.sent) - sent < kept, "what is there is not sent again"


async def test_a_stream_that_is_lost_while_the_line_holds_is_filled_again(tmp_path: Path) -> None:
    async with publishing(tmp_path / "a.db", hosted(AGENT, agent(World()))) as (house, stream):
        accepted = await house.send("one")
        await house.until(accepted)
        await complete(house, stream, accepted)
        stream.wipe()
        stream.fails = StreamMissing("no stream")
        second = await house.send("two", accepted.conversation)
        await house.until(second)
        stream.fails = None
        await complete(house, stream, accepted)


@pytest.mark.parametrize(
    ("fault", "said"),
    [(TimeoutError(), "did not acknowledge"), (StreamMissing("no `jetstream`."), "no `jetstream`. Is JetStream on?")],
)
async def test_why_nothing_is_published_is_told_in_whole_sentences(fault: Exception, said: str, tmp_path: Path) -> None:
    stream = SteeredStream(fails=fault)
    async with open_agent_house(tmp_path / "a.db", hosted(AGENT, agent(World()))) as house:
        publisher = publisher_of(house, stream)
        house.bridged.attach(publisher)
        publisher.start()
        await house.send("one")
        await eventually(lambda: publisher.problem is not None)
        assert said in (publisher.problem or "")
        house.bridged.attach(None)
        await publisher.stop(0.0)


async def test_what_failed_is_sent_again_from_the_first_that_was_not_acknowledged(tmp_path: Path) -> None:
    async with publishing(tmp_path / "a.db", hosted(AGENT, agent(World()))) as (house, stream):
        stream.acknowledges = False
        accepted = await house.send("call a")
        await house.until(accepted)
        await eventually(lambda: len(stream.sent) >= 3)
        first, second, third = stream.sent[:3]
        stream.keep(first)
        stream.keep(third)
        stream.acknowledges = True
        second.done.set_exception(TimeoutError())
        await complete(house, stream, accepted)


async def test_a_slow_stream_never_slows_a_turn(tmp_path: Path) -> None:
    async with publishing(tmp_path / "a.db", hosted(AGENT, agent(World()))) as (house, stream):
        stream.gate = asyncio.Event()
        accepted = [await house.send("call a b") for _ in range(5)]
        for each in accepted:
            await house.until(each, TurnStatus.COMPLETED)
        assert stream.held == []
        stream.gate.set()
        await complete(house, stream, *accepted)


async def test_an_attempt_that_died_is_taken_back_by_its_rewind(tmp_path: Path) -> None:
    stream, world = SteeredStream(), World()
    world.hold("a")
    graph = hosted(AGENT, agent(world))
    async with publishing(tmp_path / "a.db", graph, stream=stream) as (house, _):
        accepted = await house.send("call a")
        await world.entered["a"].wait()
        await complete(house, stream, accepted)
        await house.die()
    world.let("a")
    async with publishing(tmp_path / "a.db", graph, stream=stream) as (house, _):
        await house.until(accepted, TurnStatus.COMPLETED)
        await complete(house, stream, accepted)
        assert EventKind.REWIND in {message.event.kind for message in stream.held}


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_fault_while_publishing_is_made_good(side: str, tmp_path: Path) -> None:
    failpoints.arm(f"publish.{side}:error@3")
    try:
        async with publishing(tmp_path / "a.db", hosted(AGENT, chain(World(), "a", "b", "c"))) as (house, stream):
            accepted = await house.send({"done": []})
            await house.until(accepted)
            await complete(house, stream, accepted)
    finally:
        failpoints.arm("")


async def test_a_conversation_that_was_forgotten_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_LANES", 1)
    monkeypatch.setattr(module, "KEEP_SECONDS", 0.001)
    async with publishing(tmp_path / "a.db", hosted(AGENT, agent(World()))) as (house, stream):
        accepted = [await house.send(f"message {number}") for number in range(4)]
        for each in accepted:
            await house.until(each)
        await complete(house, stream, *accepted)

        lanes = house.bridged._outward._lanes  # type: ignore[union-attr]
        await eventually(lambda: not house.bridged._outward._acked)  # type: ignore[union-attr]
        async with asyncio.timeout(60):
            while accepted[0].conversation in lanes:  # each travel may forget one
                await house.until(await house.send("more", accepted[-1].conversation))
        again = await house.send("again", accepted[0].conversation)
        await house.until(again)
        await complete(house, stream, *accepted)
        assert len(stream.sent) == len(stream.held)


async def test_a_conversation_that_is_deleted_while_nats_is_away_stands_in_nobodys_way(tmp_path: Path) -> None:
    async with publishing(tmp_path / "a.db", hosted(AGENT, agent(World()))) as (house, stream):
        stream.lose()
        gone, stays = await house.send("gone"), await house.send("stays")
        for each in (gone, stays):
            await house.until(each)
        await house.agents.delete(ME, gone.conversation, cancel=False)
        stream.line.find()
        await complete(house, stream, stays)
        assert {message.event.conversation for message in stream.held} == {stays.conversation}


async def test_one_refused_event_holds_up_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAST_DELAY_SECONDS", 0.2)
    async with publishing(tmp_path / "a.db", hosted(AGENT, agent(World()))) as (house, stream):
        bad = await house.send("bad")
        stream.refuses = bad.conversation
        good = [await house.send(f"good {number}") for number in range(3)]
        for each in (bad, *good):
            await house.until(each)
        await complete(house, stream, *good)
        assert not await is_complete(house, stream, bad)
        stream.refuses = None
        await complete(house, stream, bad)


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_the_line_and_the_stream_do_the_stream_becomes_the_journal(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_DELAY_SECONDS", 0.005)
    luck, world = random.Random(seed), World()
    async with publishing(tmp_path / "a.db", hosted(AGENT, agent(world))) as (house, stream):
        accepted: list[Accepted] = []
        for round_ in range(25):
            if round_ % 5 == 0:
                accepted += [await house.send(f"call a b {round_}") for _ in range(2)]
            what = luck.choice(["wipe", "lose", "mute", "fail", "shuffle", "calm"])
            if what == "lose":
                stream.lose()
            elif what == "wipe":
                stream.lose()
                stream.wipe()
            elif what == "mute":
                stream.acknowledges = False
            elif what == "fail":
                stream.fails = luck.choice([TimeoutError(), StreamMissing("gone"), StreamError("no")])
            elif what == "shuffle":
                waiting = [each for each in stream.sent if not each.done.done()]
                for each in luck.sample(waiting, len(waiting)):
                    stream.keep(each)
            await asyncio.sleep(luck.random() * 0.02)
            stream.acknowledges, stream.fails = True, None
            if not stream.line.connected:
                stream.line.find()
        for each in [each for each in stream.sent if not each.done.done()]:
            each.done.set_exception(TimeoutError())
        monkeypatch.setattr(module, "LAST_DELAY_SECONDS", 0.1)
        for one in accepted:
            await house.until(one)
        await complete(house, stream, *accepted)


async def test_a_stop_sends_what_is_left(tmp_path: Path) -> None:
    stream = SteeredStream()
    async with open_agent_house(tmp_path / "a.db", hosted(AGENT, agent(World()))) as house:
        publisher = publisher_of(house, stream)
        house.bridged.attach(publisher)
        publisher.start()
        accepted = await house.send("hello")
        await house.until(accepted)
        await eventually(lambda: bool(stream.sent))
        await publisher.stop(60.0)
        assert await is_complete(house, stream, accepted)
        assert await house.store.unpublished(stream.name, datetime.fromtimestamp(0, UTC)) == {}
        house.bridged.attach(None)


async def test_while_nothing_can_be_sent_only_positions_are_kept(tmp_path: Path) -> None:
    async with publishing(tmp_path / "a.db", hosted(AGENT, agent(World()))) as (house, stream):
        stream.lose()
        accepted = await house.send("hello")
        await house.until(accepted)
        lane = house.bridged._outward._lanes[accepted.conversation]  # type: ignore[union-attr]
        assert not lane.speech.waiting
        assert not lane.under_way
        stream.line.find()
        await complete(house, stream, accepted)


async def test_positions_that_could_not_be_kept_for_whatever_reason_are_kept_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEEP_SECONDS", 0.01)
    async with publishing(tmp_path / "a.db", hosted(AGENT, agent(World()))) as (house, stream):
        published, failures = house.store.published, [RuntimeError("nobody thought of this")]

        async def failing(*args: Any) -> None:
            if failures:
                raise failures.pop()
            await published(*args)

        monkeypatch.setattr(house.store, "published", failing)
        first = await house.send("hello")
        await house.until(first)
        await complete(house, stream, first)
        await eventually(lambda: not failures)
        await house.until(await house.send("again", first.conversation))

        async def are_kept() -> bool:
            return await house.store.unpublished(stream.name, datetime.fromtimestamp(0, UTC)) == {}

        await eventually(are_kept)
