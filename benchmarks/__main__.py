"""`python -m benchmarks [--only NAME …]`: the figures, paired with stock LangGraph in the same run."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")

import structlog

from benchmarks import nats, pairs, served
from benchmarks.meters import Figure, show

FIGURES: Mapping[str, Callable[[Path], Awaitable[list[Figure]]]] = {
    "size": pairs.size,
    "cpu": pairs.cpu,
    "rate": pairs.rate,
    "http": served.http,
    "idle": served.idle,
    "recovery": served.recovery,
    "large": served.large,
    "first_token": nats.first_token,
    "in_flight": nats.in_flight,
    "comes_back": nats.comes_back,
}


async def measure(names: list[str], folder: Path) -> list[Figure]:
    figures: list[Figure] = []
    for name in names:
        place = folder / name
        place.mkdir()
        figures += await FIGURES[name](place)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=sorted(FIGURES), nargs="+", default=list(FIGURES), help="these figures alone")
    names = parser.parse_args().only
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        show(asyncio.run(measure(names, Path(folder))))


if __name__ == "__main__":
    main()
