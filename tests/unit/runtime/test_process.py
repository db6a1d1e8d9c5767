"""What a process of any shape does by itself, beside serving."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime

from perdure.config import Settings
from perdure.errors import StorageError
from perdure.runtime.process import PRUNE_SECONDS, Process
from perdure.testing import FakeClock


async def test_pruning_that_fails_for_whatever_reason_is_tried_again() -> None:
    clock = FakeClock()
    failures = [StorageError("the disk"), RuntimeError("nobody thought of this")]
    pruned = asyncio.Event()

    async def prune(older_than: datetime, *, dry_run: bool) -> Mapping[str, int]:
        if failures:
            raise failures.pop()
        pruned.set()
        return {}

    async def passing() -> None:
        while not pruned.is_set():
            if clock.sleeping:
                clock.advance(PRUNE_SECONDS)
            await asyncio.sleep(0)

    process = Process(Settings(retention_days=1.0), clock)
    process.keep_pruned(prune)
    try:
        await asyncio.wait_for(passing(), 60)
    finally:
        await process._stack.aclose()
