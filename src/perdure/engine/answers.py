"""Which decision belongs to which question. Pure; no I/O.

A question of the graph's own is answered by *what was asked*: LangGraph counts a task's questions by position, so after an
attempt that failed or died a node that asks otherwise would be given the answer to another question. A decision therefore
counts for one interrupt id and one request. The gates of tool calls need no answer: the guard around the call reads the
decision in the ledger.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.types import Interrupt

from perdure.effects import digest_of, gate_request
from perdure.engine.endings import Park
from perdure.store.base import Question
from perdure.turns import Card

_ADDRESSABLE = re.compile(r"[0-9a-f]{32}")
"""The ids that LangGraph takes answers for; a map with any other key would be taken for the answer itself."""

_MARK = "~"


@dataclass(frozen=True, slots=True)
class Answers:
    """The decided cards of a turn, by the id of the interrupt they were opened for."""

    cards: Mapping[str, Card]

    def decided(self, question: Interrupt) -> bool:
        """Whether a person has said what this question needs."""
        return self._card(question) is not None

    def concerned(self, question: Interrupt) -> bool:
        """Whether an answer was decided for this interrupt of the graph's own, whatever was asked then."""
        return not is_gate(question) and question.id in self.cards

    def passed(self, breakpoint_id: str) -> bool:
        return breakpoint_id in self.cards

    def own(self, questions: Sequence[Interrupt]) -> Mapping[str, Any]:
        """What is sent into the graph: interrupt id → answer. Gates are left out."""
        found = {
            each.id: self._card(each) for each in questions if not is_gate(each) and _ADDRESSABLE.fullmatch(each.id)
        }
        return {
            name: card.verdict.value for name, card in found.items() if card is not None and card.verdict is not None
        }

    def park(self, questions: Sequence[Interrupt]) -> Park:
        """For those that nobody has decided. A card's name is its interrupt's id, with a mark when that id was decided on for
        another request."""
        return Park(
            [
                Question(self._name(each), each.value, gate_request(each.id, each.value))
                for each in questions
                if not self.decided(each)
            ]
        )

    def keys(self, questions: Sequence[Interrupt]) -> frozenset[str]:
        """One for each question, the same for the same one alone."""
        return frozenset(each.id + _MARK + _digest(each.value) for each in questions)

    def _card(self, question: Interrupt) -> Card | None:
        return self.cards.get(self._name(question))

    def _name(self, question: Interrupt) -> str:
        """Of the card."""
        known = self.cards.get(question.id)
        if known is None or is_gate(question) or _digest(known.request) == _digest(question.value):
            return question.id
        return question.id + _MARK + _digest(question.value)[:16]


def is_gate(question: Interrupt) -> bool:
    return gate_request(question.id, question.value) is not None


def _digest(request: Any) -> str:
    """Equal for a request and for what a store gives back of it."""
    return digest_of(json.loads(json.dumps(request, default=str)))
