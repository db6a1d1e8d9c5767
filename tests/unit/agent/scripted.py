"""Agents as a script plays them, on the other side of the calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.agent.base import AgentInfo
from perdure.agent.codec import to_json
from perdure.agent.description import Description
from perdure.errors import AgentUnavailable

Answer = Callable[[Mapping[str, Any]], Any]


@dataclass
class ScriptedAsks:
    """Implements `Asks`. An agent without an answer for a method does not answer."""

    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)
    calls: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)
    request_ids: list[str | None] = field(default_factory=list)
    found: list[Any] = field(default_factory=list)

    def on(self, agent: str, method: str, answer: Any) -> None:
        """`answer`: the result, an error to raise, or a function of the params."""
        self.answers[agent, method] = answer if callable(answer) else lambda params: answer

    async def call(
        self,
        agent: str,
        method: str,
        params: Mapping[str, Any],
        *,
        within_seconds: float,
        request_id: str | None = None,
    ) -> Any:
        self.calls.append((agent, method, params))
        self.request_ids.append(request_id)
        await asyncio.sleep(0)
        if (agent, method) not in self.answers:
            raise AgentUnavailable
        result = self.answers[agent, method](params)
        if isinstance(result, Exception):
            raise result
        return result

    async def discover(self, *, within_seconds: float) -> AsyncIterator[Any]:
        for document in self.found:
            yield document

    def asked(self, method: str) -> list[str]:
        return [agent for agent, asked, _ in self.calls if asked == method]


def described(name: str, *, boot: str = "boot", journal: str = "journal", problems: tuple[str, ...] = ()) -> Any:
    info = AgentInfo(name, "message", "demo", True, problems)
    return to_json(Description, Description(info, "1.0", journal, boot, 7))
