"""Gateways and agents with a real NATS between them, each of which goes away and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from perdure.errors import CardDecided, NotFound
from perdure.events import Event, Unfollowed
from perdure.replication import Reach
from perdure.turns import TurnStatus
from tests.conformance.apart import AgentApart, GatewayApart, Place, agent_apart, gateway_apart
from tests.conformance.ports import ME, OPERATOR, PATIENCE_SECONDS, Port, answer, events, shown
from tests.servers.nats_server import NatsServer
from tests.unit.agent.air import eventually
from tests.unit.engine.graphs import World
from tests.unit.engine.graphs import agent as scripted
from tests.unit.engine.house import folded, hosted

AGENT = "agent"


@dataclass
class Seen:
    """A gateway, and the port that people have there."""

    gateway: GatewayApart
    port: Port
    stack: AsyncExitStack

    async def stop(self) -> None:
        await self.stack.aclose()


class Scene:
    """A NATS, an agent, and the gateways before it; each can be stopped and started again on its file."""

    def __init__(self, server: NatsServer, folder: Path) -> None:
        self.server, self._folder = server, folder
        self.place = Place(server.settings())
        self.world = World()
        self.agent: AgentApart
        self._agent = AsyncExitStack()
        self._gateways = AsyncExitStack()

    async def start_agent(self) -> None:
        apart = agent_apart(self.place, self._folder / "agent.db", hosted(AGENT, scripted(self.world)))
        self.agent = await self._agent.enter_async_context(apart)

    async def stop_agent(self) -> None:
        await self._agent.aclose()

    async def gateway(self, name: str = "gateway", *, deadline_seconds: float = 900.0) -> Seen:
        stack = AsyncExitStack()
        path = self._folder / f"{name}.db"
        gateway = await stack.enter_async_context(
            gateway_apart(self.place, path, default=AGENT, deadline_seconds=deadline_seconds)
        )
        self._gateways.push_async_callback(stack.aclose)
        await gateway.reaches(AGENT)
        return Seen(gateway, Port(gateway.agents, gateway.transport, self.world, self.agent.store), stack)

    async def ended(self, turn: str) -> None:
        """At the agent."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            with self.agent.transport.listen("changes") as bell:
                while (await self.agent.store.turn(None, turn)).status is not TurnStatus.COMPLETED:
                    await bell.wait()

    async def close(self) -> None:
        await self._gateways.aclose()
        await self.stop_agent()


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    server = await NatsServer(tmp_path / "nats", sync_interval="2m").start()
    made = Scene(server, tmp_path)
    await made.start_agent()
    yield made
    await made.close()
    server.kill()


def contents(transcript: object) -> list[str]:
    return [each["content"] for each in transcript.messages]  # type: ignore[attr-defined]


async def test_an_agent_that_starts_again_takes_what_was_sent_while_it_was_away(scene: Scene) -> None:
    seen = await scene.gateway()
    first = await seen.port.done("one")
    await scene.stop_agent()
    await seen.gateway.reaches(AGENT, Reach.UNREACHABLE)
    transcript = await seen.port.agents.conversation(ME, first.conversation)
    assert (transcript.reach, contents(transcript)) == (Reach.UNREACHABLE, ["one", "answer one"])
    sending = asyncio.create_task(seen.port.send("two", first.conversation))
    await scene.start_agent()
    await seen.port.until(await sending, TurnStatus.COMPLETED)
    transcript = await seen.port.agents.conversation(ME, first.conversation)
    assert (transcript.reach, contents(transcript)[2:]) == (Reach.REACHABLE, ["two", "answer two"])


async def test_who_watches_while_nats_is_away_is_told_the_rest_when_it_is_back(scene: Scene) -> None:
    seen = await scene.gateway()
    scene.world.hold("word 0")
    accepted = await seen.port.send("hello")
    async with seen.port.watching(accepted.conversation, follow=False) as watcher:
        await watcher.until(lambda frames: any(event.kind == "token" for event in events(frames)))
        scene.server.kill()
        await seen.gateway.reaches(AGENT, Reach.DISCONNECTED)
        transcript = await seen.port.agents.conversation(ME, accepted.conversation)
        assert transcript.reach is Reach.DISCONNECTED
        scene.world.let("word 0")
        await scene.ended(accepted.turn)
        await scene.server.start()
        frames = await watcher.to_the_end()
    assert folded(shown(frames)) == folded(shown(list(await scene.agent.store.events(accepted.conversation))))
    await seen.gateway.reaches(AGENT)


async def test_a_store_of_nats_that_is_lost_is_nobodys_loss(scene: Scene) -> None:
    seen = await scene.gateway()
    first = await seen.port.done("one")
    await scene.server.restart(wipe=True)
    second = await seen.port.done("two", first.conversation)
    frames = await seen.port.frames(first.conversation, after=1)
    recorded = await scene.agent.store.events(second.conversation)
    assert shown(frames) == [event for event in recorded if event.seq > 1]


async def test_a_gateway_that_is_new_knows_what_was_before_it_also_without_the_agent(scene: Scene) -> None:
    old = await scene.gateway("old")
    first = await old.port.done("the harbour of Odesa")
    parked, card = await old.port.parked()
    new = await scene.gateway("new")
    await scene.stop_agent()
    await new.gateway.reaches(AGENT, Reach.UNREACHABLE)
    page = await new.port.agents.conversations(ME, limit=10, cursor=None, agent=None)
    assert [each.id for each in page.items] == [parked.conversation, first.conversation]
    found = await new.port.agents.conversations(ME, limit=10, cursor=None, agent=None, text="harbour")
    assert [each.id for each in found.items] == [first.conversation]
    assert [each.id for each in (await new.port.agents.approvals(ME, limit=10, cursor=None)).items] == [card.id]
    transcript = await new.port.agents.conversation(ME, first.conversation)
    assert contents(transcript) == ["the harbour of Odesa", "answer the harbour of Odesa"]
    assert (await new.port.agents.turn(ME, parked.turn)).cards[0].id == card.id


async def test_of_two_gateways_each_knows_what_was_done_at_the_other(scene: Scene) -> None:
    one, other = await scene.gateway("one"), await scene.gateway("other")
    accepted, card = await one.port.parked()
    await other.port.agents.decide(OPERATOR, card.id, answer("yes"))
    with pytest.raises(CardDecided) as refused:
        await one.port.agents.decide(ME, card.id, answer("no"))
    assert refused.value.details["decided_by"] == "boss"
    await one.port.until(accepted, TurnStatus.COMPLETED)
    assert not (await one.port.agents.approvals(ME, limit=10, cursor=None)).items


async def test_a_gateway_that_starts_again_waits_on_for_what_it_gave_out(scene: Scene) -> None:
    seen = await scene.gateway()
    scene.world.hold("model")
    accepted = await seen.port.send("hello")
    await seen.stop()
    again = await scene.gateway()
    assert again.gateway.persister.waiting == 1
    async with again.port.watching(accepted.conversation, follow=False) as watcher:
        scene.world.let("model")
        frames = await watcher.to_the_end()
    assert isinstance(frames[-1], Event)
    assert frames[-1].payload == {"status": "completed"}
    await _nothing_to_wait_for(again)


async def test_a_turn_is_followed_no_more_after_its_time_and_a_later_end_still_lands(scene: Scene) -> None:
    seen = await scene.gateway(deadline_seconds=1.0)
    scene.world.hold("model")
    accepted = await seen.port.send("hello")
    async with seen.port.watching(accepted.conversation) as watcher:
        frames = await watcher.to_the_end()
    assert frames[-1] == Unfollowed(accepted.conversation, accepted.turn, 1.0)
    scene.world.let("model")
    await scene.ended(accepted.turn)

    async def landed() -> bool:
        turns = await seen.port.agents.turns(ME, limit=1, cursor=None, status=None, agent=None)
        return turns.items[0].status is TurnStatus.COMPLETED

    await seen.port.comes(landed)
    (ending,) = await seen.port.frames(accepted.conversation)
    assert events([ending])[0].terminal


async def _nothing_to_wait_for(seen: Seen) -> None:
    """No news tells of it."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await seen.gateway.replica.dispatches():
            await asyncio.sleep(0.01)


async def test_a_forgotten_agent_stays_forgotten_at_that_gateway_until_it_starts_again(scene: Scene) -> None:
    here, there = await scene.gateway(), await scene.gateway("other")
    first = await here.port.done("one")
    card = (await here.port.parked())[1]
    await scene.stop_agent()
    await here.gateway.reaches(AGENT, Reach.UNREACHABLE)
    await here.port.agents.forget(OPERATOR, AGENT)
    assert list(here.port.agents.agents()) == []
    await here.stop()

    async with gateway_apart(scene.place, here.gateway.replica.path, default=AGENT) as again:
        port = Port(again.agents, again.transport, scene.world, scene.agent.store)
        await eventually(lambda: again.directory.is_connected and again.follower._catching_up is None)
        assert list(port.agents.agents()) == []
        assert (await port.agents.conversations(OPERATOR, limit=9, cursor=None, agent=None)).items == []
        assert (await port.agents.audit(OPERATOR, limit=9, cursor=None)).items[0].action == "agent_forget"
        with pytest.raises(NotFound):
            await port.agents.forget(OPERATOR, AGENT)
        assert await there.port.said(first) == ["user: one", "assistant: answer one"]

        await scene.start_agent()
        await again.reaches(AGENT)
        assert await port.said(first) == ["user: one", "assistant: answer one"]
        assert [each.id for each in (await port.agents.approvals(OPERATOR, limit=9, cursor=None)).items] == [card.id]
        second = await port.done("two", first.conversation)
        assert (await port.said(second))[-1] == "assistant: answer two"
