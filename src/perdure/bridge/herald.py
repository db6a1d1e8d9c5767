"""Tells that the agent is there and that its journal has changed: the bell of every copy of it, and the heartbeat."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

import structlog

from perdure.bridge.context import Context
from perdure.clock import Clock
from perdure.errors import PerdureError
from perdure.transport.nats.connection import Connection
from perdure.transport.nats.wire import LEAVING, SERVING, News

HEARTBEAT_SECONDS = 2.0
COALESCE_SECONDS = 0.02
MAX_DELETED = 500
"""Named in one message. Whoever misses one reads it in the journal."""

_PAGE = 500

_log = structlog.get_logger("perdure.bridge")


class Newsagent(Protocol):
    """`transport.nats.live.Tidings`, as far as it is needed."""

    async def news(self, news: News) -> None: ...


class Herald:
    def __init__(self, context: Context, tidings: Newsagent, connection: Connection, clock: Clock) -> None:
        self._context = context
        self._tidings = tidings
        self._connection = connection
        self._clock = clock
        self._position = 0
        self._deleted: deque[str] = deque(maxlen=MAX_DELETED)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._position = await self._context.journal.last_change(None)
        self._task = asyncio.create_task(self._watch(), name="perdure-herald")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self.tell()

    async def tell(self) -> None:
        """Nothing before the start: a position that is not known would read as one that went back."""
        if self._task is None:
            return
        deleted = tuple(self._deleted)
        state = LEAVING if self._context.leaving() else SERVING
        if self._connection.connected:
            self._deleted.clear()
            await self._tidings.news(
                News(max(self._position, 0), self._context.boot, state, deleted, since=self._context.since)
            )

    async def _watch(self) -> None:
        with self._context.transport.listen("changes") as bell:
            while True:
                try:
                    await self._read()
                    await self.tell()
                except PerdureError as error:
                    _log.warning("news_not_told", error=error.message)
                except Exception:
                    _log.exception("news_not_told")
                await self._clock.sleep(COALESCE_SECONDS)
                await bell.wait(HEARTBEAT_SECONDS)

    async def _read(self) -> None:
        """What happened since: wakes those who wait for the end of a turn."""
        more = True
        while more:
            page = await self._context.journal.changes(None, self._position, _PAGE)
            more = len(page) == _PAGE
            for change in page:
                self._position = change.number
                if change.turn is not None:
                    self._context.resting.told(change.turn, change.status)
                elif change.status == "deleted":
                    self._deleted.append(change.conversation)
