"""`perdure approvals`: what waits for a person, and the decisions."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

import typer

from perdure.cli.cards import arguments_of, json_or_text, tell, tell_commands
from perdure.cli.client import Client, Refused
from perdure.cli.conversations import Cursor, Limit, tell_next
from perdure.cli.flags import settings_flags
from perdure.cli.output import AsJson, exact, hint, local_time, print_json, print_table, say, shortened
from perdure.cli.session import locate, reading, writing
from perdure.config import Settings
from perdure.errors import BadRequest, UnknownCard

app = typer.Typer(no_args_is_help=True, help="What waits for a person: list, show, decide.")

Identity = Annotated[str, typer.Argument(help="The card's id, or its beginning.", show_default=False)]
Note = Annotated[str | None, typer.Option("--note", help="Why.", show_default=False)]
NoteForModel = Annotated[str | None, typer.Option("--note", help="Why: told to the model.", show_default=False)]


@app.command("list")
@settings_flags()
async def list_approvals(
    settings: Settings,
    *,
    conversation: Annotated[
        str | None, typer.Option("--conversation", "-c", help="Only what waits in this one.", show_default=False)
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Everything that waits for you, oldest first."""
    async with reading(settings) as client:
        page = await client.get("/api/approvals", conversation=conversation, limit=limit, cursor=cursor)
        unfinished = await _unfinished(client) if locate(settings) is None else 0
    if as_json:
        print_json(page)
        return
    rows = [
        (card["id"], card["kind"], _what(card), local_time(card["opened_at"]), local_time(card["expires_at"]))
        for card in page["items"]
    ]
    print_table(("id", "kind", "what", "since", "expires"), rows, empty="Nothing waits for a decision.")
    tell_next(page)
    if unfinished:
        hint(f"Unfinished turns in the file: {unfinished}. No server is running: start it, they may ask something.")


async def _unfinished(client: Client) -> int:
    counts = await client.get("/api/turns/counts")
    return sum(counts[status] for status in ("queued", "running"))


def _what(card: Mapping[str, Any]) -> str:
    if card["kind"] == "interrupt":
        return shortened(exact(card.get("request")), 80)
    return shortened(f"{card['tool']} {exact(card['arguments'])}", 80)


@app.command()
@settings_flags()
async def show(settings: Settings, card: Identity, as_json: AsJson = False) -> None:
    """A card with its exact arguments and the commands that decide it."""
    async with reading(settings) as client:
        found = await find(client, card)
    if as_json:
        print_json(found)
        return
    say(f"{found['id']} · {found['kind']} · {found['state']}", "bold")
    tell(found, say)
    hint(f"turn {found['turn']} · conversation {found['conversation']} · since {local_time(found['opened_at'])}")
    if found["state"] == "opened":
        tell_commands(found)


@app.command()
@settings_flags()
async def approve(
    settings: Settings,
    card: Identity,
    *,
    arguments: Annotated[
        str | None,
        typer.Option("--arguments", help="JSON: run it with exactly these instead.", show_default=False),
    ] = None,
    note: Note = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Lets a call run, with its own arguments or with others. Prints exactly what will run."""
    decision: dict[str, Any] = {"decision": "approve"}
    if arguments is not None:
        decision["arguments"] = _checked(arguments)
    async with writing(settings) as client:
        found = await find(client, card)
        if found["kind"] == "approval":
            hint(f"{found['tool']} runs with exactly {exact(decision.get('arguments', found['arguments']))}", "bold")
            if not yes and sys.stdin.isatty():
                typer.confirm("Approve?", abort=True)
        await _decide(client, found, decision, note, as_json)


def _checked(arguments: str) -> dict[str, Any]:
    try:
        return arguments_of(arguments)
    except ValueError as error:
        raise BadRequest(f"--arguments: {error}") from error


@app.command()
@settings_flags()
async def deny(settings: Settings, card: Identity, note: NoteForModel = None, as_json: AsJson = False) -> None:
    """Keeps a call from running; the model is told so, and goes on."""
    await _say(settings, card, {"decision": "deny"}, note, as_json)


@app.command()
@settings_flags()
async def happened(
    settings: Settings,
    card: Identity,
    *,
    result: Annotated[
        str | None,
        typer.Option("--result", help="What it gave: JSON, else taken as text.", show_default=False),
    ] = None,
    note: Note = None,
    as_json: AsJson = False,
) -> None:
    """Says of an uncertain call that it took effect: it is not run again."""
    decision: dict[str, Any] = {"decision": "happened"}
    if result is not None:
        decision["result"] = json_or_text(result)
    await _say(settings, card, decision, note, as_json)


@app.command()
@settings_flags()
async def retry(settings: Settings, card: Identity, note: Note = None, as_json: AsJson = False) -> None:
    """Says of an uncertain call that it did not take effect: it is run again."""
    await _say(settings, card, {"decision": "retry"}, note, as_json)


@app.command("give-up")
@settings_flags()
async def give_up(settings: Settings, card: Identity, note: NoteForModel = None, as_json: AsJson = False) -> None:
    """Leaves open what became of an uncertain call: it is not run again, and the model is told that nobody knows."""
    await _say(settings, card, {"decision": "give_up"}, note, as_json)


@app.command()
@settings_flags()
async def answer(
    settings: Settings,
    card: Identity,
    value: Annotated[str, typer.Argument(help="JSON; what is not JSON is taken as text.")],
    note: Note = None,
    as_json: AsJson = False,
) -> None:
    """Answers a question that a graph asks by itself."""
    await _say(settings, card, {"decision": "answer", "value": json_or_text(value)}, note, as_json)


async def _say(settings: Settings, card: str, decision: dict[str, Any], note: str | None, as_json: bool) -> None:
    async with writing(settings) as client:
        await _decide(client, await find(client, card), decision, note, as_json)


async def _decide(
    client: Client, card: Mapping[str, Any], decision: dict[str, Any], note: str | None, as_json: bool
) -> None:
    """The first decision counts: a later one is refused with who decided what and when."""
    if note is not None:
        decision["note"] = note
    decided = await client.post(f"/api/approvals/{card['id']}", decision)
    if as_json:
        print_json(decided)
    elif decided["turn_status"] == "parked":
        hint(f"{decision['decision']}: noted; the turn waits for its other cards")
    else:
        hint(f"{decision['decision']}: the turn goes on")


async def find(client: Client, given: str) -> dict[str, Any]:
    """The card with this id, or the one that waits whose id begins so. Raises UnknownCard, BadRequest for several."""
    try:
        return dict(await client.get(f"/api/approvals/{quote(given, safe='') or '-'}"))
    except Refused as refused:
        if refused.code != UnknownCard.code:
            raise
    waiting = [card async for card in client.pages("/api/approvals")]
    fitting = [card for card in waiting if given and card["id"].startswith(given)]
    if len(fitting) == 1:
        return dict(fitting[0])
    if fitting:
        raise BadRequest(f"{given!r} begins several ids: {', '.join(card['id'] for card in fitting)}. Type more of it.")
    pending = ", ".join(card["id"] for card in waiting) or "none"
    raise UnknownCard(f"No card {given!r} waits for you. Those that wait: {pending}.")
