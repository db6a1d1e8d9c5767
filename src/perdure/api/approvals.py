"""What waits for a person: list, read, decide."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from perdure.api.cards import ApprovalsQuery, CardReply, DecidedReply, DecisionRequest
from perdure.api.context import Api, Asker, is_id
from perdure.api.documentation import Responses, errors
from perdure.api.shapes import Page
from perdure.api.wire import JSONReply
from perdure.turns import TurnStatus

_PARKED: Responses = {200: {"model": DecidedReply, "description": "It counts; other cards of the turn are still open."}}
_NOBODY = ""
"""Names no card: what a malformed id is looked up as, so that its refusal lists the pending ones, too."""

router = APIRouter(prefix="/api/approvals", tags=["approvals"])


@router.get("", response_model=Page[CardReply], summary="Everything that waits, oldest first", responses=errors(400))
async def approvals(query: Annotated[ApprovalsQuery, Query()], api: Api, person: Asker) -> Response:
    page = await api.agents.approvals(person, limit=query.limit, cursor=query.cursor, conversation=query.conversation)
    reply = Page(items=[CardReply.of(card) for card in page.items], next=page.next)
    return JSONReply(reply.model_dump(exclude_unset=True))


@router.get("/{id}", response_model=CardReply, summary="Read a card", responses=errors(404))
async def card(id: str, api: Api, person: Asker) -> Response:
    """Also one that was decided."""
    found = await api.agents.card(person, _card_id(id))
    return JSONReply(CardReply.of(found).model_dump(exclude_unset=True))


@router.post(
    "/{id}",
    status_code=202,
    response_model=DecidedReply,
    summary="Decide",
    responses=_PARKED | errors(400, 404, 409, 413, 503, 507),
)
async def decide(id: str, request: DecisionRequest, api: Api, person: Asker) -> Response:
    """The first decision counts; whoever comes later gets 409 `APPROVAL_DECIDED` with who decided what and when. It is durable
    before the turn moves. 202: it was the last open card, and the turn goes on."""
    asked = await api.agents.card(person, _card_id(id))
    decided = await api.agents.decide(person, asked.id, request.verdict(asked.kind))
    status = 200 if decided.turn_status is TurnStatus.PARKED else 202
    return JSONReply(DecidedReply.of(decided).model_dump(exclude_unset=True), status_code=status)


def _card_id(given: str) -> str:
    return given if is_id(given) else _NOBODY
