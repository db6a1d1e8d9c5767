"""What a journal holds of a turn, page by page, and of a conversation."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.errors import BadRequest
from perdure.events import Event, EventKind
from perdure.store.base import JournalReader, Page
from perdure.turns import Person, Turn

LOOKED_AT = 500
"""Events that one page looks at: with a `kind` it may hold fewer than asked for, and still have a next one."""

_PAGE = 200
_LARGEST_DIGITS = 18


async def turns_of(store: JournalReader, scope: str | None, conversation: str) -> Sequence[Turn]:
    """All of them, oldest first."""
    newest_first: list[Turn] = []
    cursor: str | None = None
    while True:
        page = await store.turns(scope, limit=_PAGE, cursor=cursor, conversation=conversation)
        newest_first.extend(page.items)
        cursor = page.next
        if cursor is None:
            return newest_first[::-1]


async def events_of(
    store: JournalReader, person: Person, turn: str, *, limit: int, cursor: str | None, kind: EventKind | None
) -> Page[Event]:
    """Oldest first: what no rewind took back, and the rewinds. Nothing of what retention has removed."""
    after = _seq_of(cursor)
    found = await store.turn(person.scope, turn)
    looked_at = max(limit, LOOKED_AT) if kind is not None else limit
    rows = await store.events(found.conversation, after=after, turn=turn, limit=looked_at + 1)
    shown = [row for row in rows[:looked_at] if kind is None or row.kind is kind][:limit]
    seen = shown[-1] if len(shown) == limit else rows[looked_at - 1] if len(rows) > looked_at else None
    return Page(shown, None if seen is None or seen.seq == rows[-1].seq else str(seen.seq))


def _seq_of(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _LARGEST_DIGITS):
        raise BadRequest("The cursor is not one of this server. Start again without it.")
    return int(cursor)
