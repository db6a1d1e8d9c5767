"""`perdure config`: what is set, and who said so."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.cli.flags import settings_flags
from perdure.cli.output import AsJson, hint, print_json, print_table
from perdure.config import AgentSettings, Settings
from perdure.settings.catalogue import BY_NAME, SETTINGS
from perdure.settings.values import MASK, without_passwords

app = typer.Typer(no_args_is_help=True, help="The settings as loaded.")


@app.command()
@settings_flags(setting.name for setting in SETTINGS)
async def show(
    settings: Settings,
    origin: Annotated[bool, typer.Option("--origin", help="Where each value came from.")] = False,
    as_json: AsJson = False,
) -> None:
    """Every setting with its value; secrets are masked."""
    lines = _lines(settings)
    if as_json:
        print_json([{"name": name, "value": value, "origin": source} for name, value, source in lines])
        return
    columns = ("setting", "value", "origin") if origin else ("setting", "value")
    print_table(columns, [(name, _readable(value), source)[: len(columns)] for name, value, source in lines], empty="")
    for notice in settings.notices:
        hint(notice, "yellow")


def _lines(settings: Settings) -> list[tuple[str, Any, str]]:
    values = asdict(settings)
    found = [
        (setting.name, _shown(setting.name, values[setting.name]), settings.origins.get(setting.name, "default"))
        for setting in SETTINGS
        if not setting.of_agent
    ]
    return found + [line for agent in settings.agents for line in _agent_lines(settings, agent)]


def _agent_lines(settings: Settings, agent: AgentSettings) -> list[tuple[str, Any, str]]:
    values = asdict(agent)
    names = [name for name in values if name not in {"name", "base"}]
    return [
        (f"agents.{agent.name}.{name}", _shown(name, values[name]), _origin(settings, agent.name, name))
        for name in names
    ]


def _origin(settings: Settings, agent: str, name: str) -> str:
    default = settings.origins.get(name, "default") if name in BY_NAME and BY_NAME[name].of_agent else "default"
    return settings.origins.get(f"agents.{agent}.{name}", default)


def _shown(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in BY_NAME and BY_NAME[name].secret:
        return MASK
    if name in {"model_base_url", "nats_url"}:
        return without_passwords(value)
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


def _readable(value: Any) -> str:
    if value is None:
        return "–"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
