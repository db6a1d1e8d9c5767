"""What watchers are told, on every store: the order of seqs, commits before events, and a replay that equals what was live."""

from __future__ import annotations

import asyncio

import pytest

from perdure.events import Event, EventKind, Fold
from perdure.ledger import ToolCall
from perdure.store.base import Question
from perdure.turns import Outcome, TurnStatus
from tests.conformance.journal import BROKEN, OWNER, Journal, intend, work


async def test_a_replay_equals_what_was_live(journal: Journal) -> None:
    attempt = await journal.running()
    attempt.trace("model", "model", 1, "enter")
    attempt.token(f"{attempt.turn.id}-reply-0", "o")
    attempt.token(f"{attempt.turn.id}-reply-0", "ne")
    await work(attempt, "one", "two")
    await intend(attempt, ToolCall("c-1", "tool", {"x": 1}, "m-1"), step=2)
    await attempt.park([Question("i-1", {"ask": "?"})])
    thread = attempt.turn.conversation
    await journal.answer(thread, {"i-1": 1}, "anna")
    await (await journal.claimed()).finish(TurnStatus.COMPLETED)
    replayed = await journal.store.events(thread)
    assert replayed == [event for event in journal.heard.events if event.kind is not EventKind.TOKEN]
    live, again = Fold().apply_all(journal.heard.events), Fold().apply_all(replayed)
    assert _shown(live) == _shown(again)
    messages = [event.payload["message"] for event in replayed if event.kind is EventKind.MESSAGE]
    assert [message["content"] for message in messages] == ["hello", "one", "two"]


def _shown(fold: Fold) -> list[tuple[object, ...]]:
    return [
        (turn, folded.messages, folded.tokens, folded.traces, folded.approvals, folded.ending)
        for turn, folded in fold.turns.items()
    ]


async def test_seqs_rise_in_the_order_of_telling(journal: Journal) -> None:
    attempt = await journal.running()
    attempt.trace("model", "model", 1, "enter")
    for number in range(20):
        attempt.token("m", str(number))
    await intend(attempt, ToolCall("c-1", "tool", {}, "m-1"))
    attempt.token("m", "more")
    await attempt.finish(TurnStatus.COMPLETED)
    seqs = [event.seq for event in journal.heard.events]
    assert seqs == list(range(1, len(seqs) + 1))


async def test_text_waits_for_the_events_before_it_and_for_nothing_else(journal: Journal) -> None:
    attempt = await journal.running()
    attempt.token("m", "at once")
    assert [event.payload["text"] for event in journal.heard.events] == ["at once"]
    attempt.trace("model", "model", 1, "enter")
    attempt.token("m", "behind")
    assert len(journal.heard.events) == 1
    while len(journal.heard.events) < 3:
        await asyncio.sleep(0)
    assert [event.kind for event in journal.heard.events[1:]] == [EventKind.TRACE, EventKind.TOKEN]


async def test_an_event_is_durable_when_it_is_told(journal: Journal) -> None:
    attempt = await journal.running()
    stored: list[list[Event]] = []
    told = asyncio.Event()
    publish = journal.heard.publish

    def watch(event: Event) -> None:
        publish(event)
        told.set()

    journal.heard.publish = watch  # type: ignore[method-assign]
    intending = asyncio.ensure_future(intend(attempt, ToolCall("c-1", "tool", {}, "m-1")))
    await told.wait()
    stored.append(list(await journal.store.events(attempt.turn.conversation)))
    await intending
    assert [event.kind for event in stored[0]] == [EventKind.TRACE]


async def test_unused_seqs_are_given_back_and_used_ones_never_come_again(journal: Journal) -> None:
    attempt = await journal.running()
    attempt.token("m", "a token")
    await attempt.release(Outcome.RELEASED)
    again = await journal.claimed()
    assert again.rewind is not None
    assert again.rewind.seq == 2
    await journal.die(again)
    third = await journal.claimed()
    assert third.rewind is not None
    assert third.rewind.seq > again.rewind.seq + 1, "what a dead attempt may have streamed is not used again"


async def test_a_long_stream_never_runs_out_of_seqs(journal: Journal) -> None:
    attempt = await journal.running()
    for number in range(25_000):
        attempt.token("m", "x")
        if number % 500 == 0:
            await asyncio.sleep(0)
    await attempt.finish(TurnStatus.COMPLETED)
    seqs = [event.seq for event in journal.heard.events]
    assert seqs == sorted(set(seqs))
    text = "".join(event.payload["text"] for event in journal.heard.events if event.kind is EventKind.TOKEN)
    assert text == "x" * len(text)
    assert len(text) >= 9_000
    assert journal.heard.events[-1].kind is EventKind.END


async def test_a_turn_has_one_terminal_event_per_ending(journal: Journal) -> None:
    attempt = await journal.running()
    for _ in range(3):
        await attempt.finish(TurnStatus.FAILED, BROKEN)
        await journal.store.resume(OWNER, attempt.turn.conversation)
        attempt = await journal.claimed()
    await attempt.finish(TurnStatus.COMPLETED)
    endings = [event for event in journal.heard.events if event.terminal]
    assert [event.kind for event in endings] == [EventKind.CHAT_ERROR] * 3 + [EventKind.END]
    retained = [event for event in await journal.store.events(attempt.turn.conversation) if event.terminal]
    assert retained == endings[-1:]


async def test_events_come_in_pages_after_a_cursor_and_by_turn(journal: Journal) -> None:
    first = await journal.running()
    await first.finish(TurnStatus.COMPLETED)
    thread = first.turn.conversation
    second = await journal.accept(conversation=thread)
    attempt = await journal.claimed()
    await work(attempt, "one", "two")
    store = journal.store
    everything = list(await store.events(thread))
    assert [event.turn for event in everything] == [first.turn.id, *[second.turn] * 3]
    assert await store.events(thread, after=everything[0].seq) == everything[1:]
    assert await store.events(thread, after=everything[1].seq, limit=1) == everything[2:3]
    assert await store.events(thread, turn=first.turn.id) == everything[:1]
    assert await store.events(thread, after=2**70) == []


async def test_a_seq_names_its_turn_also_when_it_was_a_tokens(journal: Journal) -> None:
    first = await journal.running()
    first.token("m", "streamed")
    await first.finish(TurnStatus.COMPLETED)
    thread = first.turn.conversation
    waiting = await journal.accept(conversation=thread)
    second = await journal.claimed()
    second.token("m", "streamed")
    behind = await journal.accept(conversation=thread, when_busy="enqueue")
    await journal.store.cancel(OWNER, behind.turn)
    second.token("m", "streamed")

    async def at(seq: int) -> str | None:
        found = await journal.store.turn_at(thread, seq)
        return found.id if found else None

    assert [await at(seq) for seq in range(1, 6)] == [
        first.turn.id,
        first.turn.id,
        waiting.turn,
        behind.turn,
        waiting.turn,
    ]
    assert await at(0) is None
    assert await at(10**9) is None
    assert await journal.store.turn_at("unknown", 1) is None


async def test_a_publisher_that_fails_latches_the_attempt_and_keeps_the_commit(journal: Journal) -> None:
    attempt = await journal.running()
    publish = journal.heard.publish

    def fail(event: Event) -> None:
        raise RuntimeError("the transport broke")

    journal.heard.publish = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="transport"):
        await intend(attempt, ToolCall("c-1", "tool", {}, "m-1"))
    journal.heard.publish = publish  # type: ignore[method-assign]
    assert attempt.latched is not None
    assert len(await journal.store.events(attempt.turn.conversation)) == 1
