"""`perdure agents`: which agents a server has, and what a gateway forgets of one that was taken away."""

from __future__ import annotations

import sys
from typing import Annotated, Any
from urllib.parse import quote

import typer
from typer.core import TyperGroup

from perdure.cli.flags import settings_flags
from perdure.cli.output import AsJson, hint, print_json, print_table
from perdure.cli.session import writing
from perdure.config import Settings
from perdure.errors import BadRequest


class _Listing(TyperGroup):
    """Lists where no other command is named: `perdure agents --json`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["list", *args])


app = typer.Typer(cls=_Listing, help="The agents of a running server; without a command they are listed.")

WHAT_STAYS = (
    "At the agent nothing is deleted: when {name} starts again it is met anew, with all it had. For good, remove its file or "
    "volume (docker volume rm); its events leave NATS' stream after seven days. Each gateway forgets for itself."
)


@app.command("list")
@settings_flags()
async def list_agents(settings: Settings, as_json: AsJson = False) -> None:
    """By name, each with whether it can be asked now."""
    async with writing(settings) as client:
        found = await client.get("/api/agents")
    if as_json:
        print_json(found)
        return
    rows = [
        (agent["name"], agent["reach"], agent["model"] or "", "yes" if agent["default"] else "")
        for agent in found["items"]
    ]
    print_table(
        ("name", "reach", "model", "default"), rows, empty="No agent is known yet. Start one with: perdure agent"
    )


@app.command()
@settings_flags()
async def forget(
    settings: Settings,
    name: Annotated[str, typer.Argument(help="The agent, which must not be running.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Takes an agent that was taken away out of a gateway's lists, with the copy of its conversations."""
    if not name.strip(" ."):
        raise BadRequest("The name of an agent is needed, which `perdure agents` shows: perdure agents forget NAME")
    if not yes:
        if not sys.stdin.isatty():
            raise BadRequest("A copy is thrown away: add --yes where nobody can be asked.")
        hint(WHAT_STAYS.format(name=name))
        typer.confirm(f"Forget {name} here, with the copy of its conversations?", abort=True)
    async with writing(settings) as client:
        await client.delete(f"/api/agents/{quote(name, safe='')}")
    hint(f"{name} is forgotten here")
    if yes:
        hint(WHAT_STAYS.format(name=name))
