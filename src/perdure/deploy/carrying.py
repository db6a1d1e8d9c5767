"""What lies at /data of a container goes into a volume: copied, read back, and compared before anything relies on it.

The copy goes through the engine's archives, so that the engine may be on another machine. Each side is looked at as one tar: the
digest of every file, and for every database of ours SQLite's own integrity check and the rows of each table.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import apsw

from perdure.deploy.engine import Engine, EngineError
from perdure.deploy.model import DATABASE, GATEWAY_DATABASE
from perdure.store.sqlite.backup import COUNTED
from perdure.store.sqlite.database import APPLICATION_ID, Connection, scalar

_PIECE = 1 << 20
_WHOLE = "ok"
_OF_TURNS = ("turns", "attempts", "tool_calls", "cards")
"""Tables in which a started program leaves a trace of whatever it does for anybody."""

_OURS = frozenset({DATABASE.rpartition("/")[2], GATEWAY_DATABASE.rpartition("/")[2]})


class CarryFailed(EngineError):
    """The data could not be carried over. Nothing was removed."""

    code = "CARRY_FAILED"


@dataclass(frozen=True, slots=True)
class Content:
    """`files`: name → digest of a folder's files; `rows`: database → table → rows; `ids`: database → digest of its turns' ids."""

    files: Mapping[str, str]
    rows: Mapping[str, Mapping[str, int]]
    ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def turns(self) -> int:
        return self.counts("turns")

    def did_the_same(self, other: Content) -> bool:
        """Whether the same was done for anybody in both: the same turns, each as far as in the other."""
        same = all(self.counts(table) == other.counts(table) for table in _OF_TURNS)
        return same and sorted(self.ids.values()) == sorted(other.ids.values())

    @property
    def did_nothing(self) -> bool:
        return not any(self.counts(table) for table in _OF_TURNS)

    def counts(self, table: str) -> int:
        """Rows of all databases."""
        return sum(counts.get(table, 0) for counts in self.rows.values())


async def carry(
    engine: Engine, *, container: str, path: str, volume: str, image: str, owner: tuple[int, int] | None
) -> Content:
    """Copies the folder of a container that is down into a volume that is empty, verified; what was copied.

    `owner`: whose the files are afterwards; None keeps what they have. Raises CarryFailed.
    """
    with tempfile.TemporaryFile() as taken, tempfile.TemporaryFile() as given:
        await engine.take_out(container, path, taken)
        content = await asyncio.to_thread(examine, taken)
        await asyncio.to_thread(_rewrite, taken, given, owner)
        given.seek(0)
        await engine.put_in(volume, path, given, image=image)
    found = await content_of_volume(engine, volume, path, image=image)
    if found != content:
        raise CarryFailed(
            f"The copy of {container} in the volume {volume} is not what was copied "
            f"({len(found.files)} files and {found.turns} turns, expected {len(content.files)} and {content.turns})."
        )
    return content


async def content_of_container(engine: Engine, container: str, path: str) -> Content:
    """Of one that is down. Raises CarryFailed for a database that is damaged."""
    with tempfile.TemporaryFile() as taken:
        await engine.take_out(container, path, taken)
        return await asyncio.to_thread(examine, taken)


async def content_of_volume(engine: Engine, volume: str, path: str, *, image: str) -> Content:
    """Raises CarryFailed for a database that is damaged."""
    with tempfile.TemporaryFile() as taken:
        await engine.take_out_of_volume(volume, path, taken, image=image)
        return await asyncio.to_thread(examine, taken)


def examine(archive: IO[bytes]) -> Content:
    """What is in the tar of a folder. Blocks. Raises CarryFailed for a database that is damaged."""
    archive.seek(0)
    files: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="perdure-carry-") as place, tarfile.open(fileobj=archive) as tar:
        databases: dict[str, Path] = {}
        for number, member in enumerate(tar):
            if not member.isfile():
                continue
            content = tar.extractfile(member)
            assert content is not None
            name = member.name.removesuffix("-wal")
            if name.endswith(".db"):  # a name of our own: that of a file of others could lead anywhere
                beside = databases.setdefault(name, Path(place, f"{number}.db"))
                target = beside.with_name(beside.name + member.name[len(name) :])
                files[member.name] = _copied(content, target)
            else:
                files[member.name] = _copied(content, None)
        found = {name: shown for name, file in databases.items() if (shown := _rows(name, file)) is not None}
    return Content(
        files, {name: rows for name, (rows, _) in found.items()}, {name: ids for name, (_, ids) in found.items()}
    )


def _copied(content: IO[bytes], target: Path | None) -> str:
    """Its digest."""
    digest = hashlib.sha256()
    with Path(os.devnull if target is None else target).open("wb") as file:
        while piece := content.read(_PIECE):
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def _rows(name: str, file: Path) -> tuple[Mapping[str, int], str] | None:
    """Table → rows, and the digest of its turns' ids. None: it is no database of ours."""
    if not file.exists():
        return None
    try:
        connection = Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            if scalar(connection, "PRAGMA application_id") != APPLICATION_ID:
                return None
            verdict = scalar(connection, "PRAGMA integrity_check(1)")
            if verdict != _WHOLE:
                raise CarryFailed(
                    f"{name} is damaged ({' '.join(verdict.split())}). Put back a backup with `perdure restore` first."
                )
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
            counts = {
                table: scalar(connection, f"SELECT count(*) FROM {table}")  # noqa: S608 -- names of ours
                for table in COUNTED
                if table in tables
            }
            return counts, _ids(connection) if "turns" in tables else ""
        finally:
            connection.close()
    except apsw.NotADBError as error:
        if name.rpartition("/")[2] not in _OURS:
            return None
        raise CarryFailed(f"{name} is damaged ({error}). Put back a backup with `perdure restore` first.") from error
    except apsw.Error as error:
        raise CarryFailed(
            f"{name} cannot be read ({error}). Put back a backup with `perdure restore` first."
        ) from error


def _ids(connection: Connection) -> str:
    digest = hashlib.sha256()
    for (turn,) in connection.execute("SELECT id FROM turns ORDER BY id"):
        digest.update(f"{turn}\n".encode())
    return digest.hexdigest()


def _rewrite(taken: IO[bytes], given: IO[bytes], owner: tuple[int, int] | None) -> None:
    """The same tar for another owner: who runs the new container need not be who ran the old one."""
    taken.seek(0)
    if owner is None:
        shutil.copyfileobj(taken, given, _PIECE)
        return
    with tarfile.open(fileobj=taken) as source, tarfile.open(fileobj=given, mode="w") as target:
        for member in source:
            member.uid, member.gid = owner
            member.uname = member.gname = ""
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
