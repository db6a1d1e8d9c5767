"""Conversations: list, read, rename, delete, export."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from perdure.api.context import Api, Asker, checked_id
from perdure.api.documentation import Responses, errors
from perdure.api.markdown import render
from perdure.api.schemas import (
    AgentReply,
    AgentsReply,
    ConversationReply,
    ConversationsQuery,
    ConversationSummary,
    DeleteQuery,
    ExportQuery,
    RenameRequest,
)
from perdure.api.shapes import Page, text_of
from perdure.api.wire import JSONReply, dumps

_EXPORT: Responses = {
    200: {
        "description": "Markdown, or one checkpoint a line, oldest first.",
        "content": {"text/markdown": {"schema": {"type": "string"}}, "application/jsonl": {}},
    }
}

router = APIRouter(prefix="/api", tags=["conversations"])


@router.get("/agents", response_model=AgentsReply, summary="The agents of this server")
async def agents(api: Api, person: Asker) -> Response:
    reply = AgentsReply(items=[AgentReply.of(agent) for agent in api.agents.agents()])
    return JSONReply(reply.model_dump())


@router.delete(
    "/agents/{name}",
    status_code=204,
    response_class=Response,
    summary="Forget an agent that was taken away",
    responses=errors(404, 409, 503, 507),
)
async def forget(name: str, api: Api, person: Asker) -> Response:
    """Of a gateway: throws away what it copied of the agent; nothing is deleted where that ran."""
    await api.agents.forget(person, name)
    return Response(status_code=204)


@router.get(
    "/conversations",
    response_model=Page[ConversationSummary],
    summary="List conversations, newest activity first",
    responses=errors(400),
)
async def conversations(query: Annotated[ConversationsQuery, Query()], api: Api, person: Asker) -> Response:
    page = await api.agents.conversations(
        person, limit=query.limit, cursor=query.cursor, agent=query.agent, text=text_of(query.q)
    )
    reply = Page(items=[ConversationSummary.of(item) for item in page.items], next=page.next)
    return JSONReply(reply.model_dump())


@router.get(
    "/conversations/{id}", response_model=ConversationReply, summary="Read a conversation", responses=errors(404)
)
async def conversation(id: str, api: Api, person: Asker) -> Response:
    transcript = await api.agents.conversation(person, checked_id(id, "conversation"))
    return JSONReply(ConversationReply.of_transcript(transcript).model_dump())


@router.patch(
    "/conversations/{id}",
    response_model=ConversationSummary,
    summary="Rename a conversation",
    responses=errors(400, 404, 413, 503, 507),
)
async def rename(id: str, request: RenameRequest, api: Api, person: Asker) -> Response:
    renamed = await api.agents.rename(person, checked_id(id, "conversation"), request.title)
    return JSONReply(ConversationSummary.of(renamed).model_dump())


@router.delete(
    "/conversations/{id}",
    status_code=204,
    response_class=Response,
    summary="Delete everything of a conversation",
    responses=errors(400, 404, 409, 503, 507),
)
async def delete(id: str, query: Annotated[DeleteQuery, Query()], api: Api, person: Asker) -> Response:
    await api.agents.delete(person, checked_id(id, "conversation"), cancel=query.cancel)
    return Response(status_code=204)


@router.get(
    "/conversations/{id}/export",
    response_class=Response,
    summary="Export a conversation",
    responses=_EXPORT | errors(400, 404),
)
async def export(id: str, query: Annotated[ExportQuery, Query()], api: Api, person: Asker) -> Response:
    checked_id(id, "conversation")
    if query.format == "markdown":
        transcript = await api.agents.conversation(person, id)
        return Response(
            render(transcript).encode("utf-8", "replace"),
            media_type="text/markdown; charset=utf-8",
            headers=_attachment(f"{id}.md"),
        )
    checkpoints = aiter(api.agents.export(person, id))
    first = await anext(checkpoints, None)
    return StreamingResponse(
        _lines(first, checkpoints), media_type="application/jsonl", headers=_attachment(f"{id}.jsonl")
    )


def _attachment(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


async def _lines(first: Mapping[str, Any] | None, rest: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[bytes]:
    """The first one was fetched before the answer began, so that an unknown id is still a 404."""
    if first is None:
        return
    yield dumps(first) + b"\n"
    async for checkpoint in rest:
        yield dumps(checkpoint) + b"\n"
