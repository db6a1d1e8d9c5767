"""Idempotency keys: a request that comes again is answered as it was the first time."""

from __future__ import annotations

from datetime import datetime, timedelta

import apsw

from perdure.errors import IdempotencyConflict
from perdure.forks import Forked
from perdure.store.sqlite.journal import QUERIES
from perdure.store.sqlite.rows import Row, micros
from perdure.turns import Accepted, RequestKey, TurnStatus

KEY_LIFETIME = timedelta(days=7)
"""An older idempotency key counts as unused."""


def repeated_request(
    connection: apsw.Connection, owner: str, request_key: RequestKey | None, now: datetime
) -> Accepted | None:
    """What the request was answered before; None without a key, for a new one and for one that is too old to count."""
    row = _known(connection, owner, request_key, now)
    if row is None or row["turn"] is None:
        return None
    return Accepted(row["conversation"], row["turn"], TurnStatus(row["status"]), repeated=True)


def repeated_fork(
    connection: apsw.Connection, owner: str, request_key: RequestKey | None, now: datetime
) -> Forked | None:
    """The same of a request that makes a conversation, with or without a turn."""
    row = _known(connection, owner, request_key, now)
    if row is None:
        return None
    status = None if row["status"] is None else TurnStatus(row["status"])
    return Forked(row["conversation"], row["turn"], status, repeated=True)


def _known(connection: apsw.Connection, owner: str, request_key: RequestKey | None, now: datetime) -> Row | None:
    """The digest tells a fork from a message: a key that was used for another request is refused."""
    row = QUERIES.one(connection, "key", owner=owner, key=request_key.key) if request_key is not None else None
    if row is None or request_key is None or row["created_at"] < micros(now - KEY_LIFETIME):
        return None
    if row["digest"] != request_key.digest:
        raise IdempotencyConflict(conversation=row["conversation"], turn=row["turn"])
    return row


def remember_request(
    connection: apsw.Connection,
    owner: str,
    request_key: RequestKey | None,
    turn: str | None,
    now: datetime,
    *,
    conversation: str | None = None,
) -> None:
    """`conversation` where there is no turn to tell it."""
    if request_key is not None:
        QUERIES.run(
            connection,
            "key_set",
            owner=owner,
            key=request_key.key,
            digest=request_key.digest,
            turn=turn,
            conversation=conversation,
            now=micros(now),
        )
