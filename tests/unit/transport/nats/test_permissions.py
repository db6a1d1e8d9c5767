"""The users of the shipped configuration can do their work, and nothing of somebody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from perdure.events import Event, EventKind
from perdure.testing import FakeClock
from perdure.transport.nats.answerer import Answerer, Method
from perdure.transport.nats.caller import Caller
from perdure.transport.nats.connection import Connection, NotPermitted
from perdure.transport.nats.live import EventHeard, Feed, Heard, NewsHeard, Tidings, TokenHeard
from perdure.transport.nats.names import Names
from perdure.transport.nats.server_config import (
    agent_publishes,
    agent_subscribes,
    gateway_publishes,
    gateway_subscribes,
)
from perdure.transport.nats.stream import EventStream
from perdure.transport.nats.wire import EventMessage, News
from tests.servers.nats_access import Permissions, passwords
from tests.servers.nats_server import NatsServer, Servers
from tests.servers.process import LIMIT_SECONDS

NAMES = Names("perdure", "default")
TURN = "a" * 32
AT = datetime(2026, 1, 2, tzinfo=UTC)

USERS: Mapping[str, Permissions] = {
    "gateway": Permissions(gateway_publishes(NAMES), gateway_subscribes(NAMES)),
    "alpha": Permissions(agent_publishes(NAMES, "alpha"), agent_subscribes(NAMES, "alpha")),
    "beta": Permissions(agent_publishes(NAMES, "beta"), agent_subscribes(NAMES, "beta")),
}


class Nothing(BaseModel):
    pass


async def describe(params: Nothing) -> Any:
    return {"name": "alpha"}


@pytest.fixture(scope="module")
def started() -> dict[str, NatsServer]:
    return {}


@pytest.fixture
async def connections(servers: Servers, started: dict[str, NatsServer]) -> AsyncIterator[Mapping[str, Connection]]:
    if not started:
        started["it"] = await servers.start(access=passwords(USERS))
    server = started["it"]
    made: dict[str, Connection] = {}
    for user in USERS:
        inbox = NAMES.inbox("gateway") if user == "gateway" else NAMES.inbox("agent", user)
        url = f"nats://{user}:secret-of-tests@127.0.0.1:{server.port}"
        made[user] = Connection(server.settings(nats_url=url), name=user, inbox=inbox)
        await made[user].start(wait_seconds=LIMIT_SECONDS)
    yield made
    for connection in made.values():
        await connection.close()


def event(seq: int = 1, kind: EventKind = EventKind.TRACE, **payload: Any) -> Event:
    return Event(seq, "c1", TURN, 1, kind, AT, payload)


async def test_a_gateway_and_an_agent_can_do_all_they_have_to(connections: Mapping[str, Connection]) -> None:
    gateway, alpha = connections["gateway"], connections["alpha"]
    feed = Feed(gateway, NAMES)
    await feed.start()
    answerer = Answerer(alpha, NAMES, "alpha", {"agent/describe": Method(Nothing, describe)}, clock=FakeClock())
    await answerer.start()
    assert await Caller(gateway, NAMES).call("alpha", "agent/describe", {}, within_seconds=LIMIT_SECONDS)
    assert await anext(Caller(gateway, NAMES).discover(within_seconds=LIMIT_SECONDS)) == {"name": "alpha"}

    stream = EventStream(alpha, NAMES)
    identity = await stream.ensure()
    assert await (await stream.publish("alpha", EventMessage(event(2), 0)))
    tidings = Tidings(alpha, NAMES, "alpha")
    await tidings.token(event(3, EventKind.TOKEN, message_id="m", text="x"))
    await tidings.news(News(1, "b"))
    got: list[Heard] = []
    async with asyncio.timeout(LIMIT_SECONDS):
        while len(got) < 3:
            await feed.wait()
            got += feed.take()
    assert {type(each) for each in got} == {EventHeard, TokenHeard, NewsHeard}

    reading = EventStream(gateway, NAMES)
    assert await reading.identity() == identity
    assert [each.message.event.seq for batch in [batch async for batch in reading.read(0)] for each in batch] == [2]
    await answerer.stop(within_seconds=LIMIT_SECONDS)
    assert [each.problem for each in connections.values()] == [None] * 3


@pytest.mark.parametrize(
    ("user", "subject"),
    [
        ("gateway", NAMES.turns("alpha", TURN)),
        ("gateway", NAMES.tokens("alpha", TURN)),
        ("gateway", NAMES.news("alpha")),
        ("gateway", f"$JS.API.STREAM.DELETE.{NAMES.stream}"),
        ("gateway", f"$JS.API.STREAM.PURGE.{NAMES.stream}"),
        ("gateway", f"$JS.API.STREAM.UPDATE.{NAMES.stream}"),
        ("gateway", Names("perdure", "other").requests("alpha")),
        ("beta", NAMES.turns("alpha", TURN)),
        ("beta", NAMES.tokens("alpha", TURN)),
        ("beta", NAMES.news("alpha")),
        ("beta", NAMES.requests("alpha")),
        ("beta", NAMES.discover),
        ("beta", f"$JS.API.STREAM.DELETE.{NAMES.stream}"),
        ("beta", f"$JS.API.STREAM.PURGE.{NAMES.stream}"),
    ],
)
async def test_nobody_speaks_for_somebody_else(connections: Mapping[str, Connection], user: str, subject: str) -> None:
    with pytest.raises(NotPermitted):
        await asyncio.wait_for(await connections[user].ask(subject), LIMIT_SECONDS)


@pytest.mark.parametrize(
    ("user", "subject"),
    [
        ("beta", NAMES.requests("alpha")),
        ("beta", NAMES.live),
        ("beta", f"{NAMES.prefix}.inbox.default.agent.alpha.>"),
        ("beta", f"{NAMES.prefix}.inbox.default.gateway.>"),
        ("gateway", NAMES.requests("alpha")),
        ("gateway", f"{NAMES.prefix}.inbox.default.agent.alpha.>"),
        ("gateway", ">"),
    ],
)
async def test_nobody_listens_to_what_is_for_somebody_else(
    connections: Mapping[str, Connection], user: str, subject: str
) -> None:
    connection = connections[user]
    await connection.subscribe(subject, lambda message: None)
    async with asyncio.timeout(LIMIT_SECONDS):
        while connection.problem is None:
            await asyncio.sleep(0.01)
    assert f"subscription to `{subject.lower()}`" in connection.problem
