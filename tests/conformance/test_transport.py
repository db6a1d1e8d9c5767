"""One suite for every transport: what one publishes, all watchers get, in order, bounded, also over NATS."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.events import Event, EventKind
from perdure.transport.base import SlowWatcher, Subscription, Transport
from perdure.transport.local import LocalTransport
from perdure.transport.nats.connection import Connection
from perdure.transport.nats.live import NatsTransport
from perdure.transport.nats.names import Names
from perdure.transport.nats.stream import EventStream
from tests.servers.nats_server import NatsServer, Servers, binaries, servers_in
from tests.servers.process import LIMIT_SECONDS

AT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
MAX_QUEUED = 50
TURN, OTHER_TURN = "a" * 32, "b" * 32

Pair = tuple[Transport, Transport]
"""Who publishes and who watches: the same one in one process, two over NATS."""


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    yield from servers_in(tmp_path_factory.mktemp("transport"))


@asynccontextmanager
async def local() -> AsyncIterator[Pair]:
    transport = LocalTransport(max_queued_events=MAX_QUEUED)
    yield transport, transport
    transport.close()


@asynccontextmanager
async def connected(server: NatsServer, name: str, inbox: str) -> AsyncIterator[Connection]:
    connection = Connection(server.settings(), name=name, inbox=inbox)
    await connection.start(wait_seconds=LIMIT_SECONDS)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def over_nats(server: NatsServer) -> AsyncIterator[Pair]:
    names = Names(f"p{secrets.token_hex(6)}", "default")
    async with (
        connected(server, "agent", names.inbox("agent", "alpha")) as there,
        connected(server, "gateway", names.inbox("gateway")) as here,
    ):
        await EventStream(there, names).ensure()
        watching = LocalTransport(max_queued_events=MAX_QUEUED)
        async with (
            NatsTransport(there, names, "alpha", boot="b1", position=lambda: 7) as sender,
            NatsTransport(here, names, "alpha", boot="b2", position=lambda: 7, local=watching) as receiver,
        ):
            yield sender, receiver


@pytest.fixture(params=["local", "nats", "nats-other"])
async def pair(request: pytest.FixtureRequest, servers: Servers) -> AsyncIterator[Pair]:
    made: AbstractAsyncContextManager[Pair]
    if request.param == "local":
        made = local()
    else:
        version = "other" if request.param.endswith("other") else "current"
        if binaries()[version] is None:
            pytest.skip("NO SECOND NATS VERSION HERE: see tests/servers/nats-other.lock")
        made = over_nats(await servers.shared(version))
    async with made as transports:
        yield transports


def event(seq: int, kind: EventKind, conversation: str = "c1", turn: str = TURN, **payload: Any) -> Event:
    return Event(seq, conversation, turn, 1, kind, AT, payload)


def token(seq: int, text: str = "x", message_id: str = "m1", **more: Any) -> Event:
    return event(seq, EventKind.TOKEN, message_id=message_id, text=text, **more)


def message(seq: int, message_id: str = "m1", **more: Any) -> Event:
    return event(seq, EventKind.MESSAGE, message={"id": message_id, "role": "assistant", "content": "x"}, **more)


async def within(awaitable: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(awaitable, LIMIT_SECONDS)


async def taken(watcher: Subscription, until: Callable[[Sequence[Event]], bool]) -> list[Event]:
    got: list[Event] = []
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            got += watcher.take()
            if until(got):
                return got
            await watcher.wait()


async def seqs(watcher: Subscription, last: int) -> list[int]:
    """All that come up to this one."""
    return [each.seq for each in await taken(watcher, lambda got: bool(got) and got[-1].seq == last)]


async def test_a_watcher_gets_the_events_of_its_conversation_in_order(pair: Pair) -> None:
    sender, receiver = pair
    with receiver.subscribe("c1") as watcher:
        for seq in range(1, 20):
            sender.publish(token(seq) if seq % 3 else message(seq))
            sender.publish(token(seq, conversation="c2", turn=OTHER_TURN))
        assert await seqs(watcher, 19) == list(range(1, 20))


async def test_events_arrive_as_they_were_sent(pair: Pair) -> None:
    sender, receiver = pair
    sent = [
        event(1, EventKind.TRACE, node="n", phase="leave", data={"π": [1.5, None, True], "lone": "\ud83d"}),
        token(2, "né\u2028w"),
        event(3, EventKind.END, status="completed"),
    ]
    with receiver.subscribe("c1") as watcher:
        for each in sent:
            sender.publish(each)
        assert await taken(watcher, lambda got: len(got) == 3) == sent


async def test_every_watcher_gets_everything(pair: Pair) -> None:
    sender, receiver = pair
    with receiver.subscribe("c1") as one, receiver.subscribe("c1") as two, sender.subscribe("c1") as three:
        sender.publish(message(1))
        sender.publish(message(2))
        assert [await seqs(each, 2) for each in (one, two, three)] == [[1, 2]] * 3


async def test_who_comes_later_finds_the_tokens_that_no_message_has_replaced(pair: Pair) -> None:
    sender, receiver = pair
    with receiver.subscribe("c1") as first:
        for each in (token(1), message(2), token(3, message_id="m2"), token(4, message_id="m2")):
            sender.publish(each)
        await seqs(first, 4)
        with receiver.subscribe("c1") as second:
            assert [each.seq for each in second.retained] == [3, 4]
            sender.publish(token(5, message_id="m2"))
            assert await seqs(second, 5) == [5]


async def test_a_rewind_and_an_end_leave_no_tokens(pair: Pair) -> None:
    sender, receiver = pair
    with receiver.subscribe("c1") as first:
        sender.publish(token(1))
        sender.publish(event(2, EventKind.REWIND, to_seq=0, reason="recovered"))
        await seqs(first, 2)
        with receiver.subscribe("c1") as second:
            assert not second.retained
        sender.publish(token(3))
        sender.publish(event(4, EventKind.END, status="cancelled"))
        await seqs(first, 4)
        with receiver.subscribe("c1") as third:
            assert not third.retained


async def test_a_slow_watcher_is_told_and_hurts_nobody(pair: Pair) -> None:
    sender, receiver = pair
    with receiver.subscribe("c1") as slow, receiver.subscribe("c1") as quick:
        last = MAX_QUEUED + 1
        for seq in range(1, last + 1):
            sender.publish(message(seq))
            assert await seqs(quick, seq) == [seq]
        await within(slow.wait())
        with pytest.raises(SlowWatcher):
            slow.take()


async def test_watchers_of_a_deleted_conversation_get_its_last_and_are_told(pair: Pair) -> None:
    sender, receiver = pair
    with receiver.subscribe("c1") as watcher, receiver.subscribe("c2") as other:
        sender.publish(message(1))
        await seqs(watcher, 1)
        sender.forget("c1")
        await within(watcher.wait())
        assert watcher.gone
        assert not other.gone


async def test_a_bell_rings_for_who_listens_to_its_topic(pair: Pair) -> None:
    sender, receiver = pair
    with receiver.listen("queue") as queue, receiver.listen("changes") as changes:
        sender.ring("changes")
        assert await within(changes.wait())
        assert not await queue.wait(0.0)


async def test_a_ring_before_the_wait_is_not_lost(pair: Pair) -> None:
    sender, receiver = pair
    with receiver.listen("queue") as early, receiver.listen("queue") as late:
        sender.ring("queue")
        assert await within(early.wait())
        assert await late.wait(0.0)
