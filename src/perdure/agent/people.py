"""Who may hold a token, and under which name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from perdure.errors import BadRequest, Forbidden
from perdure.store.base import Page
from perdure.turns import EXPIRY, AuditEntry, Conversation, Person, Role, Token

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


def require_operator(person: Person) -> None:
    """Raises Forbidden."""
    if person.role is not Role.OPERATOR:
        raise Forbidden("Only an operator may do this.")


def check_own(person: Person, conversation: Conversation, agent: str | None) -> None:
    """That this person may send a message there, and means its agent. Raises Forbidden, BadRequest."""
    if conversation.owner != person.owner:
        raise Forbidden(
            f"This conversation is {conversation.owner}'s. An operator reads, decides, cancels and resumes in it; messages go "
            "to conversations of one's own.",
            conversation=conversation.id,
        )
    if agent is not None and agent != conversation.agent:
        raise BadRequest(
            f"This conversation belongs to the agent {conversation.agent!r}; start a new one for {agent!r}."
        )


class TokenJournal(Protocol):
    """What keeps tokens and the audit: a store, or a gateway's replica."""

    async def create_token(self, name: str, role: Role, secret_hash: str, *, by: str) -> Token: ...

    async def revoke_token(self, name: str, *, by: str) -> Token: ...

    async def tokens(self) -> Sequence[Token]: ...

    async def token_of(self, secret_hash: str) -> Token | None: ...

    async def audit(self, scope: str | None, *, limit: int, cursor: str | None = None) -> Page[AuditEntry]: ...


class Entrance:
    """The part of `AgentPort` about who may enter and who did what: the same for every shape."""

    def __init__(self, entries: TokenJournal) -> None:
        self._entries = entries

    async def audit(self, person: Person, *, limit: int, cursor: str | None) -> Page[AuditEntry]:
        return await self._entries.audit(person.scope, limit=limit, cursor=cursor)

    async def create_token(self, person: Person, name: str, role: Role, secret_hash: str) -> Token:
        require_admin(person)
        return await self._entries.create_token(checked_name(name), role, secret_hash, by=person.name)

    async def revoke_token(self, person: Person, name: str) -> Token:
        require_admin(person)
        return await self._entries.revoke_token(name, by=person.name)

    async def tokens(self, person: Person) -> Sequence[Token]:
        require_admin(person)
        return await self._entries.tokens()

    async def token_of(self, secret_hash: str) -> Token | None:
        return await self._entries.token_of(secret_hash)
