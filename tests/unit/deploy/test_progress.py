"""What a person reads while an image is built."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from perdure.deploy import sources
from perdure.deploy.engine import EngineError
from perdure.deploy.progress import follow_build, step

BASE = {"BASE": "python:3"}


async def docker(*said: Mapping[str, str], size: int = 7) -> AsyncIterator[bytes]:
    """In pieces that end anywhere, as a network delivers them."""
    text = b"".join(json.dumps(each).encode() + b"\r\n" for each in said)
    for start in range(0, len(text), size):
        yield text[start : start + size]


async def test_what_takes_time_is_told_in_words_and_nothing_else_is() -> None:
    told: list[str] = []
    await follow_build(
        docker(
            {"stream": "Step 1/6 : ARG BASE=python:3.12"},
            {"stream": "\n"},
            {"stream": "Step 2/6 : FROM ${BASE} AS build"},
            {"status": "Pulling from library/python", "id": "3"},
            {"status": "Downloading", "id": "abc"},
            {"stream": " ---> Using cache"},
            {"stream": "Step 3/6 : RUN : installs the packages of the lock; set -eu;     pip install x"},
            {"stream": "Step 4/6 : COPY LICENSE root* /"},
            {"stream": "Step 5/6 : COPY --from=build   /opt/perdure /opt/perdure"},
            {"stream": "Step 6/6 : LABEL a=b"},
        ),
        "shop:1",
        BASE,
        told.append,
    )
    assert told == [
        "  step 2/6: FROM python:3 AS build",
        "  Pulling from library/python: 3",
        "  step 3/6: installs the packages of the lock",
        "  step 5/6: COPY --from=build /opt/perdure /opt/perdure",
    ]


async def test_a_build_that_fails_says_what_it_printed_last() -> None:
    lines = [{"stream": f"line {n}"} for n in range(20)]
    with pytest.raises(EngineError) as caught:
        await follow_build(docker(*lines, {"error": "no such package"}), "shop:1", BASE, print)
    assert caught.value.message.splitlines() == [
        "The image shop:1 could not be built:",
        *(f"line {n}" for n in range(8, 20)),
        "no such package",
    ]


def test_a_long_line_is_cut() -> None:
    told = step(f"Step 1/2 : FROM {'x' * 200} /", BASE)
    assert told is not None
    assert len(told) < 110 and told.endswith("…")


@pytest.mark.parametrize("file", [sources._beside() / "Dockerfile", sources.PACKAGE / "deploy" / "nats.Dockerfile"])
def test_every_command_of_ours_says_what_it_does(file: Path) -> None:
    runs = [line for line in file.read_text().splitlines() if line.startswith("RUN ")]
    told = [step(f"Step 1/1 : {line}", {}) or "" for line in runs]
    assert told and not [line for line in told if "RUN" in line]
