"""What a gateway shows of its copy is what its agents' journals show, whatever came twice, late, or in pieces."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from perdure.store.replica import Replica
from perdure.store.sqlite.replica import open_replica
from perdure.testing import FakeClock
from perdure.turns import Limits
from tests.conformance.conftest import sqlite_journal
from tests.conformance.histories import (
    Follower,
    Life,
    changes_are_in_order_and_say_how_it_stands,
    shown,
)
from tests.conformance.journal import Heard, Journal

PATIENT = [HealthCheck.too_slow, HealthCheck.data_too_large]


class Named(Journal):
    """Whose ids are its own: another journal has none of them."""

    prefix = ""

    def name(self, kind: str) -> str:
        return self.prefix + super().name(kind)


async def a_life(folder: Path, prefix: str, clock: FakeClock, luck: Random) -> Life:
    folder.mkdir()
    made = sqlite_journal(folder, Limits())
    journal = Named(made._open, made._vanish, Limits())
    journal.prefix, journal.clock = prefix, clock
    await journal.start()
    return Life(journal, luck)


async def replica_at(folder: Path, clock: FakeClock) -> Replica:
    return await open_replica(folder / "gateway.db", notify=Heard(), clock=clock)


async def scenario(folder: Path, luck: Random, *, agents: int, moves: int) -> None:
    clock = FakeClock()
    lives = {f"agent-{n}": await a_life(folder / f"{n}", f"{n}-", clock, luck) for n in range(agents)}
    follower = Follower(await replica_at(folder, clock), lives, luck)
    for _ in range(moves):
        if luck.random() < 0.7:
            await luck.choice(list(lives.values())).move()
        elif luck.random() < 0.9:
            await follower.move()
        else:
            await follower.replica.close()
            follower.replica = await replica_at(folder, clock)
    await follower.settle()
    if agents == 1:
        (life,) = lives.values()
        assert await shown(follower.replica) == await shown(life.journal.store)
    else:
        seen = await shown(follower.replica)
        for life in lives.values():
            own = await shown(life.journal.store)
            names = [
                name for name, value in own.items() if isinstance(value, list) and name[:2] == life.journal.name("")[:2]
            ]
            assert names
            assert {name: seen[name] for name in names} == {name: own[name] for name in names}
    await changes_are_in_order_and_say_how_it_stands(follower.replica)
    await follower.replica.close()
    for life in lives.values():
        await life.journal.store.close()


def run(luck: Random, *, agents: int, moves: int) -> None:
    with tempfile.TemporaryDirectory(prefix="perdure-copies-") as folder:
        asyncio.run(scenario(Path(folder), luck, agents=agents, moves=moves))


@settings(max_examples=1, deadline=None, suppress_health_check=PATIENT)
@example(seed=1)
@given(seed=st.integers(0, 2**32))
def test_a_copy_shows_what_its_journal_shows(seed: int) -> None:
    run(Random(seed), agents=1, moves=150)


@settings(max_examples=1, deadline=None, suppress_health_check=PATIENT)
@given(seed=st.integers(0, 2**32))
def test_a_copy_of_several_journals_shows_each_as_it_is(seed: int) -> None:
    run(Random(seed), agents=2, moves=120)


@pytest.mark.proof
@settings(max_examples=60, deadline=None, suppress_health_check=PATIENT)
@given(seed=st.integers(0, 2**32), agents=st.integers(1, 3))
def test_a_copy_shows_what_its_journals_show_over_many_lives(seed: int, agents: int) -> None:
    run(Random(seed), agents=agents, moves=300)
