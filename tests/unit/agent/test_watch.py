"""What a watcher gets: whatever happens to it or to the server, its fold equals the fold of the journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

from perdure.agent.watch import watch
from perdure.errors import BadRequest, NotFound, TurnInProgress, TurnNotResumable
from perdure.events import Event, EventKind, Fold, Frame, Gone, ListsReset, Reached, Reset
from perdure.turns import Accepted, Change, DecisionKind, Person, TurnStatus, Verdict
from tests.unit.engine.graphs import PATIENCE_SECONDS, World, agent, chain
from tests.unit.engine.house import ME, OWNER, House, folded, hosted, open_house


class Watcher:
    """Reads a stream in the background and keeps what it got."""

    def __init__(self, house: House, accepted: Accepted, after: int | None = None, *, follow: bool = False) -> None:
        self.frames: list[Frame] = []
        self.gone = False
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._read(house, accepted, after, follow))
        self._task.add_done_callback(lambda _: self._changed.set())

    async def _read(self, house: House, accepted: Accepted, after: int | None, follow: bool) -> None:
        stream: AsyncIterator[Frame | Gone] = await house.agents.follow(
            ME, accepted.conversation, after=after, follow=follow
        )
        async for frame in stream:
            if isinstance(frame, Gone):
                self.gone = True
            else:
                self.frames.append(frame)
            self._changed.set()

    async def until(self, condition: Any) -> None:
        """Raises what ended the reading before that."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                self._changed.clear()
                if self._task.done():
                    self._task.result()
                    raise AssertionError(f"the stream ended before: {self.frames}")
                await self._changed.wait()

    async def comes(self) -> None:
        """What is told from now on, it is told live."""
        await self.until(lambda: self.frames)

    async def end(self) -> list[Frame]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._task
        return self.frames

    async def leave(self) -> list[Frame]:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return self.frames

    @property
    def tokens(self) -> list[Event]:
        return [each for each in self.frames if isinstance(each, Event) and each.kind is EventKind.TOKEN]

    @property
    def resets(self) -> list[Reset]:
        return [each for each in self.frames if isinstance(each, Reset)]

    @property
    def cursor(self) -> int:
        return max(each.seq for each in self.frames if isinstance(each, Event))


async def recorded(house: House, accepted: Accepted) -> Any:
    return folded(list(await house.journal(accepted)))


async def test_a_watcher_from_the_start_sees_what_is_recorded(tmp_path: Path) -> None:
    world = World()
    world.hold("model")
    async with open_house(tmp_path / "db", hosted("agent", agent(world))) as house:
        accepted = await house.send("call a")
        watcher = Watcher(house, accepted)
        await world.met("model")
        await watcher.comes()
        world.let("model")
        frames = await watcher.end()
        assert folded(frames) == await recorded(house, accepted)
        assert "".join(token.payload["text"] for token in watcher.tokens) == "Calling. answer call a"
        seqs = [frame.seq for frame in frames if isinstance(frame, Event)]
        assert seqs == sorted(set(seqs))


async def test_a_watcher_that_left_anywhere_goes_on_from_its_last_event(tmp_path: Path) -> None:
    world = World()
    world.hold("model")
    async with open_house(tmp_path / "db", hosted("agent", agent(world))) as house:
        accepted = await house.send("call a")
        first = Watcher(house, accepted)
        await world.met("model")
        await first.comes()
        world.let("model")
        frames = await first.end()
        for index, frame in enumerate(frames[:-1]):
            assert isinstance(frame, Event)
            rest = await house.frames(accepted, after=frame.seq)
            assert folded([*frames[: index + 1], *rest]) == await recorded(house, accepted)
            assert isinstance(rest[-1], Event)
            assert rest[-1].terminal


async def test_a_watcher_that_comes_in_the_middle_gets_the_text_so_far(tmp_path: Path) -> None:
    world = World()
    world.hold("word 1")
    async with open_house(tmp_path / "db", hosted("agent", agent(world))) as house:
        accepted = await house.send("hello")
        early = Watcher(house, accepted)
        await early.until(lambda: "".join(each.payload["text"] for each in early.tokens) == "answer hello")
        late = Watcher(house, accepted)
        await late.until(lambda: "".join(each.payload["text"] for each in late.tokens) == "answer hello")
        again = Watcher(house, accepted, after=early.tokens[0].seq)
        await again.until(lambda: again.tokens)
        assert again.resets == []
        assert [each.seq for each in again.tokens] == [each.seq for each in early.tokens[1:]]
        world.let("word 1")
        assert folded(await late.end()) == folded(await early.end()) == await recorded(house, accepted)


async def test_an_ended_turn_is_answered_once_with_its_end(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        accepted = await house.send("hello")
        await house.until(accepted)
        (only,) = await house.frames(accepted)
        assert isinstance(only, Event)
        assert (only.kind, only.payload["status"]) == (EventKind.END, "completed")
        assert await house.frames(accepted, after=only.seq) == [only]


async def test_an_end_that_is_committed_while_the_watcher_comes_is_told_once(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        accepted = await house.send("hello")
        turn = await house.until(accepted)
        end = (await house.journal(accepted))[-1]
        with house.transport.subscribe(accepted.conversation) as live:
            house.transport.publish(end)
            later = replace(end, seq=end.seq + 1, kind=EventKind.TRACE, payload={})
            house.transport.publish(later)
            frames = watch(house.store, live, turn, accepted.conversation, None, follow=True)
            assert [await anext(frames), await anext(frames)] == [end, later]
            await frames.aclose()  # type: ignore[attr-defined]


async def test_a_following_watcher_stays_across_turns_and_another_does_not(tmp_path: Path) -> None:
    world = World()
    world.hold("model")
    async with open_house(tmp_path / "db", hosted("agent", agent(world))) as house:
        first = await house.send("one")
        second = await house.send("two", first.conversation, busy="enqueue")
        following, single = Watcher(house, first, follow=True), Watcher(house, first)
        await world.met("model")
        for watcher in (following, single):
            await watcher.comes()
        world.let("model")
        frames = await single.end()
        assert isinstance(frames[-1], Event)
        assert frames[-1].turn == first.turn
        await following.until(
            lambda: any(
                isinstance(each, Event) and each.terminal and each.turn == second.turn for each in following.frames
            )
        )
        assert folded(await following.leave()) == await recorded(house, first)


async def test_the_end_of_a_turn_that_waited_does_not_end_the_stream_of_the_one_that_works(tmp_path: Path) -> None:
    world = World()
    world.hold("model")
    async with open_house(tmp_path / "db", hosted("agent", agent(world))) as house:
        works = await house.send("one")
        await world.met("model")
        waits = await house.send("two", works.conversation, busy="enqueue")
        live = Watcher(house, works)
        await live.comes()
        await house.agents.cancel(ME, waits.turn)
        late, from_the_start = Watcher(house, works), Watcher(house, works, after=0)
        for watcher in (late, from_the_start):
            await watcher.comes()
        world.let("model")
        for watcher in (live, late, from_the_start):
            ends = [each.turn for each in await watcher.end() if isinstance(each, Event) and each.terminal]
            assert ends == [waits.turn, works.turn]
        (only,) = await house.frames(works)
        assert isinstance(only, Event)
        assert only.turn == works.turn


async def test_the_end_that_a_resume_undid_does_not_end_the_stream(tmp_path: Path) -> None:
    world = World(failing={"model"})
    async with open_house(tmp_path / "db", hosted("agent", agent(world))) as house:
        accepted = await house.send("hello")
        await house.until(accepted, TurnStatus.FAILED)
        start = (await house.turn(accepted)).first_seq
        world.failing.clear()
        await house.agents.resume(ME, accepted.conversation)
        frames = await house.frames(accepted, after=start)
        last = frames[-1]
        assert isinstance(last, Event)
        assert (last.kind, last.payload["status"]) == (EventKind.END, "completed")


async def test_a_live_rewind_becomes_a_reset_and_exactly_the_retained_events(tmp_path: Path) -> None:
    world = World(failing={"word 0"})
    async with open_house(tmp_path / "db", hosted("agent", agent(world))) as house:
        accepted = await house.send("call a")
        watcher = Watcher(house, accepted, follow=True)
        await house.until(accepted, TurnStatus.FAILED)
        await watcher.until(lambda: any(isinstance(each, Event) and each.terminal for each in watcher.frames))
        world.failing.clear()
        await house.agents.resume(ME, accepted.conversation)
        await house.until(accepted, TurnStatus.COMPLETED)
        await watcher.until(
            lambda: any(isinstance(each, Event) and each.kind is EventKind.END for each in watcher.frames)
        )
        frames = await watcher.leave()
        (reset,) = watcher.resets
        assert reset.reason == "resumed"
        after = frames[frames.index(reset) + 1 :]
        retained = [event for event in await house.journal(accepted) if event.kind is not EventKind.REWIND]
        assert [each for each in after if isinstance(each, Event) and each.kind is not EventKind.TOKEN] == retained
        assert folded(frames) == await recorded(house, accepted)


@pytest.mark.parametrize("follow", [False, True])
async def test_text_of_a_dead_process_is_taken_back_when_the_watcher_returns(tmp_path: Path, follow: bool) -> None:
    world = World()
    world.hold("word 1")
    graph = hosted("agent", agent(world))
    async with open_house(tmp_path / "db", graph) as house:
        accepted = await house.send("hello")
        watcher = Watcher(house, accepted)
        await watcher.until(lambda: watcher.tokens)
        seen = await watcher.leave()
        await house.die()
    world.held.clear()
    async with open_house(tmp_path / "db", graph, start=False) as house:
        again = Watcher(house, accepted, after=watcher.cursor, follow=follow)
        await again.until(lambda: again.resets)
        assert again.resets[0].reason == "reconnected"
        await house.worker.start()
        await again.until(lambda: any(isinstance(each, Event) and each.terminal for each in again.frames))
        frames = await again.leave()
        assert [reset.reason for reset in again.resets] == ["reconnected", "recovered"]
        assert folded([*seen, *frames]) == await recorded(house, accepted)


async def test_a_cursor_before_a_rewind_gets_the_reset_on_its_return(tmp_path: Path) -> None:
    world = World()
    world.hold("word 1")
    graph = hosted("agent", agent(world))
    async with open_house(tmp_path / "db", graph) as house:
        accepted = await house.send("hello")
        watcher = Watcher(house, accepted)
        await watcher.until(lambda: watcher.tokens)
        seen = await watcher.leave()
        await house.die()
    world.held.clear()
    async with open_house(tmp_path / "db", graph) as house:
        await house.until(accepted, TurnStatus.COMPLETED)
        frames = await house.frames(accepted, after=watcher.cursor)
        (reset,) = [frame for frame in frames if isinstance(frame, Reset)]
        assert (frames[0], reset.reason) == (reset, "recovered")
        assert folded([*seen, *frames]) == await recorded(house, accepted)


async def test_a_cursor_of_another_journal_starts_the_turn_again(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        accepted = await house.send("hello")
        await house.until(accepted)
        reset, *rest = await house.frames(accepted, after=10**9)
        assert isinstance(reset, Reset)
        assert reset.reason == "cursor_unknown"
        assert Fold().apply_all(rest).turns[accepted.turn].ending == {"status": "completed"}
        assert folded([reset, *rest]) == await recorded(house, accepted)


async def test_a_watcher_of_a_parked_turn_waits_with_it(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        accepted = await house.send("call ask")
        await house.until(accepted, TurnStatus.PARKED)
        watcher = Watcher(house, accepted)
        await watcher.until(
            lambda: any(isinstance(each, Event) and each.kind is EventKind.APPROVAL for each in watcher.frames)
        )
        (card,) = await house.store.cards(OWNER, accepted.turn)
        await house.agents.answer(
            ME, accepted.conversation, {card.interrupt_id: Verdict(DecisionKind.ANSWER, value="yes")}
        )
        assert folded(await watcher.end()) == await recorded(house, accepted)
        assert watcher.resets == []


async def test_a_conversation_of_somebody_else_is_not_found(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        accepted = await house.send("hello")
        with pytest.raises(NotFound):
            await house.agents.follow(Person("you", "you"), accepted.conversation, after=None, follow=False)


async def test_lists_are_told_of_changes_after_a_cursor(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        accepted = await house.send("hello")
        await house.until(accepted)
        seen: list[tuple[str, str]] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for change in await house.agents.changes(ME, after=0):
                assert isinstance(change, Change)
                seen.append((change.kind, change.status))
                if change.status == "completed":
                    break
        assert seen == [
            ("conversation", "created"),
            ("turn", "queued"),
            ("turn", "running"),
            ("turn", "completed"),
        ]


async def test_a_stream_that_follows_a_conversation_ends_when_it_is_deleted(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        accepted, other = await house.send("hello"), await house.send("hello")
        await house.until(accepted)
        await house.until(other)
        watcher, elsewhere = Watcher(house, accepted, follow=True), Watcher(house, other, follow=True)
        for each in (watcher, elsewhere):
            await each.until(
                lambda each=each: any(isinstance(frame, Event) and frame.terminal for frame in each.frames)
            )
        late = await house.agents.follow(ME, accepted.conversation, after=None, follow=True)
        await house.agents.delete(ME, accepted.conversation, cancel=False)
        await watcher.end()
        assert watcher.gone
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert [frame async for frame in late] == [Gone(accepted.conversation)]
        await house.until(await house.send("again", other.conversation))
        await elsewhere.until(lambda: sum(isinstance(each, Event) and each.terminal for each in elsewhere.frames) == 2)
        assert not elsewhere.gone
        await elsewhere.leave()


async def some_changes(house: House, after: int, count: int) -> list[Change | ListsReset]:
    found: list[Change | ListsReset] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for change in await house.agents.changes(ME, after=after):
            assert not isinstance(change, Reached)  # agents of this process are never away
            found.append(change)
            if len(found) == count:
                break
    return found


async def test_a_list_whose_cursor_lies_beyond_the_journal_is_told_to_start_again_and_goes_on(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        await house.until(await house.send("hello"))
        last = await house.store.last_change(OWNER)
        listening = asyncio.create_task(some_changes(house, last + 40, 2))
        while not listening.done():
            await house.until(await house.send("again"))
        reset, change = await listening
        assert reset == ListsReset("cursor_unknown")
        assert isinstance(change, Change)
        assert change.number > last


async def test_a_list_whose_cursor_was_pruned_is_told_to_start_again_and_gets_what_is_retained(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        await house.until(await house.send("hello"))
        last = await house.store.last_change(OWNER)
        await house.store.prune(datetime.now(UTC) + timedelta(days=1), dry_run=False)
        await house.until(await house.send("again"))
        reset, change = await some_changes(house, last - 1, 2)
        assert reset == ListsReset("cursor_unknown")
        assert isinstance(change, Change)
        assert change.number >= last


async def test_a_known_cursor_and_the_beginning_need_no_reset(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", agent(World()))) as house:
        await house.until(await house.send("hello"))
        for after in (0, 1, 2):
            (change,) = await some_changes(house, after, 1)
            assert isinstance(change, Change)
            assert change.number == after + 1


async def test_deleting_a_busy_conversation_cancels_and_waits_only_when_asked(tmp_path: Path) -> None:
    world = World()
    world.hold("model")
    async with open_house(tmp_path / "db", hosted("agent", agent(world))) as house:
        first = await house.send("one")
        await house.send("two", first.conversation, busy="enqueue")
        await world.met("model")
        with pytest.raises(TurnInProgress):
            await house.agents.delete(ME, first.conversation, cancel=False)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await house.agents.delete(ME, first.conversation, cancel=True)
        with pytest.raises(NotFound):
            await house.agents.conversation(ME, first.conversation)
        world.let("model")


async def test_an_export_tells_every_checkpoint_oldest_first(tmp_path: Path) -> None:
    async with open_house(tmp_path / "db", hosted("agent", chain(World(), "one"))) as house:
        accepted = await house.send({"done": ["zero"]})
        await house.until(accepted)
        lines = [line async for line in house.agents.export(ME, accepted.conversation)]
        assert [line["source"] for line in lines] == ["input", "loop", "loop"]
        assert [line["parent"] for line in lines[1:]] == [line["checkpoint"] for line in lines[:-1]]
        assert lines[-1]["values"] == {"done": ["zero", "one"]}
        assert {line["turn"] for line in lines} == {accepted.turn}


async def test_an_export_leaves_out_what_the_model_thought(tmp_path: Path) -> None:
    thought = AIMessage(content="42", additional_kwargs={"reasoning_content": "six times seven"})

    async def think(state: MessagesState) -> MessagesState:
        return {"messages": [thought]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", think)
    graph.add_edge(START, "model")
    async with open_house(tmp_path / "db", hosted("agent", graph.compile())) as house:
        accepted = await house.send("what is it?")
        await house.until(accepted)
        read = await house.agents.conversation(ME, accepted.conversation)
        assert read.messages[-1]["reasoning"] == "six times seven"
        lines = [line async for line in house.agents.export(ME, accepted.conversation)]
        assert "42" in str(lines) and "six times seven" not in str(lines)


async def test_bad_input_is_refused_with_what_the_agent_takes(tmp_path: Path) -> None:
    agents = [hosted("talker", agent(World())), hosted("values", chain(World(), "one"))]
    async with open_house(tmp_path / "db", *agents, start=False) as house:
        with pytest.raises(BadRequest, match="talker, values"):
            await house.send("hello", agent="nobody")
        with pytest.raises(BadRequest, match="takes JSON"):
            await house.send("hello", agent="values")
        with pytest.raises(BadRequest, match="takes a text"):
            await house.send({"done": []}, agent="talker")
        with pytest.raises(BadRequest, match="empty"):
            await house.send(" \n ", agent="talker")
        accepted = await house.send("first line\nsecond", agent="talker")
        with pytest.raises(BadRequest, match="belongs to"):
            await house.send("hello", accepted.conversation, agent="values")
        assert (await house.store.conversation(OWNER, accepted.conversation)).title == "first line"


async def test_what_cannot_be_resumed_says_why(tmp_path: Path) -> None:
    world = World(failing={"a"})
    async with open_house(tmp_path / "db", hosted("agent", agent(world))) as house:
        done = await house.send("hello")
        await house.until(done)
        with pytest.raises(TurnNotResumable, match="completed"):
            await house.agents.resume(ME, done.conversation)
        failed = await house.send("call a")
        await house.until(failed)
        assert (await house.agents.turn(ME, failed.turn)).resumable
        assert (await house.agents.conversation(ME, failed.conversation)).resumable
        await house.until(await house.send("next", failed.conversation))
        assert not (await house.agents.turn(ME, failed.turn)).resumable


async def test_a_failed_turn_can_be_resumed_when_one_that_waited_was_cancelled(tmp_path: Path) -> None:
    world = World(failing={"model"})
    world.hold("model")
    async with open_house(tmp_path / "db", hosted("agent", agent(world))) as house:
        fails = await house.send("one")
        await world.met("model")
        waits = await house.send("two", fails.conversation, busy="enqueue")
        await house.agents.cancel(ME, waits.turn)
        world.let("model")
        await house.until(fails, TurnStatus.FAILED)
        shown = await house.agents.conversation(ME, fails.conversation)
        assert (shown.conversation.status, shown.resumable) == (TurnStatus.FAILED, True)
        (listed,) = (await house.agents.conversations(ME, limit=10, cursor=None, agent=None)).items
        assert listed.status is TurnStatus.FAILED
        assert (await house.agents.turn(ME, fails.turn)).resumable
        assert not (await house.agents.turn(ME, waits.turn)).resumable
        world.failing.clear()
        resumed = await house.agents.resume(ME, fails.conversation)
        assert resumed.turn == fails.turn
        await house.until(fails, TurnStatus.COMPLETED)
