"""What waits for a person: list, read, decide, answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.agent.codec import to_json
from perdure.bridge.context import Context, request_key
from perdure.bridge.decisions import verdict_of
from perdure.bridge.params import Answer, Decide, ListApprovals, OfCard
from perdure.failpoints import failpoint
from perdure.turns import Card

Result = Mapping[str, Any]


class Approvals:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._agents = context.agents

    async def list(self, params: ListApprovals) -> Result:
        page = await self._agents.approvals(
            params.asker(), limit=params.limit, cursor=params.cursor, conversation=params.conversation
        )
        return {"items": [to_json(Card, card) for card in page.items], "next": page.next}

    async def get(self, params: OfCard) -> Result:
        return {"card": to_json(Card, await self._agents.card(params.asker(), params.card))}

    async def decide(self, params: Decide) -> Result:
        """The first decision counts. A repeated one is told who decided (APPROVAL_DECIDED): by that it is known."""
        person = params.asker()
        card = await self._agents.card(person, params.card)
        decided = await self._agents.decide(person, params.card, verdict_of(params, card.kind))
        failpoint("accept_reply.before")
        rows = await self._context.rows(turns=[card.turn])
        told = {"card": to_json(Card, decided.card), "turn_status": decided.turn_status, "rows": rows}
        failpoint("accept_reply.after")
        return told

    async def answer(self, params: Answer) -> Result:
        said = {question: verdict_of(each) for question, each in params.answers.items()}
        key = request_key("answer", params)
        accepted = await self._agents.answer(params.asker(), params.conversation, said, key)
        failpoint("accept_reply.before")
        told = {
            "turn_id": accepted.turn,
            "conversation": accepted.conversation,
            "status": accepted.status,
            "repeated": accepted.repeated,
            "rows": await self._context.rows(turns=[accepted.turn]),
        }
        failpoint("accept_reply.after")
        return told
