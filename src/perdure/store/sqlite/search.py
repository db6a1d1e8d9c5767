"""Finding conversations by what was said: one full-text index, kept in the transactions that write what it holds.

What is in it: the title of every conversation, and the text of each message of a person or an assistant in the thread. The
index holds words and where they stand, not the text; what was deleted or changed is not found from the same commit on.
Messages that were stored before the index existed are found by their conversation's title alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

import apsw

from perdure.store.sqlite.journal import QUERIES
from perdure.store.sqlite.rows import clean

MOST_CHARACTERS = 100_000
"""Of one message: what stands behind them is not found."""

MOST_MATCHES = 5_000
"""The newest matches that are looked at."""

MOST_WORDS = 16

MOST_BEGINNINGS = 300
MOST_OCCURRENCES = 200_000
"""Of words that begin with the last one of a search."""

LAST_CHARACTER = "\U0010ffff"

TITLE = ""

_FOUND = frozenset({"user", "assistant"})
_WORD = re.compile(r"\w+")


def keep_title(connection: apsw.Connection, conversation: str, owner: str, title: str) -> None:
    _keep(connection, conversation, owner, TITLE, title)


def keep_messages(
    connection: apsw.Connection, conversation: str, owner: str, messages: Iterable[Mapping[str, Any]]
) -> None:
    """New, changed and removed messages in wire form."""
    for message in messages:
        if message.get("status") == "removed":
            _remove(connection, conversation, message["id"])
        elif message.get("role") in _FOUND and message["id"]:
            _keep(connection, conversation, owner, message["id"], message["content"])


def keep_unknown(
    connection: apsw.Connection, conversation: str, owner: str, messages: Iterable[Mapping[str, Any]]
) -> None:
    """Those that cannot be found yet."""
    found = {row["message"] for row in QUERIES.all(connection, "searchables", conversation=conversation)}
    keep_messages(connection, conversation, owner, (each for each in messages if clean(each["id"]) not in found))


def forget(connection: apsw.Connection, conversation: str) -> None:
    """Before the conversation's row is deleted."""
    QUERIES.run(connection, "words_forget", conversation=conversation)


def match_of(connection: apsw.Connection, text: str, scope: str | None) -> str | None:
    """The query of the index: all words, the last one as a beginning (a whole word where too much begins in this way), of an
    owner or of all. None when there is no word."""
    words = _WORD.findall(clean(text))[:MOST_WORDS]
    if not words:
        return None
    terms = " ".join(f'"{word}"' for word in words)
    wanted = f"{{text}} : ({terms}{'*' if _few_begin(connection, words[-1]) else ''})"
    return wanted if scope is None else f'{{owner}} : "{_owner(scope)}" AND {wanted}'


def _few_begin(connection: apsw.Connection, beginning: str) -> bool:
    """Whether the words that begin in this way can all be looked at in a moment. Counting ends where there are too many."""
    beginning = _folded(beginning)
    found, words = 0, 0
    at = {"beginning": beginning, "end": beginning + LAST_CHARACTER}
    for (occurrences,) in connection.execute(QUERIES["words_beginning"], at):
        found, words = found + occurrences, words + 1
        if found > MOST_OCCURRENCES or words > MOST_BEGINNINGS:
            return False
    return True


def _folded(word: str) -> str:
    """About as the index keeps it: small, without accents."""
    return "".join(each for each in unicodedata.normalize("NFKD", word.lower()) if not unicodedata.combining(each))


def _keep(connection: apsw.Connection, conversation: str, owner: str, message: str, text: str) -> None:
    _remove(connection, conversation, message)
    if not text.strip():
        return
    QUERIES.run(connection, "searchable_put", conversation=conversation, message=clean(message))
    doc = connection.last_insert_rowid()
    QUERIES.run(connection, "words_put", doc=doc, owner=_owner(owner), text=clean(text[:MOST_CHARACTERS]))


def _remove(connection: apsw.Connection, conversation: str, message: str) -> None:
    row = QUERIES.one(connection, "searchable", conversation=conversation, message=clean(message))
    if row is not None:
        QUERIES.run(connection, "words_remove", doc=row["doc"])
        QUERIES.run(connection, "searchable_remove", doc=row["doc"])


def _owner(name: str) -> str:
    """One word, whatever is in the name."""
    return "o" + name.encode("utf-8", "replace").hex()
