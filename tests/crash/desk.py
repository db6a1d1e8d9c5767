"""The people who decide: they look at what waits, ask the outside world what happened, and say so, while the server dies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from random import Random
from typing import Any

from tests.crash import world
from tests.crash.client import GONE
from tests.crash.records import History
from tests.crash.server import Server

LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Sighting:
    """A card as it first appeared at this desk."""

    card: str
    kind: str
    key: str
    """Of the call."""

    at: float
    """Unix seconds."""


class Desk:
    """Looks at `GET /api/approvals` again and again. Decides at once or, while `dawdles`, leaves a card for later."""

    def __init__(
        self, server: Server, history: History, luck: Random, *, dawdles: bool = False, words: Sequence[str] = ()
    ) -> None:
        """`words`: what approvals are given, in turn (`approve`, `edit`, `deny`); empty: what luck says."""
        self._words = cycle(words) if words else self._lucky_words()
        self.dawdles = dawdles
        self.sightings: dict[str, Sighting] = {}
        self.decided = 0
        self._server = server
        self._history = history
        self._luck = luck
        self._tried: set[str] = set()
        self._said: dict[str, str] = {}
        self._task = asyncio.create_task(self._sit())

    async def shown(self, keys: set[str], since: float, ready: float, limit_seconds: float) -> float | None:
        """Seconds from the server's readiness until each of the calls with these keys had an uncertain card that appeared in this life (it
        began at `since`); None when the server died before. Raises TimeoutError."""
        async with asyncio.timeout(limit_seconds):
            while True:
                self.check()
                first = {
                    sighting.key: sighting.at
                    for sighting in reversed(self.sightings.values())
                    if sighting.kind == "uncertain" and sighting.at >= since
                }
                if keys <= first.keys():
                    return max(0.0, *(first[key] - ready for key in keys))
                if not self._server.alive:
                    return None
                await asyncio.sleep(LOOK_SECONDS / 2)

    def check(self) -> None:
        """Raises what broke at this desk."""
        if self._task.done():
            self._task.result()

    async def close(self) -> None:
        """Raises what broke at this desk."""
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.result()

    async def _sit(self) -> None:
        while True:
            for card in await self._waiting():
                self._notice(card)
                if not self.dawdles or self._luck.random() < 0.7:
                    await self._decide(card)
            await asyncio.sleep(LOOK_SECONDS)

    async def _waiting(self) -> list[dict[str, Any]]:
        try:
            reply = await self._server.api.request("GET", "/api/approvals?limit=200", timeout_seconds=10)
        except GONE:
            return []
        assert reply.status in {200, 503}, f"the approvals cannot be read: {reply}"
        return list(reply.body["items"]) if reply.status == 200 else []

    def _notice(self, card: Mapping[str, Any]) -> None:
        sighting = Sighting(card["id"], card["kind"], card.get("key") or "", time.time())
        self.sightings.setdefault(card["id"], sighting)

    async def _decide(self, card: Mapping[str, Any]) -> None:
        """One try; a server that died in between is asked again at the next look."""
        body = self._verdict(card)
        if body is None:
            return
        try:
            reply = await self._server.api.request("POST", f"/api/approvals/{card['id']}", body, timeout_seconds=10)
        except GONE:
            self._tried.add(card["id"])
            return
        if reply.status == 409:  # an earlier try counted and its answer was lost, or its turn moved on
            ours = reply.body.get("decision") is None or card["id"] in self._tried
            assert ours, f"somebody else decided {card}: {reply}"
            return
        assert reply.status in {200, 202, 404, 503}, f"{card} took no {body}: {reply}"
        if reply.status in {200, 202}:
            self.decided += 1
            self._history.answers[str(card["turn"])] += 1

    def _verdict(self, card: Mapping[str, Any]) -> dict[str, Any] | None:
        if card["kind"] == "approval":
            if card["id"] not in self._said:
                self._said[card["id"]] = next(self._words)
            word = self._said[card["id"]]
            if word == "edit":
                edited = {**card["arguments"], "label": f"{card['arguments'].get('label')}-{card['id'][-6:]}"}
                return {"decision": "approve", "arguments": edited}
            return {"decision": "deny", "note": "not today"} if word == "deny" else {"decision": "approve"}
        if card["kind"] != "uncertain":
            return None
        done = self._outside(card)
        if self._luck.random() < 0.15:
            return {"decision": "give_up", "note": "nobody can tell"}
        return {"decision": "happened", "result": done} if done else {"decision": "retry"}

    def _lucky_words(self) -> Iterator[str]:
        while True:
            yield self._luck.choice(("approve", "approve", "edit", "deny"))

    def _outside(self, card: Mapping[str, Any]) -> str | None:
        """What the outside record says of the card's call."""
        return world.find(str(self._server.effects), card["key"])
