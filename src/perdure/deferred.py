"""The one place that imports a module by its path: what needs LangGraph is loaded when it is used, not for a help text."""

from __future__ import annotations

import importlib
from typing import Any


def deferred(module: str) -> Any:
    """The module, imported now."""
    return importlib.import_module(module)
