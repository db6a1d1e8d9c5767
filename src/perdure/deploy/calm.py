"""Work that whoever waits for it does not cut short by losing patience."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def undisturbed(work: Coroutine[Any, Any, T]) -> T:
    """Returns when the work has ended, however often this is cancelled in between; then that counts. What the work raises is raised."""
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait({task})  # this one does not hand a cancellation on
        except asyncio.CancelledError:
            cancelled = True
    done = task.result()
    if cancelled:
        raise asyncio.CancelledError
    return done
