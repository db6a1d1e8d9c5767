"""The port over NATS where agents are away, slow, unknown or several; what all ports share is in tests/conformance."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perdure.agent import remote_writes
from perdure.agent.people import LOCAL_OWNER
from perdure.errors import AgentUnavailable, BadRequest, CardDecided, NotFound, NotReady, UnknownCard
from perdure.events import Event, EventKind, Gone, Reached, Unfollowed
from perdure.replication import Reach
from perdure.transport.nats.wire import News
from perdure.turns import CardState, DecisionKind, Person, RequestKey, Role, TurnStatus, Verdict
from tests.unit.agent.desk import IN_VAIN_SECONDS, Desk, open_desk
from tests.unit.engine.house import ME

OPERATOR = Person("boss", LOCAL_OWNER, Role.OPERATOR)
OTHER = Person("other", "other", Role.USER)
YES = Verdict(DecisionKind.ANSWER, value="yes")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with open_desk(tmp_path) as opened:
        yield opened


async def done(desk: Desk, text: str, conversation: str | None = None) -> Any:
    accepted = await desk.send(text, conversation)
    await desk.house.until(accepted)
    await desk.copied(accepted)
    return accepted


def said(transcript: Any) -> list[tuple[str, str]]:
    return [(each["role"], each["content"]) for each in transcript.messages]


class TestReading:
    async def test_what_was_read_once_is_read_when_the_agent_is_away(self, desk: Desk) -> None:
        accepted = await done(desk, "hello")
        before = await desk.port.conversation(ME, accepted.conversation)
        await desk.lose()
        after = await desk.port.conversation(ME, accepted.conversation)
        assert said(after) == said(before) == [("user", "hello"), ("assistant", "answer hello")]
        assert (before.reach, after.reach) == (Reach.REACHABLE, Reach.UNREACHABLE)
        assert after.turns == before.turns

    async def test_what_happened_since_is_laid_on_top(self, desk: Desk) -> None:
        first = await done(desk, "one")
        await desk.port.conversation(ME, first.conversation)
        await done(desk, "two", first.conversation)
        await desk.lose()
        transcript = await desk.port.conversation(ME, first.conversation)
        assert [content for _, content in said(transcript)] == ["one", "answer one", "two", "answer two"]

    async def test_what_was_never_read_is_told_from_its_events(self, desk: Desk) -> None:
        accepted = await done(desk, "call tool")
        await desk.lose()
        transcript = await desk.port.conversation(ME, accepted.conversation)
        assert [role for role, _ in said(transcript)] == ["user", "assistant", "tool", "assistant"]

    async def test_an_agent_that_does_not_answer_in_time_is_told_as_away(self, desk: Desk) -> None:
        accepted = await done(desk, "hello")
        desk.asks.refusing["threads/get"] = AgentUnavailable("too slow")
        transcript = await desk.port.conversation(ME, accepted.conversation)
        assert (transcript.reach, len(transcript.messages)) == (Reach.UNREACHABLE, 2)

    async def test_without_nats_the_copy_is_read_without_a_question(self, desk: Desk) -> None:
        accepted = await done(desk, "hello")
        desk.directory.disconnected()
        asked = len(desk.asks.calls)
        transcript = await desk.port.conversation(ME, accepted.conversation)
        assert transcript.reach is Reach.DISCONNECTED
        assert (await desk.port.turn(ME, accepted.turn)).turn.status is TurnStatus.COMPLETED
        assert list(await desk.port.branches(ME, accepted.conversation)) == []
        assert len(desk.asks.calls) == asked

    async def test_whether_a_turn_can_be_resumed_is_remembered_until_something_happens(self, desk: Desk) -> None:
        desk.world.failing.add("tool")
        accepted = await done(desk, "call tool")
        assert (await desk.port.conversation(ME, accepted.conversation)).resumable
        assert (await desk.port.turn(ME, accepted.turn)).resumable
        await desk.lose()
        assert (await desk.port.conversation(ME, accepted.conversation)).resumable
        assert (await desk.port.turn(ME, accepted.turn)).resumable

    async def test_a_kept_transcript_is_written_when_it_changes_and_not_at_every_look(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        accepted = await done(desk, "one")
        kept: list[int] = []
        keep = desk.replica.keep_transcript

        async def counted(conversation: str, transcript: Any) -> None:
            kept.append(transcript.seq)
            await keep(conversation, transcript)

        monkeypatch.setattr(desk.replica, "keep_transcript", counted)
        for _ in range(3):
            await desk.port.conversation(ME, accepted.conversation)
        assert len(kept) == 1
        await done(desk, "two", accepted.conversation)
        await desk.port.conversation(ME, accepted.conversation)
        assert len(kept) == 2

    async def test_reading_what_the_copy_holds_writes_nothing(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        accepted = await done(desk, "one")
        await desk.feed.refresh("agent", accepted.conversation)
        await desk.port.conversation(ME, accepted.conversation)
        applied: list[str] = []
        apply = desk.replica.apply

        async def counted(agent: str, rows: Any) -> None:
            applied.append(agent)
            await apply(agent, rows)

        monkeypatch.setattr(desk.replica, "apply", counted)
        await desk.port.conversation(ME, accepted.conversation)
        await desk.port.turn(ME, accepted.turn)
        assert applied == []
        await desk.house.agents.rename(ME, accepted.conversation, "Renamed")
        transcript = await desk.port.conversation(ME, accepted.conversation)
        assert (transcript.conversation.title, applied) == ("Renamed", ["agent"])

    async def test_what_is_the_agents_alone_is_refused_at_once_when_it_is_away(self, desk: Desk) -> None:
        accepted = await done(desk, "hello")
        await desk.lose()
        asked = len(desk.asks.calls)
        for asking in (
            desk.port.checkpoints(ME, accepted.conversation, limit=5, cursor=None),
            desk.port.checkpoint(ME, accepted.conversation, "any"),
            anext(aiter(desk.port.export(ME, accepted.conversation))),
        ):
            with pytest.raises(AgentUnavailable):
                await asking
        assert list(await desk.port.branches(ME, accepted.conversation)) == []
        assert len(desk.asks.calls) == asked

    async def test_a_conversation_that_the_agent_has_deleted_is_not_told_from_the_copy(self, desk: Desk) -> None:
        accepted = await done(desk, "hello")
        await desk.house.agents.delete(ME, accepted.conversation, cancel=False)
        with pytest.raises(NotFound):
            await desk.port.conversation(ME, accepted.conversation)


class TestWhereabouts:
    async def test_what_was_accepted_is_known_here_though_its_end_could_not_be_fetched(self, desk: Desk) -> None:
        """A request that was sent again reached the agent after its turn had ended, and NATS was lost before the end came."""
        key = RequestKey("key", "digest")
        said = {"message": "hello"}
        before = await desk.house.agents.start(
            ME, input=said, conversation=None, agent=None, when_busy="reject", request_key=key
        )
        await desk.house.until(before)
        desk.asks.refusing["journal/read"] = AgentUnavailable("lost")

        accepted = await desk.port.start(
            ME, input=said, conversation=None, agent=None, when_busy="reject", request_key=key
        )

        assert (accepted.conversation, accepted.turn) == (before.conversation, before.turn)
        assert (await desk.replica.conversation(ME.scope, accepted.conversation)).agent == "agent"
        with pytest.raises(NotFound):
            await desk.replica.turn(ME.scope, accepted.turn)
        desk.asks.refusing.clear()
        await desk.feed.refresh("agent", accepted.conversation)
        assert (await desk.replica.turn(ME.scope, accepted.turn)).status is TurnStatus.COMPLETED

    async def test_what_the_copy_does_not_know_is_looked_up(self, desk: Desk) -> None:
        accepted = await desk.behind("hello")
        assert len((await desk.port.conversation(ME, accepted.conversation)).messages) == 2
        other = await desk.behind("again")
        assert (await desk.port.turn(ME, other.turn)).turn.status is TurnStatus.COMPLETED
        parked = await desk.behind("call ask")
        (card,) = await desk.house.waiting(parked)
        assert (await desk.port.decide(ME, card.id, YES)).card.id == card.id

    async def test_what_is_looked_up_stays_anothers(self, desk: Desk) -> None:
        accepted = await desk.behind("call ask")
        (card,) = await desk.house.waiting(accepted)
        for _ in range(2):
            with pytest.raises(NotFound, match="no conversation with this id"):
                await desk.port.conversation(OTHER, accepted.conversation)
            with pytest.raises(NotFound, match="no turn with this id"):
                await desk.port.turn(OTHER, accepted.turn)
            with pytest.raises(UnknownCard):
                await desk.port.card(OTHER, card.id)

    async def test_what_nobody_has_is_not_found(self, desk: Desk) -> None:
        with pytest.raises(NotFound, match="no conversation with this id"):
            await desk.port.conversation(ME, "f" * 32)
        with pytest.raises(NotFound, match="no turn with this id"):
            await desk.port.turn(ME, "f" * 32)

    async def test_nobody_says_that_there_is_none_while_one_does_not_answer(self, tmp_path: Path) -> None:
        async with open_desk(tmp_path, "alpha", "beta") as desk:
            desk.asks.away.add("beta")
            with pytest.raises(AgentUnavailable):
                await desk.port.conversation(ME, "f" * 32)

    async def test_nobody_says_that_there_is_none_while_one_is_away_however_much_was_copied_of_it(
        self, desk: Desk
    ) -> None:
        known = await done(desk, "hello")
        await desk.feed.refresh("agent", known.conversation)
        await desk.lose()
        with pytest.raises(AgentUnavailable, match="which may have it"):
            await desk.port.conversation(ME, "f" * 32)
        with pytest.raises(AgentUnavailable, match="which may have it"):
            await desk.port.turn(ME, "f" * 32)
        with pytest.raises(AgentUnavailable, match="which may have it"):
            await desk.port.card(ME, "f" * 32)

    async def test_what_was_deleted_is_gone_while_its_agent_is_away(self, desk: Desk) -> None:
        known = await done(desk, "hello")
        await desk.port.delete(ME, known.conversation, cancel=False)
        await desk.lose()
        with pytest.raises(NotFound, match="no conversation with this id"):
            await desk.port.conversation(ME, known.conversation)

    async def test_the_agent_that_holds_the_conversations_of_another_name_is_found(self, tmp_path: Path) -> None:
        async with open_desk(tmp_path, "alpha") as desk:
            accepted = await desk.send("hello")
            await desk.house.until(accepted)
        (tmp_path / "alpha.db").rename(tmp_path / "renamed.db")
        (tmp_path / "gateway.db").unlink()
        async with open_desk(tmp_path, "renamed") as desk:
            transcript = await desk.port.conversation(ME, accepted.conversation)
            assert (transcript.conversation.agent, len(transcript.messages)) == ("alpha", 2)


class TestWriting:
    async def test_what_is_done_is_in_the_copy_and_waited_for_before_it_is_told(self, desk: Desk) -> None:
        desk.world.hold("model")
        accepted = await desk.send("hello")
        assert (await desk.replica.turn("me", accepted.turn)).status in {TurnStatus.QUEUED, TurnStatus.RUNNING}
        assert desk.waiting.dispatches == [("agent", accepted.conversation, accepted.turn)]
        desk.world.let("model")
        await desk.house.until(accepted)

    async def test_an_answer_that_was_lost_on_its_way_starts_no_second_turn(self, desk: Desk) -> None:
        create = desk.asks.methods["agent"]["responses/createDetached"]
        losing = [AgentUnavailable("lost")]

        class Losing:
            params = create.params

            @staticmethod
            async def handle(params: Any) -> Any:
                result = await create.handle(params)
                if losing:
                    raise losing.pop()
                return result

        desk.asks.methods["agent"] = {**desk.asks.methods["agent"], "responses/createDetached": Losing}
        accepted = await desk.send("hello")
        assert accepted.repeated
        assert desk.asks.asked("responses/createDetached") == 2
        assert [turn.id for turn in (await desk.house.store.turns("me", limit=10)).items] == [accepted.turn]

    async def test_an_agent_that_comes_back_within_the_wait_takes_the_message(self, desk: Desk) -> None:
        await desk.lose()
        tries: list[str] = []

        def come_back(agent: str, method: str) -> None:
            if method == "responses/createDetached":
                tries.append(agent)
                if len(tries) == 2:
                    desk.asks.away.clear()

        desk.asks.before = come_back
        accepted = await desk.send("hello")
        assert len(tries) == 2
        await desk.house.until(accepted)

    async def test_an_agent_that_stops_is_asked_until_the_next_process_of_it_answers(self, desk: Desk) -> None:
        tries: list[str] = []

        def start_again(agent: str, method: str) -> None:
            tries.append(method)
            if tries.count("responses/createDetached") == 2:
                desk.asks.refusing.clear()

        desk.asks.refusing["responses/createDetached"] = NotReady("leaving")
        desk.asks.before = start_again
        await desk.house.until(await desk.send("hello"))

    async def test_who_waited_in_vain_is_told_how_to_say_it_again(self, tmp_path: Path) -> None:
        async with open_desk(tmp_path, wait_seconds=IN_VAIN_SECONDS) as desk:
            accepted = await done(desk, "hello")
            await desk.lose()
            with pytest.raises(AgentUnavailable, match=r"did not answer within 0\.6 s.*same Idempotency-Key"):
                await desk.send("more", accepted.conversation)
            with pytest.raises(AgentUnavailable):
                await desk.port.cancel(ME, accepted.turn)

    async def test_a_message_to_nobody_by_name_does_not_go_to_whom_a_fresh_gateway_met_first(
        self, tmp_path: Path
    ) -> None:
        async with open_desk(tmp_path, "alpha", "beta", met=False) as desk:
            last, discover = asyncio.Event(), desk.asks.discover

            async def slow(*, within_seconds: float) -> AsyncIterator[Any]:
                async for each in discover(within_seconds=within_seconds):
                    yield each
                    await last.wait()

            desk.asks.discover = slow  # type: ignore[method-assign]
            await desk.directory.connected()
            sending = asyncio.create_task(desk.send("hello"))
            while "alpha" not in desk.directory:
                await asyncio.sleep(0)
            last.set()
            with pytest.raises(BadRequest, match="alpha, beta"):
                await sending

    async def test_of_several_agents_one_must_be_named_unless_a_default_is_set(self, tmp_path: Path) -> None:
        async with open_desk(tmp_path, "alpha", "beta") as desk:
            with pytest.raises(BadRequest, match="alpha, beta"):
                await desk.send("hello")
            accepted = await desk.send("hello", agent="beta")
            assert desk.waiting.dispatches[0][0] == "beta"
            await desk.houses["beta"].until(accepted)
        (tmp_path / "more").mkdir()
        async with open_desk(tmp_path / "more", "alpha", "beta", default="alpha") as desk:
            await desk.houses["alpha"].until(await desk.send("hello"))

    async def test_a_message_waits_for_the_first_agent_to_be_met(self, tmp_path: Path) -> None:
        async with open_desk(tmp_path, met=False, wait_seconds=IN_VAIN_SECONDS) as desk:
            with pytest.raises(AgentUnavailable, match="nothing was sent"):
                await desk.send("hello")
        (tmp_path / "more").mkdir()
        async with open_desk(tmp_path / "more", met=False) as desk:
            sending = asyncio.create_task(desk.send("hello"))
            await asyncio.sleep(0)
            await desk.directory.connected()
            await desk.house.until(await sending)

    async def test_the_last_decision_is_waited_for_and_the_one_before_it_is_not(self, desk: Desk) -> None:
        accepted = await done(desk, "call ask ask-too")
        desk.waiting.dispatches.clear()
        first, second = await desk.house.waiting(accepted)
        await desk.port.decide(ME, first.id, YES)
        assert desk.waiting.dispatches == []
        await desk.port.decide(ME, second.id, YES)
        assert desk.waiting.dispatches == [("agent", accepted.conversation, accepted.turn)]
        await desk.house.until(accepted, TurnStatus.COMPLETED)

    @pytest.mark.parametrize("by", [ME, replace(ME, name="somebody else")], ids=lambda person: person.name)
    async def test_a_decision_whose_answer_was_lost_is_known_again_and_anothers_is_not(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch, by: Person
    ) -> None:
        """The agent died with it: `APPROVAL_DECIDED` for the repetition is the answer to the first try if it was ours."""
        accepted = await done(desk, "call ask")
        (card,) = await desk.house.waiting(accepted)
        call, tries = desk.asks.call, itertools.count()

        async def losing(agent: str, method: str, *more: Any, **asked: Any) -> Any:
            if method == "approvals/decide" and next(tries) == 0:
                await desk.house.agents.decide(by, card.id, YES)
                raise AgentUnavailable("its answer was lost")
            return await call(agent, method, *more, **asked)

        monkeypatch.setattr(desk.asks, "call", losing)
        if by is ME:
            decided = await desk.port.decide(ME, card.id, YES)
            assert (decided.card.id, decided.card.state) == (card.id, CardState.DECIDED)
            assert decided.turn_status is not TurnStatus.PARKED
        else:
            with pytest.raises(CardDecided):
                await desk.port.decide(ME, card.id, YES)
        with pytest.raises(CardDecided):
            await desk.port.decide(ME, card.id, YES)

    async def test_the_answer_to_an_old_key_brings_the_end_of_its_turn_with_it(self, desk: Desk) -> None:
        key = RequestKey("key", "digest")
        asked: dict[str, Any] = {
            "input": {"message": "hello"},
            "conversation": None,
            "agent": None,
            "when_busy": "reject",
            "request_key": key,
        }
        first = await desk.house.agents.start(ME, **asked)
        await desk.house.until(first)
        again = await desk.port.start(ME, **asked)
        assert (again.turn, again.status) == (first.turn, TurnStatus.COMPLETED)
        assert desk.waiting.dispatches == []
        frames = [frame async for frame in await desk.port.follow(ME, first.conversation, after=None, follow=False)]
        assert isinstance(frames[-1], Event)
        assert frames[-1].kind is EventKind.END

    async def test_nothing_is_taken_while_this_server_stops(self, desk: Desk) -> None:
        accepted = await done(desk, "hello")
        desk.draining = True
        with pytest.raises(NotReady, match="Idempotency-Key"):
            await desk.send("more", accepted.conversation)
        with pytest.raises(NotReady):
            await desk.port.resume(ME, accepted.conversation)
        assert await desk.port.unready() is not None

    async def test_a_turn_that_does_not_end_keeps_its_conversation_and_says_so(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        accepted = await done(desk, "hello")
        monkeypatch.setattr(remote_writes, "DELETE_SECONDS", 0.3)
        desk.asks.refusing["threads/delete"] = AgentUnavailable("still waiting")
        with pytest.raises(AgentUnavailable, match=r"has not ended within 0\.3 s"):
            await desk.port.delete(ME, accepted.conversation, cancel=True)
        assert (await desk.port.conversation(ME, accepted.conversation)).conversation.id == accepted.conversation


class TestWatching:
    async def test_a_turn_that_is_followed_no_more_ends_the_stream(self, desk: Desk) -> None:
        desk.world.hold("model")
        accepted = await desk.send("hello")
        stream = await desk.port.follow(ME, accepted.conversation, after=None, follow=True)
        reading = asyncio.create_task(_all(stream))
        async with asyncio.timeout(60):
            while not desk.waiting.observers[accepted.conversation]:
                await asyncio.sleep(0)
        notice = Unfollowed(accepted.conversation, accepted.turn, 900.0)
        desk.waiting.observers[accepted.conversation][0](notice)
        assert (await reading)[-1] == notice
        assert desk.waiting.observers[accepted.conversation] == []
        desk.world.let("model")
        await desk.house.until(accepted)

    async def test_a_turn_that_somebody_watches_is_waited_for_whoever_started_it(self, desk: Desk) -> None:
        desk.world.hold("model")
        accepted = await desk.house.send("hello")
        stream = await desk.port.follow(ME, accepted.conversation, after=None, follow=False)
        assert desk.waiting.dispatches == [("agent", accepted.conversation, accepted.turn)]
        assert desk.feed.attended == [accepted.conversation]
        await stream.aclose()  # type: ignore[attr-defined]
        desk.world.let("model")
        await desk.house.until(accepted)

    async def test_a_stream_that_the_server_ends_is_not_at_its_end(self, desk: Desk) -> None:
        desk.world.hold("model")
        accepted = await desk.send("hello")
        reading = asyncio.create_task(_all(await desk.port.follow(ME, accepted.conversation, after=None, follow=False)))
        async with asyncio.timeout(60):
            while not desk.transport.watchers:
                await asyncio.sleep(0)
        desk.transport.close()
        with pytest.raises(NotReady):
            await reading
        desk.world.let("model")
        await desk.house.until(accepted)

    async def test_watchers_of_a_deleted_conversation_are_told(self, desk: Desk) -> None:
        accepted = await done(desk, "hello")
        stream = await desk.port.follow(ME, accepted.conversation, after=None, follow=True)
        reading = asyncio.create_task(_all(stream))
        async with asyncio.timeout(60):
            while not desk.transport.watchers:
                await asyncio.sleep(0)
        await desk.port.delete(ME, accepted.conversation, cancel=False)
        assert (await reading)[-1] == Gone(accepted.conversation)

    async def test_the_lists_are_told_who_can_be_asked_first_and_whenever_it_changes(self, desk: Desk) -> None:
        stream = await desk.port.changes(ME, after=None)
        told = [await anext(stream)]
        desk.directory.disconnected()
        told.append(await asyncio.wait_for(anext(stream), 60))
        await desk.directory.connected()
        told.append(await asyncio.wait_for(anext(stream), 60))
        desk.directory.heard("agent", News(1, "boot", "leaving"))
        told.append(await asyncio.wait_for(anext(stream), 60))
        await stream.aclose()  # type: ignore[attr-defined]
        reaches = (Reach.REACHABLE, Reach.DISCONNECTED, Reach.REACHABLE, Reach.UNREACHABLE)
        assert told == [Reached("agent", reach) for reach in reaches]


class TestServer:
    async def test_what_serves_is_told_of_all_agents_that_answer(self, tmp_path: Path) -> None:
        async with open_desk(tmp_path, "alpha", "beta") as desk:
            info = await desk.port.server(OPERATOR)
            assert sorted(worker.owner for worker in info.workers) == sorted(
                house.store.owner_name for house in desk.houses.values()
            )
            assert info.nats
            assert info.database is not None
            assert info.database.path.endswith("gateway.db")
            await desk.lose("beta")
            info = await desk.port.server(OPERATOR)
            assert [worker.owner for worker in info.workers] == [desk.houses["alpha"].store.owner_name]
            desk.directory.disconnected()
            info = await desk.port.server(OPERATOR)
            assert (info.workers, info.nats) == ([], False)

    async def test_its_numbers_tell_of_nats_and_of_who_can_be_asked(self, tmp_path: Path) -> None:
        async with open_desk(tmp_path, "alpha", "beta") as desk:
            await desk.lose("beta")
            numbers = await desk.port.statistics()
            assert (numbers["nats_connected"], numbers["agents"], numbers["agents_reachable"]) == (1, 2, 1)
            assert numbers["database_bytes"] > 0
            desk.directory.disconnected()
            numbers = await desk.port.statistics()
            assert (numbers["nats_connected"], numbers["agents_reachable"]) == (0, 0)

    async def test_its_health_is_its_own(self, desk: Desk) -> None:
        desk.directory.disconnected()
        assert await desk.port.unready() is None


async def _all(stream: Any) -> list[Any]:
    async with asyncio.timeout(60):
        return [frame async for frame in stream]
