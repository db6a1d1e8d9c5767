"""Servers and commands forked from a parent that has imported everything: a start costs milliseconds of CPU, not seconds.

The child is a process of its own that goes the way of the command line (`tests/crash/forkserver.py`); it is killed, stopped
and waited for like one that a person started. What a start really costs a person is measured and tested elsewhere.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

from tests.servers.process import ROOT


class Forked:
    """A forked command, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, parent: Preloaded, pid: int) -> None:
        self.pid = pid
        self._parent = parent

    def poll(self) -> int | None:
        return self._parent.ended(self.pid, 0)

    def wait(self, timeout: float | None = None) -> int:
        """Raises TimeoutExpired."""
        code = self._parent.ended(self.pid, timeout)
        if code is None:
            raise subprocess.TimeoutExpired("perdure", timeout or 0)
        return code

    def when_ended(self, tell: Callable[[int], object]) -> None:
        """`tell` gets the exit code, in a thread of ours; at once when it is known."""
        self._parent.tell(self.pid, tell)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class Preloaded:
    """The parent. One per test process: `preloaded()`."""

    def __init__(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "LANGCHAIN_"))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.forkserver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            # Rich reads the look of its consoles once, when they are made.
            env={**kept, "LANGGRAPH_STRICT_MSGPACK": "true", "NO_COLOR": "1", "COLUMNS": "200"},
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._orders: IO[bytes] = self._process.stdin
        self._one_at_a_time = threading.Lock()
        self._news = threading.Condition()
        self._spawned: list[int] = []
        self._codes: dict[int, int] = {}
        self._told: dict[int, Callable[[int], object]] = {}
        first = self._process.stdout.readline()
        assert json.loads(first or b"{}").get("ready"), (
            "the preloaded parent did not start; run `python -m tests.crash.forkserver` to see why"
        )
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()
        atexit.register(self.close)

    def serve(self, environment: Mapping[str, str], folder: Path, log: Path, command: str = "serve") -> Forked:
        """`perdure serve`, or another command that serves, started in the folder."""
        return self._type([command], environment, folder, {"out": str(log)})

    def server(self, environment: Mapping[str, str], log: Path) -> Forked:
        """The crash suite's server (`tests/crash/entry.py`)."""
        return self._fork({"environment": {**environment}, "out": str(log)})

    def module(self, name: str, *arguments: str) -> Forked:
        """`python -m NAME …` from the repository's root; what it prints is thrown away."""
        return self._fork({"module": name, "arguments": arguments, "environment": {**os.environ}, "out": os.devnull})

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, stdin: str, limit_seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """`perdure …`, typed in the folder, once it has ended. Raises TimeoutExpired."""
        with tempfile.TemporaryDirectory() as place:
            files = {name: Path(place) / name for name in ("in", "out", "err")}
            files["in"].write_text(stdin)
            command = self._type(arguments, environment, folder, {name: str(path) for name, path in files.items()})
            try:
                code = command.wait(limit_seconds)
            finally:
                command.kill()
            return subprocess.CompletedProcess(
                ["perdure", *arguments], code, files["out"].read_text(), files["err"].read_text()
            )

    def _type(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, files: Mapping[str, str]
    ) -> Forked:
        return self._fork({"arguments": [*arguments], "environment": {**environment}, "folder": str(folder), **files})

    def _fork(self, order: Mapping[str, Any]) -> Forked:
        with self._one_at_a_time, self._news:
            self._orders.write(json.dumps(order).encode() + b"\n")
            self._orders.flush()
            while not self._spawned:
                assert self._news.wait(60), "the preloaded parent answers nothing"
            return Forked(self, self._spawned.pop())

    def tell(self, pid: int, tell: Callable[[int], object]) -> None:
        with self._news:
            if pid not in self._codes:
                self._told[pid] = tell
                return
        tell(self._codes[pid])

    def ended(self, pid: int, seconds: float | None) -> int | None:
        """The exit code, negative for a signal; None when it has not ended within so long."""
        with self._news:
            self._news.wait_for(lambda: pid in self._codes, seconds)
            return self._codes.get(pid)

    def close(self) -> None:
        """Ends the parent, and with it every child that is left."""
        self._orders.close()
        self._process.wait()

    def _read(self, output: IO[bytes]) -> None:
        for line in output:
            message: dict[str, Any] = json.loads(line)
            with self._news:
                pid, tell = message["pid"], None
                if "status" in message:
                    self._codes[pid] = os.waitstatus_to_exitcode(message["status"])
                    tell = self._told.pop(pid, None)
                else:
                    self._codes.pop(pid, None)  # the number of a process that ended long ago
                    self._spawned.append(pid)
                self._news.notify_all()
            if tell is not None:
                tell(self._codes[pid])


@cache
def preloaded() -> Preloaded:
    return Preloaded()
