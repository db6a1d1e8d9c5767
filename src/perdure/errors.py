"""Errors people meet. Each says what happened and what to do.

PerdureError
├── BadRequest            400 BAD_REQUEST
│   ├── IdempotencyConflict 422 IDEMPOTENCY_KEY_REUSED
│   └── AmbiguousResume     400 AMBIGUOUS_RESUME
├── Unauthorized          401 UNAUTHORIZED
├── Forbidden             403 FORBIDDEN
├── NotFound              404 NOT_FOUND
├── TurnInProgress        409 TURN_IN_PROGRESS
├── TurnNotResumable      409 TURN_NOT_RESUMABLE
├── TurnNotParked         409 TURN_NOT_PARKED
├── CardDecided           409 APPROVAL_DECIDED
├── ForkPointGone         409 FORK_POINT_GONE
├── AgentInUse            409 AGENT_IN_USE
├── UnknownCard           404 APPROVAL_UNKNOWN
├── TooLarge              413 TOO_LARGE
├── NotReady              503 NOT_READY
│   └── AgentUnavailable    503 AGENT_UNAVAILABLE
├── StorageFull           507 STORAGE_FULL
├── StorageError          503 STORAGE_ERROR
├── ConfigurationError    (start-up)
│   └── DatabaseUnusable  (start-up: newer, corrupt, read-only, locked, unsafe file system)
├── LeaseLost             (inside the engine: a guarded write touched no row)
└── StateTypeNotAllowed   (a write held a type that strict deserialisation would refuse to read back)

The HTTP status of each code stands in `api/errors.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class PerdureError(Exception):
    """Something went wrong in Perdure."""

    code = "INTERNAL"

    def __init__(
        self,
        message: str = "",
        *,
        conversation: str | None = None,
        turn: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """`details`: JSON for machines, shown beside the message (`pending`: ids of open cards, `decided_by`, …)."""
        self.message = message or (self.__doc__ or "").strip().split("\n")[0]
        self.conversation = conversation
        self.turn = turn
        self.details = dict(details or {})
        super().__init__(self.message)


class BadRequest(PerdureError):
    """The request is not valid."""

    code = "BAD_REQUEST"


class IdempotencyConflict(BadRequest):
    """This Idempotency-Key was used with another body. Use a new key for a new message."""

    code = "IDEMPOTENCY_KEY_REUSED"


class AmbiguousResume(BadRequest):
    """Several questions are open: answer them by their ids. `details["pending"]` lists them."""

    code = "AMBIGUOUS_RESUME"


class Unauthorized(PerdureError):
    """A token is needed: send `Authorization: Bearer <token>` or open the link that the server printed at start."""

    code = "UNAUTHORIZED"


class Forbidden(PerdureError):
    """This request is not allowed from here."""

    code = "FORBIDDEN"


class NotFound(PerdureError):
    """There is nothing with this id."""

    code = "NOT_FOUND"


class TurnInProgress(PerdureError):
    """The conversation has an active turn. Wait for its end, cancel it, or send `"when_busy": "enqueue"`."""

    code = "TURN_IN_PROGRESS"


class TurnNotResumable(PerdureError):
    """There is nothing to resume."""

    code = "TURN_NOT_RESUMABLE"


class TurnNotParked(PerdureError):
    """This turn does not wait for an answer."""

    code = "TURN_NOT_PARKED"


class CardDecided(PerdureError):
    """This question was already answered. `details` says who decided what and when."""

    code = "APPROVAL_DECIDED"


class ForkPointGone(PerdureError):
    """Retention has removed the checkpoints that this fork would begin with. Fork from a later message."""

    code = "FORK_POINT_GONE"


class AgentInUse(PerdureError):
    """The agent is there and cannot be forgotten. Stop it first."""

    code = "AGENT_IN_USE"


class UnknownCard(NotFound):
    """No card with this id waits for you. `details["pending"]` lists those that do."""

    code = "APPROVAL_UNKNOWN"


class TooLarge(PerdureError):
    """The request is too large."""

    code = "TOO_LARGE"


class NotReady(PerdureError):
    """The server is not ready; try again shortly."""

    code = "NOT_READY"


class AgentUnavailable(NotReady):
    """The agent does not answer now. What was said to it may or may not have arrived: send it again with the same
    Idempotency-Key."""

    code = "AGENT_UNAVAILABLE"


class StorageFull(PerdureError):
    """The disk that holds the database is full: nothing was accepted. Free some space and send the message again."""

    code = "STORAGE_FULL"


class StorageError(PerdureError):
    """The database could not be written: nothing was accepted."""

    code = "STORAGE_ERROR"


class ConfigurationError(PerdureError):
    """The configuration is not valid. `problems` lists every fault found, one sentence each."""

    code = "CONFIGURATION"

    def __init__(self, problems: Sequence[str] | str) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class DatabaseUnusable(ConfigurationError):
    """The database file cannot be used as it is."""

    code = "DATABASE_UNUSABLE"


class LeaseLost(PerdureError):
    """A guarded write touched no row: another attempt owns the turn now. Stop."""

    code = "LEASE_LOST"


class StateTypeNotAllowed(PerdureError):
    """The graph's state holds a type that may not be read back. Add it to `state_types` of the agent."""

    code = "STATE_TYPE_NOT_ALLOWED"
