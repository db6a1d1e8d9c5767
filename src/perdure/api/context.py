"""What a route works with: the services of this application and the person who asks."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from perdure.agent.base import AgentPort
from perdure.api.auth import Access
from perdure.api.metrics import Metrics
from perdure.api.stream import Streams
from perdure.errors import NotFound, Unauthorized
from perdure.turns import Person

PERSON = "perdure.person"
"""Where the gate leaves the sender in the scope."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Services:
    agents: AgentPort
    access: Access
    streams: Streams
    metrics: Metrics
    statistics: Callable[[], Awaitable[Mapping[str, float]]]


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def _sender(request: Request) -> Person | None:
    person: Person | None = request.scope[PERSON]
    return person


async def _asker(request: Request) -> Person:
    person: Person | None = request.scope[PERSON]
    if person is None:
        raise Unauthorized
    return person


Api = Annotated[Services, Depends(_services)]
Sender = Annotated[Person | None, Depends(_sender)]
"""Nobody on the few routes that need no credential."""

Asker = Annotated[Person, Depends(_asker)]


def is_id(value: str) -> bool:
    """Whether it has the form of an id."""
    return _ID.fullmatch(value) is not None


def checked_id(value: str, what: str) -> str:
    """The id as it is. A malformed one names nothing: NotFound, as for every unknown id."""
    if is_id(value):
        return value
    raise NotFound(f"There is no {what} with this id.")
