"""What Docker says while it builds an image, as lines for a person who waits for it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.deploy.engine import EngineError, Tell

_STEP = re.compile(r"Step (\d+/\d+) : (\w+)\s+(.*)", re.DOTALL)
_TAKES_TIME = re.compile(r"FROM |RUN |COPY --from")
"""Other instructions are done at once."""

_SAID = re.compile(r":\s+([^;]+);")
"""How a RUN of our Dockerfiles says what it does."""

_OF_DOCKER = re.compile(r"--->|Removing intermediate container|Step \d+/")
"""Lines that say nothing of why a step failed."""

_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_WIDTH = 90
_LAST_LINES = 12
_BASE = "The base image cannot be had: name another `base_image` in [deploy], or load it into the engine (docker load)."
_WHEELS = (
    "Where containers reach no package index, name a `wheelhouse` in [deploy]: docs/deploy.md, Without a network. One that is named "
    "needs the wheels for the Python and the platform of the base image."
)


async def follow_build(pieces: AsyncIterator[bytes], reference: str, arguments: Mapping[str, str], tell: Tell) -> None:
    """Tells what takes time. `arguments`: of the Dockerfile. Raises EngineError with the last lines when the build failed."""
    build = _Build(reference, arguments)
    async for said in _messages(pieces):
        line = build.hear(said)
        if line is not None:
            tell(line)


@dataclass
class _Build:
    reference: str
    arguments: Mapping[str, str]
    instruction: str = ""
    """Of the step that goes on: its first word and what it does."""

    printed: list[str] = field(default_factory=list)
    """By that step."""

    def hear(self, said: Mapping[str, Any]) -> str | None:
        """The line for a person, where there is one."""
        if "error" in said:
            raise self.failure(str(said["error"]))
        text = _COLORS.sub("", str(said.get("stream", ""))).strip()
        found = _STEP.match(text)
        if found is None:
            if text and not _OF_DOCKER.match(text):
                self.printed.append(text)
            return _fetching(said)
        self.printed.clear()
        self.instruction = _words(found[2], " ".join(found[3].split()), self.arguments)
        return step(text, self.arguments)

    def failure(self, why: str) -> EngineError:
        """A command's exit code without the command, which is long; what it printed says more."""
        if why.startswith("The command '"):
            why = f"This step failed: {self.instruction} (exit code {why.rpartition(': ')[2]})"
        hint = _BASE if self.instruction.startswith("FROM ") else _WHEELS if "of the lock" in self.instruction else ""
        told = [f"The image {self.reference} could not be built:", *self.printed[-_LAST_LINES:], why.strip(), hint]
        return EngineError("\n".join(filter(None, told)))


async def _messages(pieces: AsyncIterator[bytes]) -> AsyncIterator[Mapping[str, Any]]:
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in _full(lines):
            yield json.loads(line)
    for line in _full([rest]):
        yield json.loads(line)


def _full(lines: list[bytes]) -> Iterator[bytes]:
    return (line for line in lines if line.strip())


def step(text: str, arguments: Mapping[str, str]) -> str | None:
    """The line for a person; None for what is no step, or takes no time."""
    found = _STEP.match(text)
    instruction = " ".join(found[3].split()) if found is not None else ""
    if found is None or not _TAKES_TIME.match(f"{found[2]} {instruction}"):
        return None
    what = _words(found[2], instruction, arguments)
    return f"  step {found[1]}: {what if len(what) <= _WIDTH else f'{what[: _WIDTH - 1]}…'}"


def _words(word: str, rest: str, arguments: Mapping[str, str]) -> str:
    said = _SAID.match(rest)
    return said[1] if word == "RUN" and said is not None else f"{word} {_filled(rest, arguments)}"


def _filled(instruction: str, arguments: Mapping[str, str]) -> str:
    for name, value in arguments.items():
        instruction = instruction.replace(f"${{{name}}}", value)
    return instruction


def _fetching(said: Mapping[str, Any]) -> str | None:
    """Once for each image that is fetched; the layers would be many lines."""
    status = str(said.get("status", ""))
    return f"  {status}: {said.get('id', '')}" if status.startswith("Pulling from ") else None
