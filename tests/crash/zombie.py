"""A stalled attempt that goes on after another process took its turn: none of its writes may land."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig

from perdure.clock import SystemClock
from perdure.effects import EffectClass
from perdure.errors import LeaseLost
from perdure.ledger import ToolCall, idempotency_key
from perdure.store.base import LeasedAttempt, Question, StoredResult
from perdure.store.sqlite import claims
from perdure.store.sqlite.database import open_writer
from perdure.store.sqlite.store import SQLiteStore, open_store
from perdure.testing import FakeClock
from perdure.transport.local import LocalTransport
from perdure.turns import Limits, NewTurn, Outcome, TurnStatus
from tests.crash.graphs.parked import graph
from tests.crash.journal import opened

LEASE = timedelta(seconds=30)
Write = Callable[[LeasedAttempt], Awaitable[object]]


async def _checkpoint(attempt: LeasedAttempt) -> None:
    hosted = graph.compile(checkpointer=attempt.checkpointer)
    config: RunnableConfig = {
        "configurable": {"thread_id": attempt.turn.conversation},
        "metadata": {"run_id": attempt.turn.id},
    }
    await hosted.ainvoke({"messages": [HumanMessage("late", id="late")]}, config, durability="sync")


CALL = ToolCall("c", "charge", {}, "m", effect=EffectClass.ONCE)


def _key(attempt: LeasedAttempt) -> str:
    return idempotency_key(attempt.turn.id, CALL)


async def _intend(attempt: LeasedAttempt) -> None:
    await attempt.intend(CALL, _key(attempt), "task", "tools", 1)


async def _record(attempt: LeasedAttempt) -> None:
    """Enqueued, not awaited: the next write tells what became of it."""
    attempt.record(_key(attempt), StoredResult("msgpack", b"late"), "success")
    await attempt.count_model_call(durable=True)


async def _unknown(attempt: LeasedAttempt) -> None:
    attempt.unknown(_key(attempt), "late")
    await attempt.count_model_call(durable=True)


async def _renew(attempt: LeasedAttempt) -> None:
    if not attempt.renew(attempt.turn.accepted_at + timedelta(days=1)):
        raise LeaseLost


WRITES: Mapping[str, Write] = {
    "checkpoint": _checkpoint,
    "intend": _intend,
    "record": _record,
    "unknown": _unknown,
    "count_model_call": lambda attempt: attempt.count_model_call(durable=True),
    "park": lambda attempt: attempt.park([Question("i", "what?")]),
    "finish": lambda attempt: attempt.finish(TurnStatus.COMPLETED),
    "release": lambda attempt: attempt.release(Outcome.RELEASED),
    "retry": lambda attempt: attempt.release(Outcome.RETRIED),
    "renew": _renew,
}


async def zombie_violations(folder: Path) -> list[str]:
    """One sentence per write of an old attempt that was let through, or that left a trace in the file."""
    clock = FakeClock()
    path = folder / "zombie.db"
    store = await open_store(path, clock=clock, limits=Limits(), notify=LocalTransport())
    found: list[str] = []
    try:
        for name, write in WRITES.items():
            old = await _taken_over(store, clock)
            before = _content(path)
            try:
                await write(old)
                found.append(f"P: an old attempt's {name} was let through")
            except LeaseLost:
                pass
            except Exception as error:
                found.append(f"P: an old attempt's {name} raised {type(error).__name__} instead of LeaseLost: {error}")
            if _content(path) != before:
                found.append(f"P: an old attempt's {name} left a trace in the database")
    finally:
        await store.close()
    return found


async def _taken_over(store: SQLiteStore, clock: FakeClock) -> LeasedAttempt:
    """An attempt that slept past its lease with a `once` call at work, and whose turn was claimed anew."""
    new = NewTurn(uuid4().hex, "o", "a", {"message": "go"}, None, uuid4().hex, "go")
    accepted = await store.accept(new)
    old = await _claim(store, clock)
    await _intend(old)
    clock.advance(LEASE.total_seconds() + 1)
    orphan = next(turn for turn in await store.orphans(clock.now(), held=()) if turn.id == accepted.turn)
    assert await store.recover(orphan.id, orphan.epoch, now=clock.now(), manual=False) is not None
    await _claim(store, clock)
    return old


async def _claim(store: SQLiteStore, clock: FakeClock) -> LeasedAttempt:
    attempt = await store.claim(
        agents={"a": None}, suspects=False, now=clock.now(), lease_expires_at=clock.now() + LEASE
    )
    assert attempt is not None
    return attempt


def take_over(database: Path) -> int:
    """What another owner of the file would do with turns whose leases are over, while the process that drives them is paused.
    How many it took: they wait in the queue then."""
    connection = open_writer(database)
    try:
        now, taken = SystemClock().now(), 0
        other = claims.Owner("elsewhere:1:another-boot", 0)
        for turn, epoch in connection.execute("SELECT id, epoch FROM turns WHERE status = 'running'").fetchall():
            with connection:
                taken += (
                    claims.recover(
                        connection, other, Limits(), turn_id=str(turn), epoch=int(str(epoch)), now=now, manual=False
                    )
                    is not None
                )
        return taken
    finally:
        connection.close()


def _content(path: Path) -> list[Any]:
    """All rows of all tables, as another connection sees them."""
    connection = opened(path)
    try:
        tables = [
            row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1")
        ]
        return [(table, connection.execute(f'SELECT * FROM "{table}"').fetchall()) for table in tables]
    finally:
        connection.close()
