"""Method names and what answers them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from perdure.bridge.context import Context
from perdure.bridge.methods.approvals import Approvals
from perdure.bridge.methods.journal import JournalMethods
from perdure.bridge.methods.responses import Responses
from perdure.bridge.methods.threads import Threads
from perdure.bridge.params import (
    Answer,
    Checkpoints,
    Create,
    CreateAndWait,
    Decide,
    Delete,
    Export,
    Fork,
    ListApprovals,
    ListThreads,
    OfCard,
    OfCheckpoint,
    OfThread,
    OfTurn,
    Params,
    ReadEvents,
    ReadJournal,
    ReadTokens,
    Rename,
    Resume,
    ResumeDetached,
)
from perdure.errors import NotReady
from perdure.transport.nats.answerer import Method

P = TypeVar("P", bound=Params)

ACCEPTING = frozenset(
    {
        "responses/create",
        "responses/createDetached",
        "responses/resume",
        "responses/resumeDetached",
        "threads/fork",
        "approvals/decide",
        "approvals/answer",
    }
)
"""What makes work for this process: refused once it is leaving."""


def table(context: Context) -> Mapping[str, Method[Any]]:
    responses, threads = Responses(context), Threads(context)
    approvals, journal = Approvals(context), JournalMethods(context)
    methods: dict[str, Method[Any]] = {
        "responses/create": Method(CreateAndWait, responses.create),
        "responses/createDetached": Method(Create, responses.create_detached),
        "responses/turnStatus": Method(OfTurn, responses.turn_status),
        "responses/resume": Method(Resume, responses.resume),
        "responses/resumeDetached": Method(ResumeDetached, responses.resume_detached),
        "responses/cancel": Method(OfTurn, responses.cancel),
        "turns/get": Method(OfTurn, responses.turn),
        "threads/list": Method(ListThreads, threads.list),
        "threads/get": Method(OfThread, threads.get),
        "threads/rename": Method(Rename, threads.rename),
        "threads/delete": Method(Delete, threads.delete),
        "threads/export": Method(Export, threads.export),
        "threads/fork": Method(Fork, threads.fork),
        "threads/branches": Method(OfThread, threads.branches),
        "threads/checkpoints": Method(Checkpoints, threads.checkpoints),
        "threads/checkpoint": Method(OfCheckpoint, threads.checkpoint),
        "approvals/list": Method(ListApprovals, approvals.list),
        "approvals/get": Method(OfCard, approvals.get),
        "approvals/decide": Method(Decide, approvals.decide),
        "approvals/answer": Method(Answer, approvals.answer),
        "journal/read": Method(ReadJournal, journal.read),
        "events/read": Method(ReadEvents, journal.events),
        "tokens/read": Method(ReadTokens, journal.tokens),
        "agent/describe": Method(Params, journal.describe),
        "server/get": Method(Params, journal.server),
    }
    return {
        name: Method(each.params, _while_staying(context, each.handle)) if name in ACCEPTING else each
        for name, each in methods.items()
    }


def _while_staying(context: Context, handle: Callable[[P], Awaitable[Any]]) -> Callable[[P], Awaitable[Any]]:
    async def refuse_or_handle(params: P) -> Any:
        if context.leaving():
            raise NotReady(
                f"The agent {context.agent!r} is shutting down. Nothing was accepted; send it again in a moment, with the "
                "same idempotency key."
            )
        return await handle(params)

    return refuse_or_handle
