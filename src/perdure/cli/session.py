"""How a command reaches its data: the running server, found by the lock beside the database; for reads without a server, the
file itself, opened read-only behind the same routes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from perdure.cli.client import Client, Server, Unreachable
from perdure.cli.output import doubt, hint
from perdure.config import Settings
from perdure.deferred import deferred
from perdure.errors import ConfigurationError, NotFound
from perdure.settings.places import GATEWAY_FILE_NAME
from perdure.store.sqlite.lock import Holder, read_lock

_KEEP = "Keep the file and run `perdure restore` with the last backup."

STARTING_SECONDS = 60.0
"""How long a command waits for a server that holds the lock but does not listen yet (a migration may take so long)."""


@asynccontextmanager
async def writing(settings: Settings) -> AsyncIterator[Client]:
    """A client of the running server. Raises Unreachable with the command to run when there is none."""
    if not await _running(settings):
        raise Unreachable(
            f"No server is running on {settings.database}. Start it with: perdure serve{_database_flag(settings)}"
        )
    async with Client(lambda: locate(settings), waiting=hint) as client:
        yield client


@asynccontextmanager
async def reading(settings: Settings) -> AsyncIterator[Client]:
    """A client of the running server, else of the file. From a damaged file people get what can be read, with a warning
    before it and exit code 1 after it."""
    if await _running(settings):
        async with Client(lambda: locate(settings), waiting=hint) as client:
            yield client
        return
    database = database_of(settings)
    if not database.exists():
        raise NotFound(f"There is no database at {database} yet. Start with: perdure serve{_database_flag(settings)}")
    async with (
        deferred("perdure.runtime.offline").read_only(settings) as (transport, token, damage),
        Client(lambda: Server("http://127.0.0.1", token), transport=transport) as client,
    ):
        if damage is not None:
            doubt(f"{database} is damaged (SQLite: {damage}): what follows may be wrong or incomplete. {_KEEP}")
        yield client


async def _running(settings: Settings) -> bool:
    """True when a server listens; waits for one that is about to."""
    until = time.monotonic() + STARTING_SECONDS
    while True:
        holder = holder_of(settings)
        if holder is None or not holder.held:
            return False
        if holder.address is not None:
            return True
        if time.monotonic() > until:
            raise Unreachable(
                f"Process {holder.pid} holds {settings.database} but does not listen. See: perdure doctor"
            )
        await asyncio.sleep(0.1)


def locate(settings: Settings) -> Server | None:
    holder = holder_of(settings)
    if holder is None or not holder.held or holder.address is None:
        return None
    return Server(holder.address, _token(settings, holder))


def holder_of(settings: Settings) -> Holder | None:
    """Who holds the database; where nobody said which one, a gateway that runs beside it counts, too."""
    try:
        holder = read_lock(database_of(settings))
        if (holder is None or not holder.held) and settings.origins.get("database", "default").startswith("default"):
            gateway = read_lock(database_of(settings).with_name(GATEWAY_FILE_NAME))
            return gateway if gateway is not None and gateway.held else holder
        return holder
    except OSError as error:
        raise ConfigurationError(f"The lock beside {settings.database} cannot be read: {error.strerror}.") from error


def _token(settings: Settings, holder: Holder) -> str:
    if settings.token is not None:
        return settings.token
    if holder.token_file is None:
        raise ConfigurationError(
            "The server was given its token as a value: set the same PERDURE_TOKEN for this command."
        )
    try:
        return Path(holder.token_file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigurationError(f"The token file {holder.token_file} cannot be read: {error.strerror}.") from error


def database_of(settings: Settings) -> Path:
    assert settings.database is not None, "loaded settings name a database"
    return settings.database


def _database_flag(settings: Settings) -> str:
    """The flag a person needs to meet the same file again; none when it is where it is by default."""
    return f" --database {settings.database}" if settings.origins.get("database") == "--database" else ""
