"""The stream of committed events, on two versions of the server: made, filled, read, lost and made again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from perdure.events import Event, EventKind
from perdure.transport.nats import stream as module
from perdure.transport.nats.connection import Connection, Disconnected
from perdure.transport.nats.names import Names
from perdure.transport.nats.stream import EventStream, Stored, StreamError, StreamMissing
from perdure.transport.nats.wire import EventMessage
from tests.servers.nats_access import Permissions, passwords
from tests.servers.nats_server import NatsServer, Servers, binaries
from tests.servers.process import LIMIT_SECONDS
from tests.unit.transport.nats.conftest import Connect

TURN, OTHER_TURN = "a" * 32, "b" * 32
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(params=["current", "other"])
def version(request: pytest.FixtureRequest) -> str:
    if binaries()[request.param] is None:
        pytest.skip("NO SECOND NATS VERSION HERE: see tests/servers/nats-other.lock")
    return str(request.param)


@pytest.fixture
async def server(servers: Servers, version: str) -> NatsServer:
    """Shared: harm it not."""
    return await servers.shared(version)


@pytest.fixture
async def stream(server: NatsServer, names: Names, connect: Connect) -> EventStream:
    made = EventStream(await connect(server, agent="alpha"), names)
    await made.ensure()
    return made


def message(seq: int, *, turn: str = TURN, conversation: str = "c1", **payload: Any) -> EventMessage:
    return EventMessage(Event(seq, conversation, turn, 1, EventKind.TRACE, AT, payload), seq - 1)


async def published(stream: EventStream, *messages: EventMessage, agent: str = "alpha") -> list[int]:
    acknowledged = [await stream.publish(agent, each) for each in messages]
    return list(await asyncio.wait_for(asyncio.gather(*acknowledged), LIMIT_SECONDS))


async def everything(stream: EventStream, after: int = 0) -> list[Stored]:
    return [each for batch in [batch async for batch in stream.read(after)] for each in batch]


def seqs(stored: Sequence[Stored]) -> list[int]:
    return [each.message.event.seq for each in stored]


async def asked(connection: Connection, verb: str, body: Any = None) -> Any:
    answer = await connection.ask(f"$JS.API.{verb}", json.dumps(body or {}).encode())
    return json.loads((await asyncio.wait_for(answer, LIMIT_SECONDS)).data)


# -- made -------------------------------------------------------------------------------------------------------------


async def test_it_is_made_once_and_keeps_its_identity(server: NatsServer, names: Names, connect: Connect) -> None:
    first, second = EventStream(await connect(server), names), EventStream(await connect(server), names)
    assert await first.identity() is None
    with pytest.raises(StreamMissing):
        await first.last_seq()
    made = await asyncio.gather(first.ensure(), second.ensure())
    assert made[0] == made[1] == await first.identity()
    assert await first.last_seq() == 0


async def test_it_is_bounded_by_age_and_kept_in_files(
    server: NatsServer, names: Names, connect: Connect, stream: EventStream
) -> None:
    info = await asked(await connect(server), f"STREAM.INFO.{names.stream}")
    config = info["config"]
    assert (config["subjects"], config["storage"], config["discard"]) == ([names.stream_subjects], "file", "old")
    assert (config["max_age"], config["duplicate_window"]) == (7 * 86_400 * 10**9, 120 * 10**9)
    assert config["max_msgs_per_subject"] == -1


async def test_another_configuration_is_brought_in_line_but_what_is_the_operators_stays(
    server: NatsServer, names: Names, connect: Connect
) -> None:
    connection = await connect(server)
    theirs = {"name": names.stream, "subjects": [names.stream_subjects], "max_age": 10**12, "max_bytes": 10_000_000}
    created = await asked(connection, f"STREAM.CREATE.{names.stream}", {**theirs, "max_msgs_per_subject": 1})
    stream = EventStream(connection, names)
    assert await stream.ensure() == f"{names.stream}@{created['created']}"
    config = (await asked(connection, f"STREAM.INFO.{names.stream}"))["config"]
    assert (config["max_age"], config["max_msgs_per_subject"]) == (7 * 86_400 * 10**9, -1)
    assert config["max_bytes"] == 10_000_000


async def test_what_cannot_be_brought_in_line_is_told_and_used_as_it_is(
    server: NatsServer, names: Names, connect: Connect
) -> None:
    connection = await connect(server)
    await asked(
        connection,
        f"STREAM.CREATE.{names.stream}",
        {"name": names.stream, "subjects": [names.stream_subjects], "storage": "memory"},
    )
    with capture_logs() as logs:
        stream = EventStream(connection, names)
        await stream.ensure()
        await stream.ensure()
    assert ["storage" in each["problem"] for each in logs if each["log_level"] == "warning"] == [True]
    assert "storage" in (stream.problem or "")
    assert await published(stream, message(1)) == [1]
    await asked(connection, f"STREAM.DELETE.{names.stream}", None)
    await stream.ensure()
    assert stream.problem is None


async def test_without_jetstream_it_says_what_to_configure(
    servers: Servers, version: str, names: Names, connect: Connect
) -> None:
    server = await servers.start(binary=binaries()[version], jetstream=False)
    stream = EventStream(await connect(server), names)
    with pytest.raises(StreamMissing, match="jetstream"):
        await stream.ensure()
    with pytest.raises(StreamMissing):
        await published(stream, message(1))


# -- filled -----------------------------------------------------------------------------------------------------------


async def test_events_are_read_back_in_the_order_they_were_sent(stream: EventStream, names: Names) -> None:
    sent = [message(seq, text="né\ud800", turn=TURN if seq % 2 else OTHER_TURN) for seq in range(1, 31)]
    assert await published(stream, *sent) == list(range(1, 31))
    got = await everything(stream)
    assert [each.message for each in got] == sent
    assert [each.seq for each in got] == list(range(1, 31))
    assert got[0].address == names.parse(names.turns("alpha", TURN))
    assert await stream.last_seq() == 30


async def test_a_repeated_event_is_no_second_one(stream: EventStream) -> None:
    assert await published(stream, message(1), message(2), message(1)) == [1, 2, 1]
    assert seqs(await everything(stream)) == [1, 2]


async def test_an_event_larger_than_a_message_goes_by_reference(stream: EventStream) -> None:
    await published(stream, message(1, text="x" * 1_500_000), message(2, text="x" * 900_000))
    first, second = (each.message for each in await everything(stream))
    assert (first.reference, first.event.payload, first.previous) == (True, {}, 0)
    assert second == message(2, text="x" * 900_000)


# -- read -------------------------------------------------------------------------------------------------------------


async def test_reading_goes_on_after_a_position_and_ends_when_caught_up(
    stream: EventStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 10)
    await published(stream, *(message(seq) for seq in range(1, 41)))
    batches = [batch async for batch in stream.read(5)]
    assert [len(batch) for batch in batches] == [10, 10, 10, 5]
    assert [seq for batch in batches for seq in seqs(batch)] == list(range(6, 41))
    assert await everything(stream, 40) == []
    assert await everything(stream, 1_000) == []


async def test_large_messages_come_in_smaller_batches(stream: EventStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", 2_000_000)
    await published(stream, *(message(seq, text="x" * 900_000) for seq in range(1, 8)))
    batches = [batch async for batch in stream.read(0)]
    assert [seq for batch in batches for seq in seqs(batch)] == list(range(1, 8))
    assert max(len(batch) for batch in batches) <= 2


async def test_the_events_of_another_namespace_are_not_read(
    server: NatsServer, names: Names, connect: Connect, stream: EventStream
) -> None:
    neighbour = EventStream(await connect(server), Names(names.prefix, "other"))
    assert await neighbour.ensure() == await stream.identity()
    await published(neighbour, message(1, conversation="theirs"), agent="alpha")
    await published(stream, message(1))
    assert [each.message.event.conversation for each in await everything(stream)] == ["c1"]


async def test_what_is_no_event_is_logged_and_passed_over(
    server: NatsServer, names: Names, connect: Connect, stream: EventStream
) -> None:
    connection = await connect(server)
    await published(stream, message(1))
    wrong_turn = json.dumps({"event": {"seq": 2, "turn": OTHER_TURN}}).encode()
    for data in (b"", b"{", b"[]", wrong_turn):
        await asyncio.wait_for(await connection.ask(names.turns("alpha", TURN), data), LIMIT_SECONDS)
    await published(stream, message(2))
    with capture_logs() as logs:
        got = await everything(stream)
    assert seqs(got) == [1, 2]
    assert [each["seq"] for each in logs if each["log_level"] == "warning"] == [2, 3, 4, 5]


# -- lost -------------------------------------------------------------------------------------------------------------


async def test_a_killed_server_has_what_it_acknowledged_and_still_knows_repetitions(
    servers: Servers, version: str, names: Names, connect: Connect
) -> None:
    server = await servers.start(binary=binaries()[version])
    connection = await connect(server)
    stream = EventStream(connection, names)
    identity = await stream.ensure()
    await published(stream, message(1), message(2))
    generation = connection.generation
    await server.restart()
    await _again(connection, generation)
    assert await stream.ensure() == identity
    assert await published(stream, message(2), message(3)) == [2, 3]
    assert seqs(await everything(stream)) == [1, 2, 3]


async def test_a_wiped_store_means_another_identity(
    servers: Servers, version: str, names: Names, connect: Connect
) -> None:
    server = await servers.start(binary=binaries()[version])
    connection = await connect(server)
    stream = EventStream(connection, names)
    identity = await stream.ensure()
    await published(stream, message(1))
    generation = connection.generation
    await server.restart(wipe=True)
    await _again(connection, generation)
    assert await stream.identity() is None
    with pytest.raises(StreamMissing):
        await published(stream, message(2))
    with pytest.raises(StreamError):
        await everything(stream)
    assert await stream.ensure() != identity
    assert await published(stream, message(1), message(2)) == [1, 2]


async def test_a_loss_fails_what_was_not_acknowledged(
    servers: Servers, version: str, names: Names, connect: Connect
) -> None:
    server = await servers.start(binary=binaries()[version])
    stream = EventStream(await connect(server), names)
    await stream.ensure()
    server.pause()
    waiting = await stream.publish("alpha", message(1))
    server.kill()
    with pytest.raises(Disconnected):
        await asyncio.wait_for(waiting, LIMIT_SECONDS)
    with pytest.raises(Disconnected):
        await stream.ensure()
    with pytest.raises(Disconnected):
        await everything(stream)


# -- not permitted ----------------------------------------------------------------------------------------------------


async def test_who_may_not_publish_is_told_at_once(
    servers: Servers, version: str, names: Names, connect: Connect
) -> None:
    server = await servers.start(
        binary=binaries()[version],
        access=passwords({"all": Permissions(), "reader": Permissions(publish=["$JS.API.STREAM.INFO.>"])}),
    )
    await EventStream(await connect(server, nats_url=_as("all", server)), names).ensure()
    reader = EventStream(await connect(server, nats_url=_as("reader", server)), names)
    assert await reader.identity() is not None
    with pytest.raises(StreamError, match="does not permit publish"):
        await published(reader, message(1))


def _as(user: str, server: NatsServer) -> str:
    return f"nats://{user}:secret-of-tests@127.0.0.1:{server.port}"


async def _again(connection: Connection, generation: int) -> None:
    with connection.listen() as bell:
        async with asyncio.timeout(LIMIT_SECONDS):
            while connection.generation == generation:
                await bell.wait()
