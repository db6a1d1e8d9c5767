"""Health: is the process alive, can it accept, what does it count."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from perdure.api.context import Api, Owner, Sender
from perdure.api.documentation import Responses
from perdure.api.metrics import CONTENT_TYPE
from perdure.api.schemas import HealthReply, ReadyReply
from perdure.api.wire import JSONReply

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
    is still durable. The reasons are told to who has the token."""
    unready = await api.agents.unready()
    problems = [f"{agent.name}: {problem}" for agent in api.agents.agents() for problem in agent.problems]
    reasons = [unready, *problems] if unready else problems
    status = "unready" if unready else "degraded" if problems else "ready"
    body = {"status": status} if sender is None else {"status": status, "reasons": reasons}
    return JSONReply(body, status_code=503 if unready else 200, headers={"Retry-After": "1"} if unready else None)


@router.get(
    "/metrics",
    response_class=Response,
    summary="Prometheus metrics",
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus text."}},
)
async def metrics(api: Api, owner: Owner) -> Response:
    return Response(api.metrics.render(await api.statistics()), headers={"Content-Type": CONTENT_TYPE})
