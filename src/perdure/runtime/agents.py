"""One agent examined without serving it: does it load, is its model there, do its MCP servers answer, are its tools covered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from perdure.clock import SystemClock
from perdure.config import AgentSettings, Settings
from perdure.graph.errors import ModelNotConfigured
from perdure.graph.load import HostedGraph, load_agent

CONNECT_SECONDS = 5.0
_OLLAMA = "http://127.0.0.1:11434"


@dataclass(frozen=True, slots=True)
class Examined:
    problems: Sequence[str]
    """What keeps the agent from working as it was meant to now, one sentence each."""

    uncovered_tools: Sequence[str]
    """Tools of a graph of one's own that run outside our guard."""


async def examine(agent: AgentSettings, settings: Settings) -> Examined:
    """Connects to the agent's servers, so that names in `needs_approval` that they lack are found too. Raises
    ConfigurationError."""
    hosted = await load_agent(agent, settings, SystemClock())
    try:
        if hosted.tools is not None:
            await hosted.tools.all()  # connects to each MCP server, so that `problems` knows
        problems = [*(hosted.problems() or await _not_creatable(hosted)), *await _unreachable(hosted)]
        return Examined(problems, hosted.uncovered_tools)
    finally:
        await hosted.close()


async def _not_creatable(hosted: HostedGraph) -> list[str]:
    """What a provider's package says when the model is made; this makes no network call."""
    try:
        if hosted.model is not None:
            await hosted.model.get()
    except ModelNotConfigured as error:
        return [error.message]
    return []


async def _unreachable(hosted: HostedGraph) -> list[str]:
    """A model server of our own naming that takes no connection."""
    settings = hosted.settings
    address = settings.model_base_url
    if address is None and settings.model.startswith("ollama:"):
        address = _OLLAMA
    if hosted.model is None or address is None:
        return []
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
        writer.close()
    except (OSError, TimeoutError):
        return [f"The model server {parts.hostname}:{port} takes no connection. Start it, or correct `model_base_url`."]
    return []
