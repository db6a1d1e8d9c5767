"""A file system layer that remembers which writes were synced, so that a test can cut the power at any point.

`RecordingVFS` writes through to real files (all connections of the process see one truth) and keeps a log of every write, truncation,
sync, creation and deletion, mixed with the marks of what the program promised to whom. `Disk` replays that log up to a point and
says what a disk holds after a power cut there: what was synced, and of what was not synced nothing, or a random part, torn at
sectors. One recorded scenario thus gives a cut at every write and every sync of it.

It can also fail the n-th write or sync once, with an I/O error or a full disk.

The model is strict: a new file exists after a cut only if its directory was synced since (SQLite does that with the first sync of
a journal or WAL it created, and with a deletion that asks for it).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

import apsw

SECTOR = 512
OpKind = Literal["create", "write", "truncate", "sync", "sync_directory", "delete", "mark"]


@dataclass(frozen=True, slots=True)
class Op:
    kind: OpKind
    path: str = ""
    offset: int = 0
    data: bytes = b""
    mark: Any = None


@dataclass(slots=True)
class Fault:
    """Fails the n-th write (or sync) from now on, once. `n` counts from 1."""

    on: Literal["write", "sync"]
    n: int
    error: Literal["io", "full"]
    fired: bool = False


class RecordingVFS(apsw.VFS):
    """Registered under `name` while it lives; give that name to whoever opens the database."""

    def __init__(self, name: str = "powerloss") -> None:
        self.name = name
        self.log: list[Op] = []
        self.fault: Fault | None = None
        self.when_fired: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._journals_to_sync: set[str] = set()
        super().__init__(name, "")

    def mark(self, mark: Any) -> None:
        """Writes a promise into the log: everything before it was true when it was given."""
        self.note(Op("mark", mark=mark))

    def note(self, op: Op) -> None:
        with self._lock:
            self.log.append(op)

    def count(self, kind: OpKind) -> int:
        return sum(1 for op in self.log if op.kind == kind)

    def may_fail(self, on: str) -> None:
        """Raises the armed error when its turn has come."""
        with self._lock:
            fault = self.fault
            if fault is None or fault.on != on or fault.fired:
                return
            fault.n -= 1
            if fault.n > 0:
                return
            fault.fired = True
        self.when_fired()
        if fault.error == "full":
            raise apsw.FullError("no space left on the test's device")
        raise apsw.IOError("the test's device failed")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> _File:
        path = name.filename() if isinstance(name, apsw.URIFilename) else (name or "")
        new = bool(path) and not Path(path).exists()
        opened = _File(self, path, name, flags)
        if new:
            self.note(Op("create", path))
            if flags[0] & (apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL):
                self._journals_to_sync.add(path)
        return opened

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self.note(Op("delete", filename))
        if syncdir:
            self.note(Op("sync_directory", str(Path(filename).parent)))

    def synced(self, path: str) -> None:
        self.note(Op("sync", path))
        if path in self._journals_to_sync:
            self._journals_to_sync.discard(path)
            self.note(Op("sync_directory", str(Path(path).parent)))


class _File(apsw.VFSFile):
    def __init__(self, vfs: RecordingVFS, path: str, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._vfs = vfs
        self._path = path
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._vfs.may_fail("write")
        super().xWrite(data, offset)
        if self._path:
            self._vfs.note(Op("write", self._path, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        if self._path:
            self._vfs.note(Op("truncate", self._path, newsize))

    def xSync(self, flags: int) -> None:
        self._vfs.may_fail("sync")
        super().xSync(flags)
        if self._path:
            self._vfs.synced(self._path)


@dataclass(slots=True)
class _Inode:
    """A file's synced bytes and, in order, what was done to it since."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Op] = field(default_factory=list)

    def sync(self) -> None:
        for op in self.pending:
            _apply(self.durable, op)
        self.pending.clear()


def _apply(content: bytearray, op: Op) -> None:
    if op.kind == "truncate":
        del content[op.offset :]
        content.extend(bytes(op.offset - len(content)))
        return
    if len(content) < op.offset:
        content.extend(bytes(op.offset - len(content)))
    content[op.offset : op.offset + len(op.data)] = op.data


class Disk:
    """The state of a disk while a log is replayed: `advance` op by op, `cut` to see what a power loss leaves."""

    def __init__(self) -> None:
        self._now: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self.marks: list[Any] = []

    def advance(self, op: Op) -> None:
        if op.kind == "mark":
            self.marks.append(op.mark)
        elif op.kind == "create":
            self._now[op.path] = _Inode()
        elif op.kind == "delete":
            self._now.pop(op.path, None)
        elif op.kind == "sync_directory":
            self._sync_names(op.path)
        else:
            inode = self._now.setdefault(op.path, _Inode())
            if op.kind == "sync":
                inode.sync()
            else:
                inode.pending.append(op)

    def _sync_names(self, directory: str) -> None:
        kept = {path: inode for path, inode in self._durable_names.items() if str(Path(path).parent) != directory}
        there = {path: inode for path, inode in self._now.items() if str(Path(path).parent) == directory}
        self._durable_names = {**kept, **there}

    def cut(self, luck: Random | None = None) -> dict[str, bytes]:
        """File contents after a power cut now. Without `luck` nothing unsynced survives; with it, a random part does."""
        names = dict(self._durable_names)
        if luck is not None and luck.random() < 0.5:
            names = dict(self._now)
        return {path: _after_cut(inode, luck) for path, inode in names.items()}


def _after_cut(inode: _Inode, luck: Random | None) -> bytes:
    content = bytearray(inode.durable)
    if luck is not None:
        for op in inode.pending:
            for piece in _sectors(op):
                if luck.random() < 0.5:
                    _apply(content, piece)
    return bytes(content)


def _sectors(op: Op) -> Iterable[Op]:
    if op.kind == "truncate":
        yield op
        return
    for start in range(0, len(op.data), SECTOR):
        yield Op("write", op.path, op.offset + start, op.data[start : start + SECTOR])


def lay_out(image: dict[str, bytes], folder: Path, suffix_of: str) -> Path:
    """Writes an image into a folder and returns the path of the database (named `suffix_of` in the recorded run)."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in image.items():
        (folder / Path(path).name).write_bytes(content)
    return folder / suffix_of
