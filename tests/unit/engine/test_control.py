"""The step budget: the journal's count, over all attempts."""

from __future__ import annotations

import pytest

from perdure.engine.control import StepControl, steps_left


@pytest.mark.parametrize(
    ("supersteps", "budget_from", "left"), [(0, 0, 25), (24, 0, 1), (25, 0, 0), (25, 25, 25), (49, 25, 1), (50, 25, 0)]
)
def test_a_continue_gives_a_fresh_budget_and_a_new_attempt_does_not(
    supersteps: int, budget_from: int, left: int
) -> None:
    assert steps_left(25, supersteps, budget_from) == left


def test_the_graph_is_stopped_when_no_step_is_left() -> None:
    assert not StepControl(lambda: 1).drain_requested
    spent = StepControl(lambda: 0)
    assert spent.drain_requested
    assert spent.spent


def test_a_drain_stops_the_graph_with_steps_left() -> None:
    control = StepControl(lambda: 1)
    control.request_drain()
    assert control.drain_requested
    assert not control.spent
