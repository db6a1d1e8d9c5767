"""The copy first, the watchers second: what is taken of an agent is written in one transaction, and told after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from perdure.agent.line import Lines
from perdure.agent.lost import Lost
from perdure.errors import AgentUnavailable, PerdureError, StorageError, StorageFull
from perdure.events import Event, EventKind
from perdure.failpoints import failpoint
from perdure.replication import JournalRows
from perdure.store.replica import Replica
from perdure.transport.local import LocalTransport

_log = structlog.get_logger("perdure.agent")


class Batch:
    """What is taken in one transaction and told after it."""

    def __init__(self) -> None:
        self.items: list[Event] = []
        self._rows: list[JournalRows] = []

    def add(self, item: Event, rows: JournalRows | None) -> None:
        self.items.append(item)
        if rows is not None:
            self._rows.append(rows)

    def taken(self) -> tuple[list[Event], list[JournalRows]]:
        items, rows = self.items, self._rows
        self.items, self._rows = [], []
        return items, rows


class Telling:
    """Of one agent. Call it from one task alone, so that nothing overtakes."""

    def __init__(
        self,
        agent: str,
        replica: Replica,
        transport: LocalTransport,
        lines: Lines,
        lost: Lost,
        *,
        told: Callable[[Event], None],
        unfit: Callable[[], None],
    ) -> None:
        """`told`: called with each committed event after it went to watchers. `unfit`: when the agent told what does not fit
        into the copy, of which nothing was kept."""
        self._agent = agent
        self._replica = replica
        self._transport = transport
        self._lines = lines
        self._lost = lost
        self._told = told
        self._unfit = unfit

    async def flush(self, batch: Batch) -> None:
        """What came live: in order, and not told before."""
        items, rows = batch.taken()
        if items:
            with suppress(AgentUnavailable):  # it does not fit: the agent is asked
                await self._write(items, rows)

    async def commit(self, items: Sequence[Event], rows: JournalRows) -> None:
        """Of what was asked for: events that are new, text that still fits. Raises AgentUnavailable for what does not fit into
        the copy."""
        await self._write(items, [rows], asked=True)
        if not rows.deleted:
            return
        await self._lost.tell(rows.deleted)
        for conversation in rows.deleted:
            self._lines.drop(conversation)
            self._transport.forget(conversation)

    async def _write(self, items: Sequence[Event], rows: Sequence[JournalRows], *, asked: bool = False) -> None:
        committed = [item for item in items if item.kind is not EventKind.TOKEN]
        new: set[tuple[str, int]] = set()
        if committed or rows:
            try:
                failpoint("follow.record.before")
                recorded = await self._replica.record(committed, rows=[(self._agent, part) for part in rows])
                failpoint("follow.record.after")
            except BaseException as error:
                self._not_written(items, error)
                raise
            new = {(event.conversation, event.seq) for event in recorded}
        for item in items:
            if item.kind is EventKind.TOKEN:
                self._say(item, asked=asked)
            elif (item.conversation, item.seq) in new:
                self._tell(item)

    def _not_written(self, items: Sequence[Event], error: BaseException) -> None:
        """Raises AgentUnavailable for what does not fit into the copy, of which nothing was kept. After any other failure nobody
        knows whether it is there: who watches comes again and reads."""
        unfit = isinstance(error, PerdureError) and not isinstance(error, StorageError | StorageFull)
        for conversation in {item.conversation for item in items}:
            self._lines.drop(conversation)
            if not unfit:
                self._transport.cut_off(conversation)
        if unfit:
            _log.warning("agent_told_what_does_not_fit", agent=self._agent, problem=str(error))
            self._unfit()
            raise AgentUnavailable(f"The agent {self._agent!r} told what does not fit: {error}") from error

    def _tell(self, event: Event) -> None:
        line = self._lines.get(event.conversation)
        if line is not None:
            line.took(event)
        self._transport.publish(event)
        self._told(event)

    def _say(self, token: Event, *, asked: bool) -> None:
        if asked:
            line = self._lines.get(token.conversation)
            if line is None or not line.fits(token, watched=token.conversation in self._transport.watched()):
                return
            line.said(token)
        self._transport.publish(token)
