"""What a route works with: the services of this application and the owner who asks."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from perdure.agent.base import AgentPort
from perdure.api.auth import Access, Principal
from perdure.api.metrics import Metrics
from perdure.api.stream import Streams
from perdure.errors import NotFound, Unauthorized

PRINCIPAL = "perdure.principal"
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


async def _principal(request: Request) -> Principal | None:
    principal: Principal | None = request.scope[PRINCIPAL]
    return principal


async def _owner(request: Request) -> str:
    principal: Principal | None = request.scope[PRINCIPAL]
    if principal is None:
        raise Unauthorized
    return principal.owner


Api = Annotated[Services, Depends(_services)]
Sender = Annotated[Principal | None, Depends(_principal)]
Owner = Annotated[str, Depends(_owner)]


def checked_id(value: str, what: str) -> str:
    """The id as it is. A malformed one names nothing: NotFound, as for every unknown id."""
    if _ID.fullmatch(value):
        return value
    raise NotFound(f"There is no {what} with this id.")
