"""Which program holds a database against writers, from /proc: without opening the file, which would drop our own locks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

WAL_WRITE_BYTE = 120
"""Of the `-shm` file: who writes in WAL mode has it."""

LOCKS = Path("/proc/locks")


@dataclass(frozen=True, slots=True)
class Program:
    """`pid` is 0 where the system does not tell it (another container)."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name})" if self.pid else "a program of another container"


def writer_of(database: Path) -> Program | None:
    """The program that keeps everyone else from writing now; None when nobody does, or the system does not tell."""
    file, shared = _inode(database), _inode(database.with_name(f"{database.name}-shm"))
    try:
        lines = LOCKS.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines:
        fields = [field for field in line.split() if field != "->"]
        if len(fields) < 8 or fields[1] == "FLOCK" or fields[3] != "WRITE":
            continue
        inode, first, last = int(fields[5].rpartition(":")[2]), int(fields[6]), fields[7]
        until = float("inf") if last == "EOF" else int(last)
        if inode == file or (inode == shared and first <= WAL_WRITE_BYTE <= until):
            return _program(int(fields[4]))
    return None


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _program(pid: int) -> Program:
    try:
        return Program(
            max(pid, 0), Path("/proc", str(pid), "comm").read_text(encoding="utf-8", errors="replace").strip()
        )
    except OSError:
        return Program(max(pid, 0), "it has ended or is not ours")
