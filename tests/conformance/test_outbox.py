"""What a journal tells to others: who it is, what the stream lacks, and rows for a copy."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import datetime, timedelta

from perdure.ledger import ToolCall
from perdure.replication import JournalRows, Position
from perdure.store.base import StoredResult
from perdure.turns import Outcome, TurnStatus
from tests.conformance.histories import outbox
from tests.conformance.journal import BROKEN, OWNER, Journal, ask, intend, work

LONG_AGO = datetime.fromisoformat("2000-01-01T00:00:00+00:00")


async def finished(journal: Journal, conversation: str | None = None) -> str:
    accepted = await journal.accept(conversation=conversation)
    await (await journal.claimed()).finish(TurnStatus.COMPLETED)
    return accepted.conversation


async def everything(journal: Journal, *, limit: int = 200, after: Position | None = None) -> list[JournalRows]:
    after, pages = after or Position(), []
    while True:
        pages.append(await outbox(journal).journal_rows(after, limit=limit))
        if not pages[-1].more:
            return pages
        after = pages[-1].position


# -- which journal --------------------------------------------------------------------------------------------------------


async def test_a_journal_keeps_its_identity_over_restarts(journal: Journal) -> None:
    name = outbox(journal).journal
    assert len(name) == 32
    await journal.restart()
    assert outbox(journal).journal == name
    await journal.crash()
    assert outbox(journal).journal == name


# -- what the stream lacks ------------------------------------------------------------------------------------------------


async def test_what_was_never_published_is_told_from_the_beginning(journal: Journal) -> None:
    first, second = await finished(journal), await finished(journal)
    await journal.accept()  # nothing of it was told yet
    assert await outbox(journal).unpublished("s", LONG_AGO) == {first: 0, second: 0}


async def test_what_was_published_is_not_told_again_until_there_is_more(journal: Journal) -> None:
    conversation = await finished(journal)
    (end,) = await journal.store.events(conversation)
    await outbox(journal).published("s", {conversation: end.seq, "of another life": 7})
    assert await outbox(journal).unpublished("s", LONG_AGO) == {}
    await outbox(journal).published("s", {conversation: 0})
    assert await outbox(journal).unpublished("s", LONG_AGO) == {}, "never backwards"
    await finished(journal, conversation)
    assert await outbox(journal).unpublished("s", LONG_AGO) == {conversation: end.seq}
    await journal.crash()
    assert await outbox(journal).unpublished("s", LONG_AGO) == {conversation: end.seq}


async def test_a_stream_that_was_made_again_lacks_everything(journal: Journal) -> None:
    conversation = await finished(journal)
    await outbox(journal).published("s", {conversation: 99})
    assert await outbox(journal).unpublished("another", LONG_AGO) == {conversation: 0}
    await outbox(journal).published("another", {conversation: 1})
    assert await outbox(journal).unpublished("another", LONG_AGO) == {}


async def test_turns_that_ended_long_ago_are_not_published_again_and_those_that_go_on_are(journal: Journal) -> None:
    old = await finished(journal)
    parked = await journal.parked(ask())
    journal.clock.advance(10 * 86_400)
    fresh = await finished(journal)
    since = journal.clock.now() - timedelta(days=7)
    assert await outbox(journal).unpublished("s", since) == {parked.turn.conversation: 0, fresh: 0}
    await outbox(journal).published("s", {parked.turn.conversation: 99, fresh: 99})
    await finished(journal, old)
    assert await outbox(journal).unpublished("s", since) == {old: 0}


async def test_a_deleted_conversation_is_not_published(journal: Journal) -> None:
    conversation = await finished(journal)
    await outbox(journal).published("s", {conversation: 0})
    await journal.store.delete(OWNER, conversation)
    assert await outbox(journal).unpublished("s", LONG_AGO) == {}


# -- rows -----------------------------------------------------------------------------------------------------------------


async def test_rows_are_json_and_whole_but_for_what_calls_gave(journal: Journal) -> None:
    attempt = await journal.running()
    await work(attempt, "one")
    key = await intend(attempt, ToolCall("c-1", "tool", {"deep": [1]}, "m-1"))
    attempt.record(key, StoredResult("msgpack", b"\xff\x00"), "success")
    await attempt.park([ask(), ask("i-2")])
    rows = await outbox(journal).journal_rows(Position())
    assert json.loads(json.dumps(asdict(rows))) == asdict(rows)
    (turn,), (conversation,) = rows.turns, rows.conversations
    assert (turn["id"], turn["status"], conversation["title"]) == (attempt.turn.id, "parked", "hello")
    assert [(row["turn"], row["outcome"]) for row in rows.attempts] == [(attempt.turn.id, "parked")]
    assert [row["interrupt_id"] for row in rows.cards] == ["i-1", "i-2"]
    (call,) = rows.calls
    assert (call["key"], call["state"]) == (key, "recorded")
    assert "result" not in call
    last = (await journal.store.events(attempt.turn.conversation))[-1]
    assert rows.last_seqs == {attempt.turn.conversation: last.seq}


async def test_pages_tell_together_what_one_page_tells(journal: Journal) -> None:
    for _ in range(4):
        await finished(journal)
    await journal.store.rename(OWNER, await finished(journal), "other")
    (whole,) = await everything(journal)
    pages = await everything(journal, limit=3)
    assert len(pages) > 4
    for page in pages:
        assert len(page.turns) <= 3
        assert [row["accept_number"] for row in page.turns] == sorted(row["accept_number"] for row in page.turns)
    for name in ("conversations", "turns", "attempts", "audit"):
        told = [json.dumps(row, sort_keys=True) for page in pages for row in getattr(page, name)]
        assert set(told) == {json.dumps(row, sort_keys=True) for row in getattr(whole, name)}
    assert pages[-1].position == whole.position
    assert [page.after for page in pages[1:]] == [page.position.change for page in pages[:-1]]


async def test_a_page_ends_early_where_turns_are_large(journal: Journal) -> None:
    for _ in range(4):
        await journal.accept("x" * 300_000)
    pages = await everything(journal)
    assert [len(page.turns) for page in pages] == [2, 2]


async def test_nothing_is_told_where_nothing_changed(journal: Journal) -> None:
    await finished(journal)
    (rows,) = await everything(journal)
    again = await outbox(journal).journal_rows(rows.position)
    assert (again.turns, again.conversations, again.audit, again.position, again.more) == (
        [], [], [], rows.position, False,
    )  # fmt: skip


async def test_what_changes_no_state_is_told_all_the_same(journal: Journal) -> None:
    """A decision while other cards are open, a cancel that is only asked for, a title, a deed that changed nothing."""
    attempt = await journal.parked(ask(), ask("i-2"))
    running = await journal.running()
    position = (await everything(journal))[-1].position

    async def told() -> JournalRows:
        nonlocal position
        (rows,) = await everything(journal, after=position)
        position = rows.position
        return rows

    await journal.answer(attempt.turn.conversation, {"i-1": "yes"})
    rows = await told()
    assert [card["state"] for card in rows.cards] == ["decided", "opened"]
    await journal.store.cancel(OWNER, running.turn.id)
    rows = await told()
    assert [(row["id"], row["status"]) for row in rows.turns] == [(running.turn.id, "running")]
    assert rows.turns[0]["cancel_requested_at"] is not None
    await journal.store.cancel(OWNER, running.turn.id)
    assert (await told()).turns == [], "asked for once"
    await journal.store.rename(OWNER, running.turn.conversation, "other")
    rows = await told()
    assert ([row["title"] for row in rows.conversations], rows.turns) == (["other"], [])
    await journal.store.rename(OWNER, running.turn.conversation, "other")
    rows = await told()
    assert (rows.conversations, [row["action"] for row in rows.audit]) == ([], ["rename"])


async def test_what_was_deleted_is_told_by_its_name(journal: Journal) -> None:
    conversation = await finished(journal)
    position = (await everything(journal))[-1].position
    await journal.store.delete(OWNER, conversation)
    (rows,) = await everything(journal, after=position)
    assert (rows.deleted, rows.conversations, rows.turns) == ([conversation], [], [])
    named = await outbox(journal).journal_rows(Position(), conversations=[conversation])
    assert named.deleted == [conversation]


async def test_rows_that_were_named_are_as_of_now_and_continue_the_present_alone(journal: Journal) -> None:
    first, second = await finished(journal), await finished(journal)
    (turn,) = (await journal.store.turns(OWNER, limit=9, conversation=second)).items
    rows = await outbox(journal).journal_rows(Position(), turns=[turn.id, "nobody's"], conversations=[first])
    assert [row["id"] for row in rows.turns] == [turn.id]
    assert {row["id"] for row in rows.conversations} == {first, second}
    head = (await everything(journal))[-1].position
    assert rows.after == rows.position.change == head.change
    assert (rows.position.audit, rows.audit, rows.more) == (0, [], False)


async def test_a_position_that_is_not_of_this_past_is_answered_from_the_beginning(journal: Journal) -> None:
    await finished(journal)
    (whole,) = await everything(journal)
    for position in (
        replace(whole.position, journal="another"),
        replace(whole.position, change=whole.position.change + 1),
    ):
        assert await outbox(journal).journal_rows(position) == whole
    assert whole.after == 0


async def test_retention_leaves_enough_to_begin_a_copy_with(journal: Journal) -> None:
    gone = await finished(journal)
    kept = [await finished(journal), await finished(journal)]
    (failed,) = [await journal.running()]
    await failed.finish(TurnStatus.FAILED, BROKEN)
    await journal.store.resume(OWNER, failed.turn.conversation)
    await (await journal.claimed()).release(Outcome.RETRIED)
    middle = (await everything(journal))[-1].position
    await journal.store.rename(OWNER, kept[0], "other")
    await journal.store.delete(OWNER, gone)
    journal.clock.advance(30 * 86_400)
    before = await everything(journal)
    assert (await journal.store.prune(journal.clock.now(), dry_run=False))["changes"] > 0
    (after,) = await everything(journal)
    assert list(after.turns) == list(before[0].turns)
    assert after.last_seqs.keys() == {*kept, failed.turn.conversation}
    assert after.position == before[0].position
    (late,) = await everything(journal, after=middle)
    assert late.after == middle.change
    assert (late.deleted, {row["title"] for row in late.conversations}) == ([gone], {"other"})


async def test_retention_leaves_the_newest_event_by_which_a_copy_sees_that_it_has_all(journal: Journal) -> None:
    """Also where the turn that was accepted last ended first."""
    attempt = await journal.running()
    waiting = await journal.accept(conversation=attempt.turn.conversation, when_busy="enqueue")
    await journal.store.cancel(OWNER, waiting.turn)
    await work(attempt)
    await attempt.finish(TurnStatus.COMPLETED)
    (before,) = await everything(journal)
    journal.clock.advance(30 * 86_400)
    assert (await journal.store.prune(journal.clock.now(), dry_run=False))["events"] > 0
    (after,) = await everything(journal)
    assert after.last_seqs == before.last_seqs
