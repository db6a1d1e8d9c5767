"""Old conversations leave the database file, with or without a server beside it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from perdure.clock import SystemClock
from perdure.config import Settings
from perdure.runtime import logs
from perdure.runtime.files import backup
from perdure.store.sqlite.lock import read_lock
from perdure.store.sqlite.store import open_store
from perdure.transport.local import LocalTransport
from perdure.turns import Limits


async def prune(settings: Settings, days: float, *, dry_run: bool) -> Mapping[str, int]:
    """Rows by table that are, or would be, removed. Counting beside a running server works on a copy."""
    assert settings.database is not None
    logs.set_up_command(settings, os.environ)
    holder = read_lock(settings.database)
    if holder is None or not holder.held:
        return await _prune(settings.database, days, dry_run=dry_run)
    with tempfile.TemporaryDirectory(prefix="perdure-prune-") as folder:
        copy = Path(folder) / "perdure.db"
        await backup(settings.database, copy)
        return await _prune(copy, days, dry_run=True)


async def _prune(database: Path, days: float, *, dry_run: bool) -> Mapping[str, int]:
    clock = SystemClock()
    store = await open_store(database, clock=clock, limits=Limits(), notify=LocalTransport(), version="prune")
    try:
        return await store.prune(clock.now() - timedelta(days=days), dry_run=dry_run)
    finally:
        await store.close()
