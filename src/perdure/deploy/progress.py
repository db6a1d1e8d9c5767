"""What Docker says while it builds an image, as lines for a person who waits for it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from perdure.deploy.engine import EngineError, Tell

_STEP = re.compile(r"Step (\d+/\d+) : (\w+)\s+(.*)", re.DOTALL)
_TAKES_TIME = re.compile(r"FROM |RUN |COPY --from")
"""Other instructions are done at once."""

_SAID = re.compile(r":\s+([^;]+);")
"""How a RUN of our Dockerfiles says what it does."""

_WIDTH = 90
_LAST_LINES = 12


async def follow_build(pieces: AsyncIterator[bytes], reference: str, arguments: Mapping[str, str], tell: Tell) -> None:
    """Tells what takes time. `arguments`: of the Dockerfile. Raises EngineError with the last lines when the build failed."""
    last: list[str] = []
    async for said in _messages(pieces):
        if "error" in said:
            told = "\n".join([*last[-_LAST_LINES:], str(said["error"])])
            raise EngineError(f"The image {reference} could not be built:\n{told}")
        text = str(said.get("stream", "")).strip()
        if text:
            last.append(text)
        for line in (step(text, arguments), _fetching(said)):
            if line is not None:
                tell(line)


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
    said = _SAID.match(instruction)
    what = said[1] if found[2] == "RUN" and said is not None else f"{found[2]} {_filled(instruction, arguments)}"
    return f"  step {found[1]}: {what if len(what) <= _WIDTH else f'{what[: _WIDTH - 1]}…'}"


def _filled(instruction: str, arguments: Mapping[str, str]) -> str:
    for name, value in arguments.items():
        instruction = instruction.replace(f"${{{name}}}", value)
    return instruction


def _fetching(said: Mapping[str, Any]) -> str | None:
    """Once for each image that is fetched; the layers would be many lines."""
    status = str(said.get("status", ""))
    return f"  {status}: {said.get('id', '')}" if status.startswith("Pulling from ") else None
