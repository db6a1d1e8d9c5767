"""A bridge on a real NATS server: asked over it, read from its stream, through its deaths."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.bridge import herald, namesake
from perdure.bridge import publisher as publishing
from perdure.bridge.bridge import Bridge
from perdure.clock import SystemClock
from perdure.errors import ConfigurationError, NotReady, TurnNotParked
from perdure.events import Event, EventKind
from perdure.transport.nats.caller import Caller
from perdure.transport.nats.connection import Connection, Disconnected, Message
from perdure.transport.nats.stream import EventStream, StreamError
from perdure.transport.nats.wire import (
    EventMessage,
    News,
    decode_event,
    decode_news,
    decode_token,
    encode,
    event_from_json,
)
from perdure.turns import Accepted, TurnStatus
from tests.servers.nats_server import NatsServer, Servers, servers_in, unhurried
from tests.servers.process import LIMIT_SECONDS
from tests.unit.bridge.house import AGENT, NAMES, AgentHouse, applied, eventually, make_agent_house
from tests.unit.engine.graphs import World, agent
from tests.unit.engine.house import folded, hosted


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    yield from servers_in(tmp_path)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    unhurried(monkeypatch)


@asynccontextmanager
async def connected(server: NatsServer, role: str = "gateway") -> AsyncIterator[Connection]:
    """Until the server is there; a moment only where the test has killed it."""
    connection = Connection(server.settings(), name=role, inbox=NAMES.inbox(role))
    await connection.start(wait_seconds=0.05 if server.process is None else LIMIT_SECONDS)
    try:
        yield connection
    finally:
        await connection.close()


class Agent:
    """An agent's process on NATS."""

    def __init__(self, house: AgentHouse, bridge: Bridge) -> None:
        self.house = house
        self.bridge = bridge


@asynccontextmanager
async def agent_on(server: NatsServer, path: Path, world: World) -> AsyncIterator[Agent]:
    house = await make_agent_house(path, hosted(AGENT, agent(world)))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(house.store.close)
        connection = await stack.enter_async_context(connected(server, "agent"))
        clock = SystemClock()
        bridge = Bridge(
            connection, NAMES, AGENT, house.agents, store=house.store, transport=house.bridged, clock=clock, version="1"
        )
        stack.push_async_callback(bridge.stop)
        await bridge.start()
        await house.worker.start()
        stack.push_async_callback(house.worker.drain, 0.0)
        yield Agent(house, bridge)


async def stored(connection: Connection) -> list[EventMessage]:
    stream = EventStream(connection, NAMES)
    return [each.message for batch in [batch async for batch in stream.read(0)] for each in batch]


async def complete(connection: Connection, house: AgentHouse, *accepted: Accepted) -> None:
    """Waits until a consumer that reads the stream from its beginning holds exactly the journal."""

    seen: list[tuple[list[Event], list[Event]]] = []

    async def is_so() -> bool:
        journals = [await house.journal(each) for each in accepted]
        try:
            held = applied(await stored(connection))
        except (Disconnected, StreamError):
            return False
        seen[:] = [(held.get(each.conversation, []), own) for each, own in zip(accepted, journals, strict=True)]
        return all(copy == own for copy, own in seen)

    await eventually(is_so)
    for copy, own in seen:
        assert folded(list(copy)) == folded(list(own))


@pytest.fixture
async def caller_of() -> AsyncIterator[Any]:
    async with AsyncExitStack() as stack:

        async def make(server: NatsServer) -> tuple[Connection, Caller]:
            connection = await stack.enter_async_context(connected(server))
            caller = Caller(connection, NAMES)
            return connection, caller

        yield make


async def test_a_turn_is_asked_for_and_its_stream_is_its_journal(
    servers: Servers, tmp_path: Path, caller_of: Any
) -> None:
    server = await servers.start()
    connection, caller = await caller_of(server)
    async with agent_on(server, tmp_path / "a.db", World()) as own:
        told = await caller.call(AGENT, "responses/create", {"message": "call a b"}, within_seconds=60)
        assert told["status"] == "completed"
        accepted = Accepted(told["conversation"], told["turn_id"], TurnStatus.COMPLETED)
        await complete(connection, own.house, accepted)
        with pytest.raises(TurnNotParked):
            await caller.call(
                AGENT, "responses/resumeDetached", {"turn_id": accepted.turn, "resume": 1}, within_seconds=60
            )


async def test_a_request_that_arrives_twice_starts_one_turn(servers: Servers, tmp_path: Path, caller_of: Any) -> None:
    """By the request's id while the process lives, by its key for ever."""
    server = await servers.start()
    _, caller = await caller_of(server)
    params = {"message": "hello", "idempotency_key": "k"}
    async with agent_on(server, tmp_path / "a.db", World()) as own:
        request_id = secrets.token_hex(16)
        ask = {"within_seconds": 60}
        told = await asyncio.gather(
            *(caller.call(AGENT, "responses/createDetached", params, request_id=request_id, **ask) for _ in range(3)),
            *(caller.call(AGENT, "responses/createDetached", params, **ask) for _ in range(3)),
            *(
                caller.call(AGENT, "responses/createDetached", {"message": "x"}, request_id="f" * 32, **ask)
                for _ in "ab"
            ),
        )
        assert len({each["turn_id"] for each in told[:6]}) == 1
        assert len({each["turn_id"] for each in told}) == 2
        assert len((await own.house.store.turns(None, limit=10)).items) == 2
    async with agent_on(server, tmp_path / "a.db", World()):
        again = await caller.call(AGENT, "responses/createDetached", params, within_seconds=60)
        assert again["turn_id"] == told[0]["turn_id"]


@pytest.mark.parametrize("wipe", [False, True])
async def test_nats_dies_in_the_middle_and_the_stream_is_whole_again(
    wipe: bool, servers: Servers, tmp_path: Path, caller_of: Any
) -> None:
    server = await servers.start()
    connection, _ = await caller_of(server)
    world = World()
    world.hold("a")
    async with agent_on(server, tmp_path / "a.db", world) as own:
        before = await own.house.send("hello")
        accepted = await own.house.send("call a b")
        await world.entered["a"].wait()
        await complete(connection, own.house, before, accepted)
        server.kill()
        world.let("a")
        await own.house.until(accepted, TurnStatus.COMPLETED)
        if wipe:
            server.wipe()
        await server.start()
        await complete(connection, own.house, before, accepted)


async def test_nats_dies_again_and_again_under_load(servers: Servers, tmp_path: Path, caller_of: Any) -> None:
    server = await servers.start()
    connection, _ = await caller_of(server)
    async with agent_on(server, tmp_path / "a.db", World()) as own:
        accepted: list[Accepted] = []
        for wipe in (False, True, False):
            accepted += [await own.house.send(f"call a b {number}") for number in range(4)]
            await server.restart(wipe=wipe)
        for each in accepted:
            await own.house.until(each)
        await complete(connection, own.house, *accepted)


async def test_a_stream_that_somebody_deletes_is_made_again(
    servers: Servers, tmp_path: Path, caller_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "CHECK_SECONDS", 0.2)
    server = await servers.start()
    connection, _ = await caller_of(server)
    async with agent_on(server, tmp_path / "a.db", World()) as own:
        accepted = await own.house.send("hello")
        await own.house.until(accepted)
        await complete(connection, own.house, accepted)
        await (await connection.ask(f"$JS.API.STREAM.DELETE.{NAMES.stream}"))
        await complete(connection, own.house, accepted)


async def test_an_agent_works_without_nats_and_tells_all_of_it_later(
    servers: Servers, tmp_path: Path, caller_of: Any
) -> None:
    server = await servers.start()
    server.kill()
    async with agent_on(server, tmp_path / "a.db", World()) as own:
        assert own.bridge.problems()
        accepted = await own.house.send("hello")
        await own.house.until(accepted, TurnStatus.COMPLETED)
        await server.start()
        connection, caller = await caller_of(server)
        await complete(connection, own.house, accepted)
        status = await caller.call(AGENT, "responses/turnStatus", {"turn_id": accepted.turn}, within_seconds=60)
        assert status["state"] == "done"
        await eventually(lambda: not own.bridge.problems())


async def test_what_is_left_at_the_end_of_a_process_is_told_by_the_next(
    servers: Servers, tmp_path: Path, caller_of: Any
) -> None:
    server = await servers.start()
    connection, _ = await caller_of(server)
    world = World()
    world.hold("a")
    async with agent_on(server, tmp_path / "a.db", world) as own:
        accepted = await own.house.send("call a")
        await world.entered["a"].wait()
    world.let("a")
    async with agent_on(server, tmp_path / "a.db", world) as own:
        await own.house.until(accepted, TurnStatus.COMPLETED)
        await complete(connection, own.house, accepted)
        seqs = [message.event.seq for message in await stored(connection)]
        assert len(seqs) == len(set(seqs))


async def test_tokens_and_events_come_live_in_the_order_of_their_seqs(
    servers: Servers, tmp_path: Path, caller_of: Any
) -> None:
    server = await servers.start()
    connection, _ = await caller_of(server)
    heard: list[Event] = []

    def hear(message: Message) -> None:
        tokens = message.subject.startswith("perdure.tokens.")
        heard.append(decode_token(message.data) if tokens else decode_event(message.data).event)

    await connection.subscribe(NAMES.live, hear)
    async with agent_on(server, tmp_path / "a.db", World()) as own:
        await eventually(lambda: own.bridge.publisher._open)
        accepted = await own.house.send("hello")
        await own.house.until(accepted)
        await eventually(lambda: bool(heard) and heard[-1].kind is EventKind.END)
        seqs = [event.seq for event in heard]
        assert seqs == sorted(seqs)
        said = "".join(event.payload["text"] for event in heard if event.kind is EventKind.TOKEN)
        assert said == "answer hello"
        assert [event for event in heard if event.kind is not EventKind.TOKEN] == await own.house.journal(accepted)


async def test_an_event_that_is_too_large_goes_by_reference(servers: Servers, tmp_path: Path, caller_of: Any) -> None:
    server = await servers.start(max_payload=8_192)
    connection, caller = await caller_of(server)
    async with agent_on(server, tmp_path / "a.db", World()) as own:
        accepted = await own.house.send("x" * 20_000)
        await own.house.until(accepted)

        async def ended() -> bool:
            return any(message.event.terminal for message in await stored(connection))

        await eventually(ended)
        messages = await stored(connection)
        assert any(message.reference for message in messages)
        told = await caller.call(AGENT, "events/read", {"conversation": accepted.conversation}, within_seconds=60)
        assert [event_from_json(event) for event in told["events"]] == await own.house.journal(accepted)


async def test_news_ring_for_changes_and_name_what_was_deleted(
    servers: Servers, tmp_path: Path, caller_of: Any
) -> None:
    server = await servers.start()
    connection, caller = await caller_of(server)
    heard: list[News] = []
    await connection.subscribe(NAMES.all_news, lambda message: heard.append(decode_news(message.data)))
    async with agent_on(server, tmp_path / "a.db", World()) as own:
        told = await caller.call(AGENT, "responses/create", {"message": "hello"}, within_seconds=60)
        last = await own.house.store.last_change(None)
        await eventually(lambda: bool(heard) and heard[-1].position == last)
        await caller.call(AGENT, "threads/delete", {"conversation": told["conversation"]}, within_seconds=60)
        await eventually(lambda: any(told["conversation"] in news.deleted for news in heard))
        assert {news.boot for news in heard} == {own.house.store.owner_name.rpartition(":")[2]}
        await own.bridge.leave()
        await eventually(lambda: heard[-1].state == "leaving")
        with pytest.raises(NotReady) as refused:
            await caller.call(AGENT, "responses/createDetached", {"message": "x"}, within_seconds=60)
        assert type(refused.value) is NotReady, "the agent itself says so"
        assert (await caller.call(AGENT, "threads/list", {}, within_seconds=60))["items"] == []
    positions = [news.position for news in heard]
    assert positions == sorted(positions)


async def test_an_agent_is_discovered(servers: Servers, tmp_path: Path, caller_of: Any) -> None:
    server = await servers.start()
    _, caller = await caller_of(server)
    async with agent_on(server, tmp_path / "a.db", World()) as own:
        found = await anext(caller.discover(within_seconds=60))
        assert found["agent"]["name"] == AGENT
        assert found["journal"] == own.house.store.journal


async def test_a_silent_agent_is_heard_by_its_heartbeat(
    servers: Servers, tmp_path: Path, caller_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(herald, "HEARTBEAT_SECONDS", 0.1)
    server = await servers.start()
    connection, _ = await caller_of(server)
    heard: list[News] = []
    async with agent_on(server, tmp_path / "a.db", World()):
        await connection.subscribe(NAMES.all_news, lambda message: heard.append(decode_news(message.data)))
        await eventually(lambda: len(heard) >= 2)


async def test_nonsense_on_the_subject_harms_nobody(servers: Servers, tmp_path: Path, caller_of: Any) -> None:
    server = await servers.start()
    connection, caller = await caller_of(server)
    async with agent_on(server, tmp_path / "a.db", World()):
        for data in [b"", b"\xff", b"[]", b"{}", encode({"jsonrpc": "2.0", "id": "x", "method": "no"})]:
            answer = await asyncio.wait_for(await connection.ask(NAMES.requests(AGENT), data), 60)
            assert b'"error"' in answer.data
        told = await caller.call(AGENT, "responses/createDetached", {"message": "hello"}, within_seconds=60)
        assert told["status"] == "queued"


# -- two of one name ---------------------------------------------------------------------------------------------------


async def test_of_two_processes_that_serve_one_agent_the_later_one_gives_up(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await servers.start()
    async with agent_on(server, tmp_path / "a.db", World()) as first:
        with monkeypatch.context() as patient, pytest.raises(ConfigurationError, match="began earlier"):
            patient.setattr(namesake, "ANSWER_SECONDS", LIMIT_SECONDS)
            async with agent_on(server, tmp_path / "b.db", World()):
                pytest.fail("it took requests")
        assert not first.bridge.namesake.displaced.is_set()
    async with agent_on(server, tmp_path / "b.db", World()) as alone:
        assert not alone.bridge.namesake.displaced.is_set()


async def test_one_that_is_there_and_answers_late_is_waited_for_and_nobody_is_not(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namesake, "ANSWER_SECONDS", 10 * LIMIT_SECONDS)
    server = await servers.start()
    async with asyncio.timeout(LIMIT_SECONDS), agent_on(server, tmp_path / "a.db", World()) as first:
        tell, own = first.bridge.namesake._tell, first.bridge._herald.tell
        monkeypatch.setattr(first.bridge._herald, "tell", lambda: asyncio.sleep(0))  # else its heartbeat is heard

        async def late() -> None:
            await asyncio.sleep(3 * namesake.TOGETHER_SECONDS)
            await tell()

        monkeypatch.setattr(first.bridge.namesake, "_tell", late)
        with pytest.raises(ConfigurationError, match="began earlier"):
            async with agent_on(server, tmp_path / "b.db", World()):
                pytest.fail("it took requests")
        monkeypatch.setattr(first.bridge._herald, "tell", own)


async def test_two_that_meet_when_nats_comes_back_are_told_apart_by_their_age(servers: Servers, tmp_path: Path) -> None:
    server = await servers.start()
    server.kill()
    async with (
        agent_on(server, tmp_path / "a.db", World()) as first,
        agent_on(server, tmp_path / "b.db", World()) as second,
    ):
        await server.start()
        async with asyncio.timeout(60):
            await second.bridge.namesake.displaced.wait()
        assert "began earlier" in second.bridge.namesake.refusal().message
        assert not first.bridge.namesake.displaced.is_set()
