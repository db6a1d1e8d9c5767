"""How an attempt can end, as the drive decides it. Pure; no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.effects import GateRequest
from perdure.store.base import Question
from perdure.turns import Failure, Outcome, TurnStatus


@dataclass(frozen=True, slots=True)
class Park:
    questions: Sequence[Question]


@dataclass(frozen=True, slots=True)
class Finish:
    status: TurnStatus
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """A planned hand-over: spends no attempt."""


@dataclass(frozen=True, slots=True)
class Undo:
    """A person cancelled: repair the thread and close the turn, unless somebody must first say what became of a call."""


Ending = Park | Finish | Release | Undo


def breakpoint_question(question_id: str, nodes: Sequence[str]) -> Question:
    return Question(question_id, {"breakpoint": list(nodes)})


def gate_question(gate: GateRequest) -> Question:
    return Question(gate.id, gate.value(), gate)


def name_of(ending: Ending) -> str:
    match ending:
        case Finish(status):
            return str(status)
        case Release():
            return str(Outcome.RELEASED)
        case Park():
            return str(TurnStatus.PARKED)
        case Undo():
            return str(TurnStatus.CANCELLED)
