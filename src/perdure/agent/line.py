"""What a gateway's watchers were told of one conversation, and what may be told next. Pure.

Within a conversation everything is sent in the order of seqs, tokens and committed events alike. So a seq that does not
follow the last one told means that something may be missing; it is asked for before more is told. Text that has lost a
piece for good is not told on: the `message` event brings it whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from perdure.events import Event, EventKind

MAX_LINES = 10_000
MAX_TEXTS = 256
"""Texts that stream at once in one conversation; tokens of more are not told."""


class Next(Enum):
    TELL = auto()
    KNOWN = auto()
    """It was told, or is not to be told."""

    ASK = auto()
    """Something before it may be missing."""


@dataclass(slots=True)
class Line:
    held: int
    """The highest committed seq in the copy."""

    told: int
    """The highest seq that went to watchers; what the copy held before counts as told."""

    sure: int = -1
    """The generation of the feed in which nothing was found missing up to `told`; -1: nobody has looked."""

    turns: set[str] = field(default_factory=set)
    """Those under way that are known to be of this conversation."""

    streaming: str = ""
    """The turn that texts stream in."""

    texts: dict[str, int] = field(default_factory=dict)
    """Message id → the seq of the last piece of its text that was told."""

    broken: set[str] = field(default_factory=set)
    """Messages whose text has lost a piece."""

    # -- committed events ---------------------------------------------------------------------------------------------

    def event_is(self, event: Event, previous: int) -> Next:
        if event.seq <= self.held:
            return Next.KNOWN
        if previous > self.held or event.seq > self.told + 1:
            return Next.ASK
        return Next.TELL

    def took(self, event: Event) -> None:
        """It is in the copy, and told."""
        self.held = max(self.held, event.seq)
        self.told = max(self.told, event.seq)
        if event.terminal:
            self.turns.discard(event.turn)
        else:
            self.turns.add(event.turn)
        if event.kind is EventKind.MESSAGE:
            message = event.payload["message"]["id"]
            self.texts.pop(message, None)
            self.broken.discard(message)
        elif (event.kind is EventKind.REWIND or event.terminal) and event.turn == self.streaming:
            self.texts.clear()
            self.broken.clear()

    def holds(self, seq: int) -> None:
        """The copy has everything up to here."""
        self.held = max(self.held, seq)
        self.told = max(self.told, seq)

    # -- text that streams --------------------------------------------------------------------------------------------

    def token_is(self, token: Event) -> Next:
        message, first = token.payload["message_id"], first_seq(token)
        last = self._last(token)
        if token.seq <= last or message in self.broken:
            return Next.KNOWN
        whole = first > last and follows(token) <= last
        if not whole or first > self.told + 1:
            return Next.ASK
        return Next.TELL if self._may_tell(token) else Next.KNOWN

    def fits(self, token: Event, *, watched: bool) -> bool:
        """After asking: whether it is the next piece of its text. If not, the text is broken. Below what was told it fits
        while nobody watches: who comes then gets all of it in its place."""
        last = self._last(token)
        if token.payload["message_id"] in self.broken or token.seq <= last:
            return False
        if first_seq(token) > last and follows(token) <= last and (not watched or self._may_tell(token)):
            return True
        self.broken.add(token.payload["message_id"])
        return False

    def _may_tell(self, token: Event) -> bool:
        if token.seq > self.told and (token.payload["message_id"] in self.texts or len(self.texts) < MAX_TEXTS):
            return True
        self.broken.add(token.payload["message_id"])
        return False

    def said(self, token: Event) -> None:
        """It was told."""
        self.told = max(self.told, token.seq)
        if token.turn != self.streaming:
            self.streaming = token.turn
            self.texts.clear()
            self.broken.clear()
        self.texts[token.payload["message_id"]] = token.seq

    def _last(self, token: Event) -> int:
        return self.texts.get(token.payload["message_id"], 0) if token.turn == self.streaming else 0


class Lines:
    """Those of one agent, bounded: of a conversation that was forgotten the copy tells where it stands."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}

    def get(self, conversation: str) -> Line | None:
        return self._lines.get(conversation)

    def of(self, conversation: str, held: int) -> Line:
        """`held`: the highest seq in the copy, where the line is not known."""
        line = self._lines.get(conversation)
        if line is None:
            if len(self._lines) >= MAX_LINES:
                idle = next((key for key, known in self._lines.items() if not known.texts), next(iter(self._lines)))
                del self._lines[idle]
            line = self._lines[conversation] = Line(held, held)
        return line

    def told_of(self, conversation: str) -> int:
        """The highest seq that watchers of it were told live."""
        line = self._lines.get(conversation)
        return 0 if line is None else line.told

    def drop(self, conversation: str) -> None:
        self._lines.pop(conversation, None)

    def clear(self) -> None:
        self._lines.clear()


def first_seq(token: Event) -> int:
    """Of the pieces that were merged into it."""
    first = token.payload.get("from_seq")
    return first if isinstance(first, int) and 0 < first <= token.seq else token.seq


def follows(token: Event) -> int:
    """The seq of the piece of the same text before it; 0: it is the first, or it does not tell."""
    before = token.payload.get("follows")
    return before if isinstance(before, int) else 0
