"""Text that overtakes what was committed before it: nobody is shown it while the agent cannot be asked for the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.events import Event, EventKind
from perdure.replication import Reach
from perdure.transport.nats.live import EventHeard, TokenHeard
from perdure.turns import TurnStatus
from tests.conformance.journal import step
from tests.unit.agent.air import Air, Gateway, Watcher, eventually


@pytest.fixture
async def air(tmp_path: Path) -> AsyncIterator[Air]:
    made = Air(tmp_path)
    yield made
    await made.close()


async def test_text_waits_for_the_events_before_it_while_the_agent_cannot_be_asked(air: Air, tmp_path: Path) -> None:
    station = await air.station("writer")
    gateway = await Gateway(air, tmp_path / "gateway.db").open()
    await eventually(lambda: gateway.directory.reach("writer") is Reach.REACHABLE)
    attempt = await station.journal.running()
    await step(attempt)
    await station.send()
    watcher = Watcher(gateway, station, attempt.turn.conversation)
    await eventually(lambda: len(watcher.frames) > 0)
    shown = len(watcher.frames)
    with air.holding() as held:
        await step(attempt)
        for message in ("first", "second", "third"):
            attempt.token(message, "<0>")
            await station.send()
    tokens = [heard for heard in held if isinstance(heard, TokenHeard)]
    events = [heard for heard in held if isinstance(heard, EventHeard)]
    assert len(tokens) == 3
    assert events
    station.silent = True
    for token in tokens:
        air.hear(token)
        await eventually(lambda: not air.queue)
    for event in events:
        air.hear(event)
    station.silent = False
    await attempt.finish(TurnStatus.COMPLETED)
    await station.send()
    await station.news()
    await eventually(lambda: any(isinstance(frame, Event) and frame.terminal for frame in watcher.frames))
    committed = [frame for frame in watcher.frames if isinstance(frame, Event) and frame.kind is not EventKind.TOKEN]
    told = await station.store.events(attempt.turn.conversation)
    assert [frame.seq for frame in committed] == [each.seq for each in told if each.kind is not EventKind.REWIND]
    assert len(watcher.frames) > shown
    assert watcher.violations() == []
    await watcher.leave()
    await gateway.close()
