"""A real nats-server for tests: started on a free port, killed, stopped, started again on the same port, wiped, paused."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

from perdure.config import Settings
from perdure.transport.nats import connection, stream
from tests.servers.process import LIMIT_SECONDS, ROOT, free_port, until

OTHER = ROOT / ".venv" / "nats-other"
"""Where `make nats-other` puts the second version (tests/servers/nats-other.lock)."""


def binaries() -> Mapping[str, Path | None]:
    """Every version the suites run on; None: it is not installed here."""
    other = OTHER / "bin" / "nats-server"
    return {"current": Path(sys.executable).parent / "nats-server", "other": other if other.exists() else None}


class NatsServer:
    """JetStream on, everything fsynced. `access`: more of the configuration file (users, TLS). `behind`: a command that runs the
    server elsewhere, where it listens on all addresses; from here it is reached at `host`."""

    def __init__(
        self,
        folder: Path,
        *,
        binary: Path | None = None,
        access: str = "",
        sync_interval: str = "always",
        max_payload: int = 1_048_576,
        jetstream: bool = True,
        host: str = "127.0.0.1",
        behind: Sequence[str] = (),
    ) -> None:
        found = binary or binaries()["current"]
        assert found is not None
        self._binary, self._folder = found, folder
        self.port = free_port()
        self._log = folder / "nats.log"
        self.store = folder / "jetstream"
        self.process: subprocess.Popen[bytes] | None = None
        self._jetstream = jetstream
        self._host, self._behind = host, behind
        self._access, self._sync_interval, self._max_payload = access, sync_interval, max_payload

    @property
    def url(self) -> str:
        return f"nats://{self._host}:{self.port}"

    def settings(self, **more: Any) -> Settings:
        return Settings(**{"nats_url": self.url, **more})

    def configuration(self) -> str:
        store = (
            f'jetstream {{ store_dir: "{self.store}", max_mem: 64MB, max_file: 512MB, '
            f"sync_interval: {self._sync_interval} }}\n"
        )
        return (
            f"listen: {'0.0.0.0' if self._behind else self._host}:{self.port}\nmax_payload: {self._max_payload}\n"
            f'log_file: "{self._log}"\n{store if self._jetstream else ""}{self._access}\n'
        )

    async def start(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._log.unlink(missing_ok=True)
        file = self._folder / "nats.conf"
        file.write_text(self.configuration())
        self.process = subprocess.Popen(
            [*self._behind, self._binary, "-c", file],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        await until(self._ready, f"nats-server is ready ({self._log})")
        return self

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"nats-server ended: {self.log}"
        return "Server is ready" in self.log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(how)
            process.wait()

    async def restart(self, *, wipe: bool = False) -> None:
        """Killed, and started on the same port; with `wipe` all that JetStream held is gone."""
        self.kill()
        if wipe:
            self.wipe()
        await self.start()

    def wipe(self) -> None:
        assert self.process is None
        shutil.rmtree(self.store, ignore_errors=True)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def reload(self, *, access: str) -> None:
        """Another configuration without a restart."""
        self._access = access
        (self._folder / "nats.conf").write_text(self.configuration())
        self._signal(signal.SIGHUP)

    def _signal(self, which: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, which)


class Servers:
    """Of one test or session: all are killed at its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[NatsServer] = []
        self._shared: dict[str, NatsServer] = {}

    async def start(self, **options: Any) -> NatsServer:
        server = NatsServer(self._folder / f"nats-{len(self._started)}", **options)
        self._started.append(server)
        return await server.start()

    async def shared(self, version: str = "current") -> NatsServer:
        """One for all tests that harm nobody: each takes a prefix of its own."""
        if version not in self._shared:
            self._shared[version] = await self.start(binary=binaries()[version])
        return self._shared[version]

    def close(self) -> None:
        for server in self._started:
            server.kill()


def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is slow to answer is neither lost nor without JetStream."""
    monkeypatch.setattr(connection, "PULSE_SECONDS", LIMIT_SECONDS)
    monkeypatch.setattr(stream, "API_SECONDS", LIMIT_SECONDS)
    monkeypatch.setattr(stream, "ACK_SECONDS", LIMIT_SECONDS)


def servers_in(folder: Path) -> Iterator[Servers]:
    """The body of a fixture."""
    servers = Servers(folder)
    yield servers
    servers.close()
