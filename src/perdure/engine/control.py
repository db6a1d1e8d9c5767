"""The step budget and the drain, as the one control LangGraph looks at between two supersteps."""

from __future__ import annotations

from collections.abc import Callable

from langgraph.runtime import RunControl


class StepControl(RunControl):
    """Stops the graph before a superstep that the turn has no budget for, or that a shutdown asked not to begin.

    LangGraph's own `recursion_limit` starts from zero at every resume and lets two steps more pass there; this one counts
    what the journal counts, over all attempts. Work that needs no further step still ends normally.
    """

    __slots__ = ("_left",)

    def __init__(self, left: Callable[[], int]) -> None:
        """`left`: how many root supersteps may still begin."""
        super().__init__()
        self._left = left

    @property
    def left(self) -> int:
        return self._left()

    @property
    def spent(self) -> bool:
        return self.left <= 0

    @property
    def drain_requested(self) -> bool:
        return super().drain_requested or self.spent


def steps_left(limit: int, supersteps: int, budget_from: int) -> int:
    """`limit` steps a turn, counted from its accept or a person's last Continue. The journal does not count the hidden step
    that hands the input to the first node, as LangGraph's limit does not."""
    return limit - (supersteps - budget_from)
