"""What somebody makes of the stream who knows docs/nats.md alone: applies events once, in order, and rewinds; and the journal.

Shares no code with the product: plain nats-py and JSON.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import nats
import nats.errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from tests.crash.journal import Journal, read_journal

TERMINAL = {"end", "chat-error"}
STREAM = "perdure-turns"
PATIENCE_SECONDS = 60.0
COPY_SECONDS = 30.0


Turns = Mapping[str, Mapping[int, tuple[str, Any]]]
"""By turn: seq → (kind, payload or None where it went by reference)."""


class Fold:
    """What was read so far."""

    def __init__(self) -> None:
        self.turns: dict[str, dict[int, tuple[str, Any]]] = defaultdict(dict)
        self.endings: defaultdict[str, list[int]] = defaultdict(list)
        """Seqs of every terminal event that a turn was told, rewound or not."""

        self._last: dict[str, int] = {}

    def take(self, document: Mapping[str, Any], subject: str) -> None:
        event = document["event"]
        conversation, seq = event["conversation"], event["seq"]
        assert subject.endswith(f".{event['turn']}"), f"{subject} carries an event of turn {event['turn']}"
        if seq <= self._last.get(conversation, 0):
            return
        self._last[conversation] = seq
        kept = self.turns[event["turn"]]
        if event["kind"] == "rewind":
            for dropped in [number for number in kept if number > event["payload"]["to_seq"]]:
                del kept[dropped]
            return
        kept[seq] = (event["kind"], event.get("payload"))
        if event["kind"] in TERMINAL:
            self.endings[event["turn"]].append(seq)


class Reader:
    """Follows the stream as it grows and comes again whenever NATS was away. Use as `async with`; `differences` at the end."""

    def __init__(self, nats_url: str) -> None:
        self._url = nats_url
        self.fold = Fold()
        self.visits = 0
        """How often it got hold of the stream."""

        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Reader:
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.result()

    async def differences(self, database: Path) -> list[str]:
        """From the journal, once the reader has had the time to read what is there."""
        journal = await asyncio.to_thread(read_journal, database)
        until = asyncio.get_running_loop().time() + COPY_SECONDS
        while (found := list(_compare(self.fold, journal, wiped=True))) and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.1)
        return [f"{each} (to one who read all the time)" for each in found]

    async def _follow(self) -> None:
        while True:
            with suppress(nats.errors.Error, OSError):
                await self._read()
            await asyncio.sleep(0.05)

    async def _read(self) -> None:
        connection = await nats.connect(self._url, allow_reconnect=False, max_reconnect_attempts=0, error_cb=_nothing)
        try:
            everything = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE)
            reading = await connection.jetstream().pull_subscribe("perdure.turns.>", stream=STREAM, config=everything)
            self.visits += 1
            while connection.is_connected:
                with suppress(nats.errors.TimeoutError):
                    for message in await reading.fetch(200, timeout=0.2):
                        self.fold.take(json.loads(message.data), message.subject)
        finally:
            await connection.close()


async def _nothing(_: Exception) -> None:
    """The reader hears of it by what it does next."""


async def stream_violations(nats_url: str, database: Path, *, wiped: bool = False) -> list[str]:
    """Call it once the agent has stopped as planned: nothing is on its way any more. `wiped`: the stream was filled again."""
    journal = await asyncio.to_thread(read_journal, database)
    return list(_compare(await consume(nats_url), journal, wiped=wiped))


async def consume(nats_url: str) -> Fold:
    """As it stands after the last message."""
    connection = await nats.connect(nats_url)
    try:
        stream = connection.jetstream()
        wanted = (await stream.stream_info(STREAM)).state.messages
        everything = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE)
        reading = await stream.pull_subscribe("perdure.turns.>", stream=STREAM, config=everything)
        fold = Fold()
        read = 0
        async with asyncio.timeout(PATIENCE_SECONDS):
            while read < wanted:
                for message in await reading.fetch(min(200, wanted - read)):
                    read += 1
                    fold.take(json.loads(message.data), message.subject)
        return fold
    finally:
        await connection.close()


def _compare(fold: Fold, journal: Journal, *, wiped: bool) -> Iterator[str]:
    yield from _unlike(fold.turns, journal)
    for turn in journal.turns:
        rows = [row for row in journal.events if row["turn"] == turn and row["kind"] in TERMINAL]
        told, kept = fold.endings[turn], [row["seq"] for row in rows if not (wiped and row["dropped_by"])]
        if not set(kept) <= set(told) <= {row["seq"] for row in rows}:
            yield f"N: the stream tells the terminal events {told} of {turn}, the journal {[row['seq'] for row in rows]}"


def _unlike(consumed: Turns, journal: Journal) -> Iterator[str]:
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
        statuses: list[Any] = connection.execute("SELECT id, status FROM turns").fetchall()
        rows: list[Any] = connection.execute(
            "SELECT turn, seq, kind, payload FROM events WHERE dropped_by IS NULL"
        ).fetchall()
    finally:
        connection.close()
    turns = dict(statuses)
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
