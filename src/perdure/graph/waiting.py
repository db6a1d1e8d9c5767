"""How a tool that is under way comes to its end, and what that end says of its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from perdure.graph.errors import Unsettled

_LONGEST_WHY = 1000


async def ended(work: asyncio.Task[Any], grace: Callable[[], float]) -> asyncio.CancelledError | None:
    """Waits until the work has ended. When the wait is cancelled, the work has `grace` seconds more, then it is cancelled
    too; gives the cancel back once the work has ended."""
    try:
        await asyncio.wait({work})
    except asyncio.CancelledError as cut:
        await _within(work, grace)
        while not work.done():
            work.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({work})
        return cut
    return None


async def _within(work: asyncio.Task[Any], grace: Callable[[], float]) -> None:
    """Waits for the work, no longer than its grace. LangGraph cancels a task twice when another one of its step fails: a
    further cancel asks anew whether there is any grace, and ends it when there is none."""
    loop = asyncio.get_running_loop()
    until = loop.time() + grace()
    while not work.done() and (left := min(until - loop.time(), grace())) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.wait({work}, timeout=left)


def error_of(work: asyncio.Task[Any]) -> BaseException | None:
    if work.cancelled():
        return asyncio.CancelledError("the tool was cancelled, and nobody cancelled the call")
    return work.exception()


def why_of(error: BaseException) -> str:
    """The end of a sentence, without its full stop."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # a class of the tool's own, whose text cannot be made
        text = ""
    if isinstance(error, Unsettled):
        return text[:_LONGEST_WHY].rstrip(".")
    said = f": {text}" if text else ""
    return f"the tool raised {type(error).__name__}{said}"[:_LONGEST_WHY].rstrip(".")
