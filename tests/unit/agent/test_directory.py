"""Who is there: met by discovery and by news, lost by silence, found again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast

import pytest

from perdure.agent.directory import FRESH_SECONDS, MAX_ASKED, SILENT_SECONDS, Directory
from perdure.errors import AgentInUse, AgentUnavailable, NotFound, NotReady, StorageFull
from perdure.replication import Reach
from perdure.store.replica import Replica
from perdure.testing import FakeClock
from perdure.transport.nats.wire import LEAVING, News
from tests.unit.agent.scripted import ScriptedAsks, described

ALIVE = News(1, "boot")


class Kept:
    """The two verbs of a replica that a directory needs."""

    def __init__(self) -> None:
        self.agents: dict[str, Mapping[str, Any]] = {}

    async def keep_agent(self, agent: str, document: Mapping[str, Any]) -> None:
        self.agents[agent] = document

    async def known_agents(self) -> Mapping[str, Mapping[str, Any]]:
        return dict(self.agents)


class Office:
    """A directory with what stands around it."""

    def __init__(self, kept: Kept | None = None, default: str | None = None) -> None:
        self.kept = kept or Kept()
        self.asks = ScriptedAsks()
        self.clock = FakeClock()
        self.directory = Directory(cast(Replica, self.kept), self.asks, self.clock, default=default)
        self.seen: list[tuple[str, Reach]] = []
        self.directory.observe(lambda agent, reach: self.seen.append((agent, reach)))

    def there(self, name: str, **more: Any) -> None:
        self.asks.on(name, "agent/describe", described(name, **more))

    def away(self, name: str) -> None:
        self.asks.answers.pop((name, "agent/describe"))

    async def pass_by(self, seconds: float) -> None:
        """Second by second, so that whoever sleeps again in between is woken again."""
        while seconds > 0:
            await settled()
            self.clock.advance(min(1.0, seconds))
            seconds -= 1.0
        await settled()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0)


async def settled() -> None:
    """Everything that can go on without the clock has."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    made = Office()
    await made.directory.open()
    yield made
    await made.directory.close()


async def met(office: Office, *names: str) -> None:
    for name in names:
        office.there(name)
        office.asks.found.append(described(name))
    await office.directory.connected()
    await office.until(lambda: set(names) <= set(office.directory.reaches()))


async def test_agents_are_discovered_when_nats_is_there(office: Office) -> None:
    assert office.directory.agents() == []
    await met(office, "beta", "alpha")
    assert [(info.name, info.reach) for info in office.directory.agents()] == [
        ("alpha", Reach.REACHABLE),
        ("beta", Reach.REACHABLE),
    ]
    assert set(office.kept.agents) == {"alpha", "beta"}


async def test_an_agent_that_starts_later_is_met_by_its_news(office: Office) -> None:
    await met(office, "alpha")
    office.there("late")
    office.directory.heard("late", ALIVE)
    await office.until(lambda: office.directory.reach("late") is Reach.REACHABLE)
    assert ("late", Reach.REACHABLE) in office.seen


async def test_news_of_an_agent_that_cannot_be_asked_make_nobody_known(office: Office) -> None:
    await met(office, "alpha")
    office.directory.heard("ghost", ALIVE)
    await settled()
    assert "ghost" not in office.directory
    assert office.directory.reach("ghost") is Reach.UNREACHABLE


async def test_names_that_nobody_answers_to_are_not_asked_without_end(office: Office) -> None:
    await met(office, "alpha")
    await settled()
    before = len(office.asks.calls)
    for number in range(1_000):
        office.directory.heard(f"ghost{number}", ALIVE)
    office.directory.unanswered("alpha")
    await settled()
    assert len(office.asks.calls) - before == MAX_ASKED + 1


async def test_an_agent_that_is_silent_and_does_not_answer_is_unreachable_until_its_next_news(office: Office) -> None:
    await met(office, "alpha")
    office.away("alpha")
    await office.pass_by(SILENT_SECONDS - 1)
    assert office.directory.reach("alpha") is Reach.REACHABLE
    await office.pass_by(3)
    assert office.directory.reach("alpha") is Reach.UNREACHABLE
    office.directory.heard("alpha", ALIVE)
    assert office.directory.reach("alpha") is Reach.REACHABLE
    assert office.seen == [("alpha", reach) for reach in (Reach.REACHABLE, Reach.UNREACHABLE, Reach.REACHABLE)]


async def test_an_agent_that_is_silent_but_answers_stays_reachable(office: Office) -> None:
    await met(office, "alpha")
    await office.pass_by(SILENT_SECONDS * 3)
    assert office.seen == [("alpha", Reach.REACHABLE)]
    assert len(office.asks.asked("agent/describe")) >= 2


async def test_news_keep_an_agent_reachable_without_questions(office: Office) -> None:
    await met(office, "alpha")
    await settled()
    before = len(office.asks.asked("agent/describe"))
    for _ in range(int(FRESH_SECONDS) - 1):
        office.directory.heard("alpha", ALIVE)
        await office.pass_by(1)
    assert len(office.asks.asked("agent/describe")) == before


async def test_an_agent_that_leaves_is_unreachable_at_once(office: Office) -> None:
    await met(office, "alpha")
    office.directory.heard("alpha", News(2, "boot", "leaving"))
    assert office.directory.reach("alpha") is Reach.UNREACHABLE


async def test_a_call_without_an_answer_makes_it_ask_at_once(office: Office) -> None:
    await met(office, "alpha")
    await settled()
    office.away("alpha")
    office.clock.advance(0.5)
    office.directory.unanswered("alpha")
    await office.until(lambda: office.directory.reach("alpha") is Reach.UNREACHABLE)


async def test_a_late_failure_does_not_outweigh_a_sign_of_life_since(office: Office) -> None:
    await met(office, "alpha")
    await settled()
    office.away("alpha")
    office.clock.advance(0.5)
    office.directory.unanswered("alpha")
    await asyncio.sleep(0)
    office.clock.advance(0.5)
    office.directory.heard("alpha", ALIVE)
    await settled()
    assert office.directory.reach("alpha") is Reach.REACHABLE


async def test_an_agent_that_answers_with_an_error_is_there(office: Office) -> None:
    await met(office, "alpha")
    await settled()
    office.asks.on("alpha", "agent/describe", NotReady("too busy"))
    await office.pass_by(SILENT_SECONDS + 2)
    assert office.directory.reach("alpha") is Reach.REACHABLE


async def test_without_nats_nobody_can_be_asked_and_nobody_is_forgotten(office: Office) -> None:
    await met(office, "alpha", "beta")
    office.directory.disconnected()
    assert office.directory.reaches() == {"alpha": Reach.DISCONNECTED, "beta": Reach.DISCONNECTED}
    asked = len(office.asks.calls)
    await office.pass_by(30)
    assert len(office.asks.calls) == asked
    await office.directory.connected()
    await office.until(lambda: set(office.directory.reaches().values()) == {Reach.REACHABLE})


async def test_what_is_known_outlives_the_process(office: Office) -> None:
    await met(office, "alpha")
    later = Office(office.kept)
    await later.directory.open()
    assert [(info.name, info.model, info.reach) for info in later.directory.agents()] == [
        ("alpha", "demo", Reach.DISCONNECTED)
    ]
    await later.directory.connected()
    await later.until(lambda: later.directory.reach("alpha") is Reach.UNREACHABLE)
    await later.directory.close()


async def test_an_agent_that_started_anew_is_described_anew(office: Office) -> None:
    await met(office, "alpha")
    await settled()
    office.there("alpha", boot="second", problems=("The model is missing.",))
    office.directory.heard("alpha", News(3, "second"))
    await office.until(lambda: list(office.directory.agents()[0].problems) == ["The model is missing."])
    description = office.directory.description("alpha")
    assert description is not None
    assert description.boot == "second"


async def test_problems_are_asked_again_while_an_agent_lives(office: Office) -> None:
    await met(office, "alpha")
    await settled()
    office.there("alpha", problems=("A server is failing.",))
    for _ in range(int(FRESH_SECONDS) + 2):
        office.directory.heard("alpha", ALIVE)
        await office.pass_by(1)
    assert list(office.directory.agents()[0].problems) == ["A server is failing."]
    office.directory.disconnected()
    assert list(office.directory.agents()[0].problems) == []


async def test_the_only_agent_is_the_default_and_of_several_the_one_that_was_set() -> None:
    office = Office(default="beta")
    await office.directory.open()
    await met(office, "alpha")
    await office.until(lambda: office.directory.default == "alpha")
    await met(office, "beta")
    assert [(info.name, info.default) for info in office.directory.agents()] == [("alpha", False), ("beta", True)]
    await office.directory.close()


async def test_who_was_met_first_is_not_the_only_one_before_all_had_the_time_to_answer(office: Office) -> None:
    """A message for the other one would go to it."""
    last = asyncio.Event()

    async def discover(*, within_seconds: float) -> AsyncIterator[Any]:
        yield described("alpha")
        await last.wait()
        yield described("beta")

    office.asks.discover = discover  # type: ignore[method-assign]
    office.there("alpha")
    await office.directory.connected()
    await office.until(lambda: "alpha" in office.directory)
    asked = asyncio.create_task(office.directory.surveyed())
    await settled()
    assert (office.directory.default, asked.done()) == (None, False)
    last.set()
    await asked
    assert (office.directory.default, set(office.directory.reaches())) == (None, {"alpha", "beta"})


async def test_the_only_one_of_before_is_the_default_at_once(office: Office) -> None:
    await met(office, "alpha")
    await office.directory.surveyed()
    again = Office(office.kept)
    await again.directory.open()
    assert again.directory.default == "alpha"
    await again.directory.close()


async def test_of_several_agents_none_is_the_default_unless_it_was_set(office: Office) -> None:
    await met(office, "alpha", "beta")
    assert office.directory.default is None
    assert not any(info.default for info in office.directory.agents())


async def test_descriptions_that_nobody_can_read_change_nothing(office: Office) -> None:
    office.asks.found += ["nonsense", {"agent": 7}]
    await met(office, "alpha")
    office.asks.on("alpha", "agent/describe", {"agent": "no"})
    await office.pass_by(FRESH_SECONDS + 2)
    assert [info.name for info in office.directory.agents()] == ["alpha"]


async def test_whoever_stops_observing_hears_no_more(office: Office) -> None:
    heard: list[str] = []
    stop = office.directory.observe(lambda agent, reach: heard.append(agent))
    await met(office, "alpha")
    stop()
    office.directory.disconnected()
    assert heard == ["alpha"]


# -- taken away -----------------------------------------------------------------------------------------------------------


async def forget(office: Office, name: str) -> None:
    async with office.directory.forgetting(name):
        office.kept.agents.pop(name)


async def test_one_that_is_away_is_forgotten_and_met_anew_by_its_news(office: Office) -> None:
    await met(office, "alpha", "beta")
    office.away("beta")
    await forget(office, "beta")
    assert set(office.directory.reaches()) == {"alpha"}
    await office.until(lambda: office.directory.default == "alpha")
    assert office.directory.is_gone("beta")
    assert office.seen[-1] == ("beta", Reach.UNREACHABLE)
    office.there("beta")
    office.directory.heard("beta", ALIVE)
    await office.until(lambda: office.directory.reach("beta") is Reach.REACHABLE)
    assert not office.directory.is_gone("beta")
    assert set(office.kept.agents) == {"alpha", "beta"}


async def test_one_that_answers_is_not_forgotten_though_it_was_taken_for_away(office: Office) -> None:
    await met(office, "alpha")
    office.directory.heard("alpha", News(1, "boot", LEAVING))
    assert office.directory.reach("alpha") is Reach.UNREACHABLE
    with pytest.raises(AgentInUse):
        await forget(office, "alpha")
    assert (office.directory.reach("alpha"), office.directory.is_gone("alpha")) == (Reach.REACHABLE, False)


async def test_nobody_is_forgotten_while_nats_is_lost(office: Office) -> None:
    await met(office, "alpha")
    office.away("alpha")
    office.directory.disconnected()
    for name in ("alpha", "nobody"):
        with pytest.raises(AgentUnavailable, match="lost NATS"):
            await forget(office, name)
    assert set(office.directory.reaches()) == {"alpha"}


async def test_what_it_said_before_makes_nobody_known_again(office: Office) -> None:
    await met(office, "alpha")
    office.away("alpha")
    answered, hold = asyncio.Event(), asyncio.Event()
    call = office.asks.call

    async def late(agent: str, method: str, params: Mapping[str, Any], **more: Any) -> Any:
        if answered.is_set():
            return await call(agent, method, params, **more)
        answered.set()
        await hold.wait()
        return described("alpha")

    office.asks.call = late  # type: ignore[method-assign]
    office.directory.unanswered("alpha")
    await office.until(answered.is_set)
    await forget(office, "alpha")
    hold.set()
    await settled()
    assert office.directory.reaches() == {}
    assert office.kept.agents == {}


async def test_news_while_it_is_being_forgotten_do_not_make_it_reachable(office: Office) -> None:
    await met(office, "alpha")
    office.away("alpha")
    async with office.directory.forgetting("alpha"):
        office.directory.heard("alpha", ALIVE)
        assert office.directory.reach("alpha") is Reach.UNREACHABLE
    assert "alpha" not in office.directory


async def test_one_that_could_not_be_forgotten_is_as_it_was(office: Office) -> None:
    await met(office, "alpha")
    office.away("alpha")
    with pytest.raises(StorageFull):
        async with office.directory.forgetting("alpha"):
            raise StorageFull
    assert not office.directory.is_gone("alpha")
    office.there("alpha")
    office.directory.heard("alpha", ALIVE)
    assert office.directory.reach("alpha") is Reach.REACHABLE


async def test_what_was_forgotten_stays_so_when_it_is_forgotten_again(office: Office) -> None:
    await met(office, "alpha")
    office.away("alpha")
    await forget(office, "alpha")
    for name in ("alpha", "nobody"):
        with pytest.raises(NotFound):
            async with office.directory.forgetting(name):
                raise NotFound
    assert (office.directory.is_gone("alpha"), office.directory.is_gone("nobody")) == (True, False)


async def test_who_was_found_and_cannot_be_kept_does_not_leave_the_survey_open(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever names no agent waits for it."""

    async def broken(*_: Any) -> None:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(office.kept, "keep_agent", broken)
    office.asks.found = [described("writer")]
    await office.directory.connected()
    async with asyncio.timeout(60):
        await office.directory.surveyed()
