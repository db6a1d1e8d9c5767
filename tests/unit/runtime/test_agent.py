"""An agent's process: what it tells of a database that it did not fill."""

from __future__ import annotations

from perdure.runtime.agent import not_served


def test_conversations_that_nobody_serves_are_told() -> None:
    (told,) = not_served("shop", {"agent": (12, 0)})
    assert "12 conversations" in told
    assert "--agent-name agent" in told
    (waiting,) = not_served("shop", {"shop": (3, 0), "helper": (2, 1)})
    assert "--agent-name helper" in waiting


def test_the_rest_of_a_copied_database_is_nobodys_concern() -> None:
    assert not_served("shop", {}) == []
    assert not_served("shop", {"shop": (3, 1), "helper": (2, 0)}) == []
