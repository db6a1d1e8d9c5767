"""A turn's events, page by page, over the real store."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.agent import records
from perdure.errors import BadRequest, NotFound
from perdure.events import Event, EventKind
from perdure.turns import Person, Role
from tests.unit.engine.graphs import World, agent
from tests.unit.engine.house import ME, House, hosted, open_house


async def read_all(house: House, turn: str, limit: int, kind: EventKind | None = None) -> list[Event]:
    found: list[Event] = []
    cursor: str | None = None
    while True:
        page = await house.agents.events(ME, turn, limit=limit, cursor=cursor, kind=kind)
        assert len(page.items) <= limit
        found.extend(page.items)
        cursor = page.next
        if cursor is None:
            return found


async def test_pages_of_any_size_are_together_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        other = await house.send("hello")
        await house.until(other)
        said = await house.send("and again", other.conversation)
        await house.until(said)
        whole = await house.store.events(said.conversation, turn=said.turn)
        assert whole[-1].terminal and len(whole) > 3
        for limit in (1, 2, 3, len(whole) - 1, len(whole), len(whole) + 1):
            assert await read_all(house, said.turn, limit) == whole
        traces = [each for each in whole if each.kind is EventKind.TRACE]
        for looked_at in (1, 2, len(whole) - 1, len(whole), 500):
            monkeypatch.setattr(records, "LOOKED_AT", looked_at)
            assert await read_all(house, said.turn, 1, EventKind.TRACE) == traces
            assert await read_all(house, said.turn, 200, EventKind.TRACE) == traces


async def test_another_s_turn_and_a_foreign_cursor_are_refused(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        said = await house.send("hello")
        await house.until(said)
        with pytest.raises(NotFound):
            await house.agents.events(Person("ann", "ann", Role.USER), said.turn, limit=1, cursor=None, kind=None)
        for cursor in ("", "-1", "x", "9" * 19, "²"):
            with pytest.raises(BadRequest, match="cursor"):
                await house.agents.events(ME, said.turn, limit=1, cursor=cursor, kind=None)
