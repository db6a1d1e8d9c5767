"""Figures that are measured on both sides in turns, in one process: what the ratio says does not depend on the machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from langgraph.graph.state import StateGraph

from benchmarks.graphs import FILL, KILOBYTE, one_step, three_steps
from benchmarks.meters import Figure, Span, measured
from benchmarks.ours import open_ours
from benchmarks.stock import open_stock

SIZE_TURNS = 400
LONG_THREAD = 1_000
PAIRED_TURNS = 30
ROUNDS = 3
CONVERSATIONS = 32


class Side(Protocol):
    async def turn(self, thread: str, text: str) -> None: ...


@asynccontextmanager
async def both(
    folder: Path, name: str, graph: Callable[[], StateGraph[Any, Any, Any, Any]]
) -> AsyncIterator[tuple[Side, Side]]:
    async with (
        open_ours(folder / f"{name}-ours.db", graph()) as ours,
        open_stock(folder / f"{name}-stock.db", graph()) as stock,
    ):
        yield ours, stock


async def size(folder: Path) -> list[Figure]:
    """One thread of 400 turns, 1 KB asked and 1 KB answered each."""
    async with open_ours(folder / "size-ours.db", one_step()) as ours:
        await _turns(ours, "thread", SIZE_TURNS)
    async with open_stock(folder / "size-stock.db", one_step()) as stock:
        await _turns(stock, "thread", SIZE_TURNS)
        await stock.settle()
        theirs = stock.size()
    mine = ours.size()
    return [
        Figure(
            "database, 1 thread, 400 turns × 2 KB",
            f"{mine / 1e6:.1f} MB",
            f"{theirs / 1e6:.0f} MB",
            f"{mine / theirs:.4f}",
            "≤ 8 MB, aim 5",
            mine <= 8e6,
        )
    ]


async def cpu(folder: Path) -> list[Figure]:
    """CPU and bytes of a 3-step turn: on a thread of its own each time, and on one with 1,000 messages."""
    async with both(folder, "cpu", three_steps) as (ours, stock):
        for side in (ours, stock):
            await _turns(side, "warm", 5)
            await side.turn("long", f"{FILL}{LONG_THREAD}")
        empty = await _paired(ours, stock, lambda number: f"new-{number}")
        long = await _paired(ours, stock, lambda _: "long")
    return [
        _cpu("CPU of a 3-step turn, empty thread", empty, 1.2),
        _cpu("CPU of a 3-step turn, 1,000 messages", long, 0.35),
        _bytes("bytes written by a 3-step turn, 1,000 messages", long, 40_000),
        _bytes("bytes written by a 3-step turn, empty thread", empty, None),
    ]


async def rate(folder: Path) -> list[Figure]:
    """Turns a second, 3 steps each: 32 conversations at once, and one conversation after the other."""
    async with both(folder, "rate", three_steps) as (ours, stock):
        for side in (ours, stock):
            await _turns(side, "warm", 5)
        at_once = [Span(), Span()]
        after_another = [Span(), Span()]
        for lap in range(ROUNDS):
            for index, side in enumerate((ours, stock)):
                with measured(at_once[index]):
                    await asyncio.gather(*(_turns(side, f"{lap}-{n}", 3) for n in range(CONVERSATIONS)))
                with measured(after_another[index]):
                    for number in range(20):
                        await side.turn(f"seq-{lap}-{number}", KILOBYTE)
    return [
        _rate("turns/s, 32 conversations at once", at_once, ROUNDS * CONVERSATIONS * 3, 2.0),
        _rate("turns/s, one after the other", after_another, ROUNDS * 20, 1.2),
    ]


async def raw_rate(folder: Path, turns: int) -> float:
    """Stock LangGraph in process, one turn after the other: what a turn over HTTP is held against."""
    async with open_stock(folder / "raw.db", three_steps()) as stock:
        await _turns(stock, "warm", 5)
        begun = time.perf_counter()
        for number in range(turns):
            await stock.turn(f"raw-{number}", "What is the weather?")
        return turns / (time.perf_counter() - begun)


async def _turns(side: Side, thread: str, count: int) -> None:
    for _ in range(count):
        await side.turn(thread, KILOBYTE)


async def _paired(ours: Side, stock: Side, thread: Callable[[int], str]) -> tuple[Span, Span]:
    spans = (Span(), Span())
    for number in range(PAIRED_TURNS):
        for span, side in zip(spans, (ours, stock), strict=True):
            with measured(span):
                await side.turn(thread(number), "What is the weather?")
    return spans


def _cpu(name: str, spans: tuple[Span, Span], target: float) -> Figure:
    ours, stock = (span.cpu / PAIRED_TURNS * 1e3 for span in spans)
    ratio = ours / stock
    return Figure(name, f"{ours:.1f} ms", f"{stock:.1f} ms", f"{ratio:.2f}", f"≤ {target} ×", ratio <= target)


def _bytes(name: str, spans: tuple[Span, Span], target: int | None) -> Figure:
    ours, stock = (span.written / PAIRED_TURNS for span in spans)
    return Figure(
        name,
        f"{ours / 1e3:.1f} KB",
        f"{stock / 1e3:.1f} KB",
        f"{ours / stock:.3f}",
        f"≤ {target // 1000} KB" if target else "–",
        ours <= target if target else None,
    )


def _rate(name: str, spans: list[Span], turns: int, target: float) -> Figure:
    ours, stock = (turns / span.wall for span in spans)
    ratio = ours / stock
    return Figure(name, f"{ours:.1f}/s", f"{stock:.1f}/s", f"{ratio:.2f}", f"≥ {target} ×", ratio >= target)
