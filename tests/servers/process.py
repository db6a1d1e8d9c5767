"""Server processes of tests: started, waited for, killed by their own id."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 60.0

PORTS = range(20_000, 32_000)
"""Below those that systems give to outgoing connections and to whoever binds port 0 (Linux: 32768 and above): one that nobody
listens on for a moment, as its server was killed, is nobody else's meanwhile."""


def free_port() -> int:
    """One that this process has to itself until it ends, also among others that choose a port here."""
    for port in random.sample(PORTS, len(PORTS)):
        claim = socket.socket(type=socket.SOCK_DGRAM)
        try:
            claim.bind(("127.0.0.1", port))
            with socket.socket() as probe:
                probe.bind(("", port))
        except OSError:
            claim.close()
        else:
            claim.detach()  # open until the process ends: the claim, on which nobody speaks
            return port
    raise AssertionError(f"no port is free from {PORTS.start} to {PORTS.stop - 1}")


async def until(condition: Callable[[], bool], what: str, limit_seconds: float = LIMIT_SECONDS) -> None:
    """Waits for a condition of another process, which cannot signal us."""
    deadline = asyncio.get_running_loop().time() + limit_seconds
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"waited {limit_seconds:g} s in vain: {what}")
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    return _state(pid) not in {"", "Z", "X"}


def paused(pid: int) -> bool:
    """Whether a signal has stopped the process until another lets it go on."""
    return _state(pid) == "T"


def _state(pid: int) -> str:
    """Its letter in /proc; nothing for a process that is no more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class ServerProcess:
    """`python -m MODULE ARGUMENTS…` from the repository's root."""

    def __init__(self, module: str, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """The next line of its output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class ScriptedServer(ServerProcess):
    """A model server that says what its script tells it to."""

    module: str

    def __init__(self, port: int | None = None) -> None:
        super().__init__(self.module, str(free_port() if port is None else port))
        self.port = int(self.line().rsplit(" ", 1)[1])
        self.address = f"http://127.0.0.1:{self.port}"

    def script(self, *steps: dict[str, Any]) -> None:
        self._ask("PUT", "/script", list(steps))

    def requests(self) -> list[dict[str, Any]]:
        received: list[dict[str, Any]] = self._ask("GET", "/requests")
        return received

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}{path}", data=data, method=method)
        with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as answer:
            return json.load(answer)


class OpenAiServer(ScriptedServer):
    """The scripted server of `tests.servers.openai_server`."""

    module = "tests.servers.openai_server"

    @property
    def base_url(self) -> str:
        return f"{self.address}/v1"


class OllamaServer(ScriptedServer):
    """The scripted server of `tests.servers.ollama_server`. Its address is what Ollama's clients call the base URL."""

    module = "tests.servers.ollama_server"


class AnthropicServer(ScriptedServer):
    """The scripted server of `tests.servers.anthropic_server`."""

    module = "tests.servers.anthropic_server"
