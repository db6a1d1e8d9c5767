"""An agent as the engine drives it, and what it sends into the graph for a turn. Pure; no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from langchain_core.messages import HumanMessage
from langgraph.pregel import Pregel

from perdure.config import AgentSettings
from perdure.turns import Turn

AnyGraph = Pregel[Any, Any, Any, Any]


class Graph(Protocol):
    """A hosted graph: the built-in one or a user's own."""

    @property
    def name(self) -> str: ...

    @property
    def graph(self) -> AnyGraph: ...

    @property
    def input_kind(self) -> str:
        """`message` (it has a `messages` channel) or `json`."""
        ...

    @property
    def model(self) -> str | None:
        """The model's name, None for a user's graph."""
        ...

    def problems(self) -> Sequence[str]:
        """Why it is degraded now, one sentence each with what to do."""
        ...


@dataclass(frozen=True, slots=True)
class Agent:
    hosted: Graph
    settings: AgentSettings

    @property
    def name(self) -> str:
        return self.hosted.name

    @property
    def manual(self) -> bool:
        """Turns whose owner died wait for a person."""
        return self.settings.redrive == "manual"


def human_message(turn: Turn) -> HumanMessage | None:
    """The turn's message under an id made from the turn's: sent twice it replaces itself. None once the thread holds it
    and for JSON input."""
    if turn.input is None or "message" not in turn.input:
        return None
    return HumanMessage(id=f"msg-{turn.id}", content=turn.input["message"])


def graph_input(turn: Turn) -> Mapping[str, Any]:
    """What the graph is invoked with; only while `turn.input` is there."""
    message = human_message(turn)
    if message is not None:
        return {"messages": [message]}
    return dict((turn.input or {})["input"])
