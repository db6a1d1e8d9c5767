"""One suite of the Agent port's behaviour for every implementation: in one process, and over NATS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import (
    AgentInUse,
    BadRequest,
    CardDecided,
    Forbidden,
    IdempotencyConflict,
    NotFound,
    TurnInProgress,
    TurnNotResumable,
    UnknownCard,
)
from perdure.events import EventKind, Gone, ListsReset, Reset
from perdure.replication import Reach
from perdure.turns import Change, DecisionKind, Person, RequestKey, Role, TurnStatus, Verdict
from tests.conformance.ports import (
    ADMIN,
    IMPLEMENTATIONS,
    ME,
    OPERATOR,
    OTHER,
    Port,
    SharedNats,
    answer,
    changes,
    committed,
    events,
    shown,
)
from tests.unit.engine.house import folded


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedNats]:
    shared = SharedNats(tmp_path_factory.mktemp("nats"))
    yield shared
    shared.close()


@pytest.fixture(params=sorted(IMPLEMENTATIONS))
async def port(request: pytest.FixtureRequest, tmp_path: Path, nats: SharedNats) -> AsyncIterator[Port]:
    async with IMPLEMENTATIONS[request.param](tmp_path, nats) as opened:
        yield opened


class TestTurns:
    async def test_a_message_is_answered_and_read(self, port: Port) -> None:
        accepted = await port.send("hello")
        assert not accepted.repeated
        assert accepted.status in {TurnStatus.QUEUED, TurnStatus.RUNNING}
        await port.until(accepted, TurnStatus.COMPLETED)
        transcript = await port.agents.conversation(ME, accepted.conversation)
        assert [(each["role"], each["content"]) for each in transcript.messages] == [
            ("user", "hello"),
            ("assistant", "answer hello"),
        ]
        assert (transcript.conversation.title, transcript.conversation.owner) == ("hello", "me")
        assert [turn.id for turn in transcript.turns] == [accepted.turn]
        assert (transcript.resumable, transcript.state, transcript.reach) == (False, None, Reach.REACHABLE)

    async def test_what_was_accepted_is_read_at_once(self, port: Port) -> None:
        port.world.hold("model")
        accepted = await port.send("hello")
        page = await port.agents.conversations(ME, limit=10, cursor=None, agent=None)
        assert [each.id for each in page.items] == [accepted.conversation]
        found = await port.agents.turns(ME, limit=10, cursor=None, status=None, agent=None)
        assert [turn.id for turn in found.items] == [accepted.turn]
        port.world.let("model")
        await port.until(accepted)

    async def test_a_conversation_goes_on(self, port: Port) -> None:
        first = await port.done("one")
        second = await port.done("two", first.conversation, agent="agent")
        assert await port.said(second) == ["user: one", "assistant: answer one", "user: two", "assistant: answer two"]

    async def test_the_same_key_is_the_same_turn(self, port: Port) -> None:
        key = RequestKey("key", "digest")
        first = await port.send("hello", key=key)
        again = await port.send("hello", key=key)
        assert (again.turn, again.conversation, again.repeated) == (first.turn, first.conversation, True)
        with pytest.raises(IdempotencyConflict):
            await port.send("something else", key=RequestKey("key", "another"))
        await port.until(first)
        assert (await port.send("hello", key=key)).status is TurnStatus.COMPLETED

    async def test_two_messages_without_a_key_are_two_turns(self, port: Port) -> None:
        first, second = await asyncio.gather(port.send("hello"), port.send("hello"))
        assert first.turn != second.turn
        await port.until(first)
        await port.until(second)

    async def test_a_busy_conversation_takes_no_second_message(self, port: Port) -> None:
        port.world.hold("model")
        first = await port.send("one")
        with pytest.raises(TurnInProgress) as refused:
            await port.send("two", first.conversation)
        assert (refused.value.conversation, refused.value.turn) == (first.conversation, first.turn)
        port.world.let("model")
        await port.until(first)

    async def test_a_message_waits_behind_another_one(self, port: Port) -> None:
        port.world.hold("model")
        first = await port.send("one")
        second = await port.send("two", first.conversation, busy="enqueue")
        assert second.status is TurnStatus.WAITING
        counts = await port.agents.turn_counts(ME, agent="agent")
        assert counts[TurnStatus.WAITING] == 1
        port.world.let("model")
        await port.until(second, TurnStatus.COMPLETED)
        assert (await port.said(first))[0::2] == ["user: one", "user: two"]

    async def test_a_message_interrupts_the_one_before_it(self, port: Port) -> None:
        port.world.hold("model")
        first = await port.send("one")
        async with asyncio.timeout(60):
            await port.world.entered["model"].wait()
        port.world.held.pop("model")
        second = await port.send("two", first.conversation, busy="interrupt")
        await port.until(second, TurnStatus.COMPLETED)
        await port.until(first, TurnStatus.CANCELLED)

    async def test_a_parked_turn_is_interrupted_only_when_its_question_may_be_thrown_away(self, port: Port) -> None:
        first, card = await port.parked()
        with pytest.raises(TurnInProgress) as refused:
            await port.send("two", first.conversation, busy="interrupt")
        assert refused.value.details["pending"] == [card.id]
        second = await port.send("two", first.conversation, busy="interrupt", discard=True)
        await port.until(second, TurnStatus.COMPLETED)

    @pytest.mark.parametrize("input", [{"input": {"city": "Kyiv"}}, {"message": "  "}, {}])
    async def test_what_the_agent_does_not_take_is_refused(self, port: Port, input: dict[str, Any]) -> None:
        with pytest.raises(BadRequest):
            await port.agents.start(
                ME, input=input, conversation=None, agent=None, when_busy="reject", request_key=None
            )
        assert not (await port.agents.turns(ME, limit=10, cursor=None, status=None, agent=None)).items

    async def test_agents_that_are_not_there_are_refused_with_the_names_of_those_that_are(self, port: Port) -> None:
        with pytest.raises(BadRequest, match=r"no agent 'nobody' here\. Agents of this server: agent"):
            await port.send("hello", agent="nobody")
        first = await port.done("hello")
        with pytest.raises(BadRequest, match="belongs to the agent 'agent'; start a new one for 'nobody'"):
            await port.send("more", first.conversation, agent="nobody")

    async def test_a_message_to_a_conversation_that_is_not_there_finds_nothing(self, port: Port) -> None:
        with pytest.raises(NotFound):
            await port.send("hello", "f" * 32)

    async def test_a_running_turn_is_cancelled(self, port: Port) -> None:
        port.world.hold("model")
        accepted = await port.send("hello")
        asked = await port.agents.cancel(ME, accepted.turn)
        assert asked.cancel_requested_at is not None
        await port.until(accepted, TurnStatus.CANCELLED)
        again = await port.agents.cancel(ME, accepted.turn)
        assert again.status is TurnStatus.CANCELLED
        with pytest.raises(NotFound):
            await port.agents.cancel(ME, "f" * 32)

    async def test_a_turn_that_waits_is_cancelled_at_once(self, port: Port) -> None:
        port.world.hold("model")
        first = await port.send("one")
        second = await port.send("two", first.conversation, busy="enqueue")
        assert (await port.agents.cancel(ME, second.turn)).status is TurnStatus.CANCELLED
        port.world.let("model")
        await port.until(first, TurnStatus.COMPLETED)

    async def test_a_failed_turn_is_resumed_once(self, port: Port) -> None:
        port.world.failing.add("tool")
        accepted = await port.done("call tool")
        detail = await port.agents.turn(ME, accepted.turn)
        assert (detail.turn.status, detail.resumable) == (TurnStatus.FAILED, True)
        assert (await port.agents.conversation(ME, accepted.conversation)).resumable
        port.world.failing.clear()
        resumed = await port.agents.resume(ME, accepted.conversation)
        assert resumed.turn == accepted.turn
        await port.until(accepted, TurnStatus.COMPLETED)
        with pytest.raises(TurnNotResumable, match="the last one is completed"):
            await port.agents.resume(ME, accepted.conversation)

    async def test_a_resume_with_a_key_is_done_once(self, port: Port) -> None:
        port.world.failing.add("tool")
        accepted = await port.done("call tool")
        port.world.failing.clear()
        key = RequestKey("resume", "digest")
        first = await port.agents.resume(ME, accepted.conversation, key)
        await port.until(accepted, TurnStatus.COMPLETED)
        again = await port.agents.resume(ME, accepted.conversation, key)
        assert (again.turn, again.repeated) == (first.turn, True)

    async def test_a_turn_is_told_in_full(self, port: Port) -> None:
        accepted, card = await port.parked()
        detail = await port.agents.turn(ME, accepted.turn)
        assert detail.turn.status is TurnStatus.PARKED
        assert [(each.number, str(each.outcome)) for each in detail.attempts] == [(1, "parked")]
        assert detail.cards == [card]
        assert not detail.resumable
        with pytest.raises(NotFound):
            await port.agents.turn(ME, "f" * 32)

    async def test_the_events_of_a_turn_are_read_page_by_page(self, port: Port) -> None:
        accepted = await port.done("call tool")
        recorded = list(await port.journal.events(accepted.conversation))
        read: list[Any] = []
        cursor: str | None = None
        while True:
            page = await port.agents.events(ME, accepted.turn, limit=3, cursor=cursor, kind=None)
            read += page.items
            cursor = page.next
            if cursor is None:
                break
        assert read == recorded
        ends = await port.agents.events(ME, accepted.turn, limit=10, cursor=None, kind=EventKind.END)
        assert [event.payload["status"] for event in ends.items] == ["completed"]
        with pytest.raises(BadRequest, match="cursor"):
            await port.agents.events(ME, accepted.turn, limit=3, cursor="nonsense", kind=None)


class TestQuestions:
    async def test_a_question_waits_and_is_answered_by_its_interrupt(self, port: Port) -> None:
        accepted, card = await port.parked()
        waiting = await port.agents.approvals(ME, limit=10, cursor=None)
        assert waiting.items == [card]
        assert await port.agents.card(ME, card.id) == card
        with pytest.raises(BadRequest):
            await port.agents.answer(ME, accepted.conversation, {"unknown": answer("yes")})
        said = await port.agents.answer(ME, accepted.conversation, {card.interrupt_id: answer("yes")})
        assert said.turn == accepted.turn
        await port.until(accepted, TurnStatus.COMPLETED)
        assert "tool: yes" in await port.said(accepted)
        assert not (await port.agents.approvals(ME, limit=10, cursor=None)).items

    async def test_the_first_decision_counts_and_the_second_is_told_of_it(self, port: Port) -> None:
        accepted, card = await port.parked()
        decided = await port.agents.decide(ME, card.id, answer("yes"))
        assert decided.card.verdict is not None
        assert (decided.card.verdict.value, decided.card.verdict.by) == ("yes", "me")
        assert decided.turn_status is not TurnStatus.PARKED
        with pytest.raises(CardDecided) as refused:
            await port.agents.decide(OPERATOR, card.id, answer("no"))
        assert refused.value.details["decided_by"] == "me"
        await port.until(accepted, TurnStatus.COMPLETED)
        known = await port.agents.card(ME, card.id)
        assert known.verdict is not None
        assert known.verdict.value == "yes"

    async def test_of_two_who_decide_at_once_one_wins(self, port: Port) -> None:
        accepted, card = await port.parked()
        told = await asyncio.gather(
            port.agents.decide(ME, card.id, answer("mine")),
            port.agents.decide(OPERATOR, card.id, answer("theirs")),
            return_exceptions=True,
        )
        assert sorted(type(each).__name__ for each in told) == ["CardDecided", "Decided"]
        await port.until(accepted, TurnStatus.COMPLETED)

    async def test_one_of_two_questions_leaves_the_turn_parked(self, port: Port) -> None:
        accepted = await port.done("call ask ask-too")
        first, second = (await port.agents.approvals(ME, limit=10, cursor=None)).items
        decided = await port.agents.decide(ME, first.id, answer("one"))
        assert decided.turn_status is TurnStatus.PARKED
        left = await port.agents.approvals(ME, limit=10, cursor=None, conversation=accepted.conversation)
        assert [card.id for card in left.items] == [second.id]
        await port.agents.decide(ME, second.id, answer("two"))
        await port.until(accepted, TurnStatus.COMPLETED)

    async def test_decisions_that_do_not_fit_and_cards_that_are_not_there_are_refused(self, port: Port) -> None:
        _, card = await port.parked()
        with pytest.raises(BadRequest):
            await port.agents.decide(ME, card.id, Verdict(DecisionKind.APPROVE))
        with pytest.raises(UnknownCard) as refused:
            await port.agents.decide(ME, "f" * 32, answer("yes"))
        assert refused.value.details["pending"] == [card.id]
        with pytest.raises(UnknownCard):
            await port.agents.card(OTHER, card.id)

    async def test_an_answer_with_a_key_is_done_once(self, port: Port) -> None:
        accepted, card = await port.parked()
        key = RequestKey("answer", "digest")
        said = {card.interrupt_id: answer("yes")}
        first = await port.agents.answer(ME, accepted.conversation, said, key)
        again = await port.agents.answer(ME, accepted.conversation, said, key)
        assert (first.turn, again.turn, again.repeated) == (accepted.turn, accepted.turn, True)
        await port.until(accepted, TurnStatus.COMPLETED)


class TestConversations:
    async def test_lists_are_paged_newest_first_without_a_gap(self, port: Port) -> None:
        made = [(await port.done(f"message {number}")).conversation for number in range(5)]
        read: list[str] = []
        cursor: str | None = None
        while True:
            page = await port.agents.conversations(ME, limit=2, cursor=cursor, agent="agent")
            read += [each.id for each in page.items]
            cursor = page.next
            if cursor is None:
                break
        assert read == made[::-1]
        assert not (await port.agents.conversations(ME, limit=2, cursor=None, agent="another")).items

    async def test_conversations_are_found_by_what_was_said(self, port: Port) -> None:
        first = await port.done("the harbour of Odesa")
        await port.done("something else")

        async def found() -> bool:
            page = await port.agents.conversations(ME, limit=10, cursor=None, agent=None, text="answer odes")
            return [each.id for each in page.items] == [first.conversation]

        await port.comes(found)

    async def test_turns_are_listed_by_state_and_by_words(self, port: Port) -> None:
        port.world.failing.add("tool")
        failed = await port.done("call tool")
        done = await port.done("hello")
        page = await port.agents.turns(ME, limit=10, cursor=None, status=TurnStatus.FAILED, agent=None)
        assert [turn.id for turn in page.items] == [failed.turn]
        page = await port.agents.turns(ME, limit=10, cursor=None, status=None, agent=None, text=done.turn)
        assert [turn.id for turn in page.items] == [done.turn]
        page = await port.agents.turns(ME, limit=10, cursor=None, status=None, agent=None, attempts_min=2)
        assert page.items == []
        counts = await port.agents.turn_counts(ME, agent=None)
        assert (counts[TurnStatus.FAILED], counts[TurnStatus.COMPLETED]) == (1, 1)

    async def test_a_conversation_is_renamed(self, port: Port) -> None:
        accepted = await port.done("hello")
        renamed = await port.agents.rename(ME, accepted.conversation, "Harbour")
        assert renamed.title == "Harbour"
        assert (await port.agents.conversation(ME, accepted.conversation)).conversation.title == "Harbour"
        entry = (await audited(port, 1))[0]
        assert (entry.action, entry.by, entry.conversation) == ("rename", "me", accepted.conversation)

    async def test_a_deleted_conversation_is_nowhere(self, port: Port) -> None:
        accepted = await port.done("hello")
        await port.agents.delete(ME, accepted.conversation, cancel=False)
        with pytest.raises(NotFound):
            await port.agents.conversation(ME, accepted.conversation)
        with pytest.raises(NotFound):
            await port.agents.turn(ME, accepted.turn)
        assert not (await port.agents.conversations(ME, limit=10, cursor=None, agent=None)).items
        with pytest.raises(NotFound):
            await port.agents.delete(ME, accepted.conversation, cancel=False)

    async def test_a_busy_conversation_is_deleted_only_with_its_turn_cancelled(self, port: Port) -> None:
        port.world.hold("model")
        accepted = await port.send("hello")
        waiting = await port.send("more", accepted.conversation, busy="enqueue")
        with pytest.raises(TurnInProgress):
            await port.agents.delete(ME, accepted.conversation, cancel=False)
        async with port.watching(accepted.conversation) as watcher:
            await port.agents.delete(ME, accepted.conversation, cancel=True)
            frames = await watcher.to_the_end()
        assert frames[-1] == Gone(accepted.conversation)
        with pytest.raises(NotFound):
            await port.agents.turn(ME, waiting.turn)

    async def test_every_checkpoint_is_exported_oldest_first(self, port: Port) -> None:
        accepted = await port.done("hello")
        exported = [each async for each in port.agents.export(ME, accepted.conversation)]
        assert [each["parent"] for each in exported] == [None, *(each["checkpoint"] for each in exported[:-1])]
        assert [message["content"] for message in exported[-1]["values"]["messages"]] == ["hello", "answer hello"]
        with pytest.raises(NotFound):
            await anext(aiter(port.agents.export(OTHER, accepted.conversation)))

    async def test_history_is_read_page_by_page_and_one_by_one(self, port: Port) -> None:
        accepted = await port.done("hello")
        first = await port.agents.checkpoints(ME, accepted.conversation, limit=2, cursor=None)
        assert first.next is not None
        rest = await port.agents.checkpoints(ME, accepted.conversation, limit=20, cursor=first.next)
        exported = [each["checkpoint"] async for each in port.agents.export(ME, accepted.conversation)]
        assert [each["id"] for each in [*first.items, *rest.items]] == exported[::-1]
        newest = await port.agents.checkpoint(ME, accepted.conversation, exported[-1])
        assert (newest["message_count"], newest["truncated"]) == (2, False)
        with pytest.raises(NotFound):
            await port.agents.checkpoint(ME, accepted.conversation, "unknown")


class TestForks:
    async def test_a_fork_begins_before_a_message_and_says_another_one(self, port: Port) -> None:
        first = await port.done("one")
        await port.done("two", first.conversation)
        messages = (await port.agents.conversation(ME, first.conversation)).messages
        made = await port.agents.fork(
            ME,
            first.conversation,
            message=messages[2]["id"],
            checkpoint=None,
            text="three",
            title="Another way",
            request_key=None,
        )
        assert made.origin.conversation == first.conversation
        assert made.forked.turn is not None
        fork = made.forked.conversation

        async def answered() -> bool:
            transcript = await port.agents.conversation(ME, fork)
            return [each["content"] for each in transcript.messages] == ["one", "answer one", "three", "answer three"]

        await port.comes(answered)
        assert (await port.agents.conversation(ME, fork)).conversation.title == "Another way"
        (point,) = await port.agents.branches(ME, first.conversation)
        assert point.message == messages[2]["id"]
        assert [(way.branch.conversation, way.branch.current) for way in point.branches] == [
            (first.conversation, True),
            (fork, False),
        ]

    async def test_a_fork_with_a_key_is_made_once(self, port: Port) -> None:
        first = await port.done("one")
        (newest,) = (await port.agents.checkpoints(ME, first.conversation, limit=1, cursor=None)).items

        async def fork(digest: str) -> Any:
            return await port.agents.fork(
                ME,
                first.conversation,
                message=None,
                checkpoint=newest["id"],
                text=None,
                title=None,
                request_key=RequestKey("fork", digest),
            )

        made, again = await fork("digest"), await fork("digest")
        assert (again.forked.conversation, again.forked.repeated) == (made.forked.conversation, True)
        assert made.forked.turn is None
        with pytest.raises(IdempotencyConflict):
            await fork("another")

    async def test_a_fork_of_nothing_is_refused(self, port: Port) -> None:
        first = await port.done("one")
        with pytest.raises(NotFound):
            await port.agents.fork(
                ME,
                first.conversation,
                message="unknown",
                checkpoint=None,
                text=None,
                title=None,
                request_key=None,
            )
        assert list(await port.agents.branches(ME, first.conversation)) == []


class TestStreams:
    async def test_a_watcher_of_a_turn_is_told_all_of_it_and_then_the_stream_ends(self, port: Port) -> None:
        port.world.hold("model")
        accepted = await port.send("hello")
        async with port.watching(accepted.conversation, follow=False) as watcher:
            port.world.let("model")
            frames = await watcher.to_the_end()
        assert committed(frames) == list(await port.journal.events(accepted.conversation))
        assert "".join(event.payload["text"] for event in events(frames) if event.kind == "token") == "answer hello"
        seqs = [event.seq for event in events(frames)]
        assert seqs == sorted(set(seqs))

    async def test_who_comes_late_gets_what_has_streamed(self, port: Port) -> None:
        port.world.hold("word 0")
        accepted = await port.send("hello")
        async with asyncio.timeout(60):
            await port.world.entered["word 0"].wait()
        async with port.watching(accepted.conversation, follow=False) as watcher:
            await watcher.until(lambda frames: any(event.kind == "token" for event in events(frames)))
            port.world.let("word 0")
            frames = await watcher.to_the_end()
        assert "".join(event.payload["text"] for event in events(frames) if event.kind == "token") == "answer hello"

    async def test_an_ended_turn_is_told_by_its_end(self, port: Port) -> None:
        accepted = await port.done("hello")
        (ending,) = await port.frames(accepted.conversation)
        assert events([ending])[0].payload == {"status": "completed"}

    async def test_a_cursor_goes_on_where_it_stands(self, port: Port) -> None:
        accepted = await port.done("call tool")
        recorded = list(await port.journal.events(accepted.conversation))
        for event in recorded[:-1]:
            frames = await port.frames(accepted.conversation, after=event.seq)
            assert frames == [each for each in recorded if each.seq > event.seq]

    async def test_a_cursor_that_is_unknown_is_told_to_start_again(self, port: Port) -> None:
        accepted = await port.done("hello")
        frames = await port.frames(accepted.conversation, after=10_000)
        assert isinstance(frames[0], Reset)
        assert frames[0].turn == accepted.turn
        assert frames[1:] == list(await port.journal.events(accepted.conversation))

    async def test_a_stream_that_stays_open_tells_the_next_turn(self, port: Port) -> None:
        first = await port.done("one")
        async with port.watching(first.conversation) as watcher:
            second = await port.send("two", first.conversation)
            await watcher.until(
                lambda frames: any(event.terminal and event.turn == second.turn for event in events(frames))
            )
            frames = list(watcher.frames)
        recorded = await port.journal.events(first.conversation)
        assert [event for event in committed(frames) if event.turn == second.turn] == [
            event for event in recorded if event.turn == second.turn
        ]

    async def test_a_resumed_turn_is_reset_to_what_is_retained(self, port: Port) -> None:
        port.world.failing.add("tool")
        accepted = await port.done("call tool")
        before = await port.frames(accepted.conversation, after=0)
        port.world.failing.clear()
        last = events(before)[-1].seq
        async with port.watching(accepted.conversation, after=last) as watcher:
            await port.agents.resume(ME, accepted.conversation)
            await watcher.until(lambda frames: any(event.kind is EventKind.END for event in events(frames)))
            frames = list(watcher.frames)
        assert sum(isinstance(frame, Reset) for frame in frames) == 1
        fresh = await port.frames(accepted.conversation, after=0)
        recorded = list(await port.journal.events(accepted.conversation))
        assert folded(shown([*before, *frames])) == folded(shown(fresh)) == folded(shown(recorded))

    async def test_two_watchers_are_told_the_same(self, port: Port) -> None:
        port.world.hold("model")
        accepted = await port.send("call tool")
        async with (
            port.watching(accepted.conversation, follow=False) as one,
            port.watching(accepted.conversation, follow=False, person=OPERATOR) as other,
        ):
            port.world.let("model")
            assert committed(await one.to_the_end()) == committed(await other.to_the_end())

    async def test_a_conversation_that_is_not_there_is_not_watched(self, port: Port) -> None:
        with pytest.raises(NotFound):
            await port.agents.follow(ME, "f" * 32, after=None, follow=False)

    async def test_the_lists_are_told_what_changed(self, port: Port) -> None:
        accepted = await port.done("hello")
        told = await changes(await port.agents.changes(ME, after=0), 2)
        assert all(isinstance(change, Change) and change.conversation == accepted.conversation for change in told)
        numbers = [change.number for change in told if isinstance(change, Change)]
        assert numbers == sorted(set(numbers))
        (later,) = await changes(await port.agents.changes(ME, after=numbers[0]), 1)
        assert later == told[1]

    async def test_news_of_the_lists_come_while_one_listens(self, port: Port) -> None:
        first = await port.done("one")
        stream = await port.agents.changes(ME, after=None)
        await port.agents.rename(ME, first.conversation, "Another name")
        (told,) = await changes(stream, 1)
        assert isinstance(told, Change)
        assert (told.conversation, told.status) == (first.conversation, "updated")

    async def test_a_cursor_of_the_lists_that_is_unknown_is_told_to_read_again(self, port: Port) -> None:
        await port.done("hello")
        (told,) = await changes(await port.agents.changes(ME, after=1_000_000), 1)
        assert isinstance(told, ListsReset)


class TestPeople:
    async def test_what_is_anothers_is_nowhere(self, port: Port) -> None:
        accepted, card = await port.parked()
        conversation = accepted.conversation
        for asking in (
            port.agents.conversation(OTHER, conversation),
            port.agents.turn(OTHER, accepted.turn),
            port.agents.events(OTHER, accepted.turn, limit=5, cursor=None, kind=None),
            port.agents.cancel(OTHER, accepted.turn),
            port.agents.rename(OTHER, conversation, "mine now"),
            port.agents.delete(OTHER, conversation, cancel=True),
            port.agents.resume(OTHER, conversation),
            port.agents.answer(OTHER, conversation, {card.interrupt_id: answer("yes")}),
            port.agents.decide(OTHER, card.id, answer("yes")),
            port.agents.branches(OTHER, conversation),
            port.agents.checkpoints(OTHER, conversation, limit=5, cursor=None),
            port.agents.checkpoint(OTHER, conversation, "any"),
            port.agents.follow(OTHER, conversation, after=None, follow=False),
            port.send("hello", conversation, person=OTHER),
        ):
            with pytest.raises(NotFound):
                await asking
        assert not (await port.agents.conversations(OTHER, limit=5, cursor=None, agent=None)).items
        assert not (await port.agents.approvals(OTHER, limit=5, cursor=None)).items
        assert not (await port.agents.turns(OTHER, limit=5, cursor=None, status=None, agent=None)).items
        assert not any((await port.agents.turn_counts(OTHER, agent=None)).values())
        assert (await port.agents.card(ME, card.id)).verdict is None

    async def test_an_operator_reads_decides_and_cancels_but_neither_speaks_nor_renames(self, port: Port) -> None:
        accepted, card = await port.parked()
        assert (await port.said(accepted, OPERATOR))[0] == "user: call ask"
        assert [each.id for each in (await port.agents.approvals(OPERATOR, limit=5, cursor=None)).items] == [card.id]
        with pytest.raises(Forbidden, match="conversations of one's own"):
            await port.send("hello", accepted.conversation, person=OPERATOR)
        with pytest.raises(Forbidden, match="only its owner"):
            await port.agents.rename(OPERATOR, accepted.conversation, "theirs")
        with pytest.raises(Forbidden, match="only its owner"):
            await port.agents.delete(OPERATOR, accepted.conversation, cancel=True)
        await port.agents.decide(OPERATOR, card.id, answer("yes"))
        await port.until(accepted, TurnStatus.COMPLETED)

    async def test_the_servers_own_token_renames_and_deletes_everything(self, port: Port) -> None:
        accepted = await port.done("hello")
        assert (await port.agents.rename(ADMIN, accepted.conversation, "tidied")).title == "tidied"
        await port.agents.delete(ADMIN, accepted.conversation, cancel=False)
        with pytest.raises(NotFound):
            await port.agents.conversation(ME, accepted.conversation)

    async def test_who_did_what_is_kept(self, port: Port) -> None:
        accepted, card = await port.parked()
        await port.agents.decide(OPERATOR, card.id, answer("yes"))
        await port.until(accepted)
        await port.agents.rename(ME, accepted.conversation, "Named")
        entries = await audited(port, 2)
        assert [(entry.action, entry.by) for entry in entries] == [("rename", "me"), ("decide", "boss")]
        mine = await port.agents.audit(ME, limit=1, cursor=None)
        assert mine.next is not None
        assert not (await port.agents.audit(OTHER, limit=5, cursor=None)).items

    async def test_tokens_are_made_and_revoked_by_the_servers_own_token_alone(self, port: Port) -> None:
        made = await port.agents.create_token(ADMIN, "ada", Role.USER, "hash")
        assert (made.name, made.role, made.created_by) == ("ada", Role.USER, "admin")
        known = await port.agents.token_of("hash")
        assert known is not None
        assert known.name == "ada"
        for asking in (
            port.agents.create_token(OPERATOR, "eve", Role.OPERATOR, "other"),
            port.agents.revoke_token(OPERATOR, "ada"),
            port.agents.tokens(OPERATOR),
        ):
            with pytest.raises(Forbidden):
                await asking
        with pytest.raises(BadRequest):
            await port.agents.create_token(ADMIN, "admin", Role.USER, "third")
        await port.agents.revoke_token(ADMIN, "ada")
        assert await port.agents.token_of("hash") is None
        assert [token.name for token in await port.agents.tokens(ADMIN)] == ["ada"]

    async def test_decisions_carry_the_name_of_who_made_them(self, port: Port) -> None:
        _, card = await port.parked()
        colleague = Person("ada", "me", Role.USER)
        decided = await port.agents.decide(colleague, card.id, answer("yes"))
        assert decided.card.verdict is not None
        assert decided.card.verdict.by == "ada"


class TestServer:
    async def test_the_agents_of_a_server_are_told(self, port: Port) -> None:
        (info,) = port.agents.agents()
        assert (info.name, info.input, info.default, info.reach) == ("agent", "message", True, Reach.REACHABLE)

    async def test_what_serves_is_told_and_the_database_to_who_sees_everything(self, port: Port) -> None:
        info = await port.agents.server(OPERATOR)
        assert (info.draining, len(info.workers)) == (False, 1)
        assert info.database is not None
        assert info.database.bytes > 0
        assert (await port.agents.server(ME)).database is None

    async def test_it_is_ready(self, port: Port) -> None:
        assert await port.agents.unready() is None


async def audited(port: Port, count: int) -> Any:
    """The newest entries, once there are so many."""

    async def there() -> bool:
        return len((await port.agents.audit(OPERATOR, limit=count, cursor=None)).items) == count

    await port.comes(there)
    return (await port.agents.audit(OPERATOR, limit=count, cursor=None)).items


class TestForgetting:
    """What only a gateway can do, and what every shape refuses in the same words of HTTP."""

    async def test_an_agent_that_is_there_is_not_forgotten(self, port: Port) -> None:
        accepted = await port.done("hello")
        with pytest.raises(AgentInUse):
            await port.agents.forget(OPERATOR, "agent")
        assert [each.name for each in port.agents.agents()] == ["agent"]
        assert await port.said(accepted) == ["user: hello", "assistant: answer hello"]

    async def test_one_that_nobody_knows_is_not_found(self, port: Port) -> None:
        with pytest.raises(NotFound):
            await port.agents.forget(ADMIN, "nobody")
        assert (await port.agents.audit(ADMIN, limit=5, cursor=None)).items == []

    async def test_only_an_operator_may_ask_for_it(self, port: Port) -> None:
        for agent in ("agent", "nobody"):
            with pytest.raises(Forbidden):
                await port.agents.forget(ME, agent)
