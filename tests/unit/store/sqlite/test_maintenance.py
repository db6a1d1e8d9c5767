from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import apsw
import pytest
from langchain_core.runnables import RunnableConfig

from perdure.errors import StorageFull
from perdure.events import EventKind
from perdure.ledger import ToolCall
from perdure.store.base import Question
from perdure.store.sqlite.database import PAGE_BYTES, scalar
from perdure.store.sqlite.store import SQLiteStore
from perdure.turns import Limits, Outcome, TurnStatus
from tests.conformance.conftest import sqlite_journal
from tests.conformance.journal import OWNER, STRANGER, Journal, intend, work

OF_A_CONVERSATION = (
    "conversations", "turns", "attempts", "events", "cards", "tool_calls", "idempotency_keys", "spaces", "checkpoints", "items",
    "lists", "list_elements", "writes",
)  # fmt: skip


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = sqlite_journal(tmp_path, Limits())
    await journal.start()
    yield journal
    await journal.store.close()


def rows(path: Path) -> dict[str, int]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return {table: scalar(connection, f"SELECT count(*) FROM {table}") for table in OF_A_CONVERSATION}
    finally:
        connection.close()


async def answered(journal: Journal, conversation: str | None = None, *, size: int = 0) -> str:
    """A finished turn with checkpoints, a decided card, an earlier attempt and a key; its conversation."""
    accepted = await journal.accept(conversation=conversation, key=journal.name("key"))
    attempt = await journal.claimed()
    await attempt.park([Question(journal.name("interrupt"), "?")])
    (card,) = await journal.store.cards(OWNER, attempt.turn.id)
    await journal.answer(accepted.conversation, {card.interrupt_id: 1}, "anna")
    attempt = await journal.claimed()
    await work(attempt, "x" * size + "one", "two", question=f"question of {accepted.turn}")
    await intend(attempt, ToolCall("c-1", "tool", {}, "m-1"))
    attempt.trace("node", "node", 3, "enter")
    await attempt.release(Outcome.RELEASED)
    await (await journal.claimed()).finish(TurnStatus.COMPLETED)
    return accepted.conversation


async def test_deleting_a_conversation_leaves_no_row_of_it(journal: Journal, tmp_path: Path) -> None:
    kept = await answered(journal)
    before = rows(tmp_path / "perdure.db")
    gone = await answered(journal)
    grown = rows(tmp_path / "perdure.db")
    assert all(grown[table] > before[table] for table in OF_A_CONVERSATION if before[table])
    await journal.store.delete(OWNER, gone)
    assert rows(tmp_path / "perdure.db") == before
    assert len(await journal.store.events(kept)) > 5


async def test_deleting_gives_the_space_back(journal: Journal, tmp_path: Path) -> None:
    await answered(journal)
    thread = await answered(journal, size=3_000_000)
    assert isinstance(journal.store, SQLiteStore)
    grown = await journal.store._readers.run(lambda connection: scalar(connection, "PRAGMA page_count"))
    await journal.store.delete(OWNER, thread)
    shrunk = await journal.store._readers.run(lambda connection: scalar(connection, "PRAGMA page_count"))
    assert shrunk < grown / 3
    await journal.restart()
    assert (tmp_path / "perdure.db").stat().st_size == shrunk * PAGE_BYTES


async def test_retention_forgets_old_events_keys_and_checkpoints_and_keeps_what_people_see(journal: Journal) -> None:
    old = await answered(journal)
    await answered(journal, old)
    before = await _thread(journal, old)
    watched = await journal.store.last_turn(OWNER, old)
    assert watched is not None
    journal.clock.advance(8 * 86_400)
    fresh = await answered(journal)
    untouched = await journal.store.events(fresh)
    older_than = journal.clock.now() - timedelta(days=7)
    planned = await journal.store.prune(older_than, dry_run=True)
    assert await journal.store.prune(older_than, dry_run=True) == planned, "a dry run changes nothing"
    done = await journal.store.prune(older_than, dry_run=False)
    assert done == planned
    assert all(done[table] > 0 for table in ("events", "checkpoints", "idempotency_keys", "changes"))
    assert sum((await journal.store.prune(older_than, dry_run=True)).values()) == 0
    retained = await journal.store.events(old)
    assert {event.turn for event in retained} == {watched.id}
    assert retained[-1].kind is EventKind.END
    assert await _thread(journal, old) == before
    assert await journal.store.events(fresh) == untouched
    assert len((await journal.store.turns(OWNER, limit=10)).items) == 3
    again = await answered(journal, old)
    assert len(await _thread(journal, again)) == len(before) + 3


async def _thread(journal: Journal, thread: str) -> list[object]:
    """The thread's messages, as LangGraph reads them."""
    config: RunnableConfig = {"configurable": {"thread_id": thread}}
    head = await journal.store.reader().aget_tuple(config)
    assert head is not None
    return list(head.checkpoint["channel_values"]["messages"])


async def test_retention_leaves_active_turns_alone(journal: Journal) -> None:
    thread = await answered(journal)
    await journal.accept(conversation=thread)
    attempt = await journal.claimed()
    await work(attempt, question="more")
    journal.clock.advance(30 * 86_400)
    config: RunnableConfig = {"configurable": {"thread_id": thread}}
    before = [one async for one in journal.store.reader().alist(config)]
    await journal.store.prune(journal.clock.now(), dry_run=False)
    after = [one async for one in journal.store.reader().alist(config)]
    own = [one for one in before if one.metadata.get("run_id") == attempt.turn.id]
    own.append(before[len(own)])  # what the turn began on: its message can still be edited in a fork
    assert [(one.checkpoint, one.pending_writes) for one in after] == [
        (one.checkpoint, one.pending_writes) for one in own
    ]
    assert (await journal.turn(attempt.turn.id)).status is TurnStatus.RUNNING


async def test_retention_thins_the_history_of_a_conversation_that_goes_on(journal: Journal) -> None:
    thread = await answered(journal)
    config: RunnableConfig = {"configurable": {"thread_id": thread}}
    journal.clock.advance(10 * 86_400)
    await answered(journal, thread)
    newest = (await journal.store.turns(OWNER, limit=1)).items[0].id
    before = [one async for one in journal.store.reader().alist(config)]
    counts = await journal.store.prune(journal.clock.now() - timedelta(days=7), dry_run=False)
    after = [one async for one in journal.store.reader().alist(config)]
    assert [one.metadata.get("run_id") == newest for one in after] == [True] * (len(after) - 1) + [False]
    assert after[-2].metadata["source"] == "input", (
        "what the newest turn began on stays: its message can still be edited"
    )
    assert len(before) - len(after) == counts["checkpoints"] > 0
    assert [one.checkpoint for one in after] == [one.checkpoint for one in before[: len(after)]]
    await answered(journal, thread)


async def test_pruning_takes_any_number_of_conversations_in_steps(journal: Journal) -> None:
    for _ in range(120):
        await (await journal.running()).finish(TurnStatus.COMPLETED)
    journal.clock.advance(30 * 86_400)
    await journal.accept(owner=STRANGER)
    counts = await journal.store.prune(journal.clock.now() - timedelta(days=1), dry_run=False)
    assert counts["changes"] == 120 * 2, "the last of each turn and of each conversation stays"
    assert "events" not in counts, "the last turn's end is still shown"


async def test_a_full_disk_refuses_new_turns_keeps_reading_and_recovers(journal: Journal) -> None:
    accepted = await journal.accept()
    assert isinstance(journal.store, SQLiteStore)

    def limit(connection: apsw.Connection) -> None:
        connection.execute(f"PRAGMA max_page_count = {scalar(connection, 'PRAGMA page_count') + 2}")

    await journal.store._writer.submit(limit)
    with pytest.raises(StorageFull):
        await journal.accept("x" * 100_000)
    assert (await journal.turn(accepted.turn)).status is TurnStatus.QUEUED
    await journal.store.check()
    await journal.store._writer.submit(lambda connection: list(connection.execute("PRAGMA max_page_count = 1000000")))
    await journal.accept("x" * 100_000)
