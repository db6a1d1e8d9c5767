"""Perdure: a durable runtime for LLM agents. A message that was accepted is answered, whatever dies in between.

    from perdure import Runtime, load_settings

    async with Runtime(load_settings({}, os.environ, Path.cwd())) as runtime:
        print(runtime.address)

`Runtime` and `serve` start a server. `effect` declares what a tool does to the world, `call_key` gives it the idempotency key
of its call, `NOT_HAPPENED` is what a `lookup` answers. `ToolNode` (in a StateGraph) and `DurableToolsMiddleware` (in
`create_agent`) make the tools of a graph of one's own as safe as the built-in agent's. The rest is vocabulary.
"""

from __future__ import annotations

import os

# LangGraph reads it once, when it is imported: state is read back strictly or not at all.
os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")

from typing import TYPE_CHECKING, Any

from perdure.config import AgentSettings, Settings
from perdure.deferred import deferred
from perdure.errors import PerdureError
from perdure.events import Event, Fold
from perdure.turns import TurnStatus

if TYPE_CHECKING:
    from perdure.graph.effect import NOT_HAPPENED, effect
    from perdure.graph.keys import call_key
    from perdure.graph.middleware import DurableToolsMiddleware
    from perdure.graph.tool_node import ToolNode
    from perdure.runtime.runtime import Runtime, serve
    from perdure.settings import load as load_settings

__version__ = "0.2.0"

__all__ = [
    "NOT_HAPPENED",
    "AgentSettings",
    "DurableToolsMiddleware",
    "Event",
    "Fold",
    "PerdureError",
    "Runtime",
    "Settings",
    "ToolNode",
    "TurnStatus",
    "__version__",
    "call_key",
    "effect",
    "load_settings",
    "serve",
]

_LAZY = {
    "DurableToolsMiddleware": ("perdure.graph.middleware", "DurableToolsMiddleware"),
    "NOT_HAPPENED": ("perdure.graph.effect", "NOT_HAPPENED"),
    "Runtime": ("perdure.runtime.runtime", "Runtime"),
    "ToolNode": ("perdure.graph.tool_node", "ToolNode"),
    "call_key": ("perdure.graph.keys", "call_key"),
    "effect": ("perdure.graph.effect", "effect"),
    "load_settings": ("perdure.settings", "load"),
    "serve": ("perdure.runtime.runtime", "serve"),
}
"""Names whose modules need LangGraph: loaded at their first use."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module, attribute = _LAZY[name]
        return getattr(deferred(module), attribute)
    raise AttributeError(f"module 'perdure' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
