"""One program in this process: what it has started is stopped in reverse, its HTTP server answers before anything relies on it.

Every shape of the program (embedded server, agent, gateway) is one of these. It serves until it is asked to stop; then it
is drained, streams are aborted, HTTP ends, and the rest of the stack is undone.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from types import TracebackType
from typing import Protocol, Self

import structlog
from starlette.types import ASGIApp

from perdure import failpoints
from perdure.api.stream import Streams
from perdure.clock import Clock, SystemClock
from perdure.config import Settings
from perdure.errors import ConfigurationError, PerdureError
from perdure.runtime.http import HttpServer
from perdure.runtime.ports import address_of, listen
from perdure.runtime.signals import StopSignals
from perdure.transport.local import LocalTransport

PRUNE_SECONDS = 3_600.0

log = structlog.get_logger("perdure.runtime")


class Prune(Protocol):
    async def __call__(self, older_than: datetime, *, dry_run: bool) -> Mapping[str, int]: ...


class Process:
    """Use as `async with`; inside it serves. Raises ConfigurationError, NotReady. `_start` is the shape's own."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.address = ""
        self.local = LocalTransport()
        self.streams = Streams(heartbeat_seconds=settings.heartbeat_seconds)
        self._stack = AsyncExitStack()
        self._draining = False
        self._urgent = asyncio.Event()
        self._hopeless: list[tuple[asyncio.Event, Callable[[], PerdureError]]] = []
        """What ends this process by itself once it is set, and why."""

    async def __aenter__(self) -> Self:
        try:
            if failpoints.refusal:
                raise ConfigurationError(failpoints.refusal)
            await self._start()
        except OSError as error:
            await self._stack.aclose()
            raise ConfigurationError(unstartable(error)) from error
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        """What is pushed on the stack is undone in reverse."""
        raise NotImplementedError

    async def serve_http(self, app: ASGIApp) -> None:
        """Returns when our own health check has answered."""
        bound = listen(self.settings.host, self.settings.port)
        self.address = address_of(bound, self.settings.host)
        self.http = HttpServer(app, bound)
        self.http.start()
        self._stack.push_async_callback(self._stop_http)
        await self.http.until_ready(self.address, self.clock)

    def keep_pruned(self, prune: Prune) -> None:
        """Every hour, with what `retention_days` says; never without it."""
        if self.settings.retention_days is None:
            return
        pruning = asyncio.create_task(self._prune_for_ever(prune, self.settings.retention_days), name="perdure-prune")

        async def end() -> None:
            pruning.cancel()
            await asyncio.gather(pruning, return_exceptions=True)

        self._stack.push_async_callback(end)

    async def _prune_for_ever(self, prune: Prune, days: float) -> None:
        while True:
            try:
                counts = await prune(self.clock.now() - timedelta(days=days), dry_run=False)
                log.info("pruned", rows=sum(counts.values()))
            except PerdureError as error:
                log.warning("pruning failed; it is tried again later", error=error.message)
            except Exception:
                log.exception("pruning broke; it is tried again later")
            await self.clock.sleep(PRUNE_SECONDS)

    async def until_stopped(self, signals: StopSignals) -> None:
        """Returns when somebody asks for a stop. Raises when the HTTP server ended by itself, or there is no use in going on."""
        waits = [asyncio.create_task(each.wait()) for each in (signals.asked, *(event for event, _ in self._hopeless))]
        assert self.http.ended is not None
        try:
            await asyncio.wait({*waits, self.http.ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._urgent = signals.urgent
        if not signals.asked.is_set():
            for event, why in self._hopeless:
                if event.is_set():
                    raise why()
            raise PerdureError("The HTTP server ended by itself; its log says why.")

    async def _stop_http(self) -> None:
        self.local.close()
        await self.streams.abort_all()
        await self.http.stop()


def tell(lines: Sequence[tuple[str, str]]) -> None:
    """What a person who starts a process wants to know, on standard output."""
    width = max(len(name) for name, _ in lines)
    print("\n".join(f"{name:<{width}}  {text}" for name, text in lines), flush=True)


def unstartable(error: OSError) -> str:
    """What the operating system refused while the server started, and what to do."""
    where = f" ({error.filename})" if error.filename else ""
    cures = {
        errno.ENOSPC: "Free some space on the disk",
        errno.EDQUOT: "Free some space: the quota of this user is used up",
        errno.EMFILE: "Raise the limit of open files (ulimit -n)",
        errno.ENFILE: "Close other programs: the machine has no file handle left",
        errno.EACCES: "Check the owner and the mode of the file",
        errno.EPERM: "Check the owner and the mode of the file",
        errno.EROFS: "Name a place that can be written (--database)",
    }
    cure = cures.get(error.errno or 0, "See what `perdure doctor` says")
    return f"The server cannot start: {error.strerror or error}{where}. {cure}, then start again."
