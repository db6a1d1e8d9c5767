from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest

from perdure.store.base import Notify, Store
from perdure.store.replica import Replica
from perdure.store.sqlite.replica import open_replica
from perdure.store.sqlite.store import SQLiteStore, open_store
from perdure.testing import FakeClock
from perdure.turns import Limits
from tests.conformance.journal import Heard, Journal
from tests.servers.nats_server import unhurried


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    unhurried(monkeypatch)


def sqlite_journal(folder: Path, limits: Limits) -> Journal:
    async def open_it(*, clock: FakeClock, limits: Limits, notify: object) -> Store:
        return await open_store(folder / "perdure.db", clock=clock, limits=limits, notify=cast(Heard, notify))

    async def vanish(store: Store) -> None:
        assert isinstance(store, SQLiteStore)
        await store._readers.close()
        await store._writer.close()
        store.lock.release()

    return Journal(open_it, vanish, limits)


IMPLEMENTATIONS: dict[str, Callable[[Path, Limits], Journal]] = {"sqlite": sqlite_journal}
"""Every store runs the same suite: add it here."""


@pytest.fixture(params=sorted(IMPLEMENTATIONS))
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    made = IMPLEMENTATIONS[request.param](tmp_path, Limits())
    await made.start()
    yield made
    await made.store.close()


async def sqlite_replica(folder: Path, notify: Notify, clock: FakeClock) -> Replica:
    return await open_replica(folder / "gateway.db", notify=notify, clock=clock)


@pytest.fixture
async def replica(journal: Journal, tmp_path: Path) -> AsyncIterator[Replica]:
    """A gateway's file beside the journal; with a bell of its own."""
    made = await sqlite_replica(tmp_path, Heard(), journal.clock)
    yield made
    await made.close()
