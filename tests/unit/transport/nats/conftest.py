from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from perdure.transport.nats.connection import Connection
from perdure.transport.nats.names import Names
from tests.servers.nats_server import NatsServer, Servers, servers_in, unhurried
from tests.servers.process import LIMIT_SECONDS


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    unhurried(monkeypatch)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    yield from servers_in(tmp_path_factory.mktemp("nats"))


@pytest.fixture
async def nats(servers: Servers) -> NatsServer:
    """Shared: harm it not."""
    return await servers.shared()


@pytest.fixture
def names() -> Names:
    return Names(f"p{secrets.token_hex(6)}", "default")


Connect = Callable[..., Awaitable[Connection]]


@pytest.fixture
async def connect(names: Names) -> AsyncIterator[Connect]:
    """A started connection of a gateway, or of an agent (`agent=`); more settings by keyword."""
    async with AsyncExitStack() as stack:

        async def make(server: NatsServer, *, agent: str | None = None, **settings: Any) -> Connection:
            inbox = names.inbox("gateway") if agent is None else names.inbox("agent", agent)
            connection = Connection(server.settings(**settings), name="test", inbox=inbox)
            stack.push_async_callback(connection.close)
            await connection.start(wait_seconds=LIMIT_SECONDS)
            return connection

        yield make
