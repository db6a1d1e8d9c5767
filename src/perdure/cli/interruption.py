"""Ctrl-C, SIGTERM and SIGHUP end a command that changes something in order: what it was doing is put back first."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from perdure.cli.output import tell

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_BASE = 128
"""Shells add the number of a signal to it."""


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Around what the current task awaits: the first signal cancels it, others change nothing. Ends with exit code 128 + n.
    One that is ignored (`nohup`) stays so."""
    loop, task, came = asyncio.get_running_loop(), asyncio.current_task(), list[signal.Signals]()
    assert task is not None, "commands run in a task"

    def arrived(which: signal.Signals) -> None:
        if came:
            tell(f"{which.name}: what was begun is still being put back; wait for it.", "yellow")
            return
        came.append(which)
        tell(f"{which.name}: what is being done is ended in order.", "yellow")
        task.cancel()

    before = {each: signal.getsignal(each) for each in _SIGNALS}
    heard = [each for each, handler in before.items() if handler is not signal.SIG_IGN]
    for each in heard:
        loop.add_signal_handler(each, arrived, each)
    try:
        yield
    except asyncio.CancelledError:
        if came:
            raise typer.Exit(_BASE + came[0]) from None
        raise
    finally:
        for each in heard:
            loop.remove_signal_handler(each)
            signal.signal(each, before[each] or signal.SIG_DFL)
