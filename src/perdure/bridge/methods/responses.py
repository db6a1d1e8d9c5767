"""Turns: start, look at, resume, answer, cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from perdure.agent.codec import to_json
from perdure.bridge.context import Context, request_key
from perdure.bridge.decisions import verdict_in_resume
from perdure.bridge.params import Create, CreateAndWait, OfTurn, Resume, ResumeDetached
from perdure.bridge.resting import RESTING
from perdure.errors import AmbiguousResume, BadRequest, NotFound, TooLarge, TurnNotParked
from perdure.events import EventKind
from perdure.failpoints import failpoint
from perdure.transport.nats.wire import encode
from perdure.turns import Accepted, Card, CardState, Failure, Person, RequestKey, Turn, TurnStatus, Verdict

STATES: Mapping[TurnStatus, str] = {
    TurnStatus.WAITING: "running",
    TurnStatus.QUEUED: "running",
    TurnStatus.RUNNING: "running",
    TurnStatus.PARKED: "parked",
    TurnStatus.COMPLETED: "done",
    TurnStatus.CANCELLED: "done",
    TurnStatus.FAILED: "failed",
    TurnStatus.INTERRUPTED: "failed",
}
"""What `responses/turnStatus` says; a turn that is not in this journal is `unknown`."""

_PAGE = 500

Result = Mapping[str, Any]


class Responses:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._agents = context.agents

    async def create_detached(self, params: Create) -> Result:
        return await self._told(await self._start(params))

    async def create(self, params: CreateAndWait) -> Result:
        """When the turn has ended or parked, or the time is over."""
        accepted = await self._start(params)
        turn = await self._rested(params.asker(), accepted.turn, params.timeout_seconds)
        return await self._answer(turn)

    async def _start(self, params: Create) -> Accepted:
        given: dict[str, Any] = {"message": params.message} if params.message is not None else {"input": params.input}
        most = self._context.max_message_bytes
        if len(encode(given)) > most:
            raise TooLarge(f"The message is larger than {most:,} bytes. Nothing was accepted; send a shorter one.")
        return await self._agents.start(
            params.asker(),
            input=given,
            conversation=params.conversation,
            agent=self._context.agent,
            when_busy=params.when_busy,
            request_key=request_key("create", params),
            discard_pending=params.discard_pending,
        )

    async def turn_status(self, params: OfTurn) -> Result:
        try:
            turn = await self._context.journal.turn(params.asker().scope, params.turn_id)
        except NotFound:
            return {"state": "unknown", "status": None, "conversation": None, "last_seq": 0, "rows": None}
        rows = await self._context.rows(turns=[turn.id])
        return {
            "state": STATES[turn.status],
            "status": turn.status,
            "conversation": turn.conversation,
            "last_seq": rows["last_seqs"].get(turn.conversation, 0),
            "rows": rows,
        }

    async def resume(self, params: Resume) -> Result:
        key = request_key("resume", params)
        return await self._told(await self._agents.resume(params.asker(), params.conversation, key))

    async def resume_detached(self, params: ResumeDetached) -> Result:
        person, key = params.asker(), request_key("resumeDetached", params)
        detail = await self._agents.turn(person, params.turn_id)
        conversation = detail.turn.conversation
        before = await self._said_before(person, conversation, key)
        if before is not None:
            return await self._told(before)
        if detail.turn.status is TurnStatus.PARKED:
            said = _verdicts(detail.turn, detail.cards, params.resume)
            return await self._told(await self._agents.answer(person, conversation, said, key))
        raise TurnNotParked(
            f"This turn does not wait for an answer: it is {detail.turn.status}.",
            conversation=conversation,
            turn=params.turn_id,
        )

    async def _said_before(self, person: Person, conversation: str, key: RequestKey | None) -> Accepted | None:
        """What this request was answered when it came first, whatever the turn waits for by now. None: it is the first."""
        if key is None:
            return None
        try:
            return await self._agents.answer(person, conversation, {}, key)  # nobody says anything by this
        except BadRequest as error:
            if type(error) is not BadRequest:
                raise
            return None

    async def cancel(self, params: OfTurn) -> Result:
        turn = await self._agents.cancel(params.asker(), params.turn_id)
        return await self._told(Accepted(turn.conversation, turn.id, turn.status))

    async def turn(self, params: OfTurn) -> Result:
        detail = await self._agents.turn(params.asker(), params.turn_id)
        return {"resumable": detail.resumable, "rows": await self._context.rows(turns=[params.turn_id])}

    async def _told(self, accepted: Accepted) -> Result:
        """The answer to what is durable now: if it is lost, the same request is answered the same way again."""
        failpoint("accept_reply.before")
        rows = await self._context.rows(turns=[accepted.turn])
        told = {
            "turn_id": accepted.turn,
            "conversation": accepted.conversation,
            "status": accepted.status,
            "repeated": accepted.repeated,
            "subject": self._context.names.turns(self._context.agent, accepted.turn),
            "rows": rows,
        }
        failpoint("accept_reply.after")
        return told

    # -- the end of a turn --------------------------------------------------------------------------------------------

    async def _rested(self, person: Person, turn: str, seconds: float) -> Turn:
        with self._context.resting.waiting(turn) as rested:
            found = await self._context.journal.turn(person.scope, turn)
            if found.status in RESTING:
                return found
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await rested.wait()
        return await self._context.journal.turn(person.scope, turn)

    async def _answer(self, turn: Turn) -> Result:
        messages = await self._messages(turn)
        cards = await self._context.journal.cards(None, turn.id)
        return {
            "turn_id": turn.id,
            "conversation": turn.conversation,
            "status": turn.status,
            "text": next((str(each["content"]) for each in reversed(messages) if each["role"] == "assistant"), ""),
            "messages": messages,
            "cards": [to_json(Card, card) for card in cards if card.state is CardState.OPENED],
            "failure": None if turn.failure is None else to_json(Failure, turn.failure),
            "rows": await self._context.rows(turns=[turn.id]),
        }

    async def _messages(self, turn: Turn) -> list[Mapping[str, Any]]:
        """What the turn has said, in order, each as it is now."""
        found: dict[str, Mapping[str, Any]] = {}
        after, more = turn.first_seq - 1, True
        while more:
            page = await self._context.journal.events(turn.conversation, after=after, turn=turn.id, limit=_PAGE)
            more = len(page) == _PAGE
            for event in page:
                after = event.seq
                if event.kind is EventKind.MESSAGE:
                    message = event.payload["message"]
                    found[message["id"]] = message
        return [message for message in found.values() if message.get("status") != "removed"]


def _verdicts(turn: Turn, cards: Sequence[Card], resume: Any) -> Mapping[str, Verdict]:
    """By interrupt id; a value without one answers the only question that is open. Raises AmbiguousResume, BadRequest."""
    known = {card.interrupt_id: card for card in cards}
    pending = [card for card in cards if card.state is CardState.OPENED]
    if isinstance(resume, dict) and resume and set(resume) <= set(known):
        return {question: verdict_in_resume(question, said, known[question].kind) for question, said in resume.items()}
    if len(pending) == 1 and not (isinstance(resume, dict) and set(resume) & set(known)):
        only = pending[0]
        return {only.interrupt_id: verdict_in_resume(only.interrupt_id, resume, only.kind)}
    ids = [card.interrupt_id for card in pending]
    raise AmbiguousResume(
        f"Say which question each answer is for: `resume` is an object of interrupt id → answer. These wait: {', '.join(ids)}.",
        conversation=turn.conversation,
        turn=turn.id,
        details={"pending": ids},
    )
