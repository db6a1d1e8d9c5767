"""Idempotency keys: a request that comes again is answered as it was the first time."""

from __future__ import annotations

from datetime import datetime, timedelta

import apsw

from perdure.errors import IdempotencyConflict
from perdure.store.sqlite.journal import QUERIES
from perdure.store.sqlite.rows import micros
from perdure.turns import Accepted, RequestKey, TurnStatus

KEY_LIFETIME = timedelta(days=7)
"""An older idempotency key counts as unused."""


def repeated_request(
    connection: apsw.Connection, owner: str, request_key: RequestKey | None, now: datetime
) -> Accepted | None:
    """What the request was answered before; None without a key, for a new one and for one that is too old to count."""
    if request_key is None:
        return None
    row = QUERIES.one(connection, "key", owner=owner, key=request_key.key)
    if row is None or row["created_at"] < micros(now - KEY_LIFETIME):
        return None
    if row["digest"] != request_key.digest:
        raise IdempotencyConflict(conversation=row["conversation"], turn=row["turn"])
    return Accepted(row["conversation"], row["turn"], TurnStatus(row["status"]), repeated=True)


def remember_request(
    connection: apsw.Connection, owner: str, request_key: RequestKey | None, turn: str, now: datetime
) -> None:
    if request_key is not None:
        QUERIES.run(
            connection,
            "key_set",
            owner=owner,
            key=request_key.key,
            digest=request_key.digest,
            turn=turn,
            now=micros(now),
        )
