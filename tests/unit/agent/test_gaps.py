"""What a copy asks its agent for: how long it waits for the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from perdure.agent.gaps import ASK_SECONDS, MOST_SECONDS, Gaps
from perdure.errors import AgentUnavailable
from tests.unit.agent.scripted import ScriptedAsks


class Slow(ScriptedAsks):
    """Needs so many seconds for every answer."""

    seconds = 5.0

    async def call(
        self,
        agent: str,
        method: str,
        params: Mapping[str, Any],
        *,
        within_seconds: float,
        request_id: str | None = None,
    ) -> Any:
        self.given.append(within_seconds)
        if within_seconds < self.seconds:
            raise AgentUnavailable
        return {"events": []}

    def __init__(self) -> None:
        super().__init__()
        self.given: list[float] = []


async def test_an_answer_that_needs_long_comes_in_the_end() -> None:
    asks = Slow()
    gaps = Gaps(asks, "shop")
    for _ in range(3):
        with pytest.raises(AgentUnavailable):
            await gaps.text("c")
    assert await gaps.text("c") == []
    assert asks.given == [ASK_SECONDS, 2 * ASK_SECONDS, 4 * ASK_SECONDS, 8 * ASK_SECONDS]
    asks.seconds = 0.0
    await gaps.text("c")
    assert asks.given[-1] == ASK_SECONDS


async def test_who_never_answers_is_not_waited_for_longer_and_longer() -> None:
    asks = Slow()
    asks.seconds = float("inf")
    gaps = Gaps(asks, "shop")
    for _ in range(12):
        with pytest.raises(AgentUnavailable):
            await gaps.text("c")
    assert asks.given[-1] == MOST_SECONDS
