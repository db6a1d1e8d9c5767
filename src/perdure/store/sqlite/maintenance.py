"""Keeping the house: deleting conversations, retention, space given back, numbers for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw

from perdure.errors import TurnInProgress
from perdure.forks import DatabaseSize
from perdure.ledger import CallState
from perdure.store.sqlite import audit, search
from perdure.store.sqlite.database import scalar
from perdure.store.sqlite.journal import QUERIES, require_conversation, turn_of
from perdure.store.sqlite.keys import KEY_LIFETIME
from perdure.store.sqlite.rows import instant, micros
from perdure.store.sqlite.threads import delete_thread_rows, prune_superseded
from perdure.store.sqlite.writer import WriterCounts
from perdure.turns import Turn, TurnStatus

VACUUM_PAGES = 2_000
"""Free pages given back in one transaction, so that no other write waits long."""

PRUNE_PAGE = 50
"""Conversations pruned in one transaction."""

PRUNE_ROWS = 5_000
"""Rows of one table forgotten in one transaction."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one transaction removed: rows by table, the conversations it touched, and where the next one begins."""

    counts: Counter[str]
    conversations: Sequence[str] = ()
    last: str | None = None


class Undo(Exception):
    """Leaves a transaction without a trace, with what it would have done."""

    def __init__(self, pruned: Pruned) -> None:
        self.pruned = pruned
        super().__init__()


def delete_conversation(
    connection: apsw.Connection,
    scope: str | None,
    conversation: str,
    *,
    by: str,
    now: datetime,
    served: Collection[str] | None,
) -> None:
    """Removes all that a conversation is; that it was there stays in the audit. Raises TurnInProgress as `Store.delete`."""
    owner = require_conversation(connection, scope, conversation)["owner"]
    busy = turn_of(connection, "turn_active", conversation=conversation) or turn_of(
        connection, "turn_first_waiting", conversation=conversation
    )
    if busy is not None and not _is_abandoned(busy, served):
        raise TurnInProgress(
            "The conversation has an active turn. Cancel it first, or delete with `cancel=1`.",
            conversation=conversation,
            turn=busy.id,
        )
    search.forget(connection, conversation)
    delete_thread_rows(connection, conversation)
    QUERIES.run(connection, "conversation_delete", id=conversation)
    audit.note(connection, "delete", by=by or owner, now=now, owner=owner, conversation=conversation)


def _is_abandoned(turn: Turn, served: Collection[str] | None) -> bool:
    return served is not None and turn.agent not in served and turn.status is not TurnStatus.RUNNING


def vacuum(connection: apsw.Connection) -> bool:
    """Gives some free pages back to the file system; True while more are left."""
    for _ in connection.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})"):
        pass
    return bool(scalar(connection, "PRAGMA freelist_count") > 0)


def prune_page(connection: apsw.Connection, after: str, older_than: datetime, *, dry_run: bool) -> Pruned:
    """Prunes some conversations beyond a place. A dry run raises Undo."""
    rows = QUERIES.all(connection, "prune_candidates", after=after, before=micros(older_than), limit=PRUNE_PAGE)
    conversations = [row["conversation"] for row in rows]
    counts: Counter[str] = Counter()
    for conversation in conversations:
        counts += _prune_conversation(connection, conversation, older_than)
    pruned = Pruned(counts, conversations, conversations[-1] if conversations else None)
    if dry_run:
        raise Undo(pruned)
    return pruned


def _prune_conversation(connection: apsw.Connection, conversation: str, older_than: datetime) -> Counter[str]:
    bindings: dict[str, Any] = {"conversation": conversation, "before": micros(older_than)}
    deleted = QUERIES.all(connection, "prune_events", **bindings)
    counts = Counter({"events": len(deleted), "tool_calls": QUERIES.run(connection, "prune_calls", **bindings)})
    items = [row["item_id"] for row in deleted if row["item_id"] is not None]
    runs = {row["id"] for row in QUERIES.all(connection, "prune_runs", **bindings)}
    runs.update(row["run_id"] for row in QUERIES.all(connection, "prune_inherited", **bindings))
    counts["checkpoints"] = prune_superseded(connection, conversation, items, runs)
    return counts


def prune_rest(connection: apsw.Connection, older_than: datetime, *, now: datetime, boot: int) -> Counter[str]:
    """Some of the keys that no longer count, of the old summaries and the old starts; empty when none are left."""
    before = {"before": micros(older_than), "limit": PRUNE_ROWS}
    keys_before = {"before": micros(now - KEY_LIFETIME), "limit": PRUNE_ROWS}
    return +Counter(
        {
            "idempotency_keys": QUERIES.run(connection, "prune_keys", **keys_before),
            "changes": QUERIES.run(connection, "prune_changes", **before),
            "boots": QUERIES.run(connection, "prune_boots", number=boot, **before),
        }
    )


def prunable_rest(connection: apsw.Connection, older_than: datetime, *, now: datetime, boot: int) -> Counter[str]:
    """What `prune_rest` removes in the end."""
    row = QUERIES.one(
        connection, "prunable", before=micros(older_than), keys_before=micros(now - KEY_LIFETIME), number=boot
    )
    return +Counter(row or {})


def statistics(connection: apsw.Connection, path: Path, counts: WriterCounts, now: datetime) -> dict[str, float]:
    oldest = QUERIES.one(connection, "oldest_queued")
    return {
        **_turns_by_status(connection),
        **_waiting_for_people(connection, now),
        **_calls_by_state(connection),
        "oldest_queued_seconds": _age(oldest["accepted_at"] if oldest else None, now),
        "database_bytes": _size(path),
        "wal_bytes": _size(path.with_name(f"{path.name}-wal")),
        "transactions": counts.transactions,
        "commits": counts.commits,
        "failed_commits": counts.failures,
    }


def size_of(path: Path) -> DatabaseSize:
    return DatabaseSize(str(path), _size(path), _size(path.with_name(f"{path.name}-wal")))


def _turns_by_status(connection: apsw.Connection) -> dict[str, float]:
    numbers: dict[str, float] = {f"turns_{status}": 0 for status in ("waiting", "queued", "running", "parked")}
    return numbers | {f"turns_{row['status']}": row["turns"] for row in QUERIES.all(connection, "turns_by_status")}


def _waiting_for_people(connection: apsw.Connection, now: datetime) -> dict[str, float]:
    row = QUERIES.one(connection, "open_cards") or {"cards": 0, "opened_at": None}
    return {"open_cards": row["cards"], "oldest_open_card_seconds": _age(row["opened_at"], now)}


def _calls_by_state(connection: apsw.Connection) -> dict[str, float]:
    """`started`: under way, or of unknown outcome; `recorded`: their task's writes are still to come. Settled calls are
    history."""
    numbers: dict[str, float] = {f"tool_calls_{state}": 0 for state in (CallState.STARTED, CallState.RECORDED)}
    return numbers | {f"tool_calls_{row['state']}": row["calls"] for row in QUERIES.all(connection, "calls_by_state")}


def _age(since: int | None, now: datetime) -> float:
    return max((now - instant(since)).total_seconds(), 0.0) if since else 0.0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size  # never opened here: see database.py
    except OSError:
        return 0
