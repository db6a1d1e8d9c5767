"""A gateway's own database on one SQLite file: `perdure.store.replica.Replica`."""

from __future__ import annotations

from pathlib import Path

from perdure.clock import Clock
from perdure.store.base import Notify
from perdure.store.replica import Replica


async def open_replica(
    path: Path, *, notify: Notify, clock: Clock, version: str = "", allow_unsafe_file_system: bool = False
) -> Replica:
    """Locks, opens and migrates the gateway's file, makes it where it is missing, and notes this start. Ended by `close`.

    Raises DatabaseUnusable with what to do, also for the file of an agent (or of a server that is both in one): a gateway
    needs one of its own.
    """
    raise NotImplementedError
