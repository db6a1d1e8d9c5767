"""A gateway's file, rule by rule: what takes whose place, what is refused, what is forgotten."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.errors import BadRequest, NotFound, PerdureError
from perdure.events import Event, EventKind
from perdure.ledger import CallState, ToolCall
from perdure.replication import Dispatch, JournalRows, Position, Row, StoredTranscript, StreamPosition
from perdure.store.base import StoredResult
from perdure.store.replica import Replica
from perdure.store.sqlite.replica import SQLiteReplica
from perdure.testing import FakeClock
from perdure.turns import Change, Role, TurnStatus
from tests.conformance.conftest import sqlite_replica
from tests.conformance.histories import outbox
from tests.conformance.journal import BROKEN, OWNER, Heard, Journal, ask, intend, work


async def rows_of(journal: Journal, *turns: str, conversations: Sequence[str] = ()) -> JournalRows:
    return await outbox(journal).journal_rows(Position(), turns=turns, conversations=conversations)


async def follow(replica: Replica, journal: Journal, agent: str = "agent") -> JournalRows:
    """One page, which is all in these tests, with all events."""
    rows = await outbox(journal).journal_rows(await replica.position(agent))
    assert not rows.more
    await replica.apply(agent, rows)
    for conversation in rows.last_seqs:
        await replica.record(await journal.store.events(conversation, after=await replica.last_seq(conversation) or 0))
    return rows


async def changes(replica: Replica) -> Sequence[Change]:
    return await replica.changes(None, 0, 1_000)


def heard_by(replica: Replica) -> Heard:
    assert isinstance(replica, SQLiteReplica)
    assert isinstance(replica._notify, Heard)
    return replica._notify


# -- how far --------------------------------------------------------------------------------------------------------------


async def test_an_agent_that_was_never_read_is_at_the_beginning(replica: Replica) -> None:
    assert await replica.position("agent") == Position()
    assert await replica.stream_position() is None
    assert await replica.last_seq("nowhere") is None


async def test_only_rows_that_continue_the_copy_move_its_position(replica: Replica, journal: Journal) -> None:
    first = await journal.running()
    early = await rows_of(journal, first.turn.id)
    page = await outbox(journal).journal_rows(Position(), limit=2)
    await replica.apply("agent", early)
    assert await replica.position("agent") == Position(outbox(journal).journal)
    await replica.apply("agent", page)
    assert (await replica.position("agent")).change == 2
    await replica.apply("agent", page)
    assert (await replica.position("agent")).change == 2
    rest = await outbox(journal).journal_rows(page.position)
    await replica.apply("agent", rest)
    assert await replica.position("agent") == rest.position
    await replica.apply("agent", page)
    assert await replica.position("agent") == rest.position


async def test_rows_of_another_journal_are_not_mixed_in(replica: Replica, journal: Journal) -> None:
    attempt = await journal.running()
    rows = await follow(replica, journal)
    await attempt.finish(TurnStatus.COMPLETED)
    other = await rows_of(journal, attempt.turn.id)
    await replica.apply("agent", replace(other, journal="another"))
    assert (await replica.turn(None, attempt.turn.id)).status is TurnStatus.RUNNING
    assert await replica.position("agent") == rows.position


async def test_the_stream_position_goes_with_the_events_and_never_back(replica: Replica, journal: Journal) -> None:
    attempt = await journal.running()
    await attempt.finish(TurnStatus.COMPLETED)
    await follow(replica, journal)
    await replica.record([], stream=StreamPosition("one", 9))
    await replica.record([], stream=StreamPosition("one", 7))
    assert await replica.stream_position() == StreamPosition("one", 9)
    await replica.record([], stream=StreamPosition("another", 1))
    assert await replica.stream_position() == StreamPosition("another", 1)


# -- what takes whose place -----------------------------------------------------------------------------------------------


async def test_an_older_answer_never_takes_the_place_of_a_newer_one(replica: Replica, journal: Journal) -> None:
    attempt = await journal.parked(ask())
    old = await rows_of(journal, attempt.turn.id)
    await journal.answer(attempt.turn.conversation, {"i-1": "yes"})
    await (await journal.claimed()).finish(TurnStatus.COMPLETED)
    await journal.store.rename(OWNER, attempt.turn.conversation, "other")
    await follow(replica, journal)
    before = await changes(replica)
    await replica.apply("agent", old)
    assert (await replica.turn(None, attempt.turn.id)).status is TurnStatus.COMPLETED
    assert (await replica.conversation(None, attempt.turn.conversation)).title == "other"
    assert (await replica.approvals(None, OWNER, limit=9)).items == []
    assert await changes(replica) == before


async def test_what_is_as_before_is_no_change_and_what_changed_is_one(replica: Replica, journal: Journal) -> None:
    attempt = await journal.parked(ask(), ask("i-2"))
    running = await journal.running()
    rows = await follow(replica, journal)
    before = await changes(replica)
    heard_by(replica).rings.clear()
    await replica.apply("agent", rows)
    await replica.apply("agent", await rows_of(journal, attempt.turn.id, running.turn.id))
    assert await changes(replica) == before
    assert set(heard_by(replica).rings) == {"changes"}
    await journal.answer(attempt.turn.conversation, {"i-1": "yes"})
    await follow(replica, journal)
    await journal.store.cancel(OWNER, running.turn.id)
    await follow(replica, journal)
    await journal.store.rename(OWNER, running.turn.conversation, "other")
    await follow(replica, journal)
    told = [(change.turn, change.status) for change in (await changes(replica))[len(before) :]]
    assert told == [(attempt.turn.id, "parked"), (running.turn.id, "running"), (None, "updated")]


async def test_while_an_end_is_not_known_yet_the_turn_that_began_after_it_is_the_active_one(
    replica: Replica, journal: Journal
) -> None:
    first = await journal.running()
    await follow(replica, journal)
    await first.finish(TurnStatus.COMPLETED)
    second = await journal.accept(conversation=first.turn.conversation)
    await replica.apply("agent", await rows_of(journal, second.turn))
    last = await replica.last_turn(None, second.conversation)
    assert last is not None
    assert last.id == second.turn
    assert (await replica.conversation(None, second.conversation)).status is TurnStatus.QUEUED
    await follow(replica, journal)
    assert (await replica.turn(None, first.turn.id)).status is TurnStatus.COMPLETED


async def test_what_a_later_turn_does_to_earlier_ones_is_known_without_a_change_of_theirs(
    replica: Replica, journal: Journal
) -> None:
    first = await journal.running()
    key = await intend(first, ToolCall("c-1", "tool", {}, "m-1"))
    first.record(key, StoredResult("bytes", b"result"), "success")
    await first.finish(TurnStatus.FAILED, BROKEN)
    await follow(replica, journal)
    (call,) = await replica.calls(None, first.turn.id)
    assert (call.state, call.result) == (CallState.RECORDED, None)
    assert not (await replica.turn(None, first.turn.id)).superseded
    second = await journal.accept(conversation=first.turn.conversation)
    await replica.apply("agent", await rows_of(journal, second.turn))
    assert (await replica.turn(None, first.turn.id)).superseded
    await (await journal.claimed()).finish(TurnStatus.COMPLETED)
    await replica.apply("agent", await rows_of(journal, second.turn))
    assert await replica.calls(None, first.turn.id) == await journal.store.calls(None, first.turn.id)


async def test_turns_stand_in_the_order_of_their_journal_whatever_the_clock_said(
    replica: Replica, journal: Journal
) -> None:
    """Told last to first, accepted by a clock that stepped back, and two at the same instant."""
    turns = []
    conversation: str | None = None
    for step in (0.0, -3_600.0, 0.0, -60.0):
        journal.clock.jump(step)
        accepted = await journal.accept(conversation=conversation, when_busy="enqueue")
        conversation = accepted.conversation
        turns.append(accepted.turn)
    for turn in reversed(turns):
        await replica.apply("agent", await rows_of(journal, turn))
    assert conversation is not None
    shown = (await replica.turns(None, limit=9, conversation=conversation)).items
    assert [turn.id for turn in shown] == list(reversed(turns))
    assert len({turn.accept_number for turn in shown}) == 4
    first = await replica.turns(None, limit=3, conversation=conversation)
    rest = await replica.turns(None, limit=3, conversation=conversation, cursor=first.next)
    assert [turn.id for turn in rest.items] == turns[:1]


async def test_two_journals_that_count_alike_have_numbers_of_their_own(
    replica: Replica, journal: Journal, tmp_path: Path
) -> None:
    attempt = await journal.parked(ask())
    rows = await follow(replica, journal)
    alike = {"id": "c2", "conversation": "c2"}
    twin = replace(
        rows,
        journal="another",
        conversations=[{**row, "id": "c2", "title": "twin"} for row in rows.conversations],
        turns=[{**row, **alike, "id": "t2"} for row in rows.turns],
        attempts=[{**row, "turn": "t2"} for row in rows.attempts],
        cards=[{**row, **alike, "id": "k2", "turn": "t2"} for row in rows.cards],
        calls=[],
    )
    await replica.apply("twin", twin)
    assert {turn.id for turn in (await replica.turns(None, limit=9)).items} == {attempt.turn.id, "t2"}
    assert len((await replica.approvals(None, OWNER, limit=9)).items) == 2
    assert [each.id for each in (await replica.conversations(None, limit=9, text="twin")).items] == ["c2"]


async def test_nobody_takes_the_place_of_another_agents_conversation(replica: Replica, journal: Journal) -> None:
    attempt = await journal.running()
    rows = await follow(replica, journal)
    await attempt.finish(TurnStatus.COMPLETED)
    forged = replace(await rows_of(journal, attempt.turn.id), journal="another")
    await replica.apply("thief", forged)
    await replica.apply("thief", replace(forged, conversations=(), turns=(), deleted=[attempt.turn.conversation]))
    assert (await replica.turn(None, attempt.turn.id)).status is TurnStatus.RUNNING
    moved = [{**row, "conversation": "mine"} for row in forged.turns]
    mine = [{**row, "id": "mine"} for row in forged.conversations]
    await replica.apply("thief", replace(forged, conversations=mine, turns=moved))
    assert (await replica.turn(None, attempt.turn.id)).conversation == attempt.turn.conversation
    assert await replica.position("agent") == rows.position


# -- events ---------------------------------------------------------------------------------------------------------------


async def test_events_are_kept_once_and_told_once(replica: Replica, journal: Journal) -> None:
    attempt = await journal.running()
    await work(attempt, "one", "two")
    await attempt.finish(TurnStatus.COMPLETED)
    events = await journal.store.events(attempt.turn.conversation)
    assert await replica.record(events) == [], "nothing of a conversation that is not held"
    await replica.apply("agent", await rows_of(journal, attempt.turn.id))
    assert await replica.last_seq(attempt.turn.conversation) == 0
    assert await replica.record(events[:2]) == events[:2]
    assert await replica.record(events) == events[2:]
    assert await replica.record(events) == []
    assert await replica.events(attempt.turn.conversation) == events
    assert await replica.last_seq(attempt.turn.conversation) == events[-1].seq


async def test_an_end_and_the_state_of_its_turn_come_in_one(replica: Replica, journal: Journal) -> None:
    attempt = await journal.running()
    await follow(replica, journal)
    await attempt.finish(TurnStatus.COMPLETED)
    events = await journal.store.events(attempt.turn.conversation)
    rows = [("agent", await rows_of(journal, attempt.turn.id))]
    fresh = await replica.record(events, stream=StreamPosition("s", 3), rows=rows)
    assert [event.kind for event in fresh] == [EventKind.END]
    assert (await replica.turn(None, attempt.turn.id)).status is TurnStatus.COMPLETED
    assert "changes" in heard_by(replica).rings


async def test_a_rewind_voids_what_it_names_and_what_of_it_comes_late(replica: Replica, journal: Journal) -> None:
    attempt = await journal.running()
    await work(attempt)
    attempt.trace("node", "node", 1, "enter")
    await attempt.count_model_call(durable=True)
    told = [event for event in journal.heard.events if event.kind is not EventKind.TOKEN]
    await replica.apply("agent", await rows_of(journal, attempt.turn.id))
    void = told[-1]
    await journal.die(attempt)
    again = await journal.claimed()
    assert again.rewind is not None
    await replica.record(told[:-1])
    assert await replica.record([again.rewind]) == [again.rewind]
    assert await replica.record([void]) == [], "it is no news any more"
    assert await replica.record([void]) == []
    assert await replica.events(attempt.turn.conversation) == await journal.store.events(attempt.turn.conversation)
    assert await replica.rewound_after(attempt.turn.id, void.seq) == again.rewind


async def test_messages_are_found_by_their_words_as_long_as_they_are_there(replica: Replica, journal: Journal) -> None:
    attempt = await journal.running()
    await work(attempt, "a lighthouse", question="where to?")
    await attempt.finish(TurnStatus.COMPLETED)
    await follow(replica, journal)

    async def found(text: str, scope: str | None = None) -> list[str]:
        return [each.id for each in (await replica.conversations(scope, limit=9, text=text)).items]

    conversation = attempt.turn.conversation
    assert await found("lighthouse") == await found("where") == await found("hello", OWNER) == [conversation]
    assert await found("lighthouse", "boris") == []
    assert await found("island") == []
    past: list[Mapping[str, Any]] = [
        {"id": "p-1", "role": "user", "content": "an island"},
        {"id": "p-2", "role": "tool", "content": "a volcano"},
        {"id": 3, "role": "user", "content": "a reef"},
    ]
    kept = StoredTranscript(7, {"messages": past, "state": {}, "resumable": True})
    await replica.keep_transcript(conversation, kept)
    assert await found("island") == [conversation]
    assert await found("volcano") == await found("reef") == []
    assert await replica.transcript(conversation) == kept
    await replica.keep_transcript(conversation, StoredTranscript(6, {"messages": []}))
    assert await replica.transcript(conversation) == kept, "what was told earlier comes too late"
    await replica.keep_transcript("nowhere", kept)
    assert await replica.transcript("nowhere") is None
    await journal.store.delete(OWNER, conversation)
    await follow(replica, journal)
    assert await found("island") == await found("lighthouse") == await found("hello") == []


# -- what is forgotten ----------------------------------------------------------------------------------------------------


async def test_what_was_deleted_is_gone_and_does_not_come_back_with_rows_of_before(
    replica: Replica, journal: Journal
) -> None:
    attempt = await journal.running()
    await attempt.finish(TurnStatus.COMPLETED)
    await follow(replica, journal)
    conversation = attempt.turn.conversation
    late, events = await rows_of(journal, attempt.turn.id), await journal.store.events(conversation)
    await replica.dispatched(Dispatch(attempt.turn.id, conversation, "agent", journal.clock.now()))
    await journal.store.delete(OWNER, conversation)
    await replica.apply("agent", await rows_of(journal, conversations=[conversation]))
    await replica.apply("agent", late)
    assert await replica.record(events) == []
    with pytest.raises(NotFound):
        await replica.conversation(None, conversation)
    with pytest.raises(NotFound):
        await replica.turn(None, attempt.turn.id)
    assert await replica.last_seq(conversation) is None
    assert await replica.dispatches() == []
    assert [change.status for change in await changes(replica)].count("deleted") == 1
    await follow(replica, journal)
    assert [change.status for change in await changes(replica)].count("deleted") == 1


async def test_a_new_start_forgets_all_of_one_agent_and_nothing_else(replica: Replica, journal: Journal) -> None:
    attempt = await journal.running()
    await attempt.finish(TurnStatus.COMPLETED)
    gone = await journal.accept()
    await (await journal.claimed()).finish(TurnStatus.COMPLETED)
    await journal.store.delete(OWNER, gone.conversation)
    rows = await follow(replica, journal)
    other = [{**row, "id": "c2"} for row in rows.conversations]
    nothing: dict[str, Any] = {"turns": (), "attempts": (), "audit": (), "deleted": ()}
    await replica.apply("other", replace(rows, journal="another", conversations=other, **nothing))
    await replica.create_token("clara", Role.USER, "hash", by="admin")
    dispatch = Dispatch(attempt.turn.id, attempt.turn.conversation, "agent", journal.clock.now())
    await replica.dispatched(dispatch)
    await replica.keep_agent("agent", {"name": "agent"})
    last = await replica.last_change(None)
    await replica.restart("agent", "new")
    assert await replica.position("agent") == Position("new")
    assert [each.id for each in (await replica.conversations(None, limit=9)).items] == ["c2"]
    assert (await replica.turns(None, limit=9)).items == []
    assert [each.action for each in (await replica.audit(None, limit=9)).items] == ["token_create"]
    assert await replica.last_change(None) > last
    assert await replica.token_of("hash") is not None
    assert await replica.dispatches() == [dispatch]
    assert await replica.known_agents() == {"agent": {"name": "agent"}}
    await replica.restart("agent", outbox(journal).journal)
    again = await outbox(journal).journal_rows(await replica.position("agent"))
    await replica.apply("agent", again)
    assert (await replica.turn(None, attempt.turn.id)).status is TurnStatus.COMPLETED
    assert {each.action for each in (await replica.audit(None, limit=9)).items} == {"token_create", "delete"}


async def test_a_gateway_forgets_old_events_and_summaries_as_an_agent_does(replica: Replica, journal: Journal) -> None:
    attempt = await journal.running()
    await follow(replica, journal)
    await work(attempt)
    await attempt.finish(TurnStatus.COMPLETED)
    await journal.accept(conversation=attempt.turn.conversation)
    await (await journal.claimed()).finish(TurnStatus.COMPLETED)
    await follow(replica, journal)
    held = await replica.last_seq(attempt.turn.conversation)
    journal.clock.advance(30 * 86_400)
    parked = await journal.parked(ask())
    await follow(replica, journal)
    older_than = journal.clock.now() - timedelta(days=7)
    assert isinstance(replica, SQLiteReplica)
    planned = await replica.prune(older_than, dry_run=True)
    assert await replica.prune(older_than, dry_run=False) == planned
    assert planned["events"] > 0
    assert planned["changes"] > 0
    await journal.store.prune(older_than, dry_run=False)
    for conversation in (attempt.turn.conversation, parked.turn.conversation):
        assert await replica.events(conversation) == await journal.store.events(conversation)
    assert await replica.last_seq(attempt.turn.conversation) == held
    assert await follow(replica, journal) == await outbox(journal).journal_rows(await replica.position("agent"))


# -- what is refused ------------------------------------------------------------------------------------------------------


def with_rows(rows: JournalRows, table: str, others: Sequence[Row]) -> JournalRows:
    changed: dict[str, Any] = {table: others}
    return replace(rows, **changed)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("conversations", "title", None),
        ("conversations", "title", 7),
        ("conversations", "updated_at", "now"),
        ("conversations", "created_at", 2**62),
        ("turns", "status", "dancing"),
        ("turns", "status", "completed"),
        ("turns", "failure_code", "NEVER_HEARD"),
        ("turns", "input", "{"),
        ("turns", "epoch", True),
        ("turns", "epoch", 1.0),
        ("turns", "attempts", 2**63),
        ("turns", "lease_owner", "\ud800"),
        ("attempts", "outcome", "vanished"),
        ("cards", "deciders", "5"),
        ("cards", "request", "["),
        ("cards", "state", "decided"),
        ("calls", "effect_class", "free"),
        ("calls", "arguments", "nonsense"),
        ("audit", "detail", "nonsense"),
    ],
)
async def test_rows_that_could_not_be_read_back_are_refused_whole(
    replica: Replica, journal: Journal, table: str, column: str, value: object
) -> None:
    before = await journal.running()
    await journal.store.rename(OWNER, before.turn.conversation, "kept")
    await follow(replica, journal)
    attempt = await journal.running()
    await intend(attempt, ToolCall("c-1", "tool", {}, "m-1"))
    await attempt.park([ask()])
    await before.finish(TurnStatus.COMPLETED)
    await journal.store.rename(OWNER, attempt.turn.conversation, "new")
    rows = await outbox(journal).journal_rows(await replica.position("agent"))
    held = await replica.position("agent")
    told = getattr(rows, table)
    broken = with_rows(rows, table, [{**row, column: value} for row in told])
    assert told
    with pytest.raises(PerdureError, match="told rows"):
        await replica.apply("agent", broken)
    assert await replica.position("agent") == held
    assert (await replica.turn(None, before.turn.id)).status is TurnStatus.RUNNING
    left_out = [{name: each for name, each in row.items() if name != column} for row in told]
    with pytest.raises(PerdureError, match=f"'{column}' is missing"):
        await replica.apply("agent", with_rows(rows, table, left_out))
    with pytest.raises(PerdureError, match="told rows"):
        await replica.record([], rows=[("agent", broken)], stream=StreamPosition("s", 5))
    assert await replica.stream_position() is None
    assert await replica.position("agent") == held
    await replica.apply("agent", with_rows(rows, table, [{**row, "colour": "blue"} for row in told]))
    assert await replica.position("agent") == rows.position


async def test_events_that_could_not_be_read_back_are_left_out_and_the_others_kept(
    replica: Replica, journal: Journal
) -> None:
    attempt = await journal.running()
    await attempt.finish(TurnStatus.COMPLETED)
    await replica.apply("agent", await rows_of(journal, attempt.turn.id))
    (end,) = await journal.store.events(attempt.turn.conversation)
    bad: list[Event] = [
        replace(end, seq=0),
        replace(end, seq=2**70),
        replace(end, seq=5, attempt=-1),
        replace(end, seq=5, turn="\ud800"),
        replace(end, seq=5, at=end.at.replace(tzinfo=None)),
        replace(end, seq=5, kind=EventKind.TOKEN, payload={"message_id": "m", "text": "x"}),
        replace(end, seq=5, kind=EventKind.MESSAGE, payload={"message": {"id": "m", "role": "user", "content": ["x"]}}),
        replace(end, seq=5, kind=EventKind.MESSAGE, payload={}),
        replace(end, seq=5, kind=EventKind.REWIND, payload={"to_seq": 9}),
        replace(end, seq=5, kind=EventKind.REWIND, payload={"to_seq": "0"}),
    ]
    assert await replica.record([*bad, end]) == [end]
    assert await replica.events(attempt.turn.conversation) == [end]


# -- what is the gateway's own --------------------------------------------------------------------------------------------


async def test_what_was_dispatched_is_waited_for_over_restarts_until_it_is_concluded(
    replica: Replica, tmp_path: Path
) -> None:
    clock = FakeClock()
    first = Dispatch("t-1", "c-1", "agent", clock.now())
    second = Dispatch("t-2", "c-2", "agent", clock.now() + timedelta(seconds=1))
    await replica.dispatched(second)
    await replica.dispatched(first)
    await replica.parked_for("t-1", 1.5)
    await replica.parked_for("t-1", 2.25)
    await replica.parked_for("nobody's", 1)
    await replica.close()
    again = await sqlite_replica(tmp_path, Heard(), clock)
    assert await again.dispatches() == [replace(first, parked_seconds=3.75), second]
    await again.dispatched(replace(first, dispatched_at=clock.now() + timedelta(seconds=9)))
    assert [(each.turn, each.parked_seconds) for each in await again.dispatches()] == [("t-2", 0), ("t-1", 0)]
    await again.concluded("t-1")
    await again.concluded("t-1")
    assert await again.dispatches() == [second]
    await again.close()


async def test_agents_that_told_of_themselves_are_known_over_restarts(replica: Replica, tmp_path: Path) -> None:
    await replica.keep_agent("agent", {"name": "agent", "tools": ["a"]})
    await replica.keep_agent("agent", {"name": "agent", "tools": []})
    await replica.keep_agent("other", {})
    await replica.restart("silent", "journal")
    await replica.close()
    again = await sqlite_replica(tmp_path, Heard(), FakeClock())
    assert await again.known_agents() == {"agent": {"name": "agent", "tools": []}, "other": {}}
    await again.close()


async def test_a_gateway_has_tokens_of_its_own(replica: Replica) -> None:
    await replica.create_token("clara", Role.OPERATOR, "hash", by="admin")
    found = await replica.token_of("hash")
    assert found is not None
    assert (found.name, found.role) == ("clara", Role.OPERATOR)
    with pytest.raises(BadRequest):
        await replica.create_token("clara", Role.USER, "other", by="admin")
    await replica.revoke_token("clara", by="admin")
    assert await replica.token_of("hash") is None
    assert [token.name for token in await replica.tokens()] == ["clara"]
    await replica.check()
    assert (await replica.size()).bytes > 0
    assert (await replica.statistics())["turns_running"] == 0


async def test_a_deed_of_the_gateway_stands_among_those_of_its_agents(replica: Replica, journal: Journal) -> None:
    attempt = await journal.running()
    await journal.store.rename(OWNER, attempt.turn.conversation, "one", by="anna")
    await follow(replica, journal)
    await replica.create_token("clara", Role.USER, "hash", by="admin")
    journal.clock.advance(1)
    await journal.store.cancel(OWNER, attempt.turn.id, by="boris")
    await follow(replica, journal)
    assert [(each.action, each.by) for each in (await replica.audit(None, limit=9)).items] == [
        ("cancel", "boris"),
        ("token_create", "admin"),
        ("rename", "anna"),
    ]
    assert [each.action for each in (await replica.audit(OWNER, limit=9)).items] == ["cancel", "rename"]


# -- a process that is killed ---------------------------------------------------------------------------------------------

COPYING = """
import asyncio, sys
from pathlib import Path
from random import Random
from perdure.replication import StreamPosition
from perdure.store.sqlite.replica import open_replica
from perdure.store.sqlite.readonly import ReadOnlyStore
from perdure.testing import FakeClock
from tests.conformance.journal import Heard

async def copy(folder):
    store = ReadOnlyStore(folder / "perdure.db", clock=FakeClock())
    replica = await open_replica(folder / "gateway.db", notify=Heard(), clock=FakeClock())
    print("began", flush=True)
    while True:
        rows = await store.journal_rows(await replica.position("agent"), limit=1)
        await replica.apply("agent", rows)
        for conversation in rows.last_seqs:
            last = await replica.last_seq(conversation)
            for event in await store.events(conversation, after=last):
                at = await replica.stream_position()
                await replica.record([event], stream=StreamPosition("s", (at.seq if at else 0) + 1))
        print(rows.position.change, flush=True)

asyncio.run(copy(Path(sys.argv[1])))
"""


async def test_whoever_is_killed_while_it_copies_goes_on_where_it_was(
    replica: Replica, journal: Journal, tmp_path: Path
) -> None:
    for _ in range(4):
        attempt = await journal.running()
        await work(attempt, "one", "two")
        await attempt.finish(TurnStatus.COMPLETED)
        journal.clock.advance(1)
    await journal.store.close()
    await replica.close()
    child = subprocess.Popen([sys.executable, "-c", COPYING, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for _ in range(7):
        assert child.stdout.readline()
    child.kill()
    child.communicate(timeout=60)
    await journal.start()
    again = await sqlite_replica(tmp_path, Heard(), journal.clock)
    copied = (await again.conversations(None, limit=9)).items
    held = sum([len(await again.events(each.id)) for each in copied])
    stream = await again.stream_position()
    assert stream is not None
    assert stream.seq == held > 0
    position = await again.position("agent")
    assert position.change >= 5
    await follow(again, journal)
    for conversation in (await journal.store.conversations(None, limit=9)).items:
        assert await again.conversation(None, conversation.id) == conversation
        assert await again.events(conversation.id) == await journal.store.events(conversation.id)
    await again.close()


# -- an agent that was taken away -----------------------------------------------------------------------------------------


def tables_of(replica: Replica) -> dict[str, int]:
    """How many rows each table of the file has that tells of agents."""
    assert isinstance(replica, SQLiteReplica)
    connection = apsw.Connection(str(replica.path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        names = [str(row[0]) for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        counts = {name: next(connection.execute(f"SELECT count(*) FROM [{name}]"))[0] for name in names}
    finally:
        connection.close()
    own = {"boots", "copies", "audit", "changes", "sqlite_sequence"}
    inner = ("_config", "_data", "_idx")  # of the full-text index: not one row for one thing
    return {name: count for name, count in counts.items() if count and name not in own and not name.endswith(inner)}


async def test_a_forgotten_agent_leaves_nothing_but_the_note_of_who_did_it(replica: Replica, journal: Journal) -> None:
    empty = tables_of(replica)
    attempt = await journal.parked(ask())
    gone = await journal.running()
    await gone.finish(TurnStatus.COMPLETED)
    conversation = attempt.turn.conversation
    await journal.store.rename(OWNER, conversation, "needle", by="boss")
    await replica.keep_agent("agent", {"told": 1})
    await follow(replica, journal)
    await journal.store.delete(None, gone.turn.conversation, by="boss")
    await follow(replica, journal)
    await replica.keep_transcript(conversation, StoredTranscript(1, {"messages": []}))
    await replica.dispatched(Dispatch(attempt.turn.id, conversation, "agent", journal.clock.now()))
    assert len((await replica.audit(None, limit=9)).items) == 2

    assert await replica.forget("agent", by="boss") == [conversation]

    (deed,) = (await replica.audit(None, limit=9)).items
    assert (deed.by, deed.action, deed.detail) == ("boss", "agent_forget", {"agent": "agent", "conversations": 1})
    assert (await replica.conversations(None, limit=9, text="needle")).items == []
    assert await replica.known_agents() == {}
    assert await replica.position("agent") == Position()
    assert tables_of(replica) == empty
    assert [(each.kind, each.status) for each in await changes(replica)][-1] == ("conversation", "deleted")


async def test_a_forgotten_agent_is_copied_wholly_again(replica: Replica, journal: Journal) -> None:
    attempt = await journal.parked(ask())
    other = await journal.running()
    await other.finish(TurnStatus.COMPLETED)
    await follow(replica, journal)
    await journal.store.delete(None, other.turn.conversation)
    await follow(replica, journal)
    before = await replica.conversations(None, limit=9)
    await replica.forget("agent", by="boss")
    with pytest.raises(NotFound):
        await replica.forget("agent", by="boss")
    await follow(replica, journal)
    assert await replica.conversations(None, limit=9) == before
    assert [each.id for each in await replica.cards(None, attempt.turn.id)]
    assert await replica.events(attempt.turn.conversation) == await journal.store.events(attempt.turn.conversation)


async def test_a_deletion_of_a_forgotten_agent_keeps_nobody_out(replica: Replica, journal: Journal) -> None:
    """The file may come from a backup that still has what was deleted."""
    attempt = await journal.running()
    rows = await rows_of(journal, attempt.turn.id)
    await replica.apply("agent", replace(rows, conversations=(), turns=(), deleted=[attempt.turn.conversation]))
    await replica.apply("agent", rows)
    assert await replica.last_seq(attempt.turn.conversation) is None
    await replica.forget("agent", by="boss")
    await replica.apply("agent", rows)
    assert (await replica.turn(None, attempt.turn.id)).status is TurnStatus.RUNNING


async def test_other_agents_are_not_touched_when_one_is_forgotten(replica: Replica, journal: Journal) -> None:
    attempt = await journal.running()
    await replica.keep_agent("agent", {"told": 1})
    await follow(replica, journal)
    await replica.dispatched(Dispatch(attempt.turn.id, attempt.turn.conversation, "agent", journal.clock.now()))
    await replica.keep_agent("other", {"told": 2})
    before = tables_of(replica)
    assert await replica.forget("other", by="boss") == []
    assert tables_of(replica) == {**before, "agents": 1}
    assert [each.agent for each in await replica.dispatches()] == ["agent"]
