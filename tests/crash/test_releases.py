"""Every database that a release left behind opens in this version, and its running, parked and failed turns finish."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from perdure import __version__
from tests.crash.client import Watcher
from tests.crash.server import ForkServer, Server
from tests.releases.scene import HERE, PROJECT

RELEASES = sorted(HERE.glob("*.db"))


@pytest_asyncio.fixture(loop_scope="session", params=RELEASES, ids=lambda path: path.stem)
async def server(request: pytest.FixtureRequest, tmp_path: Path, forks: ForkServer) -> AsyncIterator[Server]:
    server = Server(tmp_path, forks, PROJECT)
    shutil.copy(request.param, server.database)
    assert await server.start(), server.said()
    yield server
    await server.close()


async def conversation_of(server: Server, agent: str) -> str:
    reply = await server.api.request("GET", f"/api/conversations?agent={agent}")
    (item,) = reply.body["items"]
    return str(item["id"])


async def finished(server: Server, conversation: str) -> dict[str, Any]:
    """The transcript once the conversation's last turn has ended."""
    watcher = Watcher(server.api, conversation)
    turn = (await server.api.request("GET", f"/api/conversations/{conversation}")).body["turns"][-1]["id"]
    try:
        await watcher.turn_ended(turn)
    finally:
        await watcher.stop()
    body: dict[str, Any] = (await server.api.request("GET", f"/api/conversations/{conversation}")).body
    return body


def test_this_version_has_left_a_database_behind() -> None:
    assert f"{__version__}.db" in [path.name for path in RELEASES]


@pytest.mark.asyncio(loop_scope="session")
async def test_the_running_turn_goes_on_and_completes(server: Server) -> None:
    body = await finished(server, await conversation_of(server, "demo"))
    assert body["status"] == "completed"
    assert body["messages"][-1]["content"] == "All four steps are done: one, two, three, four."
    executed = [line for line in server.effects.read_text().splitlines() if line]
    assert len(executed) == 2, "the two finished steps are used from their record"


@pytest.mark.asyncio(loop_scope="session")
async def test_the_parked_turn_is_answered_and_completes(server: Server) -> None:
    conversation = await conversation_of(server, "parked")
    turn = (await server.api.request("GET", f"/api/conversations/{conversation}")).body["turns"][-1]
    detail = (await server.api.request("GET", f"/api/turns/{turn['id']}")).body
    answers = {card["interrupt_id"]: f"a {card['request']['side']} thing" for card in detail["cards"]}
    reply = await server.api.request("POST", "/api/chat", {"conversation": conversation, "resume": answers})
    assert reply.status == 202
    body = await finished(server, conversation)
    assert body["messages"][-1]["content"] == "On the left a left thing, on the right a right thing."


@pytest.mark.asyncio(loop_scope="session")
async def test_the_failed_turn_is_resumed_and_completes(server: Server) -> None:
    conversation = await conversation_of(server, "flaky")
    reply = await server.api.request("POST", "/api/chat", {"conversation": conversation, "resume": True})
    assert reply.status == 202
    body = await finished(server, conversation)
    assert (body["status"], body["messages"][-1]["content"]) == ("completed", "mended")
