"""People's verbs over the real store: what is refused, and when."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import NotReady
from perdure.turns import DecisionKind, RequestKey, Verdict
from tests.unit.engine.graphs import World, agent
from tests.unit.engine.house import ME, OWNER, hosted, open_house


async def test_a_server_that_drains_takes_no_message_no_resume_and_no_answer(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        done = await house.send("hello")
        await house.until(done)
        turns = len((await house.store.turns(OWNER, limit=50, cursor=None)).items)
        await house.worker.drain(1)
        with pytest.raises(NotReady, match="Idempotency-Key"):
            await house.send("too late")
        with pytest.raises(NotReady):
            await house.send("too late", done.conversation)
        with pytest.raises(NotReady):
            await house.agents.resume(ME, done.conversation, RequestKey("key", "digest"))
        with pytest.raises(NotReady):
            await house.agents.answer(ME, done.conversation, {"i": Verdict(DecisionKind.ANSWER, value="yes")})
        assert len((await house.store.turns(OWNER, limit=50, cursor=None)).items) == turns
        assert await house.agents.unready() is not None
