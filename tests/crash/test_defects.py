"""The suite is not blind: each of these careless changes must be caught by it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.crash.defects import DEFECTS
from tests.crash.server import HERE, ForkServer, clean_environment
from tests.crash.trial import try_out

pytestmark = pytest.mark.asyncio(loop_scope="session")

SERVED = [name for name, defect in DEFECTS.items() if defect.plan is not None]

IN_CI = {"published_before_commit", "cards_left_open"}
"""One that the watchers notice and one that the file shows."""

ZOMBIE = """
import asyncio, json, sys
from pathlib import Path
from tests.crash.defects import seed
from tests.crash.zombie import zombie_violations
seed("no_epoch_check")
print(json.dumps(asyncio.run(zombie_violations(Path(sys.argv[1])))))
"""

RACES = """
import asyncio, json, sys
from pathlib import Path
from tests.crash.defects import seed
from tests.crash.races import store_races
seed("second_decision_counts")
print(json.dumps(asyncio.run(store_races(Path(sys.argv[1]), 5, 1)).violations))
"""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in IN_CI else pytest.mark.proof) for name in SERVED]
)
async def test_this_defect_is_caught(name: str, forks: ForkServer, tmp_path: Path) -> None:
    defect = DEFECTS[name]
    assert defect.plan is not None
    verdict = await try_out(defect.plan, tmp_path, forks, PERDURE_TEST_DEFECT=name, **defect.environment)
    noticed = [violation for violation in verdict.violations if violation.startswith(defect.noticed_as)]
    assert noticed, f"{name} went unnoticed: {verdict.violations}\n{verdict.server_log}"
    print(f"{name}: {noticed[0]}")


async def _found(script: str, folder: Path) -> list[str]:
    """What a script prints that seeds a defect in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", script, str(folder)),
        cwd=HERE.parent.parent,
        env={**clean_environment(), "LANGGRAPH_STRICT_MSGPACK": "true"},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    found: list[str] = json.loads(output)
    return found


async def test_writing_without_an_epoch_check_is_caught(tmp_path: Path) -> None:
    assert len(await _found(ZOMBIE, tmp_path)) >= 5


async def test_a_second_decision_that_counts_is_caught(tmp_path: Path) -> None:
    assert len([each for each in await _found(RACES, tmp_path) if each.startswith("G")]) >= 5


@pytest.mark.proof
@pytest.mark.parametrize("name", SERVED)
async def test_without_the_defect_the_same_trial_passes(name: str, forks: ForkServer, tmp_path: Path) -> None:
    defect = DEFECTS[name]
    assert defect.plan is not None
    verdict = await try_out(defect.plan, tmp_path, forks, **defect.environment)
    assert verdict.violations == [], verdict.server_log
