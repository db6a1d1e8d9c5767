"""Turns: list, read, cancel."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from perdure.api.context import Api, Asker, checked_id
from perdure.api.documentation import Responses, errors
from perdure.api.operations import CountsQuery, TurnCounts
from perdure.api.records import EventReply, EventsQuery
from perdure.api.schemas import TurnReply, TurnsQuery, TurnSummary
from perdure.api.shapes import Page, text_of
from perdure.api.wire import JSONReply
from perdure.turns import ENDED

_ENDED: Responses = {200: {"model": TurnSummary, "description": "The turn has ended."}}

router = APIRouter(prefix="/api/turns", tags=["turns"])


@router.get("", response_model=Page[TurnSummary], summary="List turns, newest first", responses=errors(400))
async def turns(query: Annotated[TurnsQuery, Query()], api: Api, person: Asker) -> Response:
    page = await api.agents.turns(
        person,
        limit=query.limit,
        cursor=query.cursor,
        status=query.status,
        agent=query.agent,
        attempts_min=query.attempts_min,
        text=text_of(query.q),
    )
    return JSONReply(Page(items=[TurnSummary.of(turn) for turn in page.items], next=page.next).model_dump())


@router.get("/counts", response_model=TurnCounts, summary="How many turns are in each state", responses=errors(400))
async def counts(query: Annotated[CountsQuery, Query()], api: Api, person: Asker) -> Response:
    found = await api.agents.turn_counts(person, agent=query.agent)
    return JSONReply(TurnCounts(**{str(status): number for status, number in found.items()}).model_dump())


@router.get("/{id}", response_model=TurnReply, summary="Read a turn", responses=errors(404))
async def turn(id: str, api: Api, person: Asker) -> Response:
    detail = await api.agents.turn(person, checked_id(id, "turn"))
    return JSONReply(TurnReply.of_detail(detail).model_dump(exclude_unset=True))


@router.get(
    "/{id}/events",
    response_model=Page[EventReply],
    summary="What is committed of a turn, oldest first",
    responses=errors(400, 404),
)
async def events(id: str, query: Annotated[EventsQuery, Query()], api: Api, person: Asker) -> Response:
    page = await api.agents.events(
        person, checked_id(id, "turn"), limit=query.limit, cursor=query.cursor, kind=query.kind
    )
    return JSONReply(Page(items=[EventReply.of(event) for event in page.items], next=page.next).model_dump())


@router.post(
    "/{id}/cancel",
    status_code=202,
    response_model=TurnSummary,
    summary="Cancel a turn",
    responses=_ENDED | errors(400, 404, 503, 507),
)
async def cancel(id: str, api: Api, person: Asker) -> Response:
    """A durable request: honoured at the next safe point, also after a crash. A parked turn's cards are closed. An ended turn is
    answered as it is."""
    asked = await api.agents.cancel(person, checked_id(id, "turn"))
    return JSONReply(TurnSummary.of(asked).model_dump(), status_code=200 if asked.status in ENDED else 202)
