"""`perdure conversations` and `perdure export`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.cli.flags import settings_flags
from perdure.cli.output import AsJson, hint, local_time, print_json, print_table, say, shortened
from perdure.cli.session import reading, writing
from perdure.config import Settings
from perdure.errors import BadRequest

app = typer.Typer(no_args_is_help=True, help="What was said: list, search, show, fork, rename, delete.")

Identity = Annotated[str, typer.Argument(help="The conversation's id.", show_default=False)]
Limit = Annotated[int, typer.Option("--limit", min=1, max=200, help="How many.")]
Cursor = Annotated[str | None, typer.Option("--cursor", help="`next` of the page before.", show_default=False)]
OfAgent = Annotated[str | None, typer.Option("--agent", help="Only those of this agent.", show_default=False)]


@app.command("list")
@settings_flags()
async def list_conversations(
    settings: Settings, limit: Limit = 20, cursor: Cursor = None, agent: OfAgent = None, as_json: AsJson = False
) -> None:
    """Newest activity first."""
    async with reading(settings) as client:
        page = await client.get("/api/conversations", limit=limit, cursor=cursor, agent=agent)
    _print_page(page, as_json=as_json, empty='No conversations yet. Try: perdure chat "Hi"')


@app.command()
@settings_flags()
async def search(
    settings: Settings,
    words: Annotated[list[str], typer.Argument(help="What was said, or the title.", show_default=False)],
    *,
    limit: Limit = 20,
    cursor: Cursor = None,
    agent: OfAgent = None,
    as_json: AsJson = False,
) -> None:
    """Those of which one message, or the title, holds all the words; the last one may be a beginning."""
    async with reading(settings) as client:
        page = await client.get("/api/conversations", limit=limit, cursor=cursor, agent=agent, q=" ".join(words))
    _print_page(page, as_json=as_json, empty="Nothing like that was said.")


def _print_page(page: dict[str, Any], *, as_json: bool, empty: str) -> None:
    if as_json:
        print_json(page)
        return
    rows = [
        (
            item["id"],
            item["status"],
            item["message_count"],
            local_time(item["updated_at"]),
            shortened(item["title"], 60),
        )
        for item in page["items"]
    ]
    print_table(("id", "last turn", "messages", "active", "title"), rows, empty=empty)
    tell_next(page)


def tell_next(page: dict[str, Any]) -> None:
    if page.get("next"):
        hint(f"more: --cursor {page['next']}")


@app.command()
@settings_flags()
async def show(settings: Settings, conversation: Identity, as_json: AsJson = False) -> None:
    """The transcript with its turns."""
    async with reading(settings) as client:
        found = await client.get(f"/api/conversations/{conversation}")
    if as_json:
        print_json(found)
        return
    say(found["title"], "bold")
    hint(f"{found['id']} · agent {found['agent']} · {found['message_count']} messages · {found['status'] or 'no turn'}")
    for message in found["messages"]:
        _print_message(message)
    if found.get("resumable"):
        hint(f"The last turn can be resumed: perdure turns resume {found['turns'][-1]['id']}", "yellow")


def _print_message(message: dict[str, Any]) -> None:
    who = message["role"] if message["role"] != "tool" else f"tool {message.get('name', '')}"
    calls = ", ".join(call["name"] for call in message.get("tool_calls", ()))
    say(f"\n{who}{f' → {calls}' if calls else ''}", "bold" if message["role"] == "user" else "dim")
    if message["content"]:
        say(message["content"])


@app.command()
@settings_flags()
async def rename(
    settings: Settings, conversation: Identity, title: Annotated[str, typer.Argument(help="The new title.")]
) -> None:
    """Gives a conversation another title."""
    async with writing(settings) as client:
        await client.patch(f"/api/conversations/{conversation}", {"title": title})
    hint("renamed")


@app.command()
@settings_flags()
async def fork(
    settings: Settings,
    conversation: Identity,
    *,
    message: Annotated[
        str | None, typer.Option("--message", help="Begin before this message (its id).", show_default=False)
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", help="Begin with this checkpoint.", show_default=False)
    ] = None,
    say_first: Annotated[
        str | None,
        typer.Option(
            "--say", help="What is said first; before an answer: what it answered, once more.", show_default=False
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option("--title", help="Else that of the conversation.", show_default=False)
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Repeated with the same key it is the same fork.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """A new conversation with the past of this one; this one stays as it is."""
    if (message is None) == (checkpoint is None):
        raise BadRequest("Name either --message, to begin before it, or --checkpoint, to begin with it.")
    begin = {"message": message} if message is not None else {"checkpoint": checkpoint}
    given = {"from": begin, "message": say_first, "title": title}
    body = {name: value for name, value in given.items() if value is not None}
    async with writing(settings) as client:
        made = await client.post(f"/api/conversations/{conversation}/fork", body, key=key)
    if as_json:
        print_json(made)
        return
    say(made["conversation"])
    hint(f"turn {made['turn']} is {made['status']}" if made["turn"] else "Nothing is said in it yet.")


@app.command()
@settings_flags()
async def delete(
    settings: Settings,
    conversation: Identity,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel its active turn first.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Deletes everything of a conversation and gives the space back."""
    if not yes:
        if not sys.stdin.isatty():
            raise BadRequest("Deleting cannot be taken back: add --yes where nobody can be asked.")
        typer.confirm(f"Delete {conversation} with all its messages?", abort=True)
    async with writing(settings) as client:
        await client.delete(f"/api/conversations/{conversation}", cancel=1 if cancel else None)
    hint("deleted")


@settings_flags()
async def export(
    settings: Settings,
    conversation: Identity,
    form: Annotated[str, typer.Option("--format", help="markdown, or jsonl: one checkpoint a line.")] = "markdown",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of standard output.")] = None,
) -> None:
    """Writes a conversation as Markdown, or each of its checkpoints as a JSON line, oldest first."""
    if form not in {"markdown", "jsonl"}:
        raise BadRequest(f"--format must be markdown or jsonl, not {form!r}.")
    async with reading(settings) as client:
        content = await client.text(
            f"/api/conversations/{conversation}/export", format="jsonl" if form == "jsonl" else None
        )
    if output is None:
        sys.stdout.write(content)
        return
    output.write_text(content, encoding="utf-8")
    hint(f"written to {output}")
