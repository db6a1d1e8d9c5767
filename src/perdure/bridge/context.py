"""What the methods work with."""

from __future__ import annotations

from typing import Protocol

from perdure.store.base import JournalReader
from perdure.store.outbox import Outbox


class Journal(JournalReader, Outbox, Protocol):
    """The agent's own database, as the bridge reads it."""

    @property
    def owner_name(self) -> str:
        """`host:pid:boot_id` of this process."""
        ...
