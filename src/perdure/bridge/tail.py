"""The end of the stream as it was acknowledged to this process. Pure; no I/O.

A NATS server that fsyncs seldom can lose in a power cut what it acknowledged last, and keep the stream with all before it: its
identity is the same, its last seq went back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

MAX_REMEMBERED = 50_000


class Tail:
    def __init__(self) -> None:
        self._acknowledged: deque[tuple[int, str, int]] = deque(maxlen=MAX_REMEMBERED)
        self._last = 0

    def acknowledged(self, place: int, conversation: str, previous: int) -> None:
        """An event is at this seq of the stream; `previous` is the seq of the conversation's event before it."""
        self._last = max(self._last, place)
        self._acknowledged.append((place, conversation, previous))

    def lost(self, last: int) -> Mapping[str, int]:
        """Conversations whose events the stream has lost if it ends at `last`, each with the seq up to which it has them. They
        are forgotten here. Of more than is remembered the whole conversation is lost, for all that is known."""
        if self._last <= last:
            return {}
        gone = [each for each in self._acknowledged if each[0] > last]
        unknown = len(self._acknowledged) == MAX_REMEMBERED and len(gone) == MAX_REMEMBERED
        back: dict[str, int] = {}
        for _, conversation, previous in gone:
            back[conversation] = 0 if unknown else min(previous, back.get(conversation, previous))
        self.forget()
        return back

    def forget(self) -> None:
        """The stream is another one."""
        self._acknowledged.clear()
        self._last = 0
