"""The application of an agent's process, which serves its health alone."""

from __future__ import annotations

from collections.abc import Mapping

import httpx2

from perdure.api.app import create_health_app
from perdure.api.auth import Access
from perdure.api.stream import Streams
from perdure.config import Settings
from tests.unit.api.conftest import TOKEN, FakeAgents


async def test_who_asks_an_agent_for_more_than_its_health_is_sent_to_a_gateway(
    agents: FakeAgents, settings: Settings, streams: Streams
) -> None:
    async def statistics() -> Mapping[str, float]:
        return {}

    access = Access(TOKEN, settings, token_of=agents.token_of)
    app = create_health_app(agents, settings, access, streams=streams, statistics=statistics)
    there = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=there, base_url="http://127.0.0.1") as client:
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        assert (await client.get("/api/healthz")).status_code == 200
        refused = await client.get("/api/conversations")
    assert refused.status_code == 404
    assert "/api/conversations" in refused.json()["message"] and "gateway" in refused.json()["message"]
