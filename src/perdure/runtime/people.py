"""What the journal says about people: whose tokens there are, who was to decide and is not there, what waits for a decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from perdure.agent.people import ADMIN_NAME
from perdure.clock import SystemClock
from perdure.config import AgentSettings
from perdure.effects import Gate
from perdure.errors import DatabaseUnusable, StorageError
from perdure.runtime.finding import Finding
from perdure.store.base import Page
from perdure.store.sqlite.readonly import ReadOnlyStore
from perdure.turns import Card, Token

PAGE = 200


async def examine_people(database: Path, agents: Sequence[AgentSettings]) -> list[Finding]:
    """Reads beside a running server too. Nothing for a file that this version cannot read: that is told elsewhere."""
    tokens, waiting = await _read(database)
    return [*_tokens(tokens), *_absent_deciders(tokens, agents), *_waiting(waiting)]


async def _read(database: Path) -> tuple[Sequence[Token], Page[Card]]:
    store = _opened(database)
    if store is None:
        return [], Page([], None)
    try:
        return await store.tokens(), await store.approvals(None, ADMIN_NAME, limit=PAGE)
    except StorageError:
        return [], Page([], None)
    finally:
        await store.close()


def _opened(database: Path) -> ReadOnlyStore | None:
    try:
        there = database.is_file() and database.stat().st_size > 0
        return ReadOnlyStore(database, clock=SystemClock()) if there else None
    except (DatabaseUnusable, StorageError, OSError):
        return None


def _tokens(tokens: Sequence[Token]) -> Iterator[Finding]:
    valid = [token for token in tokens if token.revoked_at is None]
    if not tokens:
        return
    named = ", ".join(f"{token.name} ({token.role})" for token in valid) or "none"
    revoked = f"; {len(tokens) - len(valid)} revoked" if len(valid) < len(tokens) else ""
    yield Finding("tokens", True, f"beside the server's own: {named}{revoked}")


def _absent_deciders(tokens: Sequence[Token], agents: Sequence[AgentSettings]) -> Iterator[Finding]:
    """A name that nobody holds can decide nothing: the card would wait for ever."""
    there = {ADMIN_NAME, *(token.name for token in tokens if token.revoked_at is None)}
    revoked = {token.name for token in tokens} - there
    for agent in agents:
        for name in agent.approval_deciders:
            if name in revoked:
                message = f"`approval_deciders` names {name!r}, whose token was revoked."
                yield Finding(f"agent {agent.name}", False, message, "take the name out, or name somebody else")
            elif name not in there:
                message = f"`approval_deciders` names {name!r}, and there is no such token."
                yield Finding(f"agent {agent.name}", False, message, f"perdure tokens create {name} --role user")


def _waiting(waiting: Page[Card]) -> Iterator[Finding]:
    if not waiting.items:
        return
    count = f"{len(waiting.items)}{' or more' if waiting.next else ''}"
    since = waiting.items[0].opened_at.isoformat(timespec="minutes")
    uncertain = sum(card.kind == Gate.UNCERTAIN for card in waiting.items)
    doubts = f", {uncertain} about a call whose outcome is not known" if uncertain else ""
    message = f"waiting for a person: {count}, the oldest since {since}{doubts}"
    yield Finding("approvals", True, message, "perdure approvals list")
