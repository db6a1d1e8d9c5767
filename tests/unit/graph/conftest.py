from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest


class SteppedClock:
    """Time that passes only when somebody sleeps: a sleep ends once every other task had its say."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        return self.passed

    async def sleep(self, seconds: float) -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        self.passed += seconds


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture(autouse=True)
def quick_demo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PERDURE_DEMO_STEP_SECONDS", "0")
    monkeypatch.setenv("PERDURE_DEMO_TOKEN_SECONDS", "0")
    yield
