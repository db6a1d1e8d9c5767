"""The chat route: start a turn, resume one, answer its questions, and watch."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from perdure.api.cards import decision_in_resume
from perdure.api.context import Api, Asker, Services, checked_id
from perdure.api.documentation import STREAM, errors
from perdure.api.schemas import AcceptedReply, ChangesQuery, ChatRequest, StreamQuery
from perdure.api.shapes import MAX_PAGE
from perdure.api.stream import EventStream, cursor, encode_change, encode_frame, ends_conversation, ends_turn, never
from perdure.api.wire import JSONReply
from perdure.effects import INTERRUPT
from perdure.errors import BadRequest
from perdure.plain import REQUEST_KEY
from perdure.turns import Accepted, DecisionKind, Person, RequestKey, Verdict

router = APIRouter(prefix="/api", tags=["chat"])

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="Continue after this event.")]
IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="Repeats with the same key and body are the same turn, for 7 days."),
]


@router.post(
    "/chat",
    status_code=202,
    response_model=AcceptedReply,
    summary="Start, resume or answer a turn",
    responses=errors(400, 404, 409, 413, 422, 503, 507),
)
async def chat(request: ChatRequest, api: Api, person: Asker, idempotency_key: IdempotencyKey = None) -> Response:
    """Answers when the turn is durable. `Location` is the stream to watch."""
    if request.conversation is not None:
        checked_id(request.conversation, "conversation")
    accepted = await _act(request, api, person, checked_key(idempotency_key))
    location = f"/api/chat?conversation={accepted.conversation}"
    body = AcceptedReply.of(accepted).model_dump()
    return JSONReply(body, status_code=202, headers={"Location": location})


async def _act(request: ChatRequest, api: Services, person: Person, key: str | None) -> Accepted:
    request_key = RequestKey(key, digest(request)) if key is not None else None
    if request.resume is None:
        return await _start(request, api, person, request_key)
    conversation = request.conversation or ""
    if isinstance(request.resume, dict):
        verdicts = await _verdicts(request.resume, api, person, conversation)
        return await api.agents.answer(person, conversation, verdicts, request_key)
    return await api.agents.resume(person, conversation, request_key)


async def _verdicts(answers: dict[str, Any], api: Services, person: Person, conversation: str) -> dict[str, Verdict]:
    """What was said by interrupt id: of a card about a tool call an object as `POST /api/approvals/{id}` takes it, else the
    answer itself. Ids that are not open any more, or never were, are left to the port, which says so."""
    kinds = await _open_kinds(api, person, conversation)
    return {
        question: decision_in_resume(question, said, kinds[question])
        if kinds.get(question, INTERRUPT) != INTERRUPT
        else Verdict(DecisionKind.ANSWER, value=said)
        for question, said in answers.items()
    }


async def _open_kinds(api: Services, person: Person, conversation: str) -> dict[str, str]:
    """Interrupt id → kind of card, of all that waits in the conversation."""
    kinds: dict[str, str] = {}
    cursor: str | None = None
    while True:
        page = await api.agents.approvals(person, limit=MAX_PAGE, cursor=cursor, conversation=conversation)
        kinds |= {card.interrupt_id: card.kind for card in page.items}
        cursor = page.next
        if cursor is None:
            return kinds


async def _start(request: ChatRequest, api: Services, person: Person, request_key: RequestKey | None) -> Accepted:
    given: dict[str, Any] = {"message": request.message} if request.message is not None else {"input": request.input}
    return await api.agents.start(
        person,
        input=given,
        conversation=request.conversation,
        agent=request.agent,
        when_busy=request.when_busy or "reject",
        request_key=request_key,
        discard_pending=bool(request.discard_pending),
    )


def checked_key(key: str | None) -> str | None:
    if key is None or re.fullmatch(REQUEST_KEY, key):
        return key
    raise BadRequest("Idempotency-Key must be 1 to 200 visible ASCII characters.")


def digest(request: ChatRequest) -> str:
    """The same for two bodies that mean the same, whatever their spacing, order of fields or spelled-out defaults."""
    meaning = request.model_dump(exclude_none=True)
    meaning.setdefault("when_busy", "reject")
    if not meaning.get("discard_pending"):
        meaning.pop("discard_pending", None)  # absent in what earlier versions kept
    canonical = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


@router.get("/chat", summary="Watch a conversation", response_class=Response, responses=STREAM | errors(400, 404, 503))
async def watch(
    query: Annotated[StreamQuery, Query()], api: Api, person: Asker, last_event_id: LastEventId = None
) -> Response:
    """Server-sent events of the turn to watch: `token`, `message`, `trace`, `approval`, `reset`, `gone`, `ping`, and one terminal event,
    `end` or `chat-error`, after which the stream closes unless `follow`. A `chat-error` without an id, `code` `DEADLINE`: this
    server does not wait for the turn any more, which goes on; the stream closes."""
    api.streams.check_open()
    conversation = checked_id(query.conversation, "conversation")
    after = cursor(last_event_id, query.after)
    frames = await api.agents.follow(person, conversation, after=after, follow=query.follow)
    ends = ends_conversation if query.follow else ends_turn
    return EventStream(api.streams, frames, encode_frame, ends, person.name)


@router.get("/events", summary="Watch the lists", response_class=Response, responses=STREAM | errors(400, 503))
async def changes(
    query: Annotated[ChangesQuery, Query()], api: Api, person: Asker, last_event_id: LastEventId = None
) -> Response:
    """Server-sent events `conversation` and `turn`: what changed, with a durable cursor of its own; `reset`: read the
    lists again, the cursor is not one of this journal; `reach`: whether an agent can be asked now. Never ends by itself."""
    api.streams.check_open()
    source = await api.agents.changes(person, after=cursor(last_event_id, query.after))
    return EventStream(api.streams, source, encode_change, never, person.name)
