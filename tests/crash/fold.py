"""A second, independent fold of a stream: written from the description in docs/concepts, on the raw JSON of the wire.

It shares no code with `perdure.events.Fold`; the oracle holds the two against each other and both against the journal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ENVELOPE = {"seq", "conversation", "turn", "attempt", "at"}


@dataclass(slots=True)
class FoldedView:
    """What a person sees of one turn."""

    messages: dict[str, dict[str, Any]] = field(default_factory=dict)
    traces: list[dict[str, Any]] = field(default_factory=list)
    cards: dict[str, dict[str, Any]] = field(default_factory=dict)
    ending: dict[str, Any] | None = None
    unfinished_text: dict[str, str] = field(default_factory=dict)
    seqs: set[int] = field(default_factory=set)

    def comparable(self) -> dict[str, Any]:
        """All that must be equal to the journal; text in flight is not in the journal and ends with the turn."""
        return {
            "messages": list(self.messages.values()),
            "traces": self.traces,
            "cards": self.cards,
            "ending": self.ending,
        }

    @property
    def answer(self) -> str | None:
        said = [message for message in self.messages.values() if message["role"] == "assistant"]
        return said[-1]["content"] if said else None

    @property
    def open_cards(self) -> list[dict[str, Any]]:
        return [card for card in self.cards.values() if card["state"] == "opened"]

    def results(self) -> int:
        """How many tool results were seen committed."""
        return sum(1 for trace in self.traces if trace["phase"] == "result")


class View:
    """All turns of a conversation, folded from `(event name, data)` pairs."""

    def __init__(self) -> None:
        self.turns: dict[str, FoldedView] = {}

    def turn(self, turn: str) -> FoldedView:
        return self.turns.get(turn) or FoldedView()

    def apply(self, event: str, data: dict[str, Any]) -> None:
        if event == "ping" or "turn" not in data:
            return
        if event == "reset":
            self.turns[data["turn"]] = FoldedView()
            return
        if "seq" not in data:
            return  # it is followed no more: nothing of the conversation
        view = self.turns.setdefault(data["turn"], FoldedView())
        if data["seq"] in view.seqs:
            return
        view.seqs.add(data["seq"])
        _show(view, event, {name: value for name, value in data.items() if name not in ENVELOPE})


def _show(view: FoldedView, event: str, payload: dict[str, Any]) -> None:
    if event == "token":
        name = payload["message_id"]
        view.unfinished_text[name] = view.unfinished_text.get(name, "") + payload["text"]
    elif event == "message":
        message = payload["message"]
        view.unfinished_text.pop(message["id"], None)
        view.messages[message["id"]] = message
        if message.get("status") == "removed":
            del view.messages[message["id"]]
    elif event == "trace":
        view.traces.append(payload)
    elif event == "approval":
        view.cards[payload["card"]] = payload
    elif event in {"end", "chat-error"}:
        view.unfinished_text.clear()
        view.ending = {"event": event, **payload}
    else:
        raise AssertionError(f"a frame of an unknown kind: {event} {payload}")
