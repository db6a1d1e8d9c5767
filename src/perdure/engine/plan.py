"""What to do with a claimed turn: one pure decision on what the thread holds. No I/O.

The order is DESIGN 4a.2 and it matters: a cancel comes before everything, a finished turn is closed without a model
call, a pending question is never passed without its answer, and an input is never sent again once another turn owns the
head of the thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph.types import Interrupt, PregelTask, StateSnapshot

from perdure.engine.answers import Answers
from perdure.turns import Failure, FailureCode, Turn

BREAKPOINT_PREFIX = "breakpoint-"


@dataclass(frozen=True, slots=True)
class Cancel:
    """A person asked to cancel: repair the thread, close the turn as cancelled."""


@dataclass(frozen=True, slots=True)
class Close:
    """All its work is committed already: close the turn as completed, no model call."""


@dataclass(frozen=True, slots=True)
class Stay:
    """The step waits for decisions that have not all been made: park again."""

    questions: Sequence[Interrupt]


@dataclass(frozen=True, slots=True)
class Resume:
    """Every pending question is decided: go on with the answers to the graph's own ones, each sent to its own question. A
    gate needs none."""

    answers: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AskAnew:
    """Answers may have been sent by an attempt that ended without a park: let the graph ask again and answer by what it
    asks."""


@dataclass(frozen=True, slots=True)
class ParkAtBreakpoint:
    """The graph stops before the next nodes (`interrupt_before` or `interrupt_after`) until a person lets it pass."""

    question_id: str
    nodes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Begin:
    """The thread does not hold this turn's input: store it and go on. `repair`: another turn left the thread open."""

    repair: bool


@dataclass(frozen=True, slots=True)
class Continue:
    """The head is this turn's and work is pending: go on where the last commit stands."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """It can neither go on nor start again."""

    failure: Failure


Plan = Cancel | Close | Stay | Resume | AskAnew | ParkAtBreakpoint | Begin | Continue | Refuse


@dataclass(frozen=True, slots=True)
class Breakpoints:
    """The static breakpoints of a graph; `("*",)` means every node."""

    before: Collection[str] = ()
    after: Collection[str] = ()
    ran: Collection[str] = field(default=())
    """The nodes that ran in the step which made the head; needed for `after` alone."""

    def stops(self, upcoming: Collection[str]) -> bool:
        return bool(upcoming) and (_names_one(self.before, upcoming) or _names_one(self.after, self.ran))


def _names_one(wanted: Collection[str], nodes: Collection[str]) -> bool:
    visible = [node for node in nodes if not node.startswith("__")]
    return any(node in wanted for node in visible) or ("*" in wanted and bool(visible))


def plan(
    turn: Turn,
    state: StateSnapshot,
    answers: Answers,
    breakpoints: Breakpoints,
    *,
    again: bool = False,
    open_calls: bool = False,
    rejected: Failure | None = None,
) -> Plan:
    """`turn.input` is there exactly as long as the thread does not hold it. `state`: the head of the thread with its
    subgraphs. `answers`: the turn's decisions. `again`: the attempt before this one ended without a park. `open_calls`: a
    tool call in the thread lacks its result.
    `rejected`: the state does not take what the last step wrote."""
    if turn.cancel_requested_at is not None:
        return Cancel()
    if turn.input is not None:
        return Begin(repair=bool(state.tasks) or open_calls or rejected is not None)
    if not owns_head(turn.id, state):
        return Refuse(superseded())
    if rejected is not None:
        return Refuse(rejected)
    if finished(turn.id, state):
        return Close()
    if state.interrupts:
        return _answer(state.interrupts, answers, again=again)
    question_id = breakpoint_id(state)
    nodes = [task.name for task in state.tasks]
    if breakpoints.stops(nodes) and not answers.passed(question_id):
        return ParkAtBreakpoint(question_id, nodes)
    return Continue()


def _answer(questions: Sequence[Interrupt], answers: Answers, *, again: bool) -> Plan:
    if again and any(answers.concerned(question) for question in questions):
        return AskAnew()
    if not all(answers.decided(question) for question in questions):
        return Stay(questions)
    return Resume(answers.own(questions))


def owns_head(turn: str, state: StateSnapshot) -> bool:
    return bool(state.metadata) and state.metadata.get("run_id") == turn  # type: ignore[union-attr]


def finished(turn: str, state: StateSnapshot) -> bool:
    """Never `next == ()`: that hides tasks whose writes are recorded and whose step is not."""
    return owns_head(turn, state) and (state.metadata or {}).get("source") == "loop" and state.tasks == ()


def breakpoint_id(state: StateSnapshot) -> str:
    """Names the stop, so that letting it pass counts for this checkpoint alone."""
    return BREAKPOINT_PREFIX + str(state.config["configurable"].get("checkpoint_id", ""))


def failed(task: PregelTask) -> bool:
    """Its own error is recorded. A task that was cut because a sibling failed did not fail."""
    return task.error is not None and not str(task.error).startswith("CancelledError")


def superseded() -> Failure:
    return Failure(
        FailureCode.NOT_RESUMABLE,
        "superseded",
        "A later message continued this conversation, so this turn cannot go on. Send its message again as a new one.",
    )
