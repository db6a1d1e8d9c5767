"""Health: is the process alive, can it accept, what does it count."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from perdure.agent.base import AgentInfo
from perdure.api.context import Api, Asker, Sender
from perdure.api.documentation import Responses
from perdure.api.metrics import CONTENT_TYPE
from perdure.api.schemas import HealthReply, ReadyReply
from perdure.api.wire import JSONReply
from perdure.errors import Forbidden
from perdure.turns import Role

router = APIRouter(tags=["health"])

_READY: Responses = {
    200: {"model": ReadyReply},
    503: {"model": ReadyReply, "description": "Nothing can be accepted now."},
}


@router.get("/api/healthz", response_model=HealthReply, summary="Is the process alive")
async def healthz() -> Response:
    """No token, no I/O."""
    return JSONReply(HealthReply().model_dump())


@router.get("/api/readyz", response_model=ReadyReply, summary="Can a message be accepted", responses=_READY)
async def readyz(api: Api, sender: Sender) -> Response:
    """503 only when nothing can be accepted (database, draining). A missing model or MCP server is 200 `degraded`: accepting
    is still durable. Notices (tools that are not covered) change nothing of it. Both are told to who has a token."""
    unready = await api.agents.unready()
    agents = api.agents.agents()
    problems = [f"{agent.name}: {problem}" for agent in agents for problem in agent.problems]
    reasons = [unready, *problems] if unready else problems
    status = "unready" if unready else "degraded" if problems else "ready"
    body: dict[str, Any] = {"status": status}
    if sender is not None:
        body |= {"reasons": reasons, "notices": [notice for agent in agents for notice in _notices(agent)]}
    return JSONReply(body, status_code=503 if unready else 200, headers={"Retry-After": "1"} if unready else None)


def _notices(agent: AgentInfo) -> list[str]:
    if not agent.uncovered_tools:
        return []
    names = ", ".join(agent.uncovered_tools)
    return [
        f"{agent.name}: these tools run outside Perdure's tool node: {names}. No gate stands before them, and after a crash they "
        "may run twice. See docs/effects.md."
    ]


@router.get(
    "/metrics",
    response_class=Response,
    summary="Prometheus metrics",
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus text."}},
)
async def metrics(api: Api, person: Asker) -> Response:
    """For operators: the numbers are about everybody's turns."""
    if person.role is not Role.OPERATOR:
        raise Forbidden("The metrics are about everybody's turns: a token with the role `operator` is needed.")
    return Response(api.metrics.render(await api.statistics()), headers={"Content-Type": CONTENT_TYPE})
