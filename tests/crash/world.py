"""The outside world: a file of its own that records what tools did to it, synced before the tool goes on.

One JSON line per arrival (`start`: a call reached the other side), per effect (`effect`), and per request that the other side
recognised by its key and did not do again (`repeat`). Nothing here knows Perdure; what the file says is what happened.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Happening:
    """One line: `phase` is `start`, `effect` or `repeat`; `at` in Unix seconds."""

    phase: str
    tool: str
    arguments: Mapping[str, Any]
    key: str
    at: float

    @property
    def label(self) -> str:
        return str(self.arguments.get("label", ""))


def arrive(path: str, tool: str, arguments: Mapping[str, Any], key: str) -> None:
    """A call reached the other side; nothing has come of it yet."""
    with _locked(path) as handle:
        _append(handle, "start", tool, arguments, key)


def take_effect(path: str, tool: str, arguments: Mapping[str, Any], key: str, *, deduplicates: bool = False) -> str:
    """Does it, and tells what was done. A side that deduplicates does nothing under a key that it has seen."""
    with _locked(path) as handle:
        known = deduplicates and any(each.phase == "effect" and each.key == key for each in read(path))
        _append(handle, "repeat" if known else "effect", tool, arguments, key)
    return f"{tool} {arguments.get('label')}: done"


def find(path: str, key: str) -> str | None:
    """What was done under this key, None when nothing was."""
    done = next((each for each in read(path) if each.phase == "effect" and each.key == key), None)
    return None if done is None else f"{done.tool} {done.label}: done"


def read(path: str | Path) -> Iterator[Happening]:
    """Whole lines only: a line cut off by a kill was never synced, hence never happened. Lines without a phase are not ours."""
    if not Path(path).exists():
        return
    whole, _, _ = Path(path).read_text().rpartition("\n")
    for line in whole.splitlines():
        content = json.loads(line)
        if "phase" not in content:
            continue
        yield Happening(content["phase"], content["tool"], content["args"], content["key"], content["at"])


@contextmanager
def _locked(path: str) -> Iterator[int]:
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def _append(handle: int, phase: str, tool: str, arguments: Mapping[str, Any], key: str) -> None:
    line = {"phase": phase, "tool": tool, "args": dict(arguments), "key": key, "at": time.time()}
    os.write(handle, json.dumps(line).encode() + b"\n")
    os.fsync(handle)
