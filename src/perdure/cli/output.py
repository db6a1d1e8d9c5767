"""What commands print: tables and sentences for people, one JSON value for programs (`--json`), and exit codes."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import IntEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import perdure.cli.streams  # noqa: F401 -- what was closed is open before anything is printed

AsJson = Annotated[bool, typer.Option("--json", help="One JSON value on standard output, for programs.")]


class Exit(IntEnum):
    """The exit codes of every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CONFIGURATION = 78
    """The configuration is not valid, or the database cannot be used (in use, newer, corrupt, read-only)."""


_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

_PIPE_WIDTH = 1_000
"""Columns where no terminal says otherwise: ids must come whole through a pipe."""

out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def clean(text: str) -> str:
    """Text of a model or a tool without what would steer the terminal."""
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


_UNSEEN = re.compile(r"[\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb]")
"""What a terminal obeys or does not show, and JSON does not escape by itself."""


def exact(value: Any) -> str:
    """JSON on one line in which every character can be seen: what a person approves must be what is shown."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return _UNSEEN.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def say(text: str, style: str = "") -> None:
    out.print(Text(clean(text), style=style))


def hint(text: str, style: str = "dim") -> None:
    """Beside the result: on standard error, so that a pipe gets the result alone."""
    err.print(Text(clean(text), style=style))


def tell(text: str, style: str = "dim") -> None:
    """A hint of work that goes on, or is put back, also when nobody can read it any more: a terminal that hung up, a closed pipe."""
    with contextlib.suppress(OSError, SystemExit):  # rich ends the program for a closed pipe
        hint(text, style)


_doubts: list[str] = []


def doubt(text: str) -> None:
    """A warning before a result that cannot be trusted: the command shows it all the same, and ends with exit code 1."""
    _doubts.append(text)
    hint(text, "red")


def doubts() -> list[str]:
    """What was doubted since this was last asked."""
    told = list(_doubts)
    _doubts.clear()
    return told


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2, default=str) + "\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(clean("" if cell is None else str(cell))) for cell in row))
    if table.row_count:
        out.print(table)
    else:
        hint(empty)


def local_time(instant: str | None) -> str:
    """An ISO instant as the person's clock shows it."""
    return datetime.fromisoformat(instant).astimezone().strftime("%Y-%m-%d %H:%M:%S") if instant else ""


def seconds_between(start: str, end: str | None) -> float:
    until = datetime.fromisoformat(end) if end else datetime.now(UTC)
    return max((until - datetime.fromisoformat(start)).total_seconds(), 0.0)


def shortened(text: str, limit: int = 160) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
