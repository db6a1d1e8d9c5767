"""What is measured, and how it is shown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(slots=True)
class Span:
    """Seconds on the clock, seconds of CPU (all threads of this process), bytes given to write calls."""

    wall: float = 0.0
    cpu: float = 0.0
    written: int = 0


@contextmanager
def measured(span: Span) -> Iterator[Span]:
    """Adds what the block takes to `span`."""
    wall, cpu, written = time.perf_counter(), time.process_time(), bytes_written()
    try:
        yield span
    finally:
        span.wall += time.perf_counter() - wall
        span.cpu += time.process_time() - cpu
        span.written += bytes_written() - written


def bytes_written(pid: int | str = "self") -> int:
    """Bytes this process gave to write calls so far (files and, a few, wake-up pipes)."""
    return _proc_number(Path(f"/proc/{pid}/io"), "wchar")


def resident(pid: int) -> int:
    """Bytes of memory a process occupies."""
    return _proc_number(Path(f"/proc/{pid}/status"), "VmRSS") * 1024


def _proc_number(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(f"{path} does not tell {name}: these figures need Linux")


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the result. `reached` is None where there is nothing to reach."""

    name: str
    perdure: str
    stock: str = "–"
    ratio: str = "–"
    target: str = "–"
    reached: bool | None = None


def show(figures: list[Figure]) -> None:
    table = Table(title="Perdure beside stock LangGraph + AsyncSqliteSaver (on NATS: beside embedded), in one run")
    for title in ("figure", "Perdure", "beside", "ratio", "target", ""):
        table.add_column(title, justify="left" if title in {"figure", "target", ""} else "right")
    marks = {True: "reached", False: "missed", None: ""}
    for figure in figures:
        table.add_row(figure.name, figure.perdure, figure.stock, figure.ratio, figure.target, marks[figure.reached])
    Console(width=140).print(table)
