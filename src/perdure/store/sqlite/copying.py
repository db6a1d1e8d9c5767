"""The copy of other journals: what one answer, or some events, do to it. Every function runs inside an open transaction of the
writer.

A row that was read before what is held (a lower change of its journal) changes nothing, so answers may come late, twice and in
any order. What people's lists are told comes from the journal's own triggers: rows that are the same write none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw

from perdure.errors import NotFound
from perdure.events import Event, EventKind
from perdure.replication import JournalRows, Position, StoredTranscript, StreamPosition
from perdure.store.sqlite import search
from perdure.store.sqlite.audit import note
from perdure.store.sqlite.foreign import Checked, is_message, is_sound
from perdure.store.sqlite.journal import QUERIES
from perdure.store.sqlite.numbering import audit_number, turn_number
from perdure.store.sqlite.queries import Queries
from perdure.store.sqlite.rows import Row, from_json, micros, to_json

COPIES = Queries(Path(__file__).with_name("replica_queries.sql"))

_log = logging.getLogger(__name__)


def position(connection: apsw.Connection, agent: str) -> Position:
    row = COPIES.one(connection, "position", agent=agent)
    return Position() if row is None else Position(row["journal"], row["change"], row["audit"])


# -- rows -----------------------------------------------------------------------------------------------------------------


def apply(connection: apsw.Connection, agent: str, rows: JournalRows) -> None:
    """`Replica.apply`. Raises PerdureError for rows that do not fit."""
    held = position(connection, agent)
    if held.journal not in ("", rows.journal):
        return  # of a past that was forgotten; whoever asks next learns it
    checked, change = Checked(connection, rows), rows.position.change
    for conversation in rows.deleted:
        _delete(connection, agent, conversation, change)
    kept = {row["id"] for row in checked.conversations if _keep_conversation(connection, agent, row, change)}
    turns = [row for row in checked.turns if row["conversation"] in kept]
    touched = [row["conversation"] for row in turns if _keep_turn(connection, row, checked, change)]
    for conversation in dict.fromkeys(touched):
        COPIES.run(connection, "turns_supersede_copied", conversation=conversation)
        COPIES.run(connection, "calls_settle_copied", conversation=conversation)
    if rows.after == held.change:
        _move_on(connection, agent, held, rows, checked.audit)
    elif not held.journal:
        COPIES.run(connection, "position_set", agent=agent, journal=rows.journal, change=0, audit=0)


def _move_on(connection: apsw.Connection, agent: str, held: Position, rows: JournalRows, audit: Sequence[Row]) -> None:
    for row in audit:
        if row["number"] > held.audit:
            _keep_deed(connection, agent, row)
    COPIES.run(
        connection,
        "position_set",
        agent=agent,
        journal=rows.journal,
        change=rows.position.change,
        audit=max(held.audit, rows.position.audit),
    )


def _delete(connection: apsw.Connection, agent: str, conversation: str, change: int) -> None:
    """Whenever it was read: what is deleted does not come back."""
    known = COPIES.one(connection, "conversation_copied", conversation=conversation)
    if known is not None and known["agent"] != agent:
        return
    if known is not None:
        _remove(connection, conversation)
    COPIES.run(connection, "dispatches_of_conversation", conversation=conversation)
    COPIES.run(connection, "deletion_note", conversation=conversation, agent=agent, change=change)


def _remove(connection: apsw.Connection, conversation: str) -> None:
    search.forget(connection, conversation)
    QUERIES.run(connection, "conversation_delete", id=conversation)


def _keep_conversation(connection: apsw.Connection, agent: str, row: Row, change: int) -> bool:
    """False for one that is deleted, or another agent's: then nothing of it is kept."""
    name = row["id"]
    if COPIES.one(connection, "deletion", conversation=name) is not None:
        return False
    known = COPIES.one(connection, "conversation_copied", conversation=name)
    if known is not None and known["agent"] != agent:
        _log.warning("agent %s told of a conversation of agent %s: nothing of it was kept", agent, known["agent"])
        return False
    if known is not None and known["change"] > change:
        return True
    before = QUERIES.one(connection, "conversation_row", id=name)
    COPIES.run(connection, "conversation_copy", **row)
    COPIES.run(connection, "conversation_note", conversation=name, agent=agent, change=change)
    if before is None or (before["title"], before["owner"]) != (row["title"], row["owner"]):
        search.keep_title(connection, name, row["owner"], row["title"])
    return True


def _keep_turn(connection: apsw.Connection, row: Mapping[str, Any], checked: Checked, change: int) -> bool:
    """False when it is older than what is held, or contradicts it."""
    turn, conversation, source = row["id"], row["conversation"], row["accept_number"]
    known = COPIES.one(connection, "turn_copied", turn=turn)
    if known is not None and (known["change"] > change or known["conversation"] != conversation):
        return False
    number = turn_number(connection, COPIES, conversation, source, row["accepted_at"]) if known is None else None
    COPIES.run(connection, "turn_copy", **{**row, "accept_number": number})
    COPIES.run(connection, "turn_note", turn=turn, conversation=conversation, source=source, change=change)
    moved = _keep_parts(connection, row, checked)
    if moved and known is not None and known["status"] == row["status"]:
        QUERIES.run(connection, "change_still_parked", turn=turn)
    return True


def _keep_parts(connection: apsw.Connection, turn: Row, checked: Checked) -> bool:
    """Whether the turn's cards are in other states than before."""
    of_turn = {"turn": turn["id"], "conversation": turn["conversation"]}
    before = COPIES.all(connection, "cards_states", turn=turn["id"])
    for name in ("attempts_forget", "cards_forget", "calls_forget"):
        COPIES.run(connection, name, turn=turn["id"])
    for row in checked.attempts.get(turn["id"], ()):
        COPIES.run(connection, "attempt_copy", **row)
    for row in checked.cards.get(turn["id"], ()):
        COPIES.run(connection, "card_copy", **{**row, **of_turn})
    for row in sorted(checked.calls.get(turn["id"], ()), key=lambda row: row["number"]):
        COPIES.run(connection, "call_copy", **{**row, **of_turn})
    return COPIES.all(connection, "cards_states", turn=turn["id"]) != before


def _keep_deed(connection: apsw.Connection, agent: str, row: Row) -> None:
    number = audit_number(connection, COPIES, agent, row["at"])
    COPIES.run(connection, "audit_copy", **{**row, "number": number})
    COPIES.run(connection, "audit_note", agent=agent, source=row["number"], number=number)


def restart(connection: apsw.Connection, agent: str, journal: str) -> None:
    """`Replica.restart`."""
    _remove_all(connection, agent)
    COPIES.run(connection, "position_set", agent=agent, journal=journal, change=0, audit=0)


def forget(connection: apsw.Connection, agent: str, *, by: str, now: datetime) -> list[str]:
    """`Replica.forget`."""
    gone = _remove_all(connection, agent)
    COPIES.run(connection, "dispatches_of_agent", agent=agent)
    known = COPIES.run(connection, "agent_forget", agent=agent)
    if not known and not gone:
        raise NotFound(f"There is no agent {agent!r} here: nothing is known of it, or it was forgotten before.")
    note(connection, "agent_forget", by=by, now=now, detail={"agent": agent, "conversations": len(gone)})
    return gone


def _remove_all(connection: apsw.Connection, agent: str) -> list[str]:
    """The conversations that are gone."""
    gone = [str(row["conversation"]) for row in COPIES.all(connection, "conversations_of_agent", agent=agent)]
    copy = ("words_of_agent_forget", "conversations_of_agent_delete")
    for name in (*copy, "deletions_forget", "audit_forget", "audit_notes_forget"):
        COPIES.run(connection, name, agent=agent)
    return gone


# -- events ---------------------------------------------------------------------------------------------------------------


def record(connection: apsw.Connection, events: Sequence[Event], stream: StreamPosition | None) -> list[Event]:
    """`Replica.record`. What cannot be read back is left out, so that one agent's fault stops no other's events."""
    owners: dict[str, str | None] = {}
    fresh = []
    for event in events:
        if not is_sound(event):
            _log.warning("an event of conversation %.64r makes no sense: it was not kept", event.conversation)
            continue
        if event.conversation not in owners:
            row = QUERIES.one(connection, "conversation_row", id=event.conversation)
            owners[event.conversation] = row["owner"] if row else None
        owner = owners[event.conversation]
        if owner is not None and _keep_event(connection, event, owner):
            fresh.append(event)
    if stream is not None:
        COPIES.run(connection, "stream_set", stream=stream.stream, seq=stream.seq)
    return fresh


def _keep_event(connection: apsw.Connection, event: Event, owner: str) -> bool:
    """Whether it is news: neither held, nor void when it came."""
    place: dict[str, Any] = {"conversation": event.conversation, "seq": event.seq}
    row = {"turn": event.turn, "attempt": event.attempt, "kind": str(event.kind), "at": micros(event.at)}
    if not COPIES.run(connection, "event_copy", **place, **row, payload=to_json(event.payload)):
        return False
    if event.kind is EventKind.REWIND:
        COPIES.run(connection, "events_rewind", **place, turn=event.turn, to_seq=event.payload["to_seq"])
        return True
    voided = COPIES.one(connection, "event_voided", turn=event.turn, seq=event.seq)
    if voided is not None and voided["seq"] is not None:
        COPIES.run(connection, "event_void", **place, by=voided["seq"])
        return False
    if event.kind is EventKind.MESSAGE:
        search.keep_messages(connection, event.conversation, owner, [event.payload["message"]])
    return True


# -- transcripts ----------------------------------------------------------------------------------------------------------


def keep_transcript(connection: apsw.Connection, conversation: str, transcript: StoredTranscript) -> None:
    """Its messages can be found from now on: those of a fork's past, and those that retention left no event of, come in no
    other way."""
    row = QUERIES.one(connection, "conversation_row", id=conversation)
    if row is None:
        return
    told = {"seq": transcript.seq, "document": to_json(transcript.document)}
    if COPIES.run(connection, "transcript_keep", conversation=conversation, **told):
        messages = transcript.document.get("messages")
        sound = filter(is_message, messages) if isinstance(messages, list | tuple) else ()
        search.keep_unknown(connection, conversation, row["owner"], sound)


def transcript(connection: apsw.Connection, conversation: str) -> StoredTranscript | None:
    row = COPIES.one(connection, "transcript", conversation=conversation)
    return None if row is None else StoredTranscript(row["seq"], from_json(row["document"]))
