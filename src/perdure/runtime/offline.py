"""The HTTP routes over a file that no server holds: commands that read get the same answers as from a server."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx2

from perdure.agent.local import LocalAgents
from perdure.api.app import create_app
from perdure.api.auth import Access
from perdure.api.stream import Streams
from perdure.clock import SystemClock
from perdure.config import Settings
from perdure.errors import ConfigurationError
from perdure.graph.load import HostedGraph, load_agents
from perdure.runtime import logs
from perdure.runtime.runtime import import_from
from perdure.store.sqlite.readonly import ReadOnlyStore
from perdure.transport.local import LocalTransport


@asynccontextmanager
async def read_only(settings: Settings) -> AsyncIterator[tuple[httpx2.AsyncBaseTransport, str, str | None]]:
    """A transport into the application in this process, the token it takes, and what is broken in the file (None when it is
    whole). Raises DatabaseUnusable."""
    assert settings.database is not None
    logs.set_up_command(settings, os.environ)
    clock = SystemClock()
    store = ReadOnlyStore(settings.database, clock=clock)
    try:
        token = secrets.token_urlsafe()
        access = Access(token, settings, clock)
        agents = LocalAgents(store, LocalTransport(), await _agents(settings), settings.default_agent)
        streams = Streams(heartbeat_seconds=settings.heartbeat_seconds)
        app = create_app(agents, settings, access, streams=streams, statistics=store.statistics)
        yield httpx2.ASGITransport(app=app), token, store.damage
    finally:
        await store.close()


async def _agents(settings: Settings) -> Mapping[str, HostedGraph]:
    """Graphs help to read their own state; a project that does not load must not keep anyone from its conversations."""
    import_from(settings.import_paths)
    try:
        return {hosted.name: hosted for hosted in await load_agents(settings, SystemClock())}
    except ConfigurationError:
        return {}
