"""An agent in this process, reached over NATS: the engine and its file as embedded, a bridge instead of the API.

Start: agent loads → lock, migrate, orphans are known by their owner's boot → listen → our own health check answers → the bridge takes requests →
orphans go to the queue. NATS need not be there: turns are driven without it, and told when it comes.
Stop: no new turns, drain → the bridge tells what it still can, and leaves → HTTP ends → as embedded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version

import structlog
from starlette.types import ASGIApp

from perdure.api.app import create_health_app
from perdure.bridge.bridge import Bridge
from perdure.bridge.bridged import Bridged
from perdure.config import Settings
from perdure.runtime import logs
from perdure.runtime.process import tell
from perdure.runtime.runtime import Runtime, about_agents
from perdure.runtime.signals import StopSignals
from perdure.settings.values import without_passwords
from perdure.transport.base import Transport
from perdure.transport.nats.connection import Connection
from perdure.transport.nats.names import Names

log = structlog.get_logger("perdure.runtime")


class AgentRuntime(Runtime):
    """One agent: see `perdure.settings.shapes.for_agent`."""

    bridge: Bridge | None = None
    not_served: Sequence[str] = ()
    """What stands in the database and is no gateway's to see."""

    async def _open_transport(self) -> Transport:
        self.bridged = Bridged(self.local)
        return self.bridged

    async def _listen(self) -> None:
        settings = self.settings
        self.not_served = not_served(settings.default_agent, await self.store.conversations_by_agent())
        for told in self.not_served:
            log.warning("conversations_not_served", problem=told)
        names, agent = Names(settings.nats_prefix, settings.namespace), settings.default_agent
        self.connection = Connection(settings, name=f"perdure agent {agent}", inbox=names.inbox("agent", agent))
        self._stack.push_async_callback(self.connection.close)
        await self.connection.start()
        self.bridge = Bridge(
            self.connection,
            names,
            agent,
            self.port,
            store=self.store,
            transport=self.bridged,
            clock=self.clock,
            version=version("perdure"),
            max_message_bytes=settings.max_message_bytes,
        )
        self._stack.push_async_callback(self.bridge.stop)
        await self.bridge.start()
        self._hopeless.append((self.bridge.namesake.displaced, self.bridge.namesake.refusal))

    def warnings(self) -> Sequence[str]:
        problems = self.bridge.problems() if self.bridge is not None else ()
        return (*super().warnings(), *self.not_served, *problems)

    async def _drain(self) -> None:
        if self.bridge is not None:
            await self.bridge.leave()
        await super()._drain()

    def _app(self) -> ASGIApp:
        return create_health_app(
            self.port, self.settings, self.access, streams=self.streams, statistics=self.store.statistics
        )


def not_served(agent: str, held: Mapping[str, tuple[int, int]]) -> Sequence[str]:
    """`held`: conversations and unended turns of each agent in the database. A sentence for each that is missed: it has turns
    that wait, or stands here instead of this process's agent. The rest of a copied database is nobody's concern."""
    return [
        f"This database holds {conversations:,} conversations of the agent {other!r}, {unended:,} turns of it have not ended, and "
        f"this process serves {agent!r}: no gateway shows them, and nobody drives their turns. Start it with --agent-name "
        f"{other}, or beside this one a second process of that name with a copy of this file."
        for other, (conversations, unended) in held.items()
        if other != agent and (unended or agent not in held)
    ]


async def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT, then hands over and returns."""
    redaction = logs.set_up(settings, os.environ)
    signals = StopSignals()
    signals.install()
    async with AgentRuntime(settings) as runtime:
        redaction.add(runtime.token)
        announce(runtime)
        await runtime.until_stopped(signals)
    log.info("stopped")


def announce(runtime: AgentRuntime) -> None:
    """What a person who starts an agent wants to know, on standard output."""
    settings = runtime.settings
    tell(
        [
            ("Perdure", f"agent {settings.default_agent}"),
            ("health", f"{runtime.address}/api/healthz"),
            ("database", str(settings.database)),
            ("NATS", f"{without_passwords(settings.nats_url or '')}, namespace {settings.namespace}"),
            *about_agents(runtime),
        ]
    )
