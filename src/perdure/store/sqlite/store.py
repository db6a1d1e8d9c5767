"""The journal on one SQLite file: `perdure.store.base.Store`. Each verb is one transaction, told after its commit."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw
from langgraph.checkpoint.base import BaseCheckpointSaver

from perdure.clock import Clock
from perdure.failpoints import failpoint
from perdure.store.base import LeasedAttempt, Notify, Recovered
from perdure.store.sqlite import claims, decisions
from perdure.store.sqlite.attempt import SQLiteAttempt
from perdure.store.sqlite.authority import Authority, ReadOnly
from perdure.store.sqlite.backup import copy_into
from perdure.store.sqlite.checkpointer import Checkpointer
from perdure.store.sqlite.claims import Claimed
from perdure.store.sqlite.database import SYNCHRONOUS, open_reader
from perdure.store.sqlite.fenced import AttemptTools, Fenced
from perdure.store.sqlite.journal import Told, publish
from perdure.store.sqlite.opening import JOURNAL, Opened, open_database
from perdure.store.sqlite.outbox import Outgoing
from perdure.store.sqlite.rendering import messages
from perdure.turns import Limits, Outcome


async def open_store(
    path: Path,
    *,
    clock: Clock,
    limits: Limits,
    notify: Notify,
    version: str = "",
    state_types: Collection[str] = (),
    synchronous: str = SYNCHRONOUS,
    vfs: str | None = None,
    allow_unsafe_file_system: bool = False,
) -> SQLiteStore:
    """Locks, opens and migrates the database, makes it where it is missing, and notes this start.

    `version` is told to whoever finds the lock; `state_types` (`module:Class`) may be read back beside the types of the
    graphs. Raises DatabaseUnusable with what to do.
    """
    opened = await open_database(
        path,
        JOURNAL,
        clock=clock,
        version=version,
        synchronous=synchronous,
        vfs=vfs,
        allow_unsafe_file_system=allow_unsafe_file_system,
    )
    return SQLiteStore(opened, clock=clock, limits=limits, notify=notify, state_types=state_types, vfs=vfs)


class SQLiteStore(Outgoing):
    """Made by `open_store`, on the event loop that uses it; ended by `close`."""

    def __init__(
        self,
        opened: Opened,
        *,
        clock: Clock,
        limits: Limits,
        notify: Notify,
        state_types: Collection[str],
        vfs: str | None,
    ) -> None:
        super().__init__(opened, self._render, limits, clock=clock, notify=notify, state_types=state_types, vfs=vfs)
        self._vfs = vfs
        self._abandoned: set[asyncio.Task[None]] = set()
        self._tools = AttemptTools(self._writer, clock, notify, self._saver, self._forget_live)

    # -- the engine's verbs -------------------------------------------------------------------------------------------

    async def claim(
        self,
        *,
        agents: Mapping[str, int | None],
        suspects: bool,
        now: datetime,
        lease_expires_at: datetime,
        asking: bool = False,
    ) -> LeasedAttempt | None:
        wanted = claims.Wanted(agents, suspects, asking, now)
        if not self._readers.look(lambda connection: claims.claimable(connection, self._limits, wanted)):
            return None
        failpoint("claim.before")
        made: list[SQLiteAttempt] = []

        def transaction(connection: apsw.Connection) -> Claimed | None:
            return claims.claim(connection, self._owner, self._limits, wanted, lease_expires_at=lease_expires_at)

        def committed(claimed: Claimed | None) -> None:
            if claimed is not None:
                made.append(self._begin(claimed))

        future = self._writer.submit(transaction, committed=committed)
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(lambda _: self._abandon(made))
            raise
        failpoint("claim.after")
        return made[0] if made else None

    async def recover(self, turn: str, epoch: int, *, now: datetime, manual: bool) -> Recovered | None:
        failpoint("recover.before")

        def transaction(connection: apsw.Connection) -> Told:
            recovered = claims.recover(
                connection, self._owner, self._limits, turn_id=turn, epoch=epoch, now=now, manual=manual
            )
            return Told(*recovered) if recovered else Told(None)

        def committed(told: Told) -> None:
            recovered: Recovered | None = told.result
            stale = self._live.get(recovered.conversation) if recovered else None
            if stale is not None and stale.turn.id == turn and stale.number == epoch:
                self._forget_live(stale)  # its numbers are given out no more
            self._told("queue", "changes")(told)

        told = await self._writer.submit(transaction, committed=committed)
        failpoint("recover.after")
        recovered: Recovered | None = told.result
        return recovered

    async def expire(self, now: datetime) -> datetime | None:
        while (due := self._readers.look(decisions.next_expiry)) is not None and due <= now:
            failpoint("decision.before")
            await self._tell(lambda connection: decisions.expire(connection, now), "queue", "changes")
            failpoint("decision.after")
        return due

    def reader(self) -> BaseCheckpointSaver[str]:
        return Checkpointer(self._checkpoints, ReadOnly())

    # -- the house ----------------------------------------------------------------------------------------------------

    @property
    def owner_name(self) -> str:
        return self._owner.name

    def _pruned(self, conversation: str) -> None:
        self._checkpoints.forget(conversation)

    async def backup(self, target: Path) -> None:
        def copy() -> None:
            connection = open_reader(self.path, vfs=self._vfs)
            try:
                copy_into(connection, target)
            finally:
                connection.close()

        await asyncio.to_thread(copy)

    async def close(self) -> None:
        if self._abandoned:
            await asyncio.wait(self._abandoned)
        await super().close()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _render(self, connection: apsw.Connection, items: Sequence[int]) -> Mapping[int, Mapping[str, Any]]:
        return messages(connection, self._checkpoints.serializer, items)

    def _saver(self, authority: Authority) -> BaseCheckpointSaver[str]:
        return Checkpointer(self._checkpoints, authority)

    def _begin(self, claimed: Claimed) -> SQLiteAttempt:
        attempt = SQLiteAttempt(claimed, self._tools)
        self._live[claimed.turn.conversation] = attempt
        if claimed.rewind is not None:
            publish(self._notify, claimed.rewind)
        self._ring("changes")
        return attempt

    def _forget_live(self, attempt: Fenced) -> None:
        if self._live.get(attempt.turn.conversation) is attempt:
            del self._live[attempt.turn.conversation]

    def _abandon(self, made: list[SQLiteAttempt]) -> None:
        """Who asked for the claim has gone: the turn goes back to the queue."""
        for attempt in made:
            task = asyncio.ensure_future(attempt.release(Outcome.RELEASED))
            self._abandoned.add(task)
            task.add_done_callback(self._abandoned.discard)
