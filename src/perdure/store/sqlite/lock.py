"""One server per database: a lock on a file beside it, for the life of the process, that also says who holds it.

The lock is the proof that a previous owner is dead: whoever holds it may treat every other owner's turns as orphans.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from perdure.errors import DatabaseUnusable

PROBE_SECONDS = 0.5
"""A command that looks whether the lock is held takes a shared one for an instant; a starting server outwaits it."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds, or last held, the lock. `address` is None until the server listens."""

    pid: int
    host: str
    boot_id: str
    version: str
    address: str | None = None
    token_file: str | None = None
    held: bool = False

    @property
    def owner(self) -> str:
        """How leases and attempts name the process."""
        return f"{self.host}:{self.pid}:{self.boot_id}"


class DatabaseLock:
    """Held from construction to `release`. Raises DatabaseUnusable: naming the holder, when another process has it; saying
    why, when the file cannot be written."""

    def __init__(self, database: Path, holder: Holder) -> None:
        self.path = lock_path(database)
        self._descriptor = _opened(self.path)
        if not _taken(self._descriptor, fcntl.LOCK_EX, PROBE_SECONDS):
            os.close(self._descriptor)
            raise DatabaseUnusable(_held_message(database))
        self.holder = replace(holder, held=True)
        try:
            self._write()
        except BaseException:
            os.close(self._descriptor)
            raise

    def announce(self, address: str, token_file: Path | None) -> None:
        """Tells commands where the server listens and where its token is."""
        self.holder = replace(self.holder, address=address, token_file=str(token_file) if token_file else None)
        self._write()

    def release(self) -> None:
        """Gives the lock up; the file stays, so that two servers can never lock two different files."""
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self) -> None:
        content = asdict(self.holder)
        del content["held"]
        data = json.dumps(content).encode()
        try:
            written = os.pwrite(self._descriptor, data, 0)
            if written < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.ftruncate(self._descriptor, written)
        except OSError as error:
            full = error.errno in {errno.ENOSPC, errno.EDQUOT}
            cure = "Free some space and start again." if full else "Check the disk and its mount."
            raise DatabaseUnusable(f"{self.path} cannot be written: {error.strerror}. {cure}") from error


def lock_path(database: Path) -> Path:
    return database.with_name(f"{database.name}.lock")


def read_lock(database: Path) -> Holder | None:
    """The server that holds the database, or the last one that died with it (`held` tells); None when there is none."""
    path = lock_path(database)
    if not path.exists():
        return None
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        holder = _parsed(os.read(descriptor, 65_536))
        held = not _taken(descriptor, fcntl.LOCK_SH, 0)
    finally:
        os.close(descriptor)
    if holder is None:
        return None
    return replace(holder, held=held)


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DatabaseUnusable(
            f"{path} cannot be written: {error.strerror}. Check the folder, its owner and its mount."
        ) from error


def _taken(descriptor: int, kind: int, seconds: float) -> bool:
    """Whether the lock was got within the time."""
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.02)  # flock has no wait with a limit
        else:
            return True


def _parsed(data: bytes) -> Holder | None:
    try:
        content = json.loads(data)
        return Holder(**{field.name: content[field.name] for field in fields(Holder) if field.name in content})
    except (ValueError, TypeError):
        return None


def _held_message(database: Path) -> str:
    holder = read_lock(database)
    who = f"process {holder.pid} on {holder.host}" if holder else "another process"
    where = f", which serves {holder.address}" if holder and holder.address else ""
    return f"{database} is in use by {who}{where}. Use that server, stop it, or name another file with --database."
