"""`perdure tokens` and `perdure audit`: who may speak to the server, and who did what."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from perdure.cli.conversations import Cursor, Limit, tell_next
from perdure.cli.flags import settings_flags
from perdure.cli.output import AsJson, exact, hint, local_time, print_json, print_table, say, shortened
from perdure.cli.session import reading, writing
from perdure.config import Settings
from perdure.turns import Role

app = typer.Typer(no_args_is_help=True, help="Named tokens: create, list, revoke.")

Name = Annotated[str, typer.Argument(help="Who holds it: in decisions and in the audit.", show_default=False)]


@app.command()
@settings_flags()
async def create(
    settings: Settings,
    name: Name,
    role: Annotated[
        Role, typer.Option("--role", help="user: its own conversations; operator: reads and decides everything.")
    ] = Role.USER,
    as_json: AsJson = False,
) -> None:
    """Makes a token and prints its secret, once. A name is used once, also after it was revoked."""
    async with writing(settings) as client:
        made = await client.post("/api/tokens", {"name": name, "role": str(role)})
    if as_json:
        print_json(made)
        return
    say(made["secret"])
    hint(
        f"This is shown once. {made['name']} ({made['role']}) sends it as `Authorization: Bearer …`, or as PERDURE_TOKEN."
    )


@app.command("list")
@settings_flags()
async def list_tokens(settings: Settings, as_json: AsJson = False) -> None:
    """Oldest first, the revoked ones too; never their secrets."""
    async with reading(settings) as client:
        found = await client.get("/api/tokens")
    if as_json:
        print_json(found)
        return
    rows = [
        (
            token["name"],
            token["role"],
            local_time(token["created_at"]),
            token["created_by"],
            local_time(token["last_used_at"]) or "never",
            local_time(token["revoked_at"]),
        )
        for token in found["items"]
    ]
    columns = ("name", "role", "created", "by", "last used", "revoked")
    print_table(columns, rows, empty="No named tokens. Make one: perdure tokens create NAME")


@app.command()
@settings_flags()
async def revoke(settings: Settings, name: Name) -> None:
    """Refuses a token from now on and ends what it watches; the turns it started go on."""
    async with writing(settings) as client:
        await client.delete(f"/api/tokens/{quote(name, safe='')}")
    hint(f"{name} is revoked")


@settings_flags()
async def audit(settings: Settings, limit: Limit = 50, cursor: Cursor = None, as_json: AsJson = False) -> None:
    """Who decided, cancelled, resumed, renamed, deleted, made and revoked what; newest first."""
    async with reading(settings) as client:
        page = await client.get("/api/audit", limit=limit, cursor=cursor)
    if as_json:
        print_json(page)
        return
    rows = [
        (
            local_time(entry["at"]),
            entry["by"],
            entry["action"],
            entry["card"] or entry["turn"] or entry["conversation"],
            shortened(exact(entry["detail"]), 80) if entry["detail"] else "",
        )
        for entry in page["items"]
    ]
    print_table(("at", "by", "did", "of", "detail"), rows, empty="Nothing was done yet.")
    tell_next(page)
