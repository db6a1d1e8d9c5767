"""Counts every model call of a turn before it starts: of the built-in graph, of users' graphs and of what they call.

LangChain tells its callbacks of each call, wherever in a graph it is made, and lets those that raise refuse it. Ours come with
the context of the attempt, behind all others, so that a graph that configures its models can neither lose nor double them
and a refusal leaves none of them hanging. An asynchronous call is granted in memory, then stored before it begins. A
synchronous one cannot wait for the event loop (it may be what blocks it), and LangChain swallows what an asynchronous callback
raises there: it is granted by a synchronous callback, and stored behind it. LangChain tells all three callbacks of both
kinds; the id of the call keeps it counted once.
"""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from perdure.engine.ledger import AttemptLedger
from perdure.graph.errors import LimitReached

_callbacks: tuple[ContextVar[Any | None], ...] = tuple(
    ContextVar(f"perdure_model_calls_{part}", default=None) for part in ("granting", "direct", "storing")
)
for _callback in _callbacks:
    register_configure_hook(_callback, inheritable=False)


class ModelCalls:
    """One per drive, made on its loop."""

    def __init__(self, ledger: AttemptLedger) -> None:
        self._ledger = ledger
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._granted: dict[UUID, LimitReached | None] = {}
        self._storing: set[asyncio.Task[None]] = set()

    def watch(self) -> None:
        """Hears of the model calls in the present context, and in those that are copied of it."""
        for place, callback in zip(_callbacks, (_Granting(self), _Direct(self), _Storing(self)), strict=True):
            place.set(callback)

    def grant(self, call: UUID) -> None:
        """An asynchronous call begins. A refusal is kept for `store`, the last callback of all."""
        if self._elsewhere():
            return
        try:
            self._ledger.grant_model_call()
        except LimitReached as refusal:
            self._granted[call] = refusal
        else:
            self._granted[call] = None

    def grant_directly(self, call: UUID) -> None:
        """A synchronous call begins, or an asynchronous one that is granted already."""
        if call in self._granted:
            return
        self._ledger.grant_model_call()
        if threading.get_ident() == self._thread:
            self._store_behind()
        else:
            self._loop.call_soon_threadsafe(self._store_behind)

    async def store(self, call: UUID) -> None:
        if self._elsewhere() or call not in self._granted:
            return
        refusal = self._granted.pop(call)
        if refusal is not None:
            raise refusal
        await self._ledger.store_model_call()

    def _elsewhere(self) -> bool:
        """Whether this is the loop on which LangChain runs the asynchronous callbacks of a synchronous call."""
        return asyncio.get_running_loop() is not self._loop

    def _store_behind(self) -> None:
        storing = self._loop.create_task(self._ledger.store_model_call())
        self._storing.add(storing)
        storing.add_done_callback(self._stored)

    def _stored(self, storing: asyncio.Task[None]) -> None:
        """A write that failed has latched the attempt, which ends the drive."""
        self._storing.discard(storing)
        if not storing.cancelled():
            storing.exception()


class _OfModels:
    """What else LangChain would tell is not wanted."""

    raise_error = True
    run_inline = True
    ignore_chain = True
    ignore_agent = True
    ignore_retriever = True
    ignore_retry = True
    ignore_custom_event = True

    def __init__(self, calls: ModelCalls) -> None:
        self._calls = calls


class _Granting(_OfModels, AsyncCallbackHandler):
    async def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **more: Any) -> None:
        self._calls.grant(run_id)

    async def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: UUID, **more: Any) -> None:
        self._calls.grant(run_id)


class _Direct(_OfModels, BaseCallbackHandler):
    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **more: Any) -> None:
        self._calls.grant_directly(run_id)

    def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: UUID, **more: Any) -> None:
        self._calls.grant_directly(run_id)


class _Storing(_OfModels, AsyncCallbackHandler):
    async def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **more: Any) -> None:
        await self._calls.store(run_id)

    async def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: UUID, **more: Any) -> None:
        await self._calls.store(run_id)
