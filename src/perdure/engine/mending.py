"""What a repair says of each call, from the ledger of the turn that made it: the recorded result, the decision, or what is
known."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import cast

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import StateSnapshot

from perdure.engine.heads import read_head
from perdure.engine.hosting import AnyGraph, saver_of
from perdure.engine.inputs import human_message, turn_of
from perdure.engine.ledger import AttemptLedger, Calls
from perdure.engine.plan import owns_head
from perdure.engine.relay import Partial
from perdure.engine.repair import Closing, Mend, cancelled, has_open_calls, messages_of, open_turn, repair
from perdure.errors import NotFound, StateTypeNotAllowed
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
        self._config: RunnableConfig = {"configurable": {"thread_id": turn.conversation}}

    async def undo(self, ledger: AttemptLedger, spoken: Sequence[Partial]) -> None:
        """The repair of a cancelled turn: its message and what was said stay. Of a turn that is cancelled before it began,
        what an earlier one left open was not cancelled by this person. What was said before a park is said first."""
        if self._turn.input is not None and await self._holds_nothing():
            await self.before_input()
        human = human_message(self._turn)
        closing = self._closing(ledger.calls, cancelled=True)
        before = [Partial(each.message, each.text) for each in await self._store.spoken(self._turn.id)]
        await self._repair(
            cancelled(human, [*before, *spoken], closing=closing, calling=ledger.calling, covers=self._covers())
        )

    async def _holds_nothing(self) -> bool:
        """Whether the thread is still as another turn left it. (A repair alone makes the head this turn's.)"""
        state = (await read_head(self._graph, self._config)).state
        begun_by = _begun_by(state)
        return not owns_head(self._turn.id, state) if begun_by is None else begun_by != self._turn.id

    async def before_input(self) -> None:
        """What an unfinished turn left is ended, before this one's input."""
        head = await read_head(self._graph, self._config)
        if head.fault is None and not head.state.tasks and not has_open_calls(head.state):
            return
        left = await self._left_by(head.state)
        await self._repair(Mend() if left is None else Mend(closing=self._closing(left, cancelled=False)))

    async def _repair(self, mend: Mend) -> None:
        await repair(self._graph, self._turn.conversation, self._turn.id, mend)

    async def _left_by(self, state: StateSnapshot) -> Calls | None:
        """The ledger of the turn that made the open calls: the one whose message they follow, else the last one that made a
        checkpoint before this one did. (What repaired the thread since then, and broke, has checkpoints of its own.)"""
        turn = _begun_by(state)
        if turn is None:
            turn = await anext((run_id async for run_id in self._runs() if run_id != self._turn.id), None)
        if turn is None or not await self._is_known(turn):
            return None
        return await load_calls(self._agent, self._graph, self._store, turn)

    async def _is_known(self, turn: str) -> bool:
        """A fork may begin within a turn of a conversation that is deleted by now, and with it what was known of its calls: an
        empty ledger would say that none was ever started."""
        try:
            await self._store.turn(None, turn)
        except NotFound:
            return False
        return True

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
                ledger = cast(Ledger, calls)  # it is only read
                return answers.closing(ledger, asker, asked, covered=covered, cancelled=cancelled)
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


def _begun_by(state: StateSnapshot) -> str | None:
    """The turn of the last message of a person, where that tells."""
    return turn_of(next(iter(open_turn(messages_of(state))), None))


async def load_calls(agent: HostedGraph, graph: AnyGraph, store: Store, turn: str) -> Calls:
    """Raises StorageError."""
    calls, cards = await store.ledger(turn), await store.verdicts(turn)
    return Calls(turn, agent.policy, calls, cards, saver_of(graph).serde)
