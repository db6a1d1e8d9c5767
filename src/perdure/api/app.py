"""The HTTP application: routes, error table and gate put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version

from fastapi import FastAPI
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from perdure.agent.base import AgentPort
from perdure.api import (
    approvals,
    chat,
    conversations,
    documentation,
    errors,
    forks,
    health,
    operations,
    pages,
    people,
    turns,
)
from perdure.api.auth import Access
from perdure.api.context import Services
from perdure.api.gate import Gate
from perdure.api.metrics import Metrics
from perdure.api.stream import Streams
from perdure.config import Settings
from perdure.panel import pages as panel

ROOMS = (chat, conversations, forks, turns, approvals, people, operations, health, pages)

_DESCRIPTION = "A durable runtime for LLM agents: an accepted message is answered, whatever dies in between."
_NOTHING = "There is nothing at {path}. /api/openapi.json lists the routes."
_AT_AN_AGENT = (
    "There is nothing at {path}: this is an agent on NATS, which serves nothing but its health here. Ask a gateway; commands find it "
    "by its file (--database)."
)


def create_app(
    agents: AgentPort,
    settings: Settings,
    access: Access,
    *,
    streams: Streams,
    statistics: Callable[[], Awaitable[Mapping[str, float]]],
) -> ASGIApp:
    """The application for one server. `streams` is aborted by the caller at shutdown; `statistics` feeds `/metrics`."""
    services = Services(agents, access, streams, Metrics(streams), statistics)
    rooms = (route for room in ROOMS for route in room.router.routes)
    elsewhere = pages.Elsewhere("/{path:path}", panel.elsewhere(), include_in_schema=False)
    return _gated(settings, services, [*panel.routes(), *rooms, elsewhere])


def create_health_app(
    agents: AgentPort,
    settings: Settings,
    access: Access,
    *,
    streams: Streams,
    statistics: Callable[[], Awaitable[Mapping[str, float]]],
) -> ASGIApp:
    """Health and metrics alone: of an agent that is reached over NATS."""
    services = Services(agents, access, streams, Metrics(streams), statistics)
    return _gated(settings, services, health.router.routes, nothing=_AT_AN_AGENT)


def _gated(settings: Settings, services: Services, routes: Sequence[BaseRoute], *, nothing: str = _NOTHING) -> ASGIApp:
    # The rooms' routes as they are: `include_router` would build every one of them a second time, at the first request.
    app = FastAPI(
        title="Perdure",
        version=version("perdure"),
        description=_DESCRIPTION,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        routes=list(routes),
    )
    app.state.services = services
    app.state.nothing = nothing
    errors.install(app)
    documentation.install(app)
    return Gate(app, services.access, services.metrics, max_body_bytes=settings.max_message_bytes)
