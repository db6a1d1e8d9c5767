"""A gateway's own database on one SQLite file: `perdure.store.replica.Replica`.

What it copies of its agents' journals can be made again; its tokens and dispatches cannot. Every verb that writes is one
transaction, cursors included: whoever is killed in between finds it done or not done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import apsw

from perdure.clock import Clock
from perdure.errors import DatabaseUnusable, StorageError, StorageFull
from perdure.events import Event
from perdure.replication import Dispatch, JournalRows, Position, StoredTranscript, StreamPosition
from perdure.store.base import Notify
from perdure.store.sqlite import copying, maintenance
from perdure.store.sqlite.copying import COPIES
from perdure.store.sqlite.foreign import guarded
from perdure.store.sqlite.house import House
from perdure.store.sqlite.journal import QUERIES
from perdure.store.sqlite.opening import Opened, open_database
from perdure.store.sqlite.replica_schema import REPLICA
from perdure.store.sqlite.rows import from_json, instant, micros, to_json
from perdure.turns import Limits

T = TypeVar("T")

_MICROSECOND = timedelta(microseconds=1)


async def open_replica(
    path: Path,
    *,
    notify: Notify,
    clock: Clock,
    version: str = "",
    place: str | None = None,
    allow_unsafe_file_system: bool = False,
) -> SQLiteReplica:
    """Locks, opens and migrates the gateway's file, makes it where it is missing, and notes this start. Ended by `close`.

    `place`: where its agents are, `prefix.namespace`. Raises DatabaseUnusable with what to do, also for the file of an agent
    (or of a server that is both in one) and of a gateway of another place: a gateway needs one of its own.
    """
    opened = await open_database(
        path, REPLICA, clock=clock, version=version, allow_unsafe_file_system=allow_unsafe_file_system
    )
    replica = SQLiteReplica(opened, clock=clock, notify=notify)
    if place is not None:
        try:
            await replica.check_place(place)
        except BaseException:
            await replica.close()
            raise
    return replica


class SQLiteReplica(House):
    """Made by `open_replica`, on the event loop that uses it; ended by `close`."""

    def __init__(self, opened: Opened, *, clock: Clock, notify: Notify) -> None:
        super().__init__(opened, _inline, Limits(), clock=clock, notify=notify)

    async def check_place(self, place: str) -> None:
        """Its agents are of this place from now on. Raises DatabaseUnusable when they are of another one."""

        def transaction(connection: apsw.Connection) -> str:
            COPIES.run(connection, "place_set", name=place)
            row = COPIES.one(connection, "place")
            assert row is not None
            return str(row["name"])

        held = await self._commit(transaction)
        if held != place:
            raise DatabaseUnusable(
                f"{self.path} holds copies of the agents of {held} (prefix and namespace); this gateway is one of {place}. Name "
                "another file with --database."
            )

    # -- the copy -----------------------------------------------------------------------------------------------------

    async def position(self, agent: str) -> Position:
        return self._readers.look(lambda connection: copying.position(connection, agent))

    async def apply(self, agent: str, rows: JournalRows) -> None:
        await self._copy(lambda connection: copying.apply(connection, agent, rows), "changes")

    async def restart(self, agent: str, journal: str) -> None:
        await self._commit(lambda connection: copying.restart(connection, agent, journal), "changes")

    async def forget(self, agent: str, *, by: str) -> Sequence[str]:
        now = self._clock.now()
        gone = await self._commit(lambda connection: copying.forget(connection, agent, by=by, now=now), "changes")
        with suppress(StorageError, StorageFull):  # it is forgotten; the next pruning gives the space back
            while await self._writer.submit(maintenance.vacuum):
                pass
        return gone

    async def last_seq(self, conversation: str) -> int | None:
        def read(connection: apsw.Connection) -> int | None:
            if COPIES.one(connection, "conversation_copied", conversation=conversation) is None:
                return None
            row = QUERIES.one(connection, "last_seq", conversation=conversation)
            return int(row["seq"]) if row else 0

        return self._readers.read_here(read)

    async def is_deleted(self, conversation: str) -> bool:
        return self._readers.look(
            lambda connection: COPIES.one(connection, "deletion", conversation=conversation) is not None
        )

    async def record(
        self,
        events: Sequence[Event],
        *,
        stream: StreamPosition | None = None,
        rows: Sequence[tuple[str, JournalRows]] = (),
    ) -> Sequence[Event]:
        def transaction(connection: apsw.Connection) -> list[Event]:
            for agent, told in rows:
                copying.apply(connection, agent, told)
            return copying.record(connection, events, stream)

        return await self._copy(transaction, *(["changes"] if rows else []))

    async def stream_position(self) -> StreamPosition | None:
        row = self._readers.look(lambda connection: COPIES.one(connection, "stream"))
        return None if row is None else StreamPosition(row["stream"], row["seq"])

    async def keep_transcript(self, conversation: str, transcript: StoredTranscript) -> None:
        await self._copy(lambda connection: copying.keep_transcript(connection, conversation, transcript))

    async def transcript(self, conversation: str) -> StoredTranscript | None:
        return await self._readers.run(lambda connection: copying.transcript(connection, conversation))

    async def keep_agent(self, agent: str, document: Mapping[str, Any]) -> None:
        told = to_json(document)
        await self._commit(lambda connection: COPIES.run(connection, "agent_keep", agent=agent, document=told))

    async def known_agents(self) -> Mapping[str, Mapping[str, Any]]:
        rows = await self._readers.run(lambda connection: COPIES.all(connection, "agents_known"))
        return {row["name"]: from_json(row["document"]) for row in rows}

    # -- what this gateway waits for ----------------------------------------------------------------------------------

    async def dispatched(self, dispatch: Dispatch) -> None:
        row = {
            "turn": dispatch.turn,
            "conversation": dispatch.conversation,
            "agent": dispatch.agent,
            "dispatched_at": micros(dispatch.dispatched_at),
            "parked": _micros_of(dispatch.parked_seconds),
        }
        await self._commit(lambda connection: COPIES.run(connection, "dispatch_put", **row))

    async def dispatches(self) -> Sequence[Dispatch]:
        rows = await self._readers.run(lambda connection: COPIES.all(connection, "dispatches"))
        return [
            Dispatch(
                row["turn"],
                row["conversation"],
                row["agent"],
                instant(row["dispatched_at"]),
                row["parked"] / 1_000_000,
            )
            for row in rows
        ]

    async def parked_for(self, turn: str, seconds: float) -> None:
        more = _micros_of(seconds)
        await self._commit(lambda connection: COPIES.run(connection, "dispatch_parked", turn=turn, parked=more))

    async def concluded(self, turn: str) -> None:
        await self._commit(lambda connection: COPIES.run(connection, "dispatch_conclude", turn=turn))

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _copy(self, transaction: Callable[[apsw.Connection], T], *topics: str) -> T:
        return await self._commit(lambda connection: guarded(transaction, connection), *topics)


def _inline(connection: apsw.Connection, items: Sequence[int]) -> Mapping[int, Mapping[str, Any]]:
    """Events of a copy hold their messages themselves."""
    return {}


def _micros_of(seconds: float) -> int:
    return timedelta(seconds=seconds) // _MICROSECOND
