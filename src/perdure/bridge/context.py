"""What the methods work with, and what several of them do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from perdure.agent.base import AgentPort
from perdure.bridge.params import Keyed
from perdure.bridge.resting import Resting
from perdure.replication import Position
from perdure.store.base import JournalReader
from perdure.store.outbox import Outbox
from perdure.transport.base import Transport
from perdure.transport.nats.names import Names
from perdure.transport.nats.wire import rows_to_json
from perdure.turns import RequestKey


class Journal(JournalReader, Outbox, Protocol):
    """The agent's own database, as the bridge reads it."""

    @property
    def owner_name(self) -> str:
        """`host:pid:boot_id` of this process."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    agent: str
    names: Names
    agents: AgentPort
    journal: Journal
    transport: Transport
    resting: Resting
    boot: str
    version: str
    max_message_bytes: int
    leaving: Callable[[], bool]
    since: int = 0
    """When this process began, in milliseconds of the epoch."""

    async def rows(self, *, turns: Sequence[str] = (), conversations: Sequence[str] = ()) -> Mapping[str, Any]:
        """Of these, as they are now."""
        return rows_to_json(await self.journal.journal_rows(Position(), turns=turns, conversations=conversations))


def request_key(what: str, params: Keyed) -> RequestKey | None:
    """The same for two requests that mean the same. `what`: what is asked for, whichever method asks."""
    if params.idempotency_key is None:
        return None
    return RequestKey(params.idempotency_key, params.request_digest or _digest(what, params))


def _digest(what: str, params: Keyed) -> str:
    apart = {"person", "idempotency_key", "request_digest", "timeout_seconds"}
    meaning = {"what": what} | params.model_dump(mode="json", exclude=apart, exclude_defaults=True)
    canonical = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
