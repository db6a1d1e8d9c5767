"""Kills at random moments. `PERDURE_PROOF_KILLS` and `PERDURE_PROOF_SEED` ask for another storm than CI's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.server import CommandLine, ForkServer, Server
from tests.crash.storm import storm
from tests.crash.trial import Plan, try_out

pytestmark = pytest.mark.asyncio(loop_scope="session")

KILLS = int(os.environ.get("PERDURE_PROOF_KILLS", "50"))
SEED = int(os.environ.get("PERDURE_PROOF_SEED", "1"))


@pytest.mark.timeout(120 + 15 * KILLS)
async def test_random_kills_lose_and_repeat_nothing(forks: ForkServer, tmp_path: Path) -> None:
    report = await storm(tmp_path, forks, KILLS, SEED)
    print(f"{report}")
    assert report.violations == [], report.replay
    assert report.kills >= KILLS
    assert report.messages > KILLS / 5, "the storm left nobody time to speak: it proves nothing"


@pytest.mark.parametrize("scenario", ["four_step_job", pytest.param("parked_graph", marks=pytest.mark.proof)])
async def test_the_command_itself_survives_a_kill(scenario: str, tmp_path: Path) -> None:
    """The same as with forked servers, through `python -m perdure serve`."""
    launcher = CommandLine()
    try:
        verdict = await try_out(Plan("step_checkpoint.after", scenario, nth=2), tmp_path, launcher)
    finally:
        await launcher.close()
    assert verdict.violations == [], verdict.server_log
    assert verdict.kills == 1


async def test_a_second_server_on_the_same_file_refuses_to_start(forks: ForkServer, tmp_path: Path) -> None:
    first, second = Server(tmp_path, forks), Server(tmp_path, forks)
    try:
        assert await first.start()
        assert not await second.start()
        assert second.boots[-1].how.startswith("exited")
        assert str(first.boots[-1].pid) in second.said()
    finally:
        await first.close()
        await second.close()
