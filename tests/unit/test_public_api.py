"""The public API: a short list that does not grow by accident, and costs little to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import perdure

NAMES = {
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
}


def test_the_public_names_are_exactly_these() -> None:
    assert set(perdure.__all__) == NAMES
    assert set(dir(perdure)) == NAMES
    assert all(getattr(perdure, name) is not None for name in NAMES)


def test_a_star_import_brings_nothing_else() -> None:
    found: dict[str, object] = {}
    exec("from perdure import *", found)
    assert set(found) - {"__builtins__"} == NAMES


def test_importing_perdure_is_cheap_and_sets_strict_reading_first() -> None:
    code = (
        "import sys, os, perdure; "
        "print(os.environ['LANGGRAPH_STRICT_MSGPACK'], [n for n in ('langgraph', 'typer', 'apsw') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "true []"


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(perdure, "Manager")


def test_the_version_is_that_of_the_distribution() -> None:
    pyproject = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'version = "{perdure.__version__}"' in pyproject
