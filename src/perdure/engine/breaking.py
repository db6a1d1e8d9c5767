"""What it means for the turn that its work broke off: an error, a drain, no steps left."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig

from perdure.engine import failures
from perdure.engine.control import StepControl
from perdure.engine.endings import Ending, Finish, Release
from perdure.engine.heads import Head, read_head
from perdure.engine.hosting import AnyGraph
from perdure.engine.plan import failed, finished
from perdure.store.base import LeasedAttempt
from perdure.turns import Failure, TurnStatus


class Breaking:
    """Of one attempt."""

    def __init__(
        self,
        attempt: LeasedAttempt,
        graph: AnyGraph,
        config: RunnableConfig,
        control: StepControl,
        log: Any,
    ) -> None:
        """`config`: what the graph is driven with, its `recursion_limit` among it."""
        self._attempt = attempt
        self._graph = graph
        self._config = config
        self._control = control
        self._limit = config["recursion_limit"]
        self._log = log

    def drained(self) -> Ending:
        if not self._control.spent:
            return Release()
        return Finish(TurnStatus.FAILED, failures.recursion_limit(self._limit - self._control.left, self._limit))

    async def out_of_steps(self) -> Ending:
        """LangGraph counts the step that would find nothing to do, and it counts a subgraph's own steps."""
        head = await self._head()
        if self._over(head):
            return Finish(TurnStatus.COMPLETED)
        if self._control.spent:
            return self.drained()
        return Finish(TurnStatus.FAILED, failures.subgraph_recursion_limit(self._limit))

    async def limited(self, limit: Failure | None) -> Ending:
        """Cut by a limit of the turn."""
        return Finish(TurnStatus.COMPLETED) if self._over(await self._head()) else Finish(TurnStatus.FAILED, limit)

    async def failed(self, error: BaseException) -> Ending:
        """An error that comes behind the last commit does not make a finished turn a failed one."""
        self._log.warning("turn failed", error=type(error).__name__, exc_info=error)
        head = await self._head()
        if head is None:
            return Finish(TurnStatus.FAILED, failures.failure_of(error, None))
        if self._attempt.latched is None and self._over(head):
            return Finish(TurnStatus.COMPLETED)
        if head.fault is not None and failures.same(error, head.fault):
            return Finish(TurnStatus.FAILED, rejection(head))
        node = next((task.name for task in head.state.tasks if failed(task)), None)
        return Finish(TurnStatus.FAILED, failures.failure_of(error, node))

    async def _head(self) -> Head | None:
        """None when the thread cannot be read."""
        try:
            return await read_head(self._graph, self._config)
        except Exception as unreadable:
            self._log.warning("the thread cannot be read", error=type(unreadable).__name__)
            return None

    def _over(self, head: Head | None) -> bool:
        return head is not None and head.fault is None and finished(self._attempt.turn.id, head.state)


def rejection(head: Head) -> Failure | None:
    """Why the turn cannot go on from a head whose state does not take what the last step wrote."""
    if head.fault is None:
        return None
    return failures.state_rejected(head.fault, [task.name for task in head.state.tasks])
