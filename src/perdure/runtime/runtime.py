"""The composition root: settings → everything, started and stopped in order. The rooms' implementations are named here and beside.

Start: agents load → lock, migrate → listen → our own health check answers → orphans go to the queue, turns are claimed.
Stop: not ready, no new claims, drain (at the deadline: cut) → streams are aborted → HTTP ends → MCP children close → the write-ahead log is folded in,
the lock is given up.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import structlog
from starlette.types import ASGIApp

from perdure.agent.local import LocalAgents
from perdure.api.app import create_app
from perdure.api.auth import Access, load_or_create_token
from perdure.clock import Clock
from perdure.config import Settings
from perdure.engine.worker import Worker
from perdure.graph.load import HostedGraph, load_agents
from perdure.runtime import logs
from perdure.runtime.process import Process, tell
from perdure.runtime.signals import StopSignals
from perdure.store.sqlite.store import SQLiteStore, open_store
from perdure.transport.base import Transport
from perdure.turns import Limits

log = structlog.get_logger("perdure.runtime")


class Runtime(Process):
    """An engine with its store, and the HTTP server before it: the embedded shape as it is."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        super().__init__(settings, clock)
        self.token = ""
        self.hosted: Sequence[HostedGraph] = ()

    # -- start: what is pushed on the stack is undone in reverse -------------------------------------------------------

    async def _start(self) -> None:
        import_from(self.settings.import_paths)
        self.hosted = await load_agents(self.settings, self.clock)
        self.transport = await self._open_transport()
        self.store = await self._open_store()
        self._stack.push_async_callback(self.store.close)
        self._stack.push_async_callback(self._close_agents)
        agents = {hosted.name: hosted for hosted in self.hosted}
        self.worker = Worker(self.store, self.transport, agents, self.settings, self.clock)
        self.port = self._port(agents)
        await self._serve()
        await self._listen()
        self._stack.push_async_callback(self._drain)
        await self.worker.start()
        self._connect_required()
        self.keep_pruned(self.store.prune)

    async def _open_transport(self) -> Transport:
        """Where the store tells what it committed."""
        return self.local

    async def _listen(self) -> None:
        """Takes requests from elsewhere: after our own health check has answered, before orphans go to the queue."""

    def _connect_required(self) -> None:
        """Beside the start: a server that is down keeps its own agent from answering, not this process from serving."""
        connecting = asyncio.gather(*(hosted.connect() for hosted in self.hosted), return_exceptions=True)

        async def ended() -> None:
            connecting.cancel()
            await asyncio.wait([connecting])

        self._stack.push_async_callback(ended)

    async def _open_store(self) -> SQLiteStore:
        settings = self.settings
        assert settings.database is not None, "loaded settings name a database"
        return await open_store(
            settings.database,
            notify=self.transport,
            clock=self.clock,
            limits=Limits(max_attempts=settings.max_attempts, total_attempts=settings.total_attempts),
            version=version("perdure"),
        )

    def _port(self, agents: Mapping[str, HostedGraph]) -> LocalAgents:
        return LocalAgents(
            self.store,
            self.transport,
            agents,
            self.settings.default_agent,
            draining=lambda: self._draining,
            warnings=self.warnings,
        )

    async def _serve(self) -> None:
        settings = self.settings
        assert settings.database is not None
        self.token, token_file = load_or_create_token(settings, settings.database)
        self.access = Access(self.token, settings, self.clock, token_of=self.port.token_of)
        await self.serve_http(self._app())
        self.store.announce(self.address, token_file)

    def _app(self) -> ASGIApp:
        return create_app(self.port, self.settings, self.access, streams=self.streams, statistics=self.store.statistics)

    # -- serving ------------------------------------------------------------------------------------------------------

    def warnings(self) -> Sequence[str]:
        """What is wrong with this server now, beside its agents."""
        if not self.worker.safe_mode:
            return ()
        return (
            "Started again too often: turns that were running are left alone until it has been quiet for five minutes. "
            "Look at the log before each end.",
        )

    # -- stop ---------------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Hands running turns over; a second signal, or the deadline, cuts them."""
        self._draining = True
        log.info("draining", running=self.worker.running, seconds=self.settings.drain_seconds)
        drained = asyncio.create_task(self.worker.drain(self.settings.drain_seconds))
        urgent = asyncio.create_task(self._urgent.wait())
        await asyncio.wait({drained, urgent}, return_when=asyncio.FIRST_COMPLETED)
        urgent.cancel()
        if not drained.done():
            drained.cancel()
            await asyncio.gather(drained, return_exceptions=True)
            await self.worker.drain(0)
        await asyncio.gather(drained, return_exceptions=True)

    async def _close_agents(self) -> None:
        for hosted in self.hosted:
            await hosted.close()


def import_from(folders: Sequence[Path]) -> None:
    """A project's graphs and tools import each other from its folders."""
    for folder in reversed(folders):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))


async def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT, then hands over and returns."""
    redaction = logs.set_up(settings, os.environ)
    signals = StopSignals()
    signals.install()
    async with Runtime(settings) as runtime:
        redaction.add(runtime.token)
        announce(runtime)
        await runtime.until_stopped(signals)
    log.info("stopped")


def announce(runtime: Runtime) -> None:
    """What a person who starts a server wants to know, on standard output."""
    settings = runtime.settings
    lines = [
        ("Perdure", runtime.address),
        ("open", f"{runtime.access.login_link(runtime.address)} (once, within 10 minutes)"),
        ("database", str(settings.database)),
        *about_agents(runtime),
    ]
    tell(lines)


def about_agents(runtime: Runtime) -> list[tuple[str, str]]:
    """A line for each agent, and what is odd about this server."""
    settings = runtime.settings
    lines = []
    for hosted in runtime.hosted:
        what = settings_model(hosted)
        default = " (default)" if hosted.name == settings.default_agent and len(runtime.hosted) > 1 else ""
        lines.append(("agent", f"{hosted.name}: {what}{default}"))
    notices = [*settings.notices, *runtime.warnings()]
    if runtime.store.upgraded_from is not None:
        notices.append(f"the database was upgraded; a copy of it as it was: {runtime.store.upgraded_from}")
    for hosted in runtime.hosted:
        notices += [*hosted.notices, *(f"{hosted.name}: {problem}" for problem in hosted.problems())]
    return [*lines, *(("note", notice) for notice in notices)]


def settings_model(hosted: HostedGraph) -> str:
    return hosted.settings.graph or f"model {hosted.settings.model}"
