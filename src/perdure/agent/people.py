"""Who may hold a token, and under which name."""

from __future__ import annotations

import re

from perdure.errors import BadRequest, Forbidden
from perdure.turns import EXPIRY, Person

ADMIN_NAME = "admin"
"""The server's own token in audit rows and decisions."""

LOCAL_OWNER = "local"
"""Whose the conversations of the server's own token are."""

RESERVED = frozenset({ADMIN_NAME, LOCAL_OWNER, EXPIRY})
"""A token of such a name would be taken for somebody else."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


def checked_name(name: str) -> str:
    """The name as it is. Raises BadRequest for one that no token may have."""
    if not _NAME.fullmatch(name):
        raise BadRequest(
            "`name`: 1 to 64 letters, digits, `.`, `_`, `@` and `-`, the first one a letter or a digit (an e-mail address fits)."
        )
    if name.casefold() in RESERVED:
        raise BadRequest(f"`name`: {name!r} means the server itself; choose another name.")
    return name


def require_admin(person: Person) -> None:
    """Raises Forbidden."""
    if not person.admin:
        raise Forbidden("Only the server's own token (PERDURE_TOKEN) may list, make and revoke tokens.")
