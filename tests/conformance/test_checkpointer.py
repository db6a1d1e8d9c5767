"""LangGraph's own conformance suite on our saver."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from tests.conformance.savers import opened

CAPABILITIES = {
    "put",
    "put_writes",
    "get_tuple",
    "list",
    "delete_thread",
    "delete_for_runs",
    "copy_thread",
    "prune",
}


@pytest.mark.parametrize("verify", [False, True], ids=["remembering", "verifying"])
async def test_our_saver_passes_every_capability_of_the_suite(tmp_path: Path, verify: bool) -> None:
    files = iter(range(100))

    @checkpointer_test(name="perdure")
    async def ours() -> AsyncIterator[BaseCheckpointSaver[str]]:
        async with opened(tmp_path / f"{next(files)}.db", verify=verify) as database:
            yield database.saver

    report = await validate(ours)
    assert {name for name, result in report.results.items() if result.detected} >= CAPABILITIES
    assert {name: result.failures for name, result in report.results.items() if result.failures} == {}
    assert report.passed_all()


async def test_the_suite_finds_nothing_in_the_official_saver_that_ours_lacks(tmp_path: Path) -> None:
    @checkpointer_test(name="official")
    async def official() -> AsyncIterator[BaseCheckpointSaver[str]]:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "official.db")) as saver:
            await saver.setup()
            yield saver

    report = await validate(official)
    assert {name for name, result in report.results.items() if result.passed} <= CAPABILITIES
