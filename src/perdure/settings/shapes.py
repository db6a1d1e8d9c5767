"""What settings mean for a process that is one half of the program on NATS: an agent, or a gateway."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from perdure.config import AgentSettings, Settings
from perdure.errors import ConfigurationError
from perdure.settings.places import GATEWAY_FILE_NAME
from perdure.settings.values import SUBJECT_WORD, did_you_mean

_NO_NATS = "Say where NATS is: --nats-url nats://127.0.0.1:4222 (or PERDURE_NATS_URL)."
_TLS_PAIR = "`nats_certificate_file` and `nats_key_file` go together: give both or neither."
_TWO_IDENTITIES = "`nats_credentials_file` and `nats_nkey_file` are both given: keep one of them."


def for_agent(settings: Settings) -> Settings:
    """Of one agent alone, on a free port unless one is named (only health is served there). Raises ConfigurationError."""
    chosen = _chosen(settings)
    problems = [*_connection(settings), *([chosen] if isinstance(chosen, str) else [])]
    if problems or isinstance(chosen, str):
        raise ConfigurationError(problems)
    port = settings.port if "port" in settings.origins else 0
    return replace(settings, agents=(chosen,), default_agent=chosen.name, port=port)


def for_gateway(settings: Settings) -> Settings:
    """Without agents of its own; its database stands beside the place of an agent's. Raises ConfigurationError."""
    problems = list(_connection(settings))
    if problems:
        raise ConfigurationError(problems)
    database = settings.database
    if database is not None and settings.origins.get("database", "default").startswith("default"):
        database = database.with_name(GATEWAY_FILE_NAME)
    return replace(settings, agents=(), database=database)


def _connection(settings: Settings) -> Iterator[str]:
    if settings.nats_url is None:
        yield _NO_NATS
    if (settings.nats_certificate_file is None) != (settings.nats_key_file is None):
        yield _TLS_PAIR
    if settings.nats_credentials_file is not None and settings.nats_nkey_file is not None:
        yield _TWO_IDENTITIES


def _chosen(settings: Settings) -> AgentSettings | str:
    """The agent, or what is wrong with the choice."""
    names = [agent.name for agent in settings.agents]
    wanted = settings.agent_name
    if wanted is None and len(names) > 1:
        return f"Say which agent this process serves: --agent-name NAME. The project has: {', '.join(names)}."
    found = next((agent for agent in settings.agents if wanted in (None, agent.name)), None)
    if found is None and _unnamed(settings):
        return replace(settings.agents[0], name=str(wanted))
    if found is None:
        hint = did_you_mean(str(wanted), names)
        return f"`agent_name` names {wanted!r}, but the agents of the project are: {', '.join(names)}.{hint}"
    if not re.fullmatch(SUBJECT_WORD, found.name):
        return f"The agent {found.name!r} cannot be a word of a NATS subject: letters, digits, `_` and `-` alone, at most 64."
    return found


def _unnamed(settings: Settings) -> bool:
    """Whether nobody has named the one agent: no table of a project file is its own."""
    return not any(origin.startswith("agents.") for origin in settings.origins)
