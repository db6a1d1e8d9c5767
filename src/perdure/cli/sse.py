"""A parser of server-sent events: bytes in any pieces → frames. Pure; no I/O."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One frame as the standard dispatches it. `id` is None when the frame had none."""

    event: str
    data: str
    id: str | None = None


class Parser:
    """Feed it what arrives; a frame comes out with its blank line, never before. `retry_seconds` is the last hint."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._started = False
        self._event = ""
        self._data: list[str] = []
        self._id: str | None = None
        self.retry_seconds: float | None = None

    def feed(self, piece: bytes) -> Iterator[ServerSentEvent]:
        for line in self._lines(self._decoder.decode(piece)):
            if line:
                self._take(line)
            else:
                frame = self._dispatched()
                if frame is not None:
                    yield frame

    def _lines(self, text: str) -> Iterator[str]:
        """Whole lines; a CR at the very end waits, since an LF of the same line end may follow."""
        self._rest += text
        if not self._started and self._rest:
            self._started = True
            self._rest = self._rest.removeprefix("\ufeff")
        held = "\r" if self._rest.endswith("\r") else ""
        body = self._rest[: len(self._rest) - len(held)].replace("\r\n", "\n").replace("\r", "\n")
        *lines, last = body.split("\n")
        self._rest = last + held
        yield from lines

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_seconds = int(value) / 1000

    def _dispatched(self) -> ServerSentEvent | None:
        event, data, identity = self._event, self._data, self._id
        self._event, self._data, self._id = "", [], None
        return ServerSentEvent(event or "message", "\n".join(data), identity) if data else None
