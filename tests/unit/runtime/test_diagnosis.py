"""The doctor: each thing that can be wrong is found, named, and comes with what mends it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
import structlog

from perdure.api.auth import hash_of, new_secret
from perdure.clock import SystemClock
from perdure.errors import DatabaseUnusable
from perdure.runtime.diagnosis import diagnose
from perdure.runtime.files import backup
from perdure.runtime.finding import Finding
from perdure.settings import load
from perdure.store.sqlite.lock import DatabaseLock, Holder
from perdure.store.sqlite.replica import open_replica
from perdure.store.sqlite.store import open_store
from perdure.transport.local import LocalTransport
from perdure.turns import Limits, Role
from tests.releases import previous


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


async def wrong(folder: Path, **flags: Any) -> list[Finding]:
    """What is found wrong with these settings in a folder."""
    settings = load({"database": "perdure.db", "port": "0", **flags}, {}, folder)
    return [finding for finding in await diagnose(settings) if not finding.well]


async def make_database(path: Path) -> None:
    store = await open_store(path, clock=SystemClock(), limits=Limits(), notify=LocalTransport())
    await store.close()


async def test_an_empty_folder_and_a_fresh_database_are_well(tmp_path: Path) -> None:
    assert await wrong(tmp_path) == []
    await make_database(tmp_path / "perdure.db")
    assert await wrong(tmp_path) == []


async def test_what_an_upgrade_will_do_is_told_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(previous.DATABASE, tmp_path / "perdure.db")
    content = (tmp_path / "perdure.db").read_bytes()
    settings = load({"database": "perdure.db", "port": "0"}, {}, tmp_path)
    findings = {finding.subject: finding for finding in await diagnose(settings)}
    assert findings["database"].well
    assert "a start upgrades it" in findings["database"].message

    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2 * len(content) - 1))
    (database,) = [finding for finding in await wrong(tmp_path) if finding.subject == "database"]
    assert "too little" in database.message
    assert "before the upgrade" in database.mend
    assert (tmp_path / "perdure.db").read_bytes() == content


async def test_the_file_of_a_gateway_is_looked_at_as_one(tmp_path: Path) -> None:
    path = tmp_path / "perdure.db"
    await (await open_replica(path, notify=LocalTransport(), clock=SystemClock())).close()
    assert await wrong(tmp_path) == []
    with pytest.raises(DatabaseUnusable, match="file of a gateway"):
        await backup(path, tmp_path / "copy.db")


@pytest.mark.parametrize(
    ("flags", "subject", "said"),
    [
        ({"model": "openai:gpt-x"}, "agent agent", "OPENAI_API_KEY"),
        ({"model": "nobody:model"}, "agent agent", "nobody"),
        ({"model": "openai:x", "model_base_url": "http://127.0.0.1:1/v1"}, "agent agent", "takes no connection"),
        ({"mcp_config": "dead.json"}, "agent agent", "no-such-command"),
        ({"mcp_config": "broken.json"}, "agent agent", "not valid JSON"),
        ({"tools": ["./absent.py:tool"]}, "agent agent", "absent.py"),
        ({"database": "not-ours.db"}, "database", "not a database"),
        ({"database": "file/perdure.db"}, "folder", "not a folder"),
        ({"database": "."}, "database", "is a folder"),
        ({"database": "/dev/null"}, "database", "a device"),
    ],
)
async def test_what_is_wrong_is_named_with_what_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: dict[str, Any], subject: str, said: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "dead.json").write_text('{"mcpServers": {"dead": {"command": "no-such-command"}}}')
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "not-ours.db").write_bytes(b"no database " * 100)
    (tmp_path / "file").write_text("")
    found = await wrong(tmp_path, **flags)
    assert [finding.subject for finding in found] == [subject]
    assert said in found[0].message and found[0].mend


async def test_damage_in_the_middle_of_a_database_is_found(tmp_path: Path) -> None:
    path = tmp_path / "perdure.db"
    await make_database(path)
    content = bytearray(path.read_bytes())
    content[-8_192:] = b"\xff" * 8_192
    path.write_bytes(content)
    found = await wrong(tmp_path)
    assert found[0].subject == "database" and "damaged" in found[0].message and "restore" in found[0].mend


def other_program(path: Path, statement: str) -> subprocess.Popen[str]:
    """A process that holds the database; it lets go when its standard input ends."""
    script = "import apsw, sys; c = apsw.Connection(sys.argv[1]); c.execute(sys.argv[2]).fetchall(); print(1, flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path), statement], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    return process


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="this system does not tell who holds a lock")
@pytest.mark.parametrize(
    "statement",
    ["BEGIN IMMEDIATE", "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; UPDATE boots SET version = version"],
)
async def test_a_program_that_holds_the_database_is_named_and_no_restore_is_advised(
    tmp_path: Path, statement: str
) -> None:
    path = tmp_path / "perdure.db"
    await make_database(path)
    with other_program(path, statement) as process:
        (found,) = await wrong(tmp_path)
        assert found.subject == "database" and f"process {process.pid}" in found.message
        assert "close" in found.mend and "restore" not in found.mend
    assert await wrong(tmp_path) == []


@pytest.mark.parametrize(
    ("kind", "advised"),
    [
        (apsw.FullError, "free some space"),
        (apsw.BusyError, "close the program"),
        (apsw.CorruptError, "perdure restore BACKUP"),
        (apsw.ReadOnlyError, "writable"),
        (apsw.CantOpenError, "writable"),
        (apsw.IOError, "disk"),
    ],
)
async def test_the_advice_fits_what_the_database_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[apsw.Error], advised: str
) -> None:
    await make_database(tmp_path / "perdure.db")

    def refuse(*_: object) -> None:
        raise kind("said so")

    monkeypatch.setattr("perdure.runtime.diagnosis.scalar", refuse)
    (found,) = await wrong(tmp_path)
    assert found.subject == "database" and advised in found.mend
    assert ("restore" in found.mend) == (kind is apsw.CorruptError)


async def test_a_full_disk_is_told_to_be_freed_rather_than_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.runtime.diagnosis.FULL_BYTES", 10**30)
    (found,) = await wrong(tmp_path)
    assert "full" in found.message and "free some space" in found.mend and "prune" not in found.mend


async def test_a_lock_whose_holder_does_not_answer_is_named_with_its_pid(tmp_path: Path) -> None:
    lock = DatabaseLock(tmp_path / "perdure.db", Holder(os.getpid(), "here", "boot", "1"))
    try:
        assert f"kill {os.getpid()}" in (await wrong(tmp_path))[0].mend
        lock.announce("http://127.0.0.1:1", None)
        assert "does not answer" in (await wrong(tmp_path))[0].message
    finally:
        lock.release()


async def test_a_taken_port_is_named_with_the_flag(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        found = await wrong(tmp_path, port=str(port))
    assert [finding.subject for finding in found] == ["port"]
    assert str(port) in found[0].message and "--port" in found[0].mend


async def test_a_token_that_others_can_read_is_named_with_chmod(tmp_path: Path) -> None:
    (tmp_path / "perdure.token").write_text("secret")
    (tmp_path / "perdure.token").chmod(0o644)
    assert (await wrong(tmp_path))[0].mend == f"chmod 600 {tmp_path / 'perdure.token'}"


async def test_a_nearly_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.runtime.diagnosis.LOW_BYTES", 10**30)
    assert [finding.subject for finding in await wrong(tmp_path)] == ["disk"]


# -- people -----------------------------------------------------------------------------------------------------------


async def make_tokens(path: Path) -> None:
    """`ada` and `ops` are valid, `old` was revoked."""
    store = await open_store(path, clock=SystemClock(), limits=Limits(), notify=LocalTransport())
    try:
        for name, role in (("ada", Role.USER), ("ops", Role.OPERATOR), ("old", Role.USER)):
            await store.create_token(name, role, hash_of(new_secret()), by="admin")
        await store.revoke_token("old", by="admin")
    finally:
        await store.close()


async def test_tokens_are_listed_without_anything_secret(tmp_path: Path) -> None:
    await make_tokens(tmp_path / "perdure.db")
    found = {
        finding.subject: finding
        for finding in await diagnose(load({"database": "perdure.db", "port": "0"}, {}, tmp_path))
    }
    assert found["tokens"].well
    assert found["tokens"].message == "beside the server's own: ada (user), ops (operator); 1 revoked"


@pytest.mark.parametrize(
    ("deciders", "said", "mend"),
    [
        (["ada", "ops", "admin"], None, ""),
        (["bob"], "no such token", "perdure tokens create bob"),
        (["old"], "revoked", "take the name out"),
    ],
)
async def test_a_decider_who_is_not_there_is_named(
    tmp_path: Path, deciders: list[str], said: str | None, mend: str
) -> None:
    await make_tokens(tmp_path / "perdure.db")
    found = await wrong(tmp_path, needs_approval=["tick"], approval_deciders=deciders)
    assert [(said in finding.message, mend in finding.mend) for finding in found if said] == (
        [(True, True)] if said else []
    )
    assert len(found) == (1 if said else 0)


STOCK = """
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

@tool
def charge(amount: int) -> str:
    "Charges."
    return "charged"

graph = StateGraph(MessagesState).add_node("tools", ToolNode([charge])).add_edge(START, "tools")
"""


async def test_tools_outside_the_guard_are_named_with_what_covers_them_and_are_no_fault(tmp_path: Path) -> None:
    (tmp_path / "stock.py").write_text(STOCK)
    (tmp_path / "perdure.toml").write_text('[agents.own]\ngraph = "./stock.py:graph"\n')
    findings = await diagnose(load({"database": "perdure.db", "port": "0"}, {}, tmp_path))
    assert [finding for finding in findings if not finding.well] == []
    usable, told = [finding for finding in findings if finding.subject == "agent own"]
    assert "usable" in usable.message
    assert "guard" in told.message and "charge" in told.message and "perdure.ToolNode" in told.mend


async def test_a_gated_name_that_its_reachable_server_does_not_have_is_named(tmp_path: Path) -> None:
    server = Path(__file__).parents[2] / "servers" / "mcp_stdio_server.py"
    entry = {"command": sys.executable, "args": [str(server)]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"files": entry}}))
    found = await wrong(tmp_path, mcp_config="mcp.json", needs_approval=["files__no_such_tool", "files__*"])
    assert [finding.subject for finding in found] == ["agent agent"]
    assert "files__no_such_tool" in found[0].message
