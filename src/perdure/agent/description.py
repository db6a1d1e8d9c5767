"""What an agent's process tells of itself when it is asked (`agent/describe`, and on the subject of discovery)."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.agent.base import AgentInfo


@dataclass(frozen=True, slots=True)
class Description:
    """Travels as `codec.to_json(Description, …)`."""

    agent: AgentInfo
    version: str
    journal: str
    """Which database it serves (`Position.journal`)."""

    boot: str
    """Another one: the process was started anew."""

    position: int = 0
    """Of its journal (`Position.change`), as of now."""
