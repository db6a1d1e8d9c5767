"""Every database that a release left behind opens in this version, and its running, parked and failed turns finish. The way back: the
previous version refuses what this one has upgraded, and goes on with the copy that was made before."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import apsw
import pytest
import pytest_asyncio

from perdure import __version__
from perdure.store.sqlite.migrations import known
from tests.crash.client import Watcher
from tests.crash.server import CommandLine, ForkServer, Server, clean_environment
from tests.releases import previous
from tests.releases.scene import HERE, PROJECT

HEAD_BYTES = 100
"""Of a database file: SQLite counts there how often it was opened for writing."""

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


async def completed(server: Server, conversation: str) -> dict[str, Any]:
    """The transcript once the conversation's last turn has completed. A resumed turn's earlier failure is still told to who comes
    before it is claimed: only the end counts."""
    watcher = Watcher(server.api, conversation)
    turn = (await server.api.request("GET", f"/api/conversations/{conversation}")).body["turns"][-1]["id"]
    try:
        await watcher.until(lambda view: (view.turn(turn).ending or {}).get("event") == "end")
    finally:
        await watcher.stop()
    body: dict[str, Any] = (await server.api.request("GET", f"/api/conversations/{conversation}")).body
    assert body["status"] == "completed"
    return body


def test_this_version_has_left_a_database_behind() -> None:
    assert f"{__version__}.db" in [path.name for path in RELEASES]


@pytest.mark.asyncio(loop_scope="session")
async def test_the_running_turn_goes_on_and_completes(server: Server) -> None:
    body = await completed(server, await conversation_of(server, "demo"))
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
    body = await completed(server, conversation)
    assert body["messages"][-1]["content"] == "On the left a left thing, on the right a right thing."


@pytest.mark.asyncio(loop_scope="session")
async def test_the_failed_turn_is_resumed_and_completes(server: Server) -> None:
    conversation = await conversation_of(server, "flaky")
    reply = await server.api.request("POST", "/api/chat", {"conversation": conversation, "resume": True})
    assert reply.status == 202
    body = await completed(server, conversation)
    assert body["messages"][-1]["content"] == "mended"


@pytest.mark.asyncio(loop_scope="session")
async def test_a_project_that_cannot_be_loaded_keeps_the_file_from_being_upgraded(
    tmp_path: Path, forks: ForkServer
) -> None:
    project = tmp_path / "broken.toml"
    project.write_text('[agents.demo]\ngraph = "./gone.py:graph"\n')
    server = Server(tmp_path, forks, {"PERDURE_PROJECT": str(project)})
    shutil.copy(previous.DATABASE, server.database)
    assert not await server.start(), "it must not serve"
    assert "gone.py" in server.said()
    assert schema_of(server.database) == schema_of(previous.DATABASE)
    assert list(tmp_path.glob("*.bak")) == []
    await server.close()


# -- the way back -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def before(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of the previous version."""
    return previous.unpacked(tmp_path_factory.mktemp("previous"))


async def perdure(environment: Mapping[str, str], *words: str) -> tuple[int, str]:
    """A command's exit code and what it said, both streams in one."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "perdure", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**clean_environment(), **environment},
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


def schema_of(database: Path) -> int:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    (number,) = next(iter(connection.execute("PRAGMA user_version")))
    connection.close()
    return int(number)


def test_the_previous_version_is_an_older_one() -> None:
    assert __version__ != previous.VERSION
    assert schema_of(previous.DATABASE) < schema_of(HERE / f"{__version__}.db") == len(known())


@pytest.mark.asyncio(loop_scope="session")
async def test_the_previous_version_refuses_a_file_of_this_one_and_leaves_it_as_it_is(
    before: Mapping[str, str], tmp_path: Path
) -> None:
    database = tmp_path / "perdure.db"
    shutil.copy(HERE / f"{__version__}.db", database)
    connection = apsw.Connection(str(database))
    connection.execute("PRAGMA journal_mode = WAL")  # as a server leaves it
    connection.close()
    content = database.read_bytes()[HEAD_BYTES:]

    code, said = await perdure({**before, **PROJECT}, "serve", "--database", str(database), "--port", "0")

    assert code == os.EX_CONFIG
    assert f"newer Perdure (schema {schema_of(database)}, this one knows {schema_of(previous.DATABASE)})" in said
    assert "restore the copy that the newer one made" in said
    assert database.read_bytes()[HEAD_BYTES:] == content
    assert schema_of(database) == len(known())


@pytest.mark.proof
@pytest.mark.asyncio(loop_scope="session")
async def test_the_previous_version_goes_on_with_the_copy_that_was_made_before_the_upgrade(
    before: Mapping[str, str], tmp_path: Path, forks: ForkServer
) -> None:
    """With two starts of the real previous program: what it makes of the copy, nothing else can say."""
    upgraded = Server(tmp_path, forks, PROJECT)
    shutil.copy(previous.DATABASE, upgraded.database)
    try:
        assert await upgraded.start(), upgraded.said()
        await upgraded.stop()
    finally:
        await upgraded.close()
    schema = schema_of(previous.DATABASE)
    copy = tmp_path / f"perdure.db.schema-{schema}.bak"
    assert (schema_of(upgraded.database), schema_of(copy)) == (len(known()), schema)
    assert f"the database was upgraded; a copy of it as it was: {copy}" in upgraded.said()
    code, said = await perdure({}, "restore", "--undo-upgrade", "--database", str(upgraded.database))
    assert code == os.EX_CONFIG, "turns have gone on in it: going back is a person's decision"
    assert f"perdure restore {copy}" in said

    code, said = await perdure(before, "restore", str(copy), "--database", str(upgraded.database))

    assert code == 0, said
    launcher = CommandLine()
    server = Server(tmp_path, launcher, {**PROJECT, **before})
    try:
        assert await server.start(), server.said()
        await completed(server, await conversation_of(server, "demo"))
    finally:
        await server.close()
        await launcher.close()
