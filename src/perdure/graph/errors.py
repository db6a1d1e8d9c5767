"""Failures of a node that end the turn: each carries what the journal records as `Failure`.

A tool's error is no failure of a node: it is an answer to the model (a tool message with `status="error"`).

What must reach the engine from inside a tool node, or from a graph that a tool runs, is also a `GraphBubbleUp`: LangGraph,
its tool nodes and its middleware let these pass, take them for no error of a tool, and do not retry a node for them.
"""

from __future__ import annotations

from typing import ClassVar

from langgraph.errors import GraphBubbleUp

from perdure.errors import PerdureError
from perdure.turns import Failure, FailureCode


class GraphFailure(PerdureError):
    """The agent could not go on."""

    failure_code: ClassVar[FailureCode] = FailureCode.AGENT_FAILURE
    reason: ClassVar[str] = "agent_failed"
    code = str(FailureCode.AGENT_FAILURE)

    @property
    def failure(self) -> Failure:
        return Failure(code=self.failure_code, reason=self.reason, message=self.message)


class _ModelFailure(GraphFailure):
    """The model did not answer."""

    failure_code = FailureCode.MODEL_UNAVAILABLE
    code = str(FailureCode.MODEL_UNAVAILABLE)


class ModelUnavailable(_ModelFailure):
    """The model's server could not be reached, or was overloaded, for longer than `model_retry_seconds`."""

    reason = "model_unavailable"


class ModelStalled(_ModelFailure):
    """The model sent nothing for `model_idle_timeout_seconds`."""

    reason = "model_idle"


class ModelRefused(_ModelFailure):
    """The provider refused the call and would refuse it again (bad key, unknown model, no tool support)."""

    reason = "model_refused"


class ModelNotConfigured(_ModelFailure):
    """The model cannot be created: its key, its package or its name is missing or wrong."""

    reason = "model_not_configured"


class PromptUnreadable(GraphFailure):
    """The system prompt file cannot be read. The agent does not answer without its instructions."""

    reason = "system_prompt_unreadable"


class LimitReached(GraphFailure, GraphBubbleUp):
    """A limit of the turn. A person's resume grants a fresh budget."""

    failure_code = FailureCode.LIMIT_REACHED
    code = str(FailureCode.LIMIT_REACHED)

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.limit_reason = reason

    @property
    def failure(self) -> Failure:
        return Failure(self.failure_code, self.limit_reason, self.message)


class OutcomeUnknown(GraphFailure, GraphBubbleUp):
    """A call with an unknown outcome, and an agent whose `on_uncertain` is `fail`."""

    failure_code = FailureCode.OUTCOME_UNKNOWN
    reason = "uncertain_call"
    code = str(FailureCode.OUTCOME_UNKNOWN)


class QuestionsMixed(GraphFailure, GraphBubbleUp):
    """Two calls of one task asked questions of their own: an answer could be taken for the other one's."""

    reason = "questions_mixed"


class Unsettled(GraphBubbleUp):
    """A call that was under way, and of which nobody knows what came of it. The text says why, for the card and the model.

    Raised by whoever runs the tool (its time limit, its server); the guard alone meets it.
    """
