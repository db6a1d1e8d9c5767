"""Which errors of a model call may pass by themselves, and how long to wait for them. Pure policy.

Providers' clients share no base class, so an error is judged by what they have in common: an HTTP status code, the
names of the transport errors, and the error type a provider names in its body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 30.0

_TRANSIENT_STATUS = frozenset({408, 409, 425, 429})
_LASTING_STATUS = frozenset({501, 505})

_TRANSIENT_NAMES = frozenset(
    {
        "APIConnectionError",
        "APITimeoutError",
        "TransportError",
        "ConnectError",
        "ServerDisconnectedError",
        "ClientConnectionError",
        "IncompleteRead",
        "IncompleteReadError",
        "ServiceUnavailable",
        "ModelConnectionError",
        "UnfinishedReply",
    }
)
"""Class names anywhere in an error's ancestry: httpx and httpx2, openai, anthropic, aiohttp, google, langchain."""

_TRANSIENT_TYPES = frozenset(
    {
        "overloaded_error",
        "api_error",
        "rate_limit_error",
        "rate_limit_exceeded",
        "server_error",
        "internal_server_error",
        "timeout_error",
    }
)
"""What a provider calls an error that it sends inside a stream that began with status 200."""

_LASTING_TYPES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "invalid_api_key"})
"""A 429 with one of these does not pass by waiting."""


class UnfinishedReply(Exception):
    """The model's stream ended before the model said that it was done."""


@dataclass(frozen=True, slots=True)
class Transient:
    """May pass by itself. `retry_after_seconds` is what the server asked for, None when it did not."""

    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Permanent:
    """Would come again."""


Judgement = Transient | Permanent


def classify(error: BaseException, now: datetime | None = None) -> Judgement:
    """`now` is needed only for a Retry-After given as a date (default: the system's time)."""
    named = _named_types(error)
    if named & _LASTING_TYPES:
        return Permanent()
    status = _status(error)
    if status is not None and status >= 400:
        passing = status in _TRANSIENT_STATUS or (status >= 500 and status not in _LASTING_STATUS)
        return Transient(_retry_after(error, now or datetime.now(UTC))) if passing else Permanent()
    if named & _TRANSIENT_TYPES or _transport_error(error):
        return Transient()
    return Permanent()


def next_delay(
    judgement: Judgement, attempt_number: int, elapsed_seconds: float, limit_seconds: float, jitter: float = 0.5
) -> float | None:
    """Seconds to wait before the next call, None to give up.

    `attempt_number` counts failed calls from 1; `elapsed_seconds` is the time since the first failure; `jitter` (0 to 1)
    spreads calls that failed together over half to one and a half of the delay. A server's own Retry-After is never cut short.
    """
    if isinstance(judgement, Permanent):
        return None
    left = limit_seconds - elapsed_seconds
    if left <= 0:
        return None
    if judgement.retry_after_seconds is not None:
        return judgement.retry_after_seconds if judgement.retry_after_seconds <= left else None
    backoff = min(FIRST_DELAY_SECONDS * 2.0 ** min(attempt_number - 1, 10), LONGEST_DELAY_SECONDS)
    return min(backoff * (0.5 + jitter), left)


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(10):
        if current is None:
            return
        yield current
        current = current.__cause__


def _transport_error(error: BaseException) -> bool:
    return any(
        isinstance(each, ConnectionError | TimeoutError)
        or any(kind.__name__ in _TRANSIENT_NAMES for kind in type(each).__mro__)
        for each in _chain(error)
    )


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    for candidate in (getattr(error, "status_code", None), getattr(response, "status_code", None)):
        if isinstance(candidate, int) and candidate > 0:
            return candidate
    return None


def _named_types(error: BaseException) -> set[str]:
    body = getattr(error, "body", None)
    details = [body, body.get("error")] if isinstance(body, Mapping) else []
    names = [getattr(error, "code", None), getattr(error, "type", None)]
    names += [each.get(key) for each in details if isinstance(each, Mapping) for key in ("type", "code")]
    return {name for name in names if isinstance(name, str)}


def _retry_after(error: BaseException, now: datetime) -> float | None:
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    if headers is None:
        return None
    precise = _seconds(headers.get("retry-after-ms"))
    if precise is not None:
        return precise / 1000.0
    value = headers.get("retry-after")
    seconds = _seconds(value)
    return seconds if seconds is not None else _seconds_until(value, now)


def _seconds(value: Any) -> float | None:
    try:
        return max(float(value), 0.0)
    except (TypeError, ValueError):
        return None


def _seconds_until(value: Any, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((aware - now).total_seconds(), 0.0)
