"""The store's verbs around forks: where one can begin, making it, its branches, and the history it is chosen from; and the
processes that serve."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from perdure.failpoints import failpoint
from perdure.forks import Forked, ForkPoint, NewFork, Parting, WorkerInfo
from perdure.store.base import Page
from perdure.store.sqlite import branches, forks, history, listing
from perdure.store.sqlite.journal import require_conversation
from perdure.store.sqlite.keys import repeated_fork
from perdure.store.sqlite.people import PeoplesVerbs
from perdure.turns import RequestKey


class Forking(PeoplesVerbs):
    """That part of `perdure.store.base.Store`."""

    async def fork_point(
        self,
        scope: str | None,
        conversation: str,
        *,
        message: str | None = None,
        turn: str | None = None,
        checkpoint: str | None = None,
    ) -> ForkPoint:
        def find(connection: apsw.Connection) -> ForkPoint:
            require_conversation(connection, scope, conversation)
            if checkpoint is not None:
                return history.at_checkpoint(connection, conversation, checkpoint)
            serializer = self._checkpoints.serializer
            return history.before_message(connection, serializer, conversation, message or "", turn)

        return await self._readers.run(find)

    async def repeated_fork(self, owner: str, request_key: RequestKey) -> Forked | None:
        now = self._clock.now()
        return await self._readers.run(lambda connection: repeated_fork(connection, owner, request_key, now))

    async def fork(self, new: NewFork) -> Forked:
        failpoint("accept.before")
        now, numbers = self._clock.now(), self._checkpoints
        mark = 0

        def transaction(connection: apsw.Connection) -> Forked:
            nonlocal mark
            made = forks.fork(connection, new, iter(numbers), now)
            mark = numbers.keep_mark(connection)
            return made

        def committed(_: Forked) -> None:
            numbers.marked(mark)
            self._ring("queue", "changes")

        forked = await self._writer.submit(transaction, committed=committed)
        failpoint("accept.after")
        return forked

    async def branches(self, scope: str | None, conversation: str) -> Sequence[Parting]:
        return await self._readers.run(lambda connection: branches.partings(connection, scope, conversation))

    async def checkpoints(
        self, scope: str | None, conversation: str, *, limit: int, cursor: str | None = None
    ) -> Page[str]:
        def read(connection: apsw.Connection) -> Page[str]:
            require_conversation(connection, scope, conversation)
            return history.checkpoint_ids(connection, conversation, limit=limit, cursor=cursor)

        return await self._readers.run(read)

    # -- what serves --------------------------------------------------------------------------------------------------

    async def workers(self, scope: str | None) -> Sequence[WorkerInfo]:
        now, boot = self._clock.now(), self._owner.boot
        return await self._readers.run(lambda connection: listing.workers(connection, scope, boot, now))
