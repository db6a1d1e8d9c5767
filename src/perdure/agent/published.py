"""What an agent publishes of its turns, and how a gateway reads it: committed events, text that streams, news. Pure.

A committed event `{event, previous, rows?}`; one that is too large for a message goes without its payload and says where to
ask for it: `{event, previous, reference: {conversation, seq}}`. A token `{event}`. News: `News`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.agent.codec import Unreadable, from_json, to_json
from perdure.events import Event, EventKind
from perdure.replication import JournalRows

SERVING = "serving"
LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class Published:
    """One message of a turn."""

    event: Event
    """Of a token the payload is `{message_id, text, from_seq, follows}`: it may be several in one. `from_seq`: the seq of the
    first of them. `follows`: the seq of the token of this message before it, 0 for its first: whoever holds another one last
    has missed some."""

    previous: int | None = None
    """The seq of the committed event of the conversation before it, 0 for none. None for a token."""

    rows: JournalRows | None = None
    """Of the turn and its conversation, as of the event or later; with events that change their state."""

    referred: bool = False
    """The payload is not in here: ask the agent for the event (`events/read`)."""


@dataclass(frozen=True, slots=True)
class News:
    """The bell of a journal, and the heartbeat of its agent."""

    position: int
    """The number of its last change."""

    journal: str
    boot: str
    state: str
    """`serving` or `leaving`."""

    deleted: Sequence[str] = ()
    """Conversations that were deleted since the news before."""


def committed(event: Event, previous: int, rows: JournalRows | None, max_bytes: int) -> bytes:
    """The message of a committed event: without its rows, then without its payload too, when it is larger than `max_bytes`."""
    document: dict[str, Any] = {"event": to_json(Event, event), "previous": previous}
    if rows is not None:
        data = dumps(document | {"rows": to_json(JournalRows, rows)})
        if len(data) <= max_bytes:
            return data
    data = dumps(document)
    if len(data) <= max_bytes:
        return data
    bare = to_json(Event, replace(event, payload={}))
    del bare["payload"]
    place = {"conversation": event.conversation, "seq": event.seq}
    return dumps({"event": bare, "previous": previous, "reference": place})


def token(event: Event) -> bytes:
    return dumps({"event": to_json(Event, event)})


def news(told: News) -> bytes:
    document = to_json(News, told)
    if not told.deleted:
        del document["deleted"]
    return dumps(document)


def read(data: bytes) -> Published:
    """Raises Unreadable."""
    document = _object(data)
    event = from_json(Event, document.get("event"))
    if event.kind is EventKind.TOKEN:
        return Published(event)
    previous, rows = document.get("previous"), document.get("rows")
    if not isinstance(previous, int) or isinstance(previous, bool) or previous < 0:
        raise Unreadable("A message of a committed event that does not name the one before it.")
    return Published(
        event,
        previous,
        None if rows is None else from_json(JournalRows, rows),
        referred="reference" in document,
    )


def read_news(data: bytes) -> News:
    """Raises Unreadable."""
    return from_json(News, _object(data))


def dumps(document: Mapping[str, Any]) -> bytes:
    """Compact JSON. Halves of surrogate pairs, which UTF-8 cannot hold, are escaped."""
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(document, separators=(",", ":")).encode()


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"A message that is not JSON: {error}.") from error
    if not isinstance(document, Mapping):
        raise Unreadable("A message that is not a JSON object.")
    return document
