"""What a repair says of each call, from the ledger of the turn that made it: the recorded result, the decision, or what is
known."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import cast

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from perdure.engine.heads import read_head
from perdure.engine.hosting import AnyGraph, saver_of
from perdure.engine.inputs import human_message
from perdure.engine.ledger import AttemptLedger, Calls
from perdure.engine.plan import owns_head
from perdure.engine.relay import Partial
from perdure.engine.repair import Closing, Mend, cancelled, has_open_calls, repair
from perdure.errors import StateTypeNotAllowed
from perdure.graph import answers
from perdure.graph.coverage import coverage_of
from perdure.graph.history import Asked
from perdure.graph.load import HostedGraph
from perdure.ledger import Ledger
from perdure.store.base import Store
from perdure.turns import Turn


class Mending:
    """The repairs of one attempt's thread."""

    def __init__(self, agent: HostedGraph, graph: AnyGraph, store: Store, turn: Turn) -> None:
        """`graph`: bound to the attempt's saver."""
        self._agent = agent
        self._graph = graph
        self._store = store
        self._turn = turn

    async def undo(self, ledger: AttemptLedger, spoken: Sequence[Partial]) -> None:
        """The repair of a cancelled turn: its message and what was said stay. Of a turn that is cancelled before it began,
        what an earlier one left open was not cancelled by this person."""
        turn = self._turn
        human = human_message(turn)
        if human is not None:
            config: RunnableConfig = {"configurable": {"thread_id": turn.conversation}}
            head = await read_head(self._graph, config)
            state = head.state
            if not owns_head(turn.id, state) and (head.fault or state.tasks or has_open_calls(state)):
                await self.before_input()
        closing = self._closing(ledger.calls, cancelled=True)
        await self._repair(cancelled(human, spoken, closing=closing, calling=ledger.calling, covers=self._covers()))

    async def before_input(self) -> None:
        """What an unfinished turn left is ended, before this one's input."""
        left = await self._left_by()
        await self._repair(Mend() if left is None else Mend(closing=self._closing(left, cancelled=False)))

    async def _repair(self, mend: Mend) -> None:
        await repair(self._graph, self._turn.conversation, self._turn.id, mend)

    async def _left_by(self) -> Calls | None:
        """The ledger of the turn that the thread was left by: the last one that made a checkpoint before this one did."""
        async for run_id in self._runs():
            if run_id != self._turn.id:
                return await load_calls(self._agent, self._graph, self._store, run_id)
        return None

    async def _runs(self) -> AsyncIterator[str]:
        """Whose the head is, whose its parent, and so on."""
        saver = saver_of(self._graph)
        place: RunnableConfig | None = {"configurable": {"thread_id": self._turn.conversation, "checkpoint_ns": ""}}
        while place is not None and (saved := await saver.aget_tuple(place)) is not None:
            yield str(saved.metadata.get("run_id", ""))
            place = saved.parent_config

    def _closing(self, calls: Calls, *, cancelled: bool) -> Closing:
        covers = self._covers()

        def closing(asker: AIMessage, asked: Asked) -> ToolMessage | None:
            try:
                covered = covers(asked.name)
                return answers.closing(cast(Ledger, calls), asker, asked, covered=covered, cancelled=cancelled)
            except StateTypeNotAllowed:  # recorded when the settings allowed its type
                return None

        return closing

    def _covers(self) -> Callable[[str], bool]:
        """Whether every call of a tool passes the guard, so that a ledger without it knows that it was never started."""
        if self._agent.tools is not None:
            return lambda tool: True
        coverage = coverage_of(self._agent.graph)
        guarded = {*coverage.covered} - {*coverage.uncovered}
        return guarded.__contains__


async def load_calls(agent: HostedGraph, graph: AnyGraph, store: Store, turn: str) -> Calls:
    """Raises StorageError."""
    calls, cards = await store.ledger(turn), await store.verdicts(turn)
    return Calls(turn, agent.policy, calls, cards, saver_of(graph).serde)
