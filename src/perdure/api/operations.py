"""What an operator looks at beside the turns: their numbers, and what serves them."""

from __future__ import annotations

from datetime import datetime
from importlib.metadata import version
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from perdure.agent.base import McpHealth, ServerInfo
from perdure.api.context import Api, Asker
from perdure.api.shapes import Reply, Request
from perdure.api.wire import JSONReply
from perdure.forks import WorkerInfo
from perdure.turns import Person

router = APIRouter(prefix="/api", tags=["operations"])


class CountsQuery(Request):
    agent: Annotated[str, Field(max_length=200)] | None = None


class TurnCounts(Reply):
    waiting: int
    queued: int
    running: int
    parked: int
    completed: int
    failed: int
    cancelled: int
    interrupted: int


class WorkerReply(Reply):
    """A process that drives turns. Of a user's own turns alone, and then without what names the machine."""

    owner: str | None = Field(description="`host:pid:boot`, as an attempt's owner.")
    host: str | None
    pid: int | None
    boot: str | None
    version: str
    started_at: datetime
    draining: bool
    running: int = Field(description="Turns that it drives now.")

    @classmethod
    def of(cls, worker: WorkerInfo, *, draining: bool, named: bool) -> WorkerReply:
        host, pid, boot = worker.owner.rsplit(":", 2)
        return cls(
            owner=worker.owner if named else None,
            host=host if named else None,
            pid=int(pid) if named else None,
            boot=boot if named else None,
            version=worker.version,
            started_at=worker.started_at,
            draining=draining,
            running=worker.running,
        )


class McpReply(Reply):
    agent: str
    name: str
    state: Literal["connected", "idle", "failing"] = Field(description="`idle`: no turn has needed it yet.")
    tools: int
    problem: str | None

    @classmethod
    def of(cls, health: McpHealth) -> McpReply:
        return cls.model_validate(
            {
                "agent": health.agent,
                "name": health.name,
                "state": health.state,
                "tools": health.tools,
                "problem": health.problem,
            }
        )


class DatabaseReply(Reply):
    path: str
    bytes: int
    wal_bytes: int


class ServerReply(Reply):
    version: str
    draining: bool
    workers: list[WorkerReply]
    mcp_servers: list[McpReply]
    database: DatabaseReply | None = Field(description="For operators.")
    nats: Literal["connected", "lost"] | None = Field(
        description="Over which agents are reached; null where they are in this process."
    )

    @classmethod
    def of(cls, info: ServerInfo, person: Person) -> ServerReply:
        named = person.scope is None
        found = info.database
        return cls(
            version=version("perdure"),
            draining=info.draining,
            workers=[
                WorkerReply.of(worker, draining=info.draining and worker.owner == info.own, named=named)
                for worker in info.workers
                if named or worker.running or worker.owner == info.own
            ],
            mcp_servers=[McpReply.of(health) for health in info.mcp_servers],
            database=DatabaseReply(path=found.path, bytes=found.bytes, wal_bytes=found.wal_bytes) if found else None,
            nats=None if info.nats is None else "connected" if info.nats else "lost",
        )


@router.get("/server", response_model=ServerReply, summary="What serves: processes, MCP servers, database")
async def server(api: Api, person: Asker) -> Response:
    return JSONReply(ServerReply.of(await api.agents.server(person), person).model_dump())
