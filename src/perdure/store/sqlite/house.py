"""What every file of ours needs that a process writes to: who may enter, how it stands, its end."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import apsw

from perdure.clock import Clock
from perdure.errors import PerdureError
from perdure.forks import DatabaseSize
from perdure.store.base import Notify
from perdure.store.sqlite import maintenance, tokens
from perdure.store.sqlite.database import open_reader
from perdure.store.sqlite.journal import QUERIES
from perdure.store.sqlite.listing import Messages
from perdure.store.sqlite.opening import Opened
from perdure.store.sqlite.readers import Readers
from perdure.store.sqlite.reading import Reading
from perdure.store.sqlite.rows import micros
from perdure.store.sqlite.space import check_room
from perdure.store.sqlite.writer import Writer, ignore_outcome
from perdure.turns import Limits, Role, Token

T = TypeVar("T")

_log = logging.getLogger(__name__)


class House(Reading):
    """Made on the event loop that uses it; ended by `close`."""

    def __init__(
        self,
        opened: Opened,
        messages: Messages,
        limits: Limits,
        *,
        clock: Clock,
        notify: Notify,
        vfs: str | None = None,
    ) -> None:
        super().__init__(Readers(lambda: open_reader(opened.path, vfs=vfs)), messages, opened.owner, limits)
        self.path = opened.path
        self.lock = opened.lock
        self.upgraded_from = opened.upgraded_from
        """The copy that was made before the schema was upgraded, None when there was nothing to upgrade."""

        self._writer = Writer(opened.connection, asyncio.get_running_loop())
        self._clock = clock
        self._notify = notify
        self._used: dict[str, datetime] = {}
        self._closed = False

    # -- tokens -------------------------------------------------------------------------------------------------------

    async def create_token(self, name: str, role: Role, secret_hash: str, *, by: str) -> Token:
        now = self._clock.now()
        return await self._commit(lambda connection: tokens.create(connection, name, role, secret_hash, by=by, now=now))

    async def revoke_token(self, name: str, *, by: str) -> Token:
        now = self._clock.now()
        return await self._commit(lambda connection: tokens.revoke(connection, name, by=by, now=now))

    async def token_of(self, secret_hash: str) -> Token | None:
        found = self._readers.look(lambda connection: tokens.holder(connection, secret_hash))
        if found is not None:
            self._note_use(found.name)
        return found

    def _note_use(self, name: str) -> None:
        """Once a minute, and nobody waits for it: a use that is not noted is no reason to refuse one."""
        minute = self._clock.now().replace(second=0, microsecond=0)
        if self._used.get(name) == minute:
            return
        self._used[name] = minute
        future = self._writer.submit(lambda connection: tokens.used(connection, name, minute), patient=True)
        future.add_done_callback(ignore_outcome)

    # -- how it stands ------------------------------------------------------------------------------------------------

    async def statistics(self) -> Mapping[str, float]:
        now = self._clock.now()
        return await self._readers.run(
            lambda connection: maintenance.statistics(connection, self.path, self._writer.counts, now)
        )

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
                self._pruned(conversation)
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

    def _pruned(self, conversation: str) -> None:
        """What is remembered of it may be gone."""

    def announce(self, address: str, token_file: Path | None) -> None:
        """Tells commands, by the lock file, where this server listens and where its token is."""
        self.lock.announce(address, token_file)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
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

    async def _commit(self, transaction: Callable[[apsw.Connection], T], *topics: str) -> T:
        return await self._writer.submit(transaction, committed=lambda _: self._ring(*topics))

    def _ring(self, *topics: str) -> None:
        for topic in topics:
            self._notify.ring(topic)
