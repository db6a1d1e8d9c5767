"""What a node or a tool raises to end the whole program ends its own work alone.

asyncio lets SystemExit and KeyboardInterrupt of any task stop the event loop, and with it the server and everyone else's
turns. LangGraph, its tools and the user's own code make tasks at many places; so every task that is made inside an attempt
is contained where tasks are made: by the loop's task factory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context
from types import CoroutineType
from typing import Any, NoReturn

from perdure import ledger


class ProgramExit(Exception):
    """A node or a tool raised what ends a program."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(f"{raised!r} was raised, which ends a program; here it ends only what raised it")


def contain(loop: asyncio.AbstractEventLoop) -> None:
    """From now on, tasks made inside an attempt (where `ledger.current` is set) raise ProgramExit instead. Once per loop."""
    before: Any = loop.get_task_factory()
    if isinstance(before, _Factory):
        return
    loop.set_task_factory(_Factory(before))


class _Factory:
    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(self, loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> asyncio.Future[Any]:
        context: Context | None = more.get("context")
        inside = ledger.current.get() if context is None else context.get(ledger.current)
        made = _Contained(coro) if inside is not None and isinstance(coro, CoroutineType) else coro
        if self._before is None:
            return asyncio.Task(made, loop=loop, **more)
        task: asyncio.Future[Any] = self._before(loop, made, **more)
        return task


class _Contained(Coroutine[Any, Any, Any]):
    """A coroutine step by step, so that one which is cancelled before it began is closed like any other."""

    __slots__ = ("_inner",)

    def __init__(self, inner: CoroutineType[Any, Any, Any]) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        """`cr_frame` and the like, for tracebacks of tasks and their names."""
        return getattr(self._inner, name)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()

    def send(self, value: Any) -> Any:
        try:
            return self._inner.send(value)
        except BaseException as error:
            pass_on(error)

    def throw(self, *given: Any) -> Any:
        try:
            return self._inner.throw(*given)
        except BaseException as error:
            pass_on(error)

    def close(self) -> None:
        self._inner.close()


def pass_on(error: BaseException) -> NoReturn:
    """Raises it again: as ProgramExit when it is no Exception and no cancel."""
    if isinstance(error, Exception | asyncio.CancelledError | GeneratorExit):
        raise error
    raise ProgramExit(error) from error
