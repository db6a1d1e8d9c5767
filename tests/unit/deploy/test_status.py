from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from perdure.clock import SystemClock
from perdure.deploy.health import NotWell
from perdure.deploy.status import chosen, logs, restart, standings
from perdure.errors import NotFound
from tests.unit.deploy.conftest import Describe, realized
from tests.unit.deploy.mortal_engine import MortalEngine


def silent(line: str) -> None:
    return None


async def test_each_wanted_container_is_told_also_the_one_that_is_not_there(described: Describe) -> None:
    description = described('[deploy]\ntransport = "nats"\n')
    real = realized(description)
    real = replace(real, containers=tuple(each for each in real.containers if not each.name.endswith("-helper")))
    engine = MortalEngine(real)
    engine.held["perdure-perdure-nats"].running = False
    engine.unwell.add("perdure-perdure-gateway")

    told = {each.name: each for each in await standings(engine, description.wanted, real)}

    assert {name: each.state for name, each in told.items()} == {
        "nats": "down",
        "shop": "healthy",
        "helper": "missing",
        "gateway": "unhealthy",
    }
    assert [name for name, each in told.items() if each.well] == ["shop"]
    assert told["shop"].data == "perdure-agent-shop-data"
    assert told["gateway"].addresses == ("http://127.0.0.1:8700",)


async def test_containers_are_named_by_agent_by_role_or_in_full(described: Describe) -> None:
    real = realized(described('[deploy]\ntransport = "nats"\n'))

    assert [each.name for each in chosen(real, ["shop"])] == ["perdure-perdure-agent-shop"]
    assert len(chosen(real, ["agent"])) == 2
    assert len(chosen(real, [])) == 4
    with pytest.raises(NotFound, match="There are: "):
        chosen(real, ["shoop"])


@pytest.mark.parametrize("end", [".next", ".undo"])
async def test_a_successor_and_an_undoing_are_chosen_only_where_that_is_asked(described: Describe, end: str) -> None:
    real = realized(described("[deploy]\n"))
    (server,) = real.containers
    real = replace(real, containers=(server, replace(server, name=f"{server.name}{end}")))

    assert chosen(real, []) == chosen(real, ["server"]) == [server]
    assert len(chosen(real, [], successors=True)) == 2


async def test_lines_of_several_containers_come_with_their_names(described: Describe) -> None:
    real = realized(described('[deploy]\ntransport = "nats"\n'))
    engine = MortalEngine(real)
    agents = chosen(real, ["agent"])

    async with asyncio.timeout(60):
        followed = [each async for each in logs(engine, agents, follow=True, tail=None, tell=silent)]
    last = [each async for each in logs(engine, agents, follow=False, tail=1, tell=silent)]

    assert sorted(followed) == sorted(
        (each.name, line) for each in agents for line in ("first", f"last of {each.name}")
    )
    assert last == [(each.name, f"last of {each.name}") for each in agents]


async def test_of_each_that_has_ended_it_is_told_how_to_go_on(described: Describe) -> None:
    real = realized(described("[deploy]\n"))
    (server,) = real.containers

    async def told(engine: MortalEngine) -> str:
        said: list[str] = []
        async with asyncio.timeout(60):
            async for _ in logs(engine, [server], follow=True, tail=None, tell=said.append):
                pass
        (line,) = said
        assert line.startswith(server.name) and line.endswith(f"perdure logs -f {server.name}")
        return line

    engine = MortalEngine(real)
    assert "was started again, or replaced" in await told(engine)
    engine.held[server.name].running = False
    assert "has ended (exit code 0)" in await told(engine)
    await engine.create_container(server, {}, name=f"{server.name}.next")
    assert "is being replaced" in await told(engine)
    engine.held.clear()
    assert "is gone" in await told(engine)


async def test_a_restart_stops_at_the_first_that_does_not_become_well(described: Describe) -> None:
    real = realized(described('[deploy]\ntransport = "nats"\n'))
    engine = MortalEngine(real)
    first, second = chosen(real, ["agent"])
    engine.unwell.add(first.name)

    with pytest.raises(NotWell, match=first.name):
        await restart(engine, [first, second], tell=silent, clock=SystemClock())

    assert f"stop {second.name}" not in engine.verbs
