"""`perdure backup`, `restore`, `prune`: the database file, whole and verified."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.flags import settings_flags
from perdure.cli.output import AsJson, hint, print_json, print_table
from perdure.cli.session import database_of, holder_of
from perdure.config import Settings
from perdure.deferred import deferred
from perdure.errors import BadRequest, NotFound, PerdureError

Target = Annotated[Path, typer.Argument(help="The file to write; it must not exist.", show_default=False)]
Source = Annotated[Path | None, typer.Argument(help="A file that `perdure backup` wrote.", show_default=False)]
UndoUpgrade = Annotated[
    bool,
    typer.Option("--undo-upgrade", help="Put back the copy that the last upgrade made, if nothing was done since."),
]


@settings_flags()
async def backup(settings: Settings, target: Target, as_json: AsJson = False) -> None:
    """Copies the database, also while a server uses it, and verifies the copy: integrity and the count of every table."""
    database = _existing(settings)
    await deferred("perdure.runtime.files").backup(database, target.absolute())
    size = target.stat().st_size
    if as_json:
        print_json({"database": str(database), "backup": str(target.absolute()), "bytes": size})
    else:
        hint(f"{target} holds a verified copy of {database} ({size:,} bytes)")


@settings_flags()
async def restore(settings: Settings, source: Source = None, undo_upgrade: UndoUpgrade = False) -> None:
    """Puts a backup in the place of the database. The replaced file is kept beside it; a running server is refused."""
    database = database_of(settings)
    if (source is None) is not undo_upgrade:
        raise BadRequest("Name the backup, or say --undo-upgrade: one of the two.")
    if source is None:
        copy = await deferred("perdure.runtime.files").undo(database)
        hint(f"{database} is as it was before the last upgrade ({copy}): start the version that it is of")
        return
    kept = await deferred("perdure.runtime.files").restore(source.absolute(), database)
    hint(f"{database} is restored from {source}")
    if kept is not None:
        hint(f"the replaced database is kept as {kept}")


@settings_flags((*("project", "database"), "retention_days"))
async def prune(
    settings: Settings,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    as_json: AsJson = False,
) -> None:
    """Removes what ended turns older than `retention_days` do not need: superseded checkpoints, events, keys."""
    days = settings.retention_days
    if days is None:
        raise BadRequest("Say how old: --retention-days 30 (or PERDURE_RETENTION_DAYS).")
    database = _existing(settings)
    holder = holder_of(settings)
    if holder is not None and holder.held and not dry_run:
        raise PerdureError(
            f"Process {holder.pid} serves {database}. It prunes by itself when started with --retention-days {days:g}; "
            "stop it to prune from here, or add --dry-run to count."
        )
    counts = await deferred("perdure.runtime.pruning").prune(settings, days, dry_run=dry_run)
    if as_json:
        print_json({"dry_run": dry_run, "retention_days": days, "rows": counts})
        return
    print_table(
        ("table", "would be removed" if dry_run else "removed"), sorted(counts.items()), empty="Nothing to remove."
    )


def _existing(settings: Settings) -> Path:
    database = database_of(settings)
    if not database.exists():
        raise NotFound(f"There is no database at {database}.")
    return database
