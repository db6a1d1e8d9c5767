"""What somebody makes of the stream who knows docs/nats.md alone: applies events once, in order, and rewinds; and the journal.

Shares no code with the product: plain nats-py and JSON.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import apsw
import nats
from nats.js.api import ConsumerConfig, DeliverPolicy

from tests.crash.journal import Journal, read_journal

TERMINAL = {"end", "chat-error"}
STREAM = "perdure-turns"
PATIENCE_SECONDS = 60.0
COPY_SECONDS = 30.0


async def stream_violations(nats_url: str, database: Path) -> list[str]:
    """Call it once the agent has stopped as planned: nothing is on its way any more."""
    journal = await asyncio.to_thread(read_journal, database)
    return list(_compare(await consume(nats_url), journal))


async def consume(nats_url: str) -> dict[str, dict[int, tuple[str, Any]]]:
    """By turn: seq → (kind, payload or None where it went by reference), as it stands after the last message."""
    connection = await nats.connect(nats_url)
    try:
        stream = connection.jetstream()
        wanted = (await stream.stream_info(STREAM)).state.messages
        everything = ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
        reading = await stream.pull_subscribe("perdure.turns.>", stream=STREAM, config=everything)
        turns: dict[str, dict[int, tuple[str, Any]]] = defaultdict(dict)
        last: dict[str, int] = {}
        read = 0
        async with asyncio.timeout(PATIENCE_SECONDS):
            while read < wanted:
                for message in await reading.fetch(min(200, wanted - read)):
                    read += 1
                    _apply(json.loads(message.data), message.subject, turns, last)
        return turns
    finally:
        await connection.close()


def _apply(
    document: Mapping[str, Any], subject: str, turns: dict[str, dict[int, tuple[str, Any]]], last: dict[str, int]
) -> None:
    event = document["event"]
    conversation, seq = event["conversation"], event["seq"]
    assert subject.endswith(f".{event['turn']}"), f"{subject} carries an event of turn {event['turn']}"
    if seq <= last.get(conversation, 0):
        return
    last[conversation] = seq
    if event["kind"] == "rewind":
        kept = turns[event["turn"]]
        for dropped in [number for number in kept if number > event["payload"]["to_seq"]]:
            del kept[dropped]
    else:
        turns[event["turn"]][seq] = (event["kind"], event.get("payload"))


def _compare(consumed: Mapping[str, Mapping[int, tuple[str, Any]]], journal: Journal) -> Iterator[str]:
    for turn in journal.turns:
        told = consumed.get(turn, {})
        held = {row["seq"]: (row["kind"], row["payload"]) for row in journal.retained(turn) if row["kind"] != "rewind"}
        if list(told) != list(held):
            yield f"N: the stream folds {turn} to the seqs {list(told)}, the journal retains {list(held)}"
        for seq in told.keys() & held.keys():
            kind, payload = told[seq]
            if kind != held[seq][0] or (payload is not None and payload != held[seq][1]):
                yield f"N: seq {seq} of {turn} is {told[seq]} in the stream and {held[seq]} in the journal"
        endings = Counter(kind for kind, _ in told.values() if kind in TERMINAL)
        if endings.total() != (journal.turns[turn]["ended_at"] is not None):
            yield f"N: the stream ends {turn} ({journal.turns[turn]['status']}) {endings.total()} times"


async def copy_violations(database: Path, copy: Path) -> list[str]:
    """What a gateway's file holds otherwise than the agent's, once it has had the time to follow."""
    until = asyncio.get_running_loop().time() + COPY_SECONDS
    while True:
        found = await asyncio.to_thread(lambda: list(_differences(read_journal(database), copy)))
        if not found or asyncio.get_running_loop().time() > until:
            return found
        await asyncio.sleep(0.1)


def _differences(journal: Journal, copy: Path) -> Iterator[str]:
    connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        turns: dict[Any, Any] = dict(connection.execute("SELECT id, status FROM turns").fetchall())
        rows: list[Any] = connection.execute("SELECT turn, seq, kind, payload FROM events WHERE dropped_by IS NULL").fetchall()
    finally:
        connection.close()
    held: dict[str, dict[int, tuple[str, Any]]] = defaultdict(dict)
    for turn, seq, kind, payload in rows:
        if kind != "rewind":
            held[turn][seq] = (kind, json.loads(payload))
    for turn, row in journal.turns.items():
        kept = {one["seq"]: (one["kind"], one["payload"]) for one in journal.retained(turn) if one["kind"] != "rewind"}
        if held[turn] != kept:
            yield f"N: the copy holds the seqs {sorted(held[turn])} of {turn}, the journal {sorted(kept)}"
        if turns.get(turn) != row["status"]:
            yield f"N: {turn} is {row['status']}, in the copy {turns.get(turn)}"
