"""`perdure turns`: what was accepted and what became of it; resume, cancel, answer."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from perdure.cli.cards import json_or_text, open_cards, tell, tell_commands
from perdure.cli.client import Client
from perdure.cli.conversations import Cursor, Limit, OfAgent, tell_next
from perdure.cli.flags import settings_flags
from perdure.cli.output import AsJson, exact, hint, local_time, print_json, print_table, say, seconds_between, shortened
from perdure.cli.session import reading, writing
from perdure.config import Settings
from perdure.errors import PerdureError, TurnNotResumable
from perdure.turns import TurnStatus

app = typer.Typer(no_args_is_help=True, help="Turns: list, show, resume, cancel, answer.")

Identity = Annotated[str, typer.Argument(help="The turn's id.", show_default=False)]
Identities = Annotated[list[str], typer.Argument(help="Ids of turns.", show_default=False)]


@app.command("list")
@settings_flags()
async def list_turns(
    settings: Settings,
    *,
    status: Annotated[
        TurnStatus | None, typer.Option("--status", help="Only turns in this state.", show_default=False)
    ] = None,
    agent: OfAgent = None,
    attempts_min: Annotated[
        int | None,
        typer.Option("--attempts-min", min=0, help="Only those that needed so many attempts.", show_default=False),
    ] = None,
    search: Annotated[
        str | None, typer.Option("--search", help="An id, a reason, or words that were said.", show_default=False)
    ] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Newest accepted first."""
    async with reading(settings) as client:
        page = await client.get(
            "/api/turns",
            status=str(status) if status else None,
            agent=agent,
            attempts_min=attempts_min,
            q=search,
            limit=limit,
            cursor=cursor,
        )
    if as_json:
        print_json(page)
        return
    rows = [
        (
            turn["id"],
            turn["status"],
            turn.get("reason"),
            turn["agent"],
            local_time(turn["accepted_at"]),
            turn["conversation"],
        )
        for turn in page["items"]
    ]
    print_table(("id", "status", "reason", "agent", "accepted", "conversation"), rows, empty="No turns.")
    tell_next(page)


@app.command()
@settings_flags()
async def show(settings: Settings, turn: Identity, as_json: AsJson = False) -> None:
    """A turn with its attempts, its tool calls and what waits for a decision."""
    async with reading(settings) as client:
        found = await client.get(f"/api/turns/{turn}")
    if as_json:
        print_json(found)
        return
    say(f"{found['id']} · {found['status']}", "bold")
    hint(f"conversation {found['conversation']} · agent {found['agent']} · accepted {local_time(found['accepted_at'])}")
    if found.get("error"):
        say(f"{found.get('reason')}: {_sentence(found['error'])}", "red")
    rows = [
        (
            attempt["number"],
            attempt["outcome"] or "running",
            local_time(attempt["started_at"]),
            f"{seconds_between(attempt['started_at'], attempt['ended_at']):.1f} s",
            attempt["owner"],
        )
        for attempt in found["attempts"]
    ]
    print_table(("attempt", "outcome", "started", "took", "owner"), rows, empty="No attempt yet.")
    if found["calls"]:
        print_table(("call", "effect", "state", "starts", "took", "key"), map(_call, found["calls"]), empty="")
    for card in open_cards(found):
        tell(card, say)
        tell_commands(card)


def _call(call: dict[str, Any]) -> tuple[Any, ...]:
    outcome = call["status"] if call["state"] == "done" and call["status"] == "error" else call["state"]
    why = f": {shortened(call['error'], 80)}" if call["error"] else ""
    took = f"{seconds_between(call['started_at'], call['ended_at']):.1f} s" if call["ended_at"] else ""
    what = shortened(f"{call['name']} {exact(call['arguments'])}", 60)
    return what, call["effect_class"], f"{outcome}{why}", call["starts"], took, call["key"]


def _sentence(error: Any) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)


@app.command()
@settings_flags()
async def resume(settings: Settings, turn: Identity) -> None:
    """Re-opens a failed or interrupted turn: it goes on from its last committed step, with a fresh step budget.

    A turn whose owner died needs no command: the server drives it again by itself.
    """
    async with writing(settings) as client:
        await _resume(client, turn)
    hint(f"{turn} is queued")


@app.command()
@settings_flags()
async def redrive(settings: Settings, turns: Identities) -> None:
    """The same as resume, for several turns at once; tells which could not be resumed and why."""
    refused = 0
    async with writing(settings) as client:
        for turn in turns:
            try:
                await _resume(client, turn)
                say(f"{turn} queued")
            except PerdureError as error:
                refused += 1
                say(f"{turn} {error.message}", "red")
    if refused:
        raise typer.Exit(1)


async def _resume(client: Client, turn: str) -> None:
    found = await client.get(f"/api/turns/{turn}")
    if not found.get("resumable"):
        raise TurnNotResumable(_why_not(found), conversation=found["conversation"], turn=turn)
    await client.post("/api/chat", {"resume": True, "conversation": found["conversation"]})


def _why_not(turn: dict[str, Any]) -> str:
    if turn["status"] not in {TurnStatus.FAILED, TurnStatus.INTERRUPTED}:
        return f"It is {turn['status']}; only a failed or interrupted turn can be resumed."
    return "It cannot be resumed: a later message was accepted in its conversation, or nothing of it is pending."


@app.command()
@settings_flags()
async def cancel(settings: Settings, turns: Identities) -> None:
    """Asks turns to stop at the next safe point; what is finished stays."""
    async with writing(settings) as client:
        for turn in turns:
            found = await client.post(f"/api/turns/{turn}/cancel")
            say(f"{turn} {found['status']}")


@app.command()
@settings_flags()
async def answer(
    settings: Settings,
    turn: Identity,
    question: Annotated[str, typer.Argument(help="The question's id (see: perdure turns show).")],
    value: Annotated[str, typer.Argument(help="JSON; what is not JSON is taken as text.")],
) -> None:
    """Answers a question of a parked turn. The first answer counts. Cards about tool calls: perdure approvals."""
    async with writing(settings) as client:
        found = await client.get(f"/api/turns/{turn}")
        await client.post(
            "/api/chat", {"conversation": found["conversation"], "resume": {question: json_or_text(value)}}
        )
    hint("answered")
