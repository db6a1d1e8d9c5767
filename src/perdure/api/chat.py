"""The chat route: start a turn, resume one, answer its questions, and watch."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from perdure.api.context import Api, Owner, Services, checked_id
from perdure.api.documentation import STREAM, errors
from perdure.api.schemas import AcceptedReply, ChangesQuery, ChatRequest, StreamQuery
from perdure.api.stream import EventStream, cursor, encode_change, encode_frame, ends_conversation, ends_turn, never
from perdure.api.wire import JSONReply
from perdure.errors import BadRequest
from perdure.turns import Accepted, RequestKey

MAX_KEY_LENGTH = 200

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
async def chat(request: ChatRequest, api: Api, owner: Owner, idempotency_key: IdempotencyKey = None) -> Response:
    """Answers when the turn is durable. `Location` is the stream to watch."""
    if request.conversation is not None:
        checked_id(request.conversation, "conversation")
    accepted = await _act(request, api, owner, _checked_key(idempotency_key))
    location = f"/api/chat?conversation={accepted.conversation}"
    body = AcceptedReply.of(accepted).model_dump()
    return JSONReply(body, status_code=202, headers={"Location": location})


async def _act(request: ChatRequest, api: Services, owner: str, key: str | None) -> Accepted:
    request_key = RequestKey(key, digest(request)) if key is not None else None
    if request.resume is None:
        return await _start(request, api, owner, request_key)
    conversation = request.conversation or ""
    if isinstance(request.resume, dict):
        return await api.agents.answer(owner, conversation, request.resume, request_key)
    return await api.agents.resume(owner, conversation, request_key)


async def _start(request: ChatRequest, api: Services, owner: str, request_key: RequestKey | None) -> Accepted:
    given: dict[str, Any] = {"message": request.message} if request.message is not None else {"input": request.input}
    return await api.agents.start(
        owner,
        input=given,
        conversation=request.conversation,
        agent=request.agent,
        when_busy=request.when_busy or "reject",
        request_key=request_key,
    )


def _checked_key(key: str | None) -> str | None:
    if key is None or (0 < len(key) <= MAX_KEY_LENGTH and key.isascii() and key.isprintable()):
        return key
    raise BadRequest(f"Idempotency-Key must be 1 to {MAX_KEY_LENGTH} visible ASCII characters.")


def digest(request: ChatRequest) -> str:
    """The same for two bodies that mean the same, whatever their spacing, order of fields or spelled-out defaults."""
    meaning = request.model_dump(exclude_none=True)
    meaning.setdefault("when_busy", "reject")
    canonical = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


@router.get("/chat", summary="Watch a conversation", response_class=Response, responses=STREAM | errors(400, 404, 503))
async def watch(
    query: Annotated[StreamQuery, Query()], api: Api, owner: Owner, last_event_id: LastEventId = None
) -> Response:
    """Server-sent events of the turn to watch: `token`, `message`, `trace`, `approval`, `reset`, `gone`, `ping`, and one terminal event,
    `end` or `chat-error`, after which the stream closes unless `follow`."""
    api.streams.check_open()
    conversation = checked_id(query.conversation, "conversation")
    after = cursor(last_event_id, query.after)
    frames = await api.agents.follow(owner, conversation, after=after, follow=query.follow)
    return EventStream(api.streams, frames, encode_frame, ends_conversation if query.follow else ends_turn)


@router.get("/events", summary="Watch the lists", response_class=Response, responses=STREAM | errors(400, 503))
async def changes(
    query: Annotated[ChangesQuery, Query()], api: Api, owner: Owner, last_event_id: LastEventId = None
) -> Response:
    """Server-sent events `conversation` and `turn`: what changed, with a durable cursor of its own; `reset`: read the
    lists again, the cursor is not one of this journal. Never ends by itself."""
    api.streams.check_open()
    source = await api.agents.changes(owner, after=cursor(last_event_id, query.after))
    return EventStream(api.streams, source, encode_change, never)
