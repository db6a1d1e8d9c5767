"""What a model says in one conversation, on its way out: the first piece at once, then several in one message. Pure.

Sent in the order of seqs, never across a committed event. A message that is sent names the piece of the same text before
it, so that whoever lacks that one knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from perdure.events import Event, EventKind

COALESCE_SECONDS = 0.04
MAX_CHARACTERS = 250_000
"""Unsent, of one conversation. Beyond that it is thrown away: who watches asks for it (`tokens/read`)."""

_Text = tuple[str, int, str]
"""Turn, attempt and message: an attempt that starts over may use the same id."""


@dataclass(slots=True)
class _Piece:
    first: int
    follows: int
    last: Event
    texts: list[str] = field(default_factory=list)

    def event(self) -> Event:
        told = {
            "message_id": self.last.payload["message_id"],
            "text": "".join(self.texts),
            "from_seq": self.first,
            "follows": self.follows,
        }
        return replace(self.last, payload=told)


class Speech:
    __slots__ = ("_characters", "_closed", "_open", "_said", "_sent_at")

    def __init__(self) -> None:
        self._open: dict[_Text, _Piece] = {}
        self._closed: list[_Piece] = []
        self._said: dict[_Text, int] = {}
        """The seq of the last token of each text, sent or not."""

        self._characters = 0
        self._sent_at = float("-inf")

    @property
    def waiting(self) -> bool:
        return bool(self._open or self._closed)

    def add(self, token: Event, *, keep: bool) -> None:
        """`keep` is False while nothing can be sent: the token is lost, and those after it say so."""
        text = (token.turn, token.attempt, token.payload["message_id"])
        follows = self._said.get(text, 0)
        self._said[text] = token.seq
        if not keep:
            return
        piece = self._open.get(text)
        if piece is None:
            piece = self._open[text] = _Piece(token.seq, follows, token)
        piece.last = token
        piece.texts.append(token.payload["text"])
        self._characters += len(token.payload["text"])
        if self._characters > MAX_CHARACTERS:
            self.drop()

    def committed(self, event: Event) -> None:
        """What was said so far comes before this event, what follows after it."""
        self._closed += self._open.values()
        self._open.clear()
        if event.terminal or event.kind is EventKind.REWIND:
            self._said.clear()
        elif event.kind is EventKind.MESSAGE:
            self._said.pop((event.turn, event.attempt, event.payload["message"]["id"]), None)

    def drop(self) -> None:
        """Whatever is unsent is not sent any more."""
        self._open.clear()
        self._closed.clear()
        self._characters = 0

    def due_in(self, now: float) -> float:
        """Seconds until what waits may be sent."""
        return max(0.0, self._sent_at + COALESCE_SECONDS - now)

    def before(self, seq: int) -> list[Event]:
        """Takes what was said before a committed event."""
        return self._taken([piece for piece in self._closed if piece.last.seq < seq])

    def all(self, now: float) -> list[Event]:
        """Takes everything."""
        self._closed += self._open.values()
        self._open.clear()
        self._sent_at = now
        return self._taken(self._closed)

    def _taken(self, pieces: list[_Piece]) -> list[Event]:
        taken = {id(piece) for piece in pieces}
        self._closed = [piece for piece in self._closed if id(piece) not in taken]
        told = [piece.event() for piece in pieces]
        self._characters -= sum(len(event.payload["text"]) for event in told)
        return sorted(told, key=lambda event: event.seq)
