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


async def failed(*said: Mapping[str, str]) -> list[str]:
    with pytest.raises(EngineError) as caught:
        await follow_build(docker(*said), "shop:1", BASE, lambda line: None)
    return caught.value.message.splitlines()


async def test_a_build_that_fails_says_what_its_last_step_printed() -> None:
    lines = [{"stream": f"line {n}\n"} for n in range(20)]
    told = await failed(
        {"stream": "Step 1/2 : RUN : makes the user; useradd"},
        {"stream": "of another step"},
        {"stream": "Step 2/2 : RUN : builds Perdure and installs it; pip wheel"},
        {"stream": " ---> Running in 4ee8ea8ecc30"},
        *lines,
        {"stream": "\x1b[91mno such package\x1b[0m"},
        {"error": "The command '/bin/sh -c : builds Perdure and installs it; pip wheel' returned a non-zero code: 1"},
    )
    assert told == [
        "The image shop:1 could not be built:",
        *(f"line {n}" for n in range(9, 20)),
        "no such package",
        "This step failed: builds Perdure and installs it (exit code 1)",
    ]


async def test_without_a_network_it_says_what_to_name_in_the_project_file() -> None:
    base = await failed({"stream": "Step 2/9 : FROM ${BASE} AS build"}, {"error": "no such host\n"})
    assert base[1] == "no such host"
    assert "another `base_image` in [deploy]" in base[-1]
    packages = await failed(
        {"stream": "Step 3/9 : RUN : installs the packages of the lock; pip"}, {"error": "no such host"}
    )
    assert "name a `wheelhouse` in [deploy]" in packages[-1]


def test_a_long_line_is_cut() -> None:
    told = step(f"Step 1/2 : FROM {'x' * 200} /", BASE)
    assert told is not None
    assert len(told) < 110 and told.endswith("…")


@pytest.mark.parametrize("file", [sources._beside() / "Dockerfile", sources.PACKAGE / "deploy" / "nats.Dockerfile"])
def test_every_command_of_ours_says_what_it_does(file: Path) -> None:
    runs = [line for line in file.read_text().splitlines() if line.startswith("RUN ")]
    told = [step(f"Step 1/1 : {line}", {}) or "" for line in runs]
    assert told and not [line for line in told if "RUN" in line]
