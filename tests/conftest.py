"""Perdure is imported before LangGraph, which reads its strictness once. Generated examples are the same in every run: a
search for new ones is `HYPOTHESIS_PROFILE=search`. Where files are shared out among processes, the long ones go first."""

import os

import pytest
from hypothesis import settings

import perdure  # noqa: F401

settings.register_profile("suite", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

LONGEST_FIRST = (
    "test_decisions.py",
    "test_toolstorm.py",
    "test_failpoints.py",
    "test_storm.py",
    "test_defects.py",
    "test_powerloss.py",
    "test_mcp_servers.py",
    "test_readme_journey.py",
    "test_checkpointer_differential.py",
)
"""Files of the crash suite, of acceptance and of conformance that take more than ten seconds."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A long file at the end would be waited for by everybody else."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _place(item.nodeid.partition("::")[0]))


def _place(file: str) -> int:
    slow = "tests/unit" not in file
    name = file.rpartition("/")[2]
    if slow and name in LONGEST_FIRST:
        return LONGEST_FIRST.index(name)
    return len(LONGEST_FIRST) + (not file.startswith("tests/acceptance")) + file.startswith("tests/unit")
