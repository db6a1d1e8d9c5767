"""A real server process under test: started, waited for by condition, killed by its pid, started again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from tests.crash.client import GONE, Api
from tests.servers.preloaded import preloaded

HERE = Path(__file__).parent


@dataclass(slots=True)
class Boot:
    """One life of the process. `how` is `killed`, `stopped` or `exited <code>`; instants are Unix seconds."""

    pid: int
    started_at: float
    ended_at: float | None = None
    how: str = ""


class Launcher(Protocol):
    async def spawn(self, environment: Mapping[str, str], log: Path) -> int:
        """Starts a server and returns its pid."""
        ...

    async def wait(self, pid: int) -> int:
        """The exit code of the process, negative for the signal that ended it."""
        ...

    async def close(self) -> None: ...


class CommandLine:
    """Starts `python -m perdure serve`, exactly as a person does."""

    def __init__(self) -> None:
        self._processes: dict[int, asyncio.subprocess.Process] = {}

    async def spawn(self, environment: Mapping[str, str], log: Path) -> int:
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "perdure", "serve"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environment),
                start_new_session=True,
            )
        self._processes[process.pid] = process
        return process.pid

    async def wait(self, pid: int) -> int:
        return await self._processes[pid].wait()

    async def close(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()
                await process.wait()


class ForkServer:
    """Starts servers by forking the preloaded parent of this process: a start costs milliseconds instead of seconds."""

    def __init__(self) -> None:
        self._ended: dict[int, asyncio.Future[int]] = {}

    async def open(self) -> ForkServer:
        await asyncio.to_thread(preloaded)
        return self

    async def spawn(self, environment: Mapping[str, str], log: Path) -> int:
        forked = await asyncio.to_thread(preloaded().server, environment, log)
        loop = asyncio.get_running_loop()
        ended = self._ended[forked.pid] = loop.create_future()

        def tell(code: int) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(ended.set_result, code)

        forked.when_ended(tell)
        return forked.pid

    async def wait(self, pid: int) -> int:
        return await asyncio.shield(self._ended[pid])

    async def close(self) -> None:
        """The parent stays: others of this process fork from it too."""
        for pid, ended in self._ended.items():
            if not ended.done():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                await ended


def clean_environment() -> dict[str, str]:
    """This process' environment without anything that would change how a server behaves."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "LANGCHAIN_"))}


def reserved_port() -> socket.socket:
    """A socket that is bound and never listens: no other trial of this machine gets its port while a killed server is away."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", 0))
    return bound


class Server:
    """One server with a folder of its own: its database, its effects file, its log, its list of passed failpoints."""

    def __init__(self, folder: Path, launcher: Launcher, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.launcher = launcher
        self.database = folder / "perdure.db"
        self.effects = folder / "effects.jsonl"
        self.log = folder / "server.log"
        self.passed = folder / "failpoints.log"
        self.token = f"token-of-this-trial-{uuid4().hex}"
        self._reserved = reserved_port()
        self.port: int = self._reserved.getsockname()[1]
        self.api = Api(self.port, self.token)
        self.boots: list[Boot] = []
        self._environment = dict(environment or {})
        self._ending: asyncio.Task[int] | None = None
        self._expected = ""

    @property
    def kills(self) -> int:
        """Lives that ended otherwise than by a planned stop."""
        return sum(1 for boot in self.boots if boot.how and boot.how != "stopped")

    @property
    def alive(self) -> bool:
        return self._ending is not None and not self._ending.done()

    async def start(self, failpoints: str = "", **more: str) -> bool:
        """Starts the process and waits until it is ready; False when it died before."""
        await self.launch(failpoints, **more)
        return await self.ready()

    async def launch(self, failpoints: str = "", **more: str) -> None:
        """Starts the process."""
        environment = {**self._settings(), **self._environment, "PERDURE_FAILPOINTS": failpoints, **more}
        pid = await self.launcher.spawn({**clean_environment(), **environment}, self.log)
        boot = Boot(pid, time.time())
        self.boots.append(boot)
        self._expected = ""
        self._ending = asyncio.create_task(self._watch(boot))

    async def ready(self, limit_seconds: float = 60.0) -> bool:
        """Waits until the process answers as ready; False when it died before."""
        boot = self.boots[-1]
        async with asyncio.timeout(limit_seconds):
            while not boot.how:
                with suppress(*GONE):
                    if (await self.api.request("GET", "/api/readyz", timeout_seconds=5)).status == 200:
                        return True
                await asyncio.sleep(0.01)
        return False

    async def ended(self, limit_seconds: float = 60.0) -> int:
        """The exit code of the current process, once it has ended."""
        assert self._ending is not None
        async with asyncio.timeout(limit_seconds):
            return await asyncio.shield(self._ending)

    async def kill(self) -> None:
        self._signal(signal.SIGKILL)
        await self.ended()

    async def stop(self) -> int:
        """A planned stop (SIGTERM); returns the exit code."""
        self._expected = "stopped"
        self._signal(signal.SIGTERM)
        return await self.ended()

    @property
    def paused(self) -> bool:
        """Whether the process was stopped in its tracks (SIGSTOP)."""
        if not self.alive:
            return False
        status = Path(f"/proc/{self.boots[-1].pid}/stat")
        return status.exists() and status.read_text().rpartition(")")[2].split()[0] == "T"

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def unpause(self) -> None:
        self._signal(signal.SIGCONT)

    async def close(self) -> None:
        if self.alive:
            await self.kill()
        self._reserved.close()

    def failpoints_passed(self) -> set[str]:
        return set(self.passed.read_text().split()) if self.passed.exists() else set()

    def said(self) -> str:
        """The end of the server's log, for a failing test."""
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""

    def _signal(self, number: signal.Signals) -> None:
        if self.alive:
            with suppress(ProcessLookupError):
                os.kill(self.boots[-1].pid, number)

    async def _watch(self, boot: Boot) -> int:
        code = await self.launcher.wait(boot.pid)
        boot.ended_at = time.time()
        if code == -signal.SIGKILL:
            boot.how = "killed"
        else:
            boot.how = "stopped" if self._expected == "stopped" and code == 0 else f"exited {code}"
        return code

    def _settings(self) -> dict[str, str]:
        return {
            "PERDURE_HOST": "127.0.0.1",
            "PERDURE_PORT": str(self.port),
            "PERDURE_DATABASE": str(self.database),
            "PERDURE_TOKEN": self.token,
            "PERDURE_PROJECT": str(HERE / "graphs" / "perdure.toml"),
            "PERDURE_LOG_LEVEL": "warning",
            "PERDURE_FAILPOINTS_LOG": str(self.passed),
            "PERDURE_DEMO_STEP_SECONDS": "0.05",
            "PERDURE_DEMO_TOKEN_SECONDS": "0.002",
            "PERDURE_DEMO_EFFECTS": str(self.effects),
        }
