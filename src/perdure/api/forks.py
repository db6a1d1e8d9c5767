"""Forks, their branches, and the checkpoints one is chosen from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field, field_validator, model_validator
from starlette.responses import Response

from perdure.agent.base import BranchPoint, ForkedFrom, WayOn
from perdure.api.chat import IdempotencyKey, checked_key
from perdure.api.context import Api, Asker, checked_id
from perdure.api.documentation import errors
from perdure.api.schemas import OriginReply
from perdure.api.shapes import Page, Reply, Request
from perdure.api.wire import JSONReply
from perdure.forks import check_one_place
from perdure.plain import one_line
from perdure.turns import RequestKey, TurnStatus

MAX_HISTORY_PAGE = 50
"""Each checkpoint of a page is a state that is read."""

router = APIRouter(prefix="/api/conversations/{id}", tags=["forks"])


# -- what it takes ----------------------------------------------------------------------------------------------------


class ForkFrom(Request):
    """Exactly one of them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    message: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(None, description="Begin before it.")
    checkpoint: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Begin with its state."
    )

    @model_validator(mode="after")
    def _one_place(self) -> ForkFrom:
        check_one_place(self.message, self.checkpoint)
        return self


class ForkRequest(Request):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {"from": {"message": "MESSAGE"}, "message": "Then say it in French."},
                {"from": {"message": "ANSWER"}},
                {"from": {"checkpoint": "CHECKPOINT"}, "title": "What if"},
            ]
        },
    )

    from_: ForkFrom = Field(alias="from")
    message: str | None = Field(None, description="What the person says first in the fork.")
    title: Annotated[str, Field(max_length=200)] | None = Field(
        None, description="Else that of the conversation, with a number."
    )

    @field_validator("message")
    @classmethod
    def _says_something(cls, message: str | None) -> str | None:
        if message is not None and not message.strip():
            raise ValueError("The message is empty.")
        return message

    @field_validator("title")
    @classmethod
    def _one_line(cls, title: str | None) -> str | None:
        return None if title is None else one_line(title)


class HistoryQuery(Request):
    limit: Annotated[int, Field(ge=1, le=MAX_HISTORY_PAGE)] = 20
    cursor: Annotated[str, Field(max_length=500)] | None = Field(None, description="`next` of the page before.")


# -- what it answers --------------------------------------------------------------------------------------------------


class ForkReply(Reply):
    """The fork is durable, and its first turn with it."""

    conversation: str
    turn: str | None = Field(description="Null when nothing was sent yet.")
    status: TurnStatus | None
    forked_from: OriginReply

    @classmethod
    def of(cls, made: ForkedFrom) -> ForkReply:
        forked, origin = made.forked, OriginReply.of_one(made.origin)
        return cls(conversation=forked.conversation, turn=forked.turn, status=forked.status, forked_from=origin)


class BranchReply(Reply):
    conversation: str
    title: str
    message: str | None = Field(description="The first message after the place; null when there is none yet.")
    status: TurnStatus | None
    created_at: datetime
    current: bool = Field(description="The way that the conversation asked about goes.")

    @classmethod
    def of(cls, way: WayOn) -> BranchReply:
        branch = way.branch
        return cls(
            conversation=branch.conversation,
            title=branch.title,
            message=way.message,
            status=branch.status,
            created_at=branch.created_at,
            current=branch.current,
        )


class BranchPointReply(Reply):
    message: str | None = Field(description="Where the branches begin in this conversation.")
    checkpoint: str | None = Field(description="The state before; null: nothing.")
    branches: list[BranchReply] = Field(description="In the order in which they were made.")

    @classmethod
    def of(cls, point: BranchPoint) -> BranchPointReply:
        return cls(
            message=point.message,
            checkpoint=point.checkpoint,
            branches=[BranchReply.of(way) for way in point.branches],
        )


class BranchesReply(Reply):
    items: list[BranchPointReply] = Field(description="In the order of the conversation.")


class InterruptReply(Reply):
    id: str
    value: Any


class TaskReply(Reply):
    id: str
    name: str
    error: str | None
    interrupts: list[InterruptReply]


class CheckpointSummary(Reply):
    id: str
    parent: str | None
    step: int | None
    source: Literal["input", "loop", "update", "fork"] | None
    turn: str | None = Field(description="The turn that made it; in a fork also one of the conversation it came from.")
    created_at: datetime | None
    next: list[str] = Field(description="Names of the nodes to run.")
    tasks: list[TaskReply]
    message_count: int
    interrupts: list[InterruptReply] = Field(description="Of all tasks.")

    @classmethod
    def of(cls, checkpoint: Mapping[str, Any]) -> CheckpointSummary:
        return cls.model_validate(checkpoint)


class CheckpointReply(CheckpointSummary):
    values: dict[str, Any] = Field(description="The state, as JSON.")
    truncated: bool = Field(description="Whether something of it was cut.")


# -- routes -----------------------------------------------------------------------------------------------------------


@router.post(
    "/fork",
    status_code=202,
    response_model=ForkReply,
    summary="Fork a conversation",
    responses=errors(400, 404, 409, 413, 422, 503, 507),
)
async def fork(
    id: str, request: ForkRequest, api: Api, person: Asker, idempotency_key: IdempotencyKey = None
) -> Response:
    """Edit and fork, regenerate, or begin with a checkpoint. The conversation stays as it is."""
    checked_id(id, "conversation")
    key = checked_key(idempotency_key)
    made = await api.agents.fork(
        person,
        id,
        message=request.from_.message,
        checkpoint=request.from_.checkpoint,
        text=request.message,
        title=request.title,
        request_key=RequestKey(key, digest(id, request)) if key is not None else None,
    )
    location = f"/api/chat?conversation={made.forked.conversation}"
    return JSONReply(ForkReply.of(made).model_dump(), status_code=202, headers={"Location": location})


def digest(conversation: str, request: ForkRequest) -> str:
    """The same for two bodies that mean the same; never that of a message."""
    meaning = {"fork": conversation} | request.model_dump(exclude_none=True, by_alias=True)
    canonical = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


@router.get(
    "/branches",
    response_model=BranchesReply,
    summary="Where this conversation and its forks part",
    responses=errors(404),
)
async def branches(id: str, api: Api, person: Asker) -> Response:
    points = await api.agents.branches(person, checked_id(id, "conversation"))
    return JSONReply(BranchesReply(items=[BranchPointReply.of(point) for point in points]).model_dump())


@router.get(
    "/checkpoints",
    response_model=Page[CheckpointSummary],
    summary="The history, newest first, without values",
    responses=errors(400, 404),
)
async def checkpoints(id: str, query: Annotated[HistoryQuery, Query()], api: Api, person: Asker) -> Response:
    page = await api.agents.checkpoints(person, checked_id(id, "conversation"), limit=query.limit, cursor=query.cursor)
    reply = Page(items=[CheckpointSummary.of(item) for item in page.items], next=page.next)
    return JSONReply(reply.model_dump())


@router.get(
    "/checkpoints/{checkpoint}",
    response_model=CheckpointReply,
    summary="One checkpoint with its values",
    responses=errors(404),
)
async def checkpoint(id: str, checkpoint: str, api: Api, person: Asker) -> Response:
    found = await api.agents.checkpoint(person, checked_id(id, "conversation"), checked_id(checkpoint, "checkpoint"))
    return JSONReply(CheckpointReply.model_validate(found).model_dump())
