"""One preloaded fork server for all crash tests of a session."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.crash.server import ForkServer


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def forks() -> AsyncIterator[ForkServer]:
    server = await ForkServer().open()
    yield server
    await server.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/crash" in str(item.path):
            item.add_marker(pytest.mark.crash)
