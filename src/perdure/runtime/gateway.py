"""A gateway in this process: API and page for agents on NATS, a copy of their journals, no graph and no model.

Start: lock, migrate → what is known of agents → NATS is asked for (it may be away) → who waits for turns goes on → listen → our own
health check answers. Nothing of it waits for an agent: a gateway's health is its own.
Stop: streams are aborted → HTTP ends → nobody is followed any more → NATS is left → the database is closed.
"""

from __future__ import annotations

import os
from importlib.metadata import version

import structlog

from perdure.agent.directory import Directory
from perdure.agent.follower import Follower
from perdure.agent.persister import Persister
from perdure.agent.remote import RemoteAgents
from perdure.api.app import create_app
from perdure.api.auth import Access, load_or_create_token
from perdure.config import Settings
from perdure.runtime import logs
from perdure.runtime.process import Process, tell
from perdure.runtime.signals import StopSignals
from perdure.settings.values import without_passwords
from perdure.store.sqlite.replica import SQLiteReplica, open_replica
from perdure.transport.nats.caller import Caller
from perdure.transport.nats.connection import Connection
from perdure.transport.nats.live import Feed
from perdure.transport.nats.names import Names
from perdure.transport.nats.stream import EventStream

log = structlog.get_logger("perdure.runtime")


class Gateway(Process):
    """Use as `async with`; inside it serves."""

    token = ""

    async def _start(self) -> None:
        settings, clock = self.settings, self.clock
        names = Names(settings.nats_prefix, settings.namespace)
        default = settings.default_agent if "default_agent" in settings.origins else None
        self.replica = await self._open_replica()
        self._stack.push_async_callback(self.replica.close)
        self.connection = Connection(settings, name="perdure gateway", inbox=names.inbox("gateway"))
        self._stack.push_async_callback(self.connection.close)
        asks = Caller(self.connection, names)
        self.directory = Directory(self.replica, asks, clock, default=default)
        await self.directory.open()
        self._stack.push_async_callback(self.directory.close)
        follower = Follower(
            self.replica,
            self.local,
            self.connection,
            Feed(self.connection, names),
            EventStream(self.connection, names),
            asks=asks,
            directory=self.directory,
            clock=clock,
        )
        persister = Persister(
            self.replica,
            follower,
            asks=asks,
            directory=self.directory,
            clock=clock,
            deadline_seconds=settings.turn_deadline_seconds,
        )
        self.port = RemoteAgents(
            self.replica,
            self.local,
            asks,
            self.directory,
            waiting=persister,
            feed=follower,
            wait_seconds=settings.agent_wait_seconds,
            draining=lambda: self._draining,
        )
        await self.connection.start()
        await follower.start()
        self._stack.push_async_callback(follower.stop)
        await persister.start()
        self._stack.push_async_callback(persister.stop)
        await self._serve()
        self._stack.callback(self._drain)
        self.keep_pruned(self.replica.prune)

    async def _open_replica(self) -> SQLiteReplica:
        settings = self.settings
        assert settings.database is not None, "loaded settings name a database"
        return await open_replica(
            settings.database,
            notify=self.local,
            clock=self.clock,
            version=version("perdure"),
            place=f"{settings.nats_prefix}.{settings.namespace}",
        )

    async def _serve(self) -> None:
        settings = self.settings
        assert settings.database is not None
        self.token, token_file = load_or_create_token(settings, settings.database)
        self.access = Access(self.token, settings, self.clock, token_of=self.port.token_of)
        app = create_app(self.port, settings, self.access, streams=self.streams, statistics=self.port.statistics)
        await self.serve_http(app)
        self.replica.announce(self.address, token_file)

    def _drain(self) -> None:
        self._draining = True


async def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT. Turns go on without it."""
    redaction = logs.set_up(settings, os.environ)
    signals = StopSignals()
    signals.install()
    async with Gateway(settings) as gateway:
        redaction.add(gateway.token)
        announce(gateway)
        await gateway.until_stopped(signals)
    log.info("stopped")


def announce(gateway: Gateway) -> None:
    """What a person who starts a gateway wants to know, on standard output."""
    settings = gateway.settings
    agents = ", ".join(info.name for info in gateway.directory.agents())
    tell(
        [
            ("Perdure", f"{gateway.address} (gateway)"),
            ("open", f"{gateway.access.login_link(gateway.address)} (once, within 10 minutes)"),
            ("database", f"{settings.database} (a copy; agents hold the truth)"),
            ("NATS", f"{without_passwords(settings.nats_url or '')}, namespace {settings.namespace}"),
            ("agents", agents or "none is known yet; start one with: perdure agent"),
            *(("note", notice) for notice in settings.notices),
        ]
    )
