"""What `perdure doctor` says of NATS, with a real nats-server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.config import Settings
from perdure.runtime import nats
from perdure.runtime.nats import examine_nats
from tests.servers.nats_server import Servers, servers_in


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    yield from servers_in(tmp_path)


async def test_a_server_with_streams_is_well(servers: Servers) -> None:
    server = await servers.start()
    found = await examine_nats(server.settings())
    assert found.well
    assert "the first agent makes the stream" in found.message


async def test_a_server_without_streams_is_told(servers: Servers) -> None:
    server = await servers.start(jetstream=False)
    found = await examine_nats(server.settings())
    assert not found.well
    assert "JetStream" in found.message


async def test_nobody_there_is_told_with_the_command_that_starts_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats, "ANSWER_SECONDS", 0.2)
    found = await examine_nats(Settings(nats_url="nats://user:secret@127.0.0.1:1"))
    assert not found.well
    assert "secret" not in found.message
    assert "nats-server -c" in found.mend


async def test_wrong_credentials_are_told(servers: Servers) -> None:
    server = await servers.start(access='authorization { user: "a", password: "right" }')
    found = await examine_nats(server.settings(nats_url=f"nats://a:wrong@127.0.0.1:{server.port}"))
    assert not found.well
    assert "wrong" not in found.message
