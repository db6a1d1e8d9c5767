"""Kills while tools of every class are at work. `PERDURE_PROOF_KILLS` and `PERDURE_PROOF_SEED` ask for another storm than CI's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.server import ForkServer
from tests.crash.toolstorm import tool_storm

pytestmark = pytest.mark.asyncio(loop_scope="session")

KILLS = int(os.environ.get("PERDURE_PROOF_KILLS", "50"))
SEED = int(os.environ.get("PERDURE_PROOF_SEED", "1"))


@pytest.mark.timeout(120 + 15 * KILLS)
async def test_kills_between_effect_and_record_repeat_nothing_and_hide_nothing(
    forks: ForkServer, tmp_path: Path
) -> None:
    report = await tool_storm(tmp_path, forks, KILLS, SEED)
    print(f"{report}")
    assert report.violations == [], report.replay
    assert report.kills >= KILLS
    assert report.in_flight > KILLS / 10, "hardly a kill hit a once call at work: the storm proves nothing"
    assert report.uncertain > 0
