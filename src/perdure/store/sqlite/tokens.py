"""Named tokens: only the hash of a secret is kept. A name is used once, for audit rows and decisions name it."""

from __future__ import annotations

from datetime import datetime

import apsw

from perdure.errors import BadRequest, NotFound
from perdure.store.sqlite import audit
from perdure.store.sqlite.journal import QUERIES
from perdure.store.sqlite.rows import micros, token_from
from perdure.turns import Role, Token


def create(connection: apsw.Connection, name: str, role: Role, secret_hash: str, *, by: str, now: datetime) -> Token:
    made = QUERIES.run(
        connection, "token_insert", name=name, role=str(role), secret_hash=secret_hash, by=by, now=micros(now)
    )
    if not made:
        raise BadRequest(f"The name {name!r} was given out before, and names what that token did. Choose another one.")
    audit.note(connection, "token_create", by=by, now=now, detail={"name": name, "role": str(role)})
    return _token(connection, name)


def revoke(connection: apsw.Connection, name: str, *, by: str, now: datetime) -> Token:
    if QUERIES.run(connection, "token_revoke", name=name, now=micros(now)):
        audit.note(connection, "token_revoke", by=by, now=now, detail={"name": name})
    return _token(connection, name)


def all_tokens(connection: apsw.Connection) -> list[Token]:
    return [token_from(row) for row in QUERIES.all(connection, "tokens")]


def holder(connection: apsw.Connection, secret_hash: str) -> Token | None:
    """The valid token with this hash."""
    row = QUERIES.one(connection, "token_of", secret_hash=secret_hash)
    return None if row is None else token_from(row)


def used(connection: apsw.Connection, name: str, minute: datetime) -> None:
    QUERIES.run(connection, "token_used", name=name, at=micros(minute))


def _token(connection: apsw.Connection, name: str) -> Token:
    row = QUERIES.one(connection, "token", name=name)
    if row is None:
        raise NotFound(f"There is no token with the name {name!r}.")
    return token_from(row)
