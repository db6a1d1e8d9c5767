"""Of people who decide the same card at the same time exactly one is heard. `PERDURE_PROOF_RACES` asks for more races than CI's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.races import served_races, store_races
from tests.crash.server import ForkServer

pytestmark = pytest.mark.asyncio(loop_scope="session")

RACES = int(os.environ.get("PERDURE_PROOF_RACES", "50"))
SEED = int(os.environ.get("PERDURE_PROOF_SEED", "1"))


async def test_of_many_who_decide_one_card_in_the_store_exactly_one_is_heard(tmp_path: Path) -> None:
    report = await store_races(tmp_path, RACES, SEED)
    assert report.violations == []
    assert (report.races, report.deciders >= 2 * RACES) == (RACES, True)


async def test_of_many_who_decide_one_card_over_http_exactly_one_is_heard(forks: ForkServer, tmp_path: Path) -> None:
    races = max(10, RACES // 10)
    report = await served_races(tmp_path, forks, races, SEED)
    assert report.violations == []
    assert report.races == races
