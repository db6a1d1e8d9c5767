"""What `perdure doctor` looks at: one finding per matter, each fault with the command that mends it. Changes nothing."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import apsw
import httpx2

from perdure.config import AgentSettings, Settings
from perdure.errors import ConfigurationError, DatabaseUnusable
from perdure.runtime import logs
from perdure.runtime.agents import examine
from perdure.runtime.finding import Finding
from perdure.runtime.locks import writer_of
from perdure.runtime.nats import examine_nats
from perdure.runtime.people import examine_people
from perdure.runtime.ports import free, taken
from perdure.store.sqlite.database import APPLICATION_ID, REPLICA_ID, open_reader, other_kind, refusals, scalar
from perdure.store.sqlite.faults import is_full
from perdure.store.sqlite.file_systems import unsafe_file_system
from perdure.store.sqlite.lock import Holder, read_lock
from perdure.store.sqlite.migrations import known

LOW_BYTES = 200_000_000
FULL_BYTES = 1_000_000
ANSWER_SECONDS = 5.0


async def diagnose(settings: Settings) -> list[Finding]:
    """Every finding, in the order a start would meet them."""
    assert settings.database is not None
    logs.set_up_command(settings, os.environ)
    holder = _holder(settings.database)
    findings = [*_folder(settings.database), *_database(settings.database, holder)]
    findings.append(await _server(settings, holder))
    findings += _token(settings, settings.database)
    if settings.nats_url is not None:
        findings.append(await examine_nats(settings))
    findings += await examine_people(settings.database, settings.agents)
    for agent in settings.agents:
        findings += await _agent(agent, settings)
    return findings


# -- the place --------------------------------------------------------------------------------------------------------


def _folder(database: Path) -> Iterator[Finding]:
    folder = next(place for place in (database.parent, *database.parent.parents) if place.exists())
    if not folder.is_dir():
        yield Finding("folder", False, f"{folder} is not a folder.", f"rm {folder}, or --database PATH")
        return
    kind = unsafe_file_system(folder)
    if kind is not None:
        yield Finding(
            "folder",
            False,
            f"{folder} lies on a {kind} file system, where databases get damaged.",
            "--database PATH on a local disk",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        owner = folder.stat().st_uid
        yield Finding(
            "folder",
            False,
            f"{folder} may not be written by uid {os.getuid()} (it belongs to uid {owner}), or is mounted read-only.",
            f"chown -R {os.getuid()} {folder}",
        )
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < FULL_BYTES:
        yield Finding("disk", False, f"The disk of {folder} is full ({free_bytes:,} bytes are free).", _FREE_SPACE)
    elif free_bytes < LOW_BYTES:
        yield Finding(
            "disk",
            False,
            f"Only {free_bytes:,} bytes are free on the disk of {folder}.",
            "perdure prune --retention-days 30, or free some space",
        )
    else:
        yield Finding("disk", True, f"{free_bytes // 1_000_000:,} MB free on the disk of {folder}")


def _database(path: Path, holder: Holder | None) -> Iterator[Finding]:
    if not path.exists():
        yield Finding("database", True, f"{path} does not exist yet; the first start makes it")
        return
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "a device or a pipe"
        yield Finding("database", False, f"{path} is {kind}: a database is a file.", f"--database {_file_in(path)}")
        return
    if not os.access(path, os.R_OK | os.W_OK):
        yield Finding(
            "database", False, f"{path} is read-only for uid {os.getuid()}.", f"chmod u+rw {path}, or chown it"
        )
        return
    program = writer_of(path)
    if program is not None and not (holder is not None and holder.held):
        yield Finding(
            "database", False, f"{path} is locked by {program}.", f"close {program}, then start again; nothing is lost"
        )
        return
    try:
        yield _content(path)
    except DatabaseUnusable as error:
        yield Finding("database", False, error.message, _mend(error))


def _file_in(path: Path) -> str:
    return str(path / "perdure.db") if path.is_dir() else "PATH, the path of a file"


def _mend(error: DatabaseUnusable) -> str:
    """By what SQLite said: a restore mends damage alone."""
    cause = error.__cause__
    if isinstance(cause, apsw.Error) and is_full(cause):
        return _FREE_SPACE
    return _MENDS.get(type(cause), "see the message; or --database PATH")


_FREE_SPACE = "free some space on that disk, then start again; nothing accepted is lost"

_MENDS: Mapping[type[BaseException | None], str] = {
    apsw.CorruptError: "keep the file, then perdure restore BACKUP",
    apsw.NotADBError: "move the file away, or --database PATH",
    apsw.BusyError: "close the program that holds it, then start again; nothing is lost",
    apsw.LockedError: "close the program that holds it, then start again; nothing is lost",
    apsw.ReadOnlyError: "make the file and its folder writable (chmod, chown, remount)",
    apsw.CantOpenError: "make the file and its folder writable (chmod, chown, remount)",
    apsw.IOError: "check the disk and its mount (dmesg); keep the file",
}


def _content(path: Path) -> Finding:
    """The whole file is checked, which a start of a large one does not do."""
    connection = open_reader(path)
    try:
        with refusals(path):
            if path.stat().st_size == 0:
                return Finding("database", True, f"{path} is empty; the next start fills it")
            mark = scalar(connection, "PRAGMA application_id")
            if mark == REPLICA_ID:
                return _copy(connection, path)
            if mark != APPLICATION_ID:
                return Finding("database", False, f"{path} {other_kind(mark)}", "--database PATH")
            schema, newest = scalar(connection, "PRAGMA user_version"), len(known())
            if schema > newest:
                return Finding(
                    "database",
                    False,
                    f"{path} was written by a newer Perdure (schema {schema}; this one knows {newest}).",
                    "pip install --upgrade perdure, or perdure restore BACKUP",
                )
            verdict = scalar(connection, "PRAGMA integrity_check(1)")
            if verdict != "ok":
                return Finding("database", False, f"{path} is damaged ({verdict}).", "perdure restore BACKUP")
            size = path.stat().st_size
            whole = f"{path} is whole (schema {schema}, {size // 1_000:,} kB)"
            return _upgradable(path, whole, size, newest) if schema < newest else Finding("database", True, whole)
    finally:
        connection.close()


def _upgradable(path: Path, whole: str, size: int, newest: int) -> Finding:
    """A start upgrades it, and refuses without room for the copy that is kept."""
    coming = f"{whole}; a start upgrades it to schema {newest} and keeps a copy of it beside it"
    free = shutil.disk_usage(path.parent).free
    if free < 2 * size:  # the upgrade itself writes, too
        mend = f"free {2 * size // 1_000_000 + 1:,} MB on that disk before the upgrade"
        return Finding("database", False, f"{coming}, for which {free // 1_000_000:,} MB are too little.", mend)
    return Finding("database", True, coming)


def _copy(connection: apsw.Connection, path: Path) -> Finding:
    """Of a gateway. Nothing in it but its named tokens is lost with it."""
    verdict = scalar(connection, "PRAGMA integrity_check(1)")
    if verdict == "ok":
        return Finding("database", True, f"{path} is whole: the file of a gateway, a copy of its agents' journals")
    mend = f"stop the gateway and move {path} away: the copy is made again (named tokens: perdure tokens create)"
    return Finding("database", False, f"{path}, the file of a gateway, is damaged ({verdict}).", mend)


# -- the server -------------------------------------------------------------------------------------------------------


def _holder(database: Path) -> Holder | None:
    try:
        return read_lock(database)
    except OSError:
        return None


async def _server(settings: Settings, holder: Holder | None) -> Finding:
    if holder is not None and holder.held:
        return await _running(holder)
    if settings.port and not free(settings.host, settings.port):
        return Finding("port", False, taken(settings.port), f"perdure serve --port {settings.port + 1}")
    died = " (the last one ended without saying so; its turns go on at the next start)" if holder is not None else ""
    return Finding("server", True, f"no server is running{died}; start it with: perdure serve")


async def _running(holder: Holder) -> Finding:
    if holder.address is None:
        return Finding(
            "server",
            False,
            f"Process {holder.pid} holds the lock but does not listen yet.",
            f"wait, or kill {holder.pid}",
        )
    try:
        async with httpx2.AsyncClient(trust_env=False, timeout=ANSWER_SECONDS) as http:
            answer = await http.get(f"{holder.address}/api/healthz")
        well = answer.status_code == 200
    except httpx2.HTTPError:
        well = False
    if well:
        return Finding("server", True, f"process {holder.pid} serves {holder.address} (version {holder.version})")
    return Finding(
        "server",
        False,
        f"Process {holder.pid} holds the lock but {holder.address} does not answer.",
        f"kill {holder.pid} and perdure serve: nothing accepted is lost",
    )


def _token(settings: Settings, database: Path) -> Iterator[Finding]:
    path = settings.token_file or database.parent / "perdure.token"
    if settings.token is not None and settings.token_file is None:
        yield Finding("token", True, "given as a value")
    elif path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
        yield Finding("token", False, f"{path} can be read by other users.", f"chmod 600 {path}")
    elif path.exists():
        yield Finding("token", True, f"in {path}")
    else:
        yield Finding("token", True, "is made at the first start")


# -- the agents -------------------------------------------------------------------------------------------------------


async def _agent(agent: AgentSettings, settings: Settings) -> list[Finding]:
    subject = f"agent {agent.name}"
    try:
        examined = await examine(agent, settings)
    except ConfigurationError as error:
        return [
            Finding(subject, False, problem, "mend what the message names, then start again")
            for problem in error.problems
        ]
    findings = [
        Finding(subject, False, problem, "see the message; the agent works again without a restart")
        for problem in examined.problems
    ]
    if not findings:
        findings.append(Finding(subject, True, f"{agent.graph or f'model {agent.model}'} is usable"))
    if examined.uncovered_tools:
        names = ", ".join(examined.uncovered_tools)
        message = f"tools outside Perdure's guard, which no gate stops and a crash may repeat: {names}"
        findings.append(Finding(subject, True, message, "use perdure.ToolNode or perdure.DurableToolsMiddleware"))
    return findings
