"""`perdure agent`, `perdure gateway`, `perdure nats-config`: the program in two halves, with NATS between them."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.flags import settings_flags
from perdure.cli.output import say
from perdure.cli.serve import adopt_environment
from perdure.config import Settings
from perdure.deferred import deferred
from perdure.settings.catalogue import SETTINGS
from perdure.settings.shapes import for_agent, for_gateway

OF_NATS = ("nats_url", "nats_prefix", "namespace", "nats_credentials_file", "nats_nkey_file", "nats_ca_file")
OF_GATEWAY = frozenset(
    {
        *OF_NATS,
        "nats_certificate_file",
        "nats_key_file",
        "host",
        "port",
        "allowed_hosts",
        "database",
        "token",
        "token_file",
        "project",
        "default_agent",
        "heartbeat_seconds",
        "retention_days",
        "max_message_bytes",
        "turn_deadline_seconds",
        "agent_wait_seconds",
        "log_level",
        "log_format",
    }
)
_NOT_OF_AGENT = frozenset({"allowed_hosts", "default_agent", "turn_deadline_seconds", "agent_wait_seconds"})


@settings_flags(setting.name for setting in SETTINGS if setting.name not in _NOT_OF_AGENT)
async def agent(settings: Settings) -> None:
    """Starts one agent that is reached over NATS: engine, tools and its own file. Gateways show it.

    SIGTERM or Ctrl-C hands running turns over to the next start; a second signal cuts at once.
    """
    adopt_environment(settings)
    await deferred("perdure.runtime.agent").serve(for_agent(settings))


@settings_flags(OF_GATEWAY)
async def gateway(settings: Settings) -> None:
    """Starts the API and the page for agents on NATS. It has no agent of its own; its file is a copy that can be made again."""
    await deferred("perdure.runtime.gateway").serve(for_gateway(settings))


@settings_flags(OF_NATS)
async def nats_config(
    settings: Settings,
    agents: Annotated[
        list[str] | None,
        typer.Option("--agent", metavar="NAME", help="An agent that gets a user of its own; several are possible."),
    ] = None,
    store: Annotated[str, typer.Option(metavar="FOLDER", help="Where NATS keeps its streams.")] = "./jetstream",
) -> None:
    """Prints a configuration for nats-server: JetStream synced at every write, limits, and with --agent the permissions.

    Without --agent NATS listens on the loopback for everybody there.
    """
    config = deferred("perdure.transport.nats.server_config").server_config
    say(config(settings.nats_prefix, settings.namespace, agents or (), store_folder=store))
