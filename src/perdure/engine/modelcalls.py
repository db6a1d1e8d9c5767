"""Counts every model call of a turn before it starts: of the built-in graph, of users' graphs and of what they call.

LangChain tells its callbacks of each call, wherever in a graph it is made. Calls on the event loop are counted durably and
awaited; LangChain gives a synchronous call no way to wait for the loop (and swallows what an asynchronous callback raises
there), so these are counted in memory at once and stored behind it. Both callbacks hear of an asynchronous call: the id of
the call keeps it counted once.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler

from perdure.engine.ledger import AttemptLedger


class ModelCalls:
    """One per drive, made on its loop. `callbacks` go into the graph's config, in this order."""

    def __init__(self, ledger: AttemptLedger) -> None:
        self._ledger = ledger
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._counted: set[UUID] = set()
        self._storing: set[asyncio.Task[None]] = set()
        self.callbacks: list[BaseCallbackHandler] = [_Awaited(self), _Direct(self)]

    async def count(self, call: UUID) -> None:
        if asyncio.get_running_loop() is not self._loop:
            return  # a synchronous call: `count_directly` has counted it
        self._counted.add(call)
        await self._ledger.count_model_call()

    def count_directly(self, call: UUID) -> None:
        if call in self._counted:
            self._counted.discard(call)
            return
        self._ledger.grant_model_call()
        if threading.get_ident() == self._thread:
            self._store()
        else:
            self._loop.call_soon_threadsafe(self._store)

    def _store(self) -> None:
        storing = self._loop.create_task(self._ledger.keep_model_call())
        self._storing.add(storing)
        storing.add_done_callback(self._stored)

    def _stored(self, storing: asyncio.Task[None]) -> None:
        """A write that failed has latched the attempt, which ends the drive."""
        self._storing.discard(storing)
        if not storing.cancelled():
            storing.exception()


class _OnlyModels:
    """What else LangChain would tell is not wanted."""

    raise_error = True
    run_inline = True
    ignore_chain = True
    ignore_agent = True
    ignore_retriever = True
    ignore_retry = True
    ignore_custom_event = True


class _Awaited(_OnlyModels, AsyncCallbackHandler):
    def __init__(self, calls: ModelCalls) -> None:
        self._calls = calls

    async def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **more: Any) -> None:
        await self._calls.count(run_id)

    async def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: UUID, **more: Any) -> None:
        await self._calls.count(run_id)


class _Direct(_OnlyModels, BaseCallbackHandler):
    def __init__(self, calls: ModelCalls) -> None:
        self._calls = calls

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **more: Any) -> None:
        self._calls.count_directly(run_id)

    def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: UUID, **more: Any) -> None:
        self._calls.count_directly(run_id)
