"""The feed of a gateway: all that agents publish, in order, bounded, with its gaps told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from perdure.events import Event, EventKind
from perdure.transport.local import LocalTransport
from perdure.transport.nats import wire
from perdure.transport.nats.connection import Connection
from perdure.transport.nats.live import (
    EventHeard,
    Feed,
    Gap,
    GapReason,
    Heard,
    NatsTransport,
    NewsHeard,
    Tidings,
    TokenHeard,
)
from perdure.transport.nats.names import Names
from perdure.transport.nats.stream import EventStream
from perdure.transport.nats.wire import EventMessage, News
from tests.servers.nats_server import NatsServer, Servers
from tests.servers.process import LIMIT_SECONDS
from tests.unit.transport.nats.conftest import Connect

TURN, OTHER_TURN = "a" * 32, "b" * 32
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def token(seq: int, text: str = "x") -> Event:
    return Event(seq, "c1", TURN, 1, EventKind.TOKEN, AT, {"message_id": "m1", "text": text})


def message(seq: int, text: str = "x") -> EventMessage:
    return EventMessage(Event(seq, "c1", TURN, 1, EventKind.TRACE, AT, {"text": text}), seq - 1)


async def heard(feed: Feed, until: Callable[[Sequence[Heard]], bool]) -> list[Heard]:
    got: list[Heard] = []
    async with asyncio.timeout(LIMIT_SECONDS):
        while not until(got):
            await feed.wait()
            got += feed.take()
    return got


async def connected_again(connection: Connection, generation: int) -> None:
    with connection.listen() as bell:
        async with asyncio.timeout(LIMIT_SECONDS):
            while connection.generation == generation:
                await bell.wait()


async def test_events_and_tokens_of_an_agent_come_in_the_order_they_were_sent(
    nats: NatsServer, names: Names, connect: Connect
) -> None:
    feed = Feed(await connect(nats), names)
    await feed.start()
    there = await connect(nats, agent="alpha")
    stream, tidings = EventStream(there, names), Tidings(there, names, "alpha")
    await stream.ensure()
    sent: list[Heard] = []
    for seq in range(1, 101):
        if seq % 3:
            await tidings.token(token(seq))
            sent.append(TokenHeard("alpha", token(seq)))
        else:
            await stream.publish("alpha", message(seq))
            sent.append(EventHeard("alpha", message(seq)))
    assert await heard(feed, lambda got: len(got) >= 100) == sent
    await feed.stop()


async def test_news_of_every_agent_of_the_namespace_are_heard(nats: NatsServer, names: Names, connect: Connect) -> None:
    feed = Feed(await connect(nats), names)
    await feed.start()
    there = await connect(nats, agent="alpha")
    news = News(4, "b1", wire.LEAVING, ("c1",))
    await Tidings(there, Names(names.prefix, "other"), "alpha").news(News(1, "x"))
    for agent in ("alpha", "beta"):
        await Tidings(there, names, agent).news(news)
    assert await heard(feed, lambda got: len(got) >= 2) == [NewsHeard("alpha", news), NewsHeard("beta", news)]


async def test_what_cannot_be_read_is_logged_and_passed_over(nats: NatsServer, names: Names, connect: Connect) -> None:
    feed = Feed(await connect(nats), names)
    await feed.start()
    there = await connect(nats, agent="alpha")
    other_turns = wire.encode_token(token(1))
    wrong = [
        (names.tokens("alpha", TURN), b"{"),
        (names.tokens("alpha", OTHER_TURN), other_turns),
        (names.turns("alpha", TURN), other_turns),
        (names.news("alpha"), b'{"position": 1}'),
        (f"{names.prefix}.turns.default.alpha.not-a-turn", b"{}"),
        (f"{names.prefix}.else.default.alpha.{TURN}", b"{}"),
    ]
    with capture_logs() as logs:
        for subject, data in wrong:
            await there.publish(subject, data)
        await Tidings(there, names, "alpha").token(token(7))
        await Tidings(there, names, "alpha").news(News(7, "b"))
        assert len(await heard(feed, lambda got: len(got) >= 2)) == 2
    assert sorted(each["subject"] for each in logs if each["log_level"] == "warning") == sorted(
        subject for subject, _ in wrong
    )


@pytest.mark.parametrize("bounds", [{"max_queued_messages": 10}, {"max_queued_bytes": 10_000}])
async def test_a_feed_read_too_slowly_is_emptied_and_says_so(
    nats: NatsServer, names: Names, connect: Connect, bounds: dict[str, int]
) -> None:
    here, there = await connect(nats), await connect(nats, agent="alpha")
    feed = Feed(here, names, **bounds)
    await feed.start()
    arrived = asyncio.Event()
    await here.subscribe("the.end", lambda message: arrived.set())
    tidings = Tidings(there, names, "alpha")
    for seq in range(1, 101):
        await tidings.token(token(seq, "x" * 1_000))
    await there.publish("the.end", b"")
    await asyncio.wait_for(arrived.wait(), LIMIT_SECONDS)
    got = await heard(feed, lambda got: bool(got) and got[-1] == TokenHeard("alpha", token(100, "x" * 1_000)))
    assert got[0] == Gap(GapReason.OVERFLOW)
    assert 1 < len(got) <= 11
    await tidings.token(token(101))
    assert await heard(feed, bool) == [TokenHeard("alpha", token(101))]


async def test_a_loss_is_told_in_its_place(servers: Servers, names: Names, connect: Connect) -> None:
    server = await servers.start()
    here, there = await connect(server), await connect(server, agent="alpha")
    feed = Feed(here, names)
    await feed.start()
    tidings = Tidings(there, names, "alpha")
    await tidings.token(token(1))
    got = await heard(feed, bool)
    await server.restart()
    await connected_again(here, 1)
    await connected_again(there, 1)
    await tidings.token(token(2))
    got += await heard(feed, lambda got: len(got) >= 2)
    assert got == [TokenHeard("alpha", token(1)), Gap(GapReason.DISCONNECTED), TokenHeard("alpha", token(2))]


async def test_tidings_are_dropped_while_nats_is_away(servers: Servers, names: Names, connect: Connect) -> None:
    server = await servers.start()
    there = await connect(server, agent="alpha")
    server.kill()
    tidings = Tidings(there, names, "alpha")
    await tidings.token(token(1))
    await tidings.news(News(1, "b"))


async def test_who_waits_for_a_feed_is_woken_when_it_stops(nats: NatsServer, names: Names, connect: Connect) -> None:
    feed = Feed(await connect(nats), names)
    await feed.start()
    waiting = asyncio.create_task(feed.wait())
    await feed.stop()
    await asyncio.wait_for(waiting, LIMIT_SECONDS)
    assert feed.stopped
    assert not feed.take()


async def test_watchers_over_nats_are_cut_off_where_something_may_be_missing(
    servers: Servers, names: Names, connect: Connect
) -> None:
    server = await servers.start()
    local = LocalTransport()
    here = await connect(server, agent="alpha")
    async with NatsTransport(here, names, "alpha", boot="b", position=lambda: 1, local=local) as transport:
        with transport.subscribe("c1") as watcher:
            transport.publish(token(1))
            await asyncio.wait_for(watcher.wait(), LIMIT_SECONDS)
            assert watcher.take() == [token(1)]
            await server.restart()
            await asyncio.wait_for(watcher.wait(), LIMIT_SECONDS)
            assert not watcher.take(), "its wait returned without anything: it has lost its transport"
        await connected_again(here, 1)
        with transport.subscribe("c1") as watcher:
            assert not watcher.retained
            transport.publish(token(2))
            await asyncio.wait_for(watcher.wait(), LIMIT_SECONDS)
            assert watcher.take() == [token(2)]
