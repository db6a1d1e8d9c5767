from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.process import OpenAiServer


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAiServer]:
    process = OpenAiServer()
    yield process
    process.close()


@pytest.fixture
def openai(server: OpenAiServer) -> OpenAiServer:
    server.script()
    return server
