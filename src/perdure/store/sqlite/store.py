"""The journal on one SQLite file: `perdure.store.base.Store`. Each verb is one transaction, told after its commit."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import apsw
from langgraph.checkpoint.base import BaseCheckpointSaver

from perdure.clock import Clock
from perdure.errors import PerdureError
from perdure.failpoints import failpoint
from perdure.forks import DatabaseSize
from perdure.store.base import LeasedAttempt, Notify, Recovered
from perdure.store.sqlite import claims, decisions, maintenance
from perdure.store.sqlite.attempt import SQLiteAttempt
from perdure.store.sqlite.authority import Authority, ReadOnly
from perdure.store.sqlite.backup import copy_into
from perdure.store.sqlite.checkpointer import Checkpointer, Checkpoints
from perdure.store.sqlite.claims import Claimed, Owner
from perdure.store.sqlite.database import SYNCHRONOUS, Connection, open_reader, open_writer, prepare_place, refusals
from perdure.store.sqlite.fenced import AttemptTools, Fenced
from perdure.store.sqlite.journal import QUERIES, Told, publish
from perdure.store.sqlite.lock import DatabaseLock, Holder
from perdure.store.sqlite.migrations import migrate
from perdure.store.sqlite.outbox import Outgoing
from perdure.store.sqlite.readers import Readers
from perdure.store.sqlite.rendering import messages
from perdure.store.sqlite.rows import micros
from perdure.store.sqlite.space import check_room
from perdure.store.sqlite.writer import Writer
from perdure.turns import Limits, Outcome

_log = logging.getLogger(__name__)


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
    holder = Holder(os.getpid(), socket.gethostname(), uuid4().hex, version)

    def opened() -> _Opened:
        place = path.absolute()  # readers open it later, wherever the process has moved to by then
        prepare_place(place, allow_unsafe_file_system=allow_unsafe_file_system)
        lock = DatabaseLock(place, holder)
        try:
            return _open(place, lock, clock, synchronous, vfs)
        except BaseException:
            lock.release()
            raise

    return SQLiteStore(
        await asyncio.to_thread(opened), clock=clock, limits=limits, notify=notify, state_types=state_types, vfs=vfs
    )


@dataclass(frozen=True, slots=True)
class _Opened:
    path: Path
    lock: DatabaseLock
    connection: Connection
    owner: Owner
    upgraded_from: Path | None


def _open(path: Path, lock: DatabaseLock, clock: Clock, synchronous: str, vfs: str | None) -> _Opened:
    connection = open_writer(path, synchronous=synchronous, vfs=vfs)
    try:
        with refusals(path):
            copy = migrate(connection, path)
            holder = lock.holder
            started = {"owner": holder.owner, "version": holder.version, "now": micros(clock.now())}
            row = QUERIES.one(connection, "boot_start", **started)
        assert row is not None
        return _Opened(path, lock, connection, Owner(holder.owner, row["number"]), copy)
    except BaseException:
        connection.close()
        raise


class SQLiteStore(Outgoing):
    """Made by `open_store`, on the event loop that uses it; ended by `close`."""

    def __init__(
        self,
        opened: _Opened,
        *,
        clock: Clock,
        limits: Limits,
        notify: Notify,
        state_types: Collection[str],
        vfs: str | None,
    ) -> None:
        self.path = opened.path
        self.lock = opened.lock
        self.upgraded_from = opened.upgraded_from
        """The copy that was made before the schema was upgraded, None when there was nothing to upgrade."""

        self._vfs = vfs
        readers = Readers(lambda: open_reader(opened.path, vfs=vfs))
        self._checkpoints = Checkpoints(readers, state_types=state_types)
        super().__init__(
            readers,
            self._render,
            opened.owner,
            limits,
            writer=Writer(opened.connection, asyncio.get_running_loop()),
            clock=clock,
            notify=notify,
            checkpoints=self._checkpoints,
        )
        self._abandoned: set[asyncio.Task[None]] = set()
        self._tools = AttemptTools(self._writer, clock, notify, self._saver, self._forget_live)
        self._closed = False

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

    async def statistics(self) -> Mapping[str, float]:
        now = self._clock.now()
        return await self._readers.run(
            lambda connection: maintenance.statistics(connection, self.path, self._writer.counts, now)
        )

    @property
    def owner_name(self) -> str:
        return self._owner.name

    async def size(self) -> DatabaseSize:
        return maintenance.size_of(self.path)

    async def check(self) -> None:
        await self._writer.submit(lambda connection: QUERIES.run(connection, "boot_probe", number=self._owner.boot))
        await asyncio.to_thread(check_room, self.path)

    async def prune(self, older_than: datetime, *, dry_run: bool) -> Mapping[str, int]:
        counts: Counter[str] = Counter()
        after: str | None = ""
        while after is not None:
            page = await self._prune_page(after, older_than, dry_run)
            counts += page.counts
            after = page.last
            for conversation in page.conversations:
                self._checkpoints.forget(conversation)
        counts += await self._prune_rest(older_than, dry_run)
        while not dry_run and await self._writer.submit(maintenance.vacuum):
            pass
        return dict(counts)

    async def _prune_page(self, after: str, older_than: datetime, dry_run: bool) -> maintenance.Pruned:
        try:
            return await self._writer.submit(
                lambda connection: maintenance.prune_page(connection, after, older_than, dry_run=dry_run)
            )
        except maintenance.Undo as undone:
            return undone.pruned

    async def _prune_rest(self, older_than: datetime, dry_run: bool) -> Counter[str]:
        now, boot = self._clock.now(), self._owner.boot
        if dry_run:
            return await self._readers.run(
                lambda connection: maintenance.prunable_rest(connection, older_than, now=now, boot=boot)
            )
        counts: Counter[str] = Counter()
        while some := await self._writer.submit(
            lambda connection: maintenance.prune_rest(connection, older_than, now=now, boot=boot)
        ):
            counts += some
        return counts

    async def backup(self, target: Path) -> None:
        def copy() -> None:
            connection = open_reader(self.path, vfs=self._vfs)
            try:
                copy_into(connection, target)
            finally:
                connection.close()

        await asyncio.to_thread(copy)

    def announce(self, address: str, token_file: Path | None) -> None:
        """Tells commands, by the lock file, where this server listens and where its token is."""
        self.lock.announce(address, token_file)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._abandoned:
            await asyncio.wait(self._abandoned)
        now = micros(self._clock.now())
        try:
            await self._writer.submit(
                lambda connection: QUERIES.run(connection, "boot_end", number=self._owner.boot, now=now)
            )
        except PerdureError as error:
            _log.error("the end of this start could not be noted: %s", error.message)
        finally:
            await self._readers.close()
            await self._writer.close()
            self.lock.release()

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
