"""The gateway's follower over real journals and a real copy: what is sent arrives once, in order, whatever is lost between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure import failpoints
from perdure.errors import StorageError, StorageFull
from perdure.events import Event, EventKind, Fold, Gone, Reset
from perdure.replication import Position, Reach
from perdure.store.base import LeasedAttempt
from perdure.transport.nats.connection import Disconnected
from perdure.transport.nats.live import EventHeard, GapReason, TokenHeard
from perdure.transport.nats.stream import StreamError
from perdure.transport.nats.wire import EventMessage
from perdure.turns import Outcome, TurnStatus
from tests.conformance.journal import ask, step
from tests.unit.agent.air import Air, Gateway, Station, Watcher, eventually


@pytest.fixture
async def air(tmp_path: Path) -> AsyncIterator[Air]:
    made = Air(tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def station(air: Air) -> Station:
    return await air.station("writer")


@pytest.fixture
async def gateway(air: Air, station: Station, tmp_path: Path) -> AsyncIterator[Gateway]:
    opened = await Gateway(air, tmp_path / "gateway.db").open()
    await eventually(lambda: opened.directory.reach("writer") is Reach.REACHABLE)
    yield opened
    await opened.close()


async def running(station: Station) -> LeasedAttempt:
    attempt = await station.journal.running()
    await step(attempt)
    return attempt


def say(attempt: LeasedAttempt, first: int, count: int = 1, message: str = "m") -> None:
    for number in range(first, first + count):
        attempt.token(message, f"<{number}>")


def texts(watcher: Watcher, message: str = "m") -> str:
    return "".join(
        frame.payload["text"]
        for frame in watcher.frames
        if isinstance(frame, Event) and frame.kind is EventKind.TOKEN and frame.payload["message_id"] == message
    )


def ends(watcher: Watcher) -> list[Event]:
    return [frame for frame in watcher.frames if isinstance(frame, Event) and frame.terminal]


async def test_what_an_agent_commits_is_in_the_copy_and_then_with_the_watchers(
    gateway: Gateway, station: Station
) -> None:
    attempt = await running(station)
    await station.send()
    watcher = Watcher(gateway, station, attempt.turn.conversation)
    await eventually(lambda: len(watcher.frames) > 0)
    say(attempt, 0, 3)
    await station.send()
    await eventually(lambda: texts(watcher) == "<0><1><2>")
    await attempt.finish(TurnStatus.COMPLETED)
    await station.send()
    await eventually(lambda: len(ends(watcher)) == 1)
    assert await gateway.holds(station)
    assert watcher.violations() == []
    await watcher.leave()


async def test_who_comes_to_a_conversation_that_has_just_begun_waits_for_no_answer(
    gateway: Gateway, station: Station
) -> None:
    """All of it will be sent: nothing of it can have been missed."""
    attempt = await station.journal.running()
    await station.news()
    await eventually(lambda: _holds(gateway, station))
    asked = len(station.asked)
    await gateway.follower.attend("writer", attempt.turn.conversation)
    assert station.asked[asked:] == []
    watcher = Watcher(gateway, station, attempt.turn.conversation)
    await step(attempt)
    say(attempt, 0, 2)
    await station.send()
    await eventually(lambda: texts(watcher) == "<0><1>")
    assert watcher.violations() == []
    await watcher.leave()


async def test_who_comes_to_one_that_may_have_gone_on_unheard_gets_what_was_said(
    gateway: Gateway, station: Station, air: Air
) -> None:
    attempt = await station.journal.running()
    await station.news()
    await eventually(lambda: _holds(gateway, station))
    await step(attempt)
    say(attempt, 0, 2)
    with air.holding():
        await station.send()
    air.hear_gap(GapReason.OVERFLOW)
    watcher = Watcher(gateway, station, attempt.turn.conversation)
    await eventually(lambda: texts(watcher) == "<0><1>")
    await watcher.leave()


async def test_a_turn_reads_as_ended_only_together_with_its_end(gateway: Gateway, station: Station) -> None:
    attempt = await running(station)
    await station.send()
    turn = attempt.turn.id
    await attempt.finish(TurnStatus.COMPLETED)
    await station.news()

    async def ended() -> bool:
        events = await gateway.replica.events(attempt.turn.conversation)
        status = (await gateway.replica.turn(None, turn)).status
        if status is TurnStatus.COMPLETED:
            assert events[-1].terminal, "the rows came before the end"
        return status is TurnStatus.COMPLETED

    await eventually(lambda: _holds(gateway, station))
    await eventually(ended)


async def test_an_event_that_was_lost_is_asked_for_before_the_next_one_is_told(
    gateway: Gateway, station: Station, air: Air
) -> None:
    attempt = await running(station)
    await station.send()
    watcher = Watcher(gateway, station, attempt.turn.conversation)
    await eventually(lambda: len(watcher.frames) > 0)
    await step(attempt)
    with air.holding():
        await station.send()
    say(attempt, 0, 2)
    await station.send()
    await eventually(lambda: texts(watcher) == "<0><1>")
    seqs = [frame.seq for frame in watcher.frames if isinstance(frame, Event)]
    assert seqs == sorted(seqs)
    assert await gateway.holds(station)
    await watcher.leave()


async def test_text_that_has_lost_a_piece_is_told_whole_or_not_at_all(
    gateway: Gateway, station: Station, air: Air
) -> None:
    attempt = await running(station)
    await station.send()
    watcher = Watcher(gateway, station, attempt.turn.conversation)
    say(attempt, 0, 2)
    await station.send()
    await eventually(lambda: texts(watcher) == "<0><1>")
    with air.holding():
        say(attempt, 2, 2)
        await station.send()
    say(attempt, 4, 2)
    await station.send()
    await eventually(lambda: texts(watcher) == "<0><1><2><3><4><5>")
    assert station.asked.count("tokens/read") >= 1
    await watcher.leave()


async def test_a_gap_that_nobody_can_fill_holds_the_conversation_back_until_the_agent_answers(
    gateway: Gateway, station: Station, air: Air
) -> None:
    attempt = await running(station)
    await station.send()
    watcher = Watcher(gateway, station, attempt.turn.conversation)
    await eventually(lambda: len(watcher.frames) > 0)
    before = len(watcher.frames)
    station.silent = True
    await step(attempt)
    with air.holding():
        await station.send()
    air.stored.clear()
    await attempt.finish(TurnStatus.COMPLETED)
    await station.send()
    await eventually(lambda: not gateway.follower._following("writer")._is_patient())
    assert len(watcher.frames) == before, "nobody gets a hole"
    station.silent = False
    await station.news()
    await eventually(lambda: len(ends(watcher)) == 1)
    await eventually(lambda: _holds(gateway, station))
    await watcher.leave()


async def test_a_stream_tells_of_an_agent_that_is_gone(air: Air, station: Station, tmp_path: Path) -> None:
    gateway = await Gateway(air, tmp_path / "gateway.db").open()
    await eventually(lambda: gateway.directory.reach("writer") is Reach.REACHABLE)
    await gateway.follower.attach("writer")
    await gateway.close()
    attempt = await running(station)
    await attempt.park([ask()])
    await station.send()
    station.silent = True
    gateway = await Gateway(air, tmp_path / "gateway.db").open()
    await eventually(lambda: _holds(gateway, station))
    cards = await gateway.replica.approvals(None, "anna", limit=10)
    assert [card.turn for card in cards.items] == [attempt.turn.id]
    await eventually(lambda: _at(gateway, len(air.stored)))
    await gateway.close()


@pytest.mark.parametrize(
    "failing, error",
    [
        ("identity", StreamError("JetStream did not answer within 5 s.")),
        ("last_seq", Disconnected("The connection to NATS was lost.")),
        ("stream_position", StorageError("The disk.")),
        ("record", StorageFull("The disk.")),
        ("record", RuntimeError("Nobody thought of this.")),
    ],
)
async def test_a_stream_that_could_not_be_read_is_read_again_after_a_pause(
    *, failing: str, error: Exception, gateway: Gateway, station: Station, air: Air, monkeypatch: pytest.MonkeyPatch
) -> None:
    await gateway.follower.attach("writer")
    air.lose()
    await eventually(lambda: gateway.directory.reach("writer") is Reach.DISCONNECTED)
    attempt = await running(station)
    await attempt.finish(TurnStatus.COMPLETED)
    await station.send()
    station.silent = True
    place = gateway.replica if failing in {"stream_position", "record"} else air
    works, failures = getattr(place, failing), [error]

    async def once(*args: Any, **more: Any) -> Any:
        if failures:
            raise failures.pop()
        return await works(*args, **more)

    monkeypatch.setattr(place, failing, once)
    air.find()
    await eventually(lambda: not failures)
    await eventually(lambda: _holds_in_time(gateway, station))
    await eventually(lambda: _at(gateway, len(air.stored)))


async def test_the_stream_is_not_read_again_and_again_for_an_agent_that_is_away(
    gateway: Gateway, station: Station, air: Air
) -> None:
    other = await air.station("other")
    await other.news()
    await eventually(lambda: gateway.directory.reach("other") is Reach.REACHABLE)
    station.silent = True
    gateway.directory.unanswered("writer")
    await eventually(lambda: gateway.directory.reach("writer") is Reach.UNREACHABLE)
    await (await running(station)).finish(TurnStatus.COMPLETED)
    with air.holding():
        await station.send()
    air.hear_gap(GapReason.OVERFLOW)
    await eventually(lambda: _holds(gateway, station))
    await eventually(lambda: gateway.follower._catching_up is None)


async def test_what_an_agent_lacked_when_it_went_away_is_read_from_the_stream_once_that_is_known(
    gateway: Gateway, station: Station, air: Air
) -> None:
    attempt = await running(station)
    await station.send()
    await eventually(lambda: _holds(gateway, station))
    station.silent = True
    await step(attempt)
    with air.holding():
        await station.send()
    await attempt.finish(TurnStatus.COMPLETED)
    await station.send()
    await eventually(lambda: not gateway.follower._following("writer")._is_patient())
    assert gateway.directory.reach("writer") is Reach.REACHABLE and not await gateway.holds(station)
    gateway.directory.unanswered("writer")
    await eventually(lambda: _holds(gateway, station))


async def _holds(gateway: Gateway, station: Station) -> bool:
    return await gateway.holds(station)


async def _at(gateway: Gateway, seq: int) -> bool:
    position = await gateway.replica.stream_position()
    return position is not None and position.seq == seq


async def test_after_a_lost_connection_watchers_get_all_that_they_missed_once(
    gateway: Gateway, station: Station, air: Air
) -> None:
    attempt = await running(station)
    await station.send()
    watcher = Watcher(gateway, station, attempt.turn.conversation)
    say(attempt, 0, 2)
    await station.send()
    await eventually(lambda: texts(watcher) == "<0><1>")
    air.lose()
    await eventually(lambda: gateway.directory.reach("writer") is Reach.DISCONNECTED)
    await step(attempt)
    say(attempt, 0, 3, message="n")
    await station.send()
    air.find()
    await eventually(lambda: texts(watcher, "n") == "<0><1><2>")
    await attempt.finish(TurnStatus.COMPLETED)
    await station.send()
    await eventually(lambda: len(ends(watcher)) == 1)
    assert watcher.violations() == []
    assert await gateway.holds(station)
    await watcher.leave()


async def test_a_person_who_opens_a_turn_in_the_middle_of_its_text_gets_all_of_it(
    air: Air, station: Station, tmp_path: Path
) -> None:
    attempt = await running(station)
    say(attempt, 0, 3)
    attempt.trace("n", "x", 1, "enter")
    await step(attempt)
    say(attempt, 3, 1)
    gateway = await Gateway(air, tmp_path / "gateway.db").open()
    await eventually(lambda: _holds(gateway, station))
    watcher = Watcher(gateway, station, attempt.turn.conversation)
    await eventually(lambda: texts(watcher) == "<0><1><2><3>")
    station.out.unsent.clear()
    assert watcher.violations() == []
    await watcher.leave()
    await gateway.close()


async def test_a_rewind_resets_the_watchers_to_what_is_retained(gateway: Gateway, station: Station) -> None:
    attempt = await running(station)
    await station.send()
    watcher = Watcher(gateway, station, attempt.turn.conversation)
    say(attempt, 0, 2)
    await station.send()
    await eventually(lambda: texts(watcher) == "<0><1>")
    await attempt.release(Outcome.RELEASED)
    again = await station.journal.claimed()
    await again.finish(TurnStatus.COMPLETED)
    await station.send()
    await eventually(lambda: len(ends(watcher)) == 1)
    assert any(isinstance(frame, Reset) for frame in watcher.frames)
    turn = attempt.turn
    events = await station.store.events(turn.conversation)
    folded = Fold().apply_all(frame for frame in watcher.frames if not isinstance(frame, Gone)).turns[turn.id]
    expected = Fold().apply_all(events).turns[turn.id]
    assert (folded.messages, folded.traces, folded.ending) == (expected.messages, expected.traces, expected.ending)
    await watcher.leave()


async def test_a_deleted_conversation_leaves_the_copy_and_its_watchers(gateway: Gateway, station: Station) -> None:
    attempt = await running(station)
    await attempt.finish(TurnStatus.COMPLETED)
    await station.send()
    conversation = attempt.turn.conversation
    await eventually(lambda: _holds(gateway, station))
    watcher = Watcher(gateway, station, conversation)
    await station.store.delete(None, conversation)
    await station.news()
    await eventually(watcher.task.done)
    assert isinstance(watcher.frames[-1], Gone)
    assert await gateway.replica.last_seq(conversation) is None


async def test_an_agent_with_another_database_is_copied_anew_and_a_lost_turn_is_told(
    gateway: Gateway, station: Station, air: Air
) -> None:
    attempt = await running(station)
    await station.send()
    watcher = Watcher(gateway, station, attempt.turn.conversation)
    await eventually(lambda: len(watcher.frames) > 0)
    await station.close()
    other = air.stations["writer"] = await Station(air, "writer", station.folder.with_name("other")).open()
    other.boot = 2
    named = other.journal.name
    other.journal.name = lambda kind: f"other-{named(kind)}"  # type: ignore[method-assign]
    fresh = await running(other)
    await other.news()
    await eventually(watcher.task.done)
    assert [end.payload["code"] for end in ends(watcher)] == ["TURN_LOST"]
    await eventually(lambda: _holds(gateway, other))
    assert await gateway.replica.last_seq(fresh.turn.conversation)


async def test_an_agent_cannot_speak_of_another_ones_conversation(gateway: Gateway, station: Station, air: Air) -> None:
    attempt = await running(station)
    await station.send()
    conversation = attempt.turn.conversation
    await eventually(lambda: _holds(gateway, station))
    watcher = Watcher(gateway, station, conversation)
    await eventually(lambda: len(watcher.frames) > 0)
    thief = await air.station("thief")
    await thief.news()
    await eventually(lambda: "thief" in gateway.directory)
    held = await gateway.replica.last_seq(conversation) or 0
    forged = Event(
        held + 1, conversation, attempt.turn.id, 1, EventKind.END, station.journal.clock.now(), {"status": "completed"}
    )
    rows = await station.store.journal_rows(Position(), turns=[attempt.turn.id])
    ended = replace(
        rows,
        turns=[{**rows.turns[0], "status": "completed", "ended_at": 1, "lease_owner": None, "lease_expires_at": None}],
    )
    air.hear(EventHeard("thief", EventMessage(forged, held, ended)))
    air.hear(EventHeard("thief", EventMessage(forged, held, None)))
    air.hear(TokenHeard("thief", replace(forged, kind=EventKind.TOKEN, payload={"message_id": "m", "text": "no"})))
    own = await running(thief)
    await thief.send()
    await eventually(lambda: _holds(gateway, thief))
    assert own.turn.id != attempt.turn.id
    assert ends(watcher) == [] and texts(watcher) == ""
    assert (await gateway.replica.turn(None, attempt.turn.id)).status is TurnStatus.RUNNING
    assert await gateway.holds(station)
    await watcher.leave()


async def test_a_turn_of_another_conversation_is_refused(gateway: Gateway, station: Station, air: Air) -> None:
    one, two = await running(station), await running(station)
    await station.send()
    await eventually(lambda: _holds(gateway, station))
    held = await gateway.replica.last_seq(one.turn.conversation) or 0
    forged = Event(
        held + 1,
        one.turn.conversation,
        two.turn.id,
        1,
        EventKind.TRACE,
        station.journal.clock.now(),
        {"phase": "enter"},
    )
    air.hear(EventHeard("writer", EventMessage(forged, held, None)))
    await step(two)
    await station.send()
    await station.news()
    await eventually(lambda: _holds(gateway, station))


async def test_a_slow_agent_holds_up_nobody_else(gateway: Gateway, station: Station, air: Air) -> None:
    other = await air.station("other")
    await other.news()
    await eventually(lambda: gateway.directory.reach("other") is Reach.REACHABLE)
    stuck = await running(station)
    blocked, answer = [], station.answer

    async def never(method: str, params: object) -> object:
        blocked.append(method)
        await asyncio.Event().wait()
        return None

    station.answer = never  # type: ignore[method-assign]
    air.hear_gap(GapReason.OVERFLOW)
    await station.send()
    await eventually(lambda: len(blocked) > 0)
    attempt = await running(other)
    await other.send()
    await eventually(lambda: _holds(gateway, other))
    assert attempt.turn.conversation != stuck.turn.conversation
    station.answer = answer  # type: ignore[method-assign]


async def test_more_than_an_agent_may_leave_untaken_is_thrown_away_and_asked_for(
    gateway: Gateway, station: Station, air: Air, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.agent.following.MAX_QUEUED", 5)
    for _ in range(5):
        await (await running(station)).finish(TurnStatus.COMPLETED)
    with air.holding() as held:
        await station.send()
    for heard in held:
        air.hear(heard)
    await eventually(lambda: _holds(gateway, station))
    assert gateway.follower._following("writer")._generation > 0


async def test_an_event_that_is_too_large_for_a_message_is_asked_for(
    gateway: Gateway, station: Station, air: Air
) -> None:
    attempt = await running(station)
    await station.send()
    await step(attempt)
    events = [event for event in station.out.unsent if event.kind is not EventKind.TOKEN]
    station.out.unsent.clear()
    previous = station.sent[attempt.turn.conversation]
    for event in events:
        air.hear(EventHeard("writer", EventMessage(replace(event, payload={}), previous, None, reference=True)))
        previous = event.seq
    await eventually(lambda: _holds(gateway, station))


async def test_a_failed_write_is_made_good_and_its_watchers_come_again(
    gateway: Gateway, station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = await running(station)
    await station.send()
    watcher = Watcher(gateway, station, attempt.turn.conversation)
    await eventually(lambda: len(watcher.frames) > 0)
    record, failures = gateway.replica.record, [OSError("no space"), None]

    async def failing(*args: object, **more: object) -> object:
        recorded = await record(*args, **more)  # type: ignore[arg-type]
        if failures and (failure := failures.pop(0)) is not None:
            raise failure
        return recorded

    monkeypatch.setattr(gateway.replica, "record", failing)
    await attempt.finish(TurnStatus.COMPLETED)
    await station.send()
    await eventually(lambda: gateway.clock.sleeping > 1)
    gateway.clock.advance(5.0)
    await eventually(lambda: len(ends(watcher)) == 1)
    assert watcher.violations() == []
    assert watcher.times > 1
    await watcher.leave()


async def test_rows_that_make_no_sense_are_not_kept_and_hold_up_nothing(
    gateway: Gateway, station: Station, air: Air
) -> None:
    attempt = await running(station)
    await station.send()
    await eventually(lambda: _holds(gateway, station))
    turn = attempt.turn
    held = await gateway.replica.last_seq(turn.conversation) or 0
    rows = await station.store.journal_rows(Position(), turns=[turn.id])
    bad = replace(rows, turns=[{**rows.turns[0], "status": "nonsense"}])
    event = Event(held + 1, turn.conversation, turn.id, 1, EventKind.TRACE, station.journal.clock.now(), {"phase": "x"})
    watcher = Watcher(gateway, station, turn.conversation)
    await eventually(lambda: len(watcher.frames) > 0)
    air.hear(EventHeard("writer", EventMessage(event, held, bad)))
    await attempt.finish(TurnStatus.COMPLETED)
    await station.send()
    await station.news()
    await eventually(lambda: len(ends(watcher)) == 1)
    await eventually(lambda: _holds(gateway, station))
    await watcher.leave()


@pytest.mark.parametrize(
    "place", ["follow.record.before", "follow.record.after", "follow.apply.before", "follow.apply.after"]
)
async def test_what_breaks_at_this_place_is_made_good(
    place: str, gateway: Gateway, station: Station, tmp_path: Path
) -> None:
    attempt = await running(station)
    await station.send()
    watcher = Watcher(gateway, station, attempt.turn.conversation)
    await eventually(lambda: len(watcher.frames) > 0)
    passed = tmp_path / "passed"
    failpoints.arm(f"{place}:error", str(passed))
    try:
        await step(attempt)
        await attempt.finish(TurnStatus.COMPLETED)
        await station.send()
        await station.news()
        await eventually(lambda: place in passed.read_text())
        await eventually(lambda: _holds_in_time(gateway, station))
        await eventually(lambda: len(ends(watcher)) == 1)
    finally:
        failpoints.arm("")
    assert watcher.violations() == []
    await watcher.leave()


async def _holds_in_time(gateway: Gateway, station: Station) -> bool:
    gateway.clock.advance(0.5)
    return await gateway.holds(station)
