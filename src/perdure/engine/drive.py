"""One attempt, from claim to end: state → plan → repair? → stream → conclude.

Only the stream (and what comes before it) may be cut: by a person's cancel, a shutdown's deadline, a lost lease or a
latched attempt. The cut work is always awaited before the attempt is ended, so no two drives of a turn overlap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from enum import Enum
from itertools import chain, repeat
from typing import Any, TypeGuard

import structlog
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained, GraphRecursionError
from langgraph.types import Command, StateSnapshot, StreamMode

from perdure import ledger
from perdure.clock import Clock
from perdure.engine import failures
from perdure.engine.control import StepControl, steps_left
from perdure.engine.endings import Ending, Finish, Park, Release, Undo, breakpoint_question, name_of
from perdure.engine.heads import Head, read_head
from perdure.engine.hosting import host
from perdure.engine.inputs import graph_input
from perdure.engine.ledger import AttemptLedger
from perdure.engine.plan import (
    Begin,
    Breakpoints,
    Cancel,
    Close,
    Continue,
    ParkAtBreakpoint,
    Plan,
    Refuse,
    Resume,
    Stay,
    breakpoint_id,
    failed,
    finished,
    owns_head,
    plan,
)
from perdure.engine.relay import Relay, recorded_tasks
from perdure.engine.repair import Mend, has_open_calls, repair, undo
from perdure.errors import LeaseLost, StorageError, StorageFull
from perdure.graph.load import HostedGraph
from perdure.store.base import LeasedAttempt, Question, Store
from perdure.turns import Failure, Outcome, TurnStatus

INPUT = "__input__"
"""LangGraph's name for an update that stands for the input."""

STORAGE_RETRY_SECONDS = 5.0
"""How long a turn rests that met a failing disk."""

HAND_BACK_WAITS_SECONDS = (0.0, 1.0, 3.0, 5.0)
"""Before each try; the last one again and again."""

STREAM_MODES: Sequence[StreamMode] = ("messages", "tasks", "checkpoints", "custom")

log = structlog.get_logger("perdure.engine")


class Cut(Enum):
    """Why the work was cut."""

    CANCEL = "cancel"
    STOP = "stop"
    LOST = "lost"


class Drive:
    """`run` it once, in a task of its own. `cancel`, `drain`, `stop` and `lose` may come at any time, from the loop."""

    def __init__(
        self,
        attempt: LeasedAttempt,
        agent: HostedGraph,
        store: Store,
        clock: Clock,
        progressed: Callable[[], None] = lambda: None,
    ) -> None:
        """`progressed` is called once, when the attempt has committed something."""
        self.attempt = attempt
        self._agent = agent
        self._store = store
        self._clock = clock
        self._progressed: Callable[[], None] | None = progressed
        self._graph = host(agent, attempt.checkpointer)
        self._config: RunnableConfig = {
            "configurable": {"thread_id": attempt.turn.conversation},
            "metadata": {"run_id": attempt.turn.id},
            "recursion_limit": agent.settings.recursion_limit,
        }
        self._control = StepControl(self._steps_left)
        self._relay: Relay | None = None
        self._work: asyncio.Task[Ending] | None = None
        self._cause: Cut | None = None
        self._stopping = asyncio.Event()
        self._log = log.bind(turn=attempt.turn.id, conversation=attempt.turn.conversation, attempt=attempt.number)

    # -- from outside -------------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """A person asked: ends the work promptly, repairs the thread, closes the turn."""
        self._cut(Cut.CANCEL)

    def drain(self) -> None:
        """A shutdown asked: hands the turn back before the next superstep."""
        self._control.request_drain()

    def stop(self) -> None:
        """The shutdown's deadline: hands the turn back now."""
        self._stopping.set()
        self._cut(Cut.STOP)

    def lose(self) -> None:
        """The lease can no longer be trusted: ends the work and writes nothing."""
        self._cut(Cut.LOST)

    @property
    def progressed(self) -> bool:
        return self.attempt.progressed

    @property
    def _cancelled(self) -> bool:
        return self._cause is Cut.CANCEL

    def _cut(self, cause: Cut) -> None:
        if self._cause is None or cause is Cut.LOST:
            self._cause = cause
        if self._work is not None:
            self._work.cancel()

    # -- the pipe -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Returns when the attempt has ended, or cannot be ended from here: then its lease lapses and the sweep acts."""
        ledger.current.set(AttemptLedger(self.attempt))
        self.attempt.on_latch(self.lose)
        self._log.info("turn claimed", agent=self._agent.name)
        try:
            try:
                await self._conclude_attempt(await self._supervise())
            except (LeaseLost, StorageFull, StorageError):
                raise
            except Exception as error:  # nobody foresaw it: the turn must not stay `running` for it
                self._log.exception("the attempt broke; its turn is ended as failed")
                await self.attempt.finish(TurnStatus.FAILED, failures.failure_of(error, None))
        except LeaseLost:
            self._log.warning("turn belongs to another attempt; this one stops")
        except (StorageFull, StorageError) as error:
            await self._give_back(error)

    async def _conclude_attempt(self, ending: Ending) -> None:
        """Ends the attempt; an ending that broke before anything of it was written is tried once more as it was meant."""
        try:
            await self._end(ending)
        except (LeaseLost, StorageFull, StorageError):
            raise
        except Exception:
            if self.attempt.latched is not None:
                raise
            self._log.exception("the attempt's ending broke; it is tried once more")
            await self._end(ending)

    async def _supervise(self) -> Ending:
        """Runs the work so that it can be cut, and tells what its end means."""
        if self._cause is not None:
            return self._after_cut(self._cause)
        self._work = asyncio.create_task(self._pursue())
        try:
            await asyncio.wait({self._work})
        finally:
            await _settle(self._work)
        latched = self.attempt.latched
        if _unstorable(latched):
            return Finish(TurnStatus.FAILED, failures.failure_of(latched, None))
        self._raise_if_lost()
        if self._work.cancelled():
            return self._after_cut(self._cause or Cut.STOP)
        ending = self._work.result()
        return Undo() if self._cancelled and isinstance(ending, Park | Release) else ending

    def _after_cut(self, cause: Cut) -> Ending:
        self._raise_if_lost()
        return Undo() if cause is Cut.CANCEL else Release()

    def _raise_if_lost(self) -> None:
        if self.attempt.latched is not None:
            raise self.attempt.latched
        if self._cause is Cut.LOST:
            raise LeaseLost

    async def _pursue(self) -> Ending:
        """The work, with everything that may go wrong in it as an ending; only a cut and the store's errors escape."""
        try:
            return await self._planned()
        except (LeaseLost, StorageFull, StorageError):
            raise
        except asyncio.CancelledError as error:
            if _cut_from_outside():
                raise
            return await self._failed(error)  # a node's own
        except BaseException as error:
            return await self._failed(error)

    async def _planned(self) -> Ending:
        try:
            head = await read_head(self._graph, self._config, subgraphs=True)
            state = head.state
            answers = await self._store.answers(self.attempt.turn.id)
            decided = plan(
                self.attempt.turn,
                state,
                answers,
                await self._breakpoints(state) if head.fault is None else Breakpoints(),
                open_calls=has_open_calls(state),
                rejected=_rejected(head),
            )
            self._log.debug("turn planned", plan=type(decided).__name__)
            return await self._follow(decided, state, answers)
        except GraphDrained:
            return self._drained()
        except GraphRecursionError:
            return await self._out_of_steps()

    async def _follow(self, decided: Plan, state: StateSnapshot, answers: Mapping[str, Any]) -> Ending:
        match decided:
            case Cancel():
                return Undo()
            case Close():
                return Finish(TurnStatus.COMPLETED)
            case Refuse(failure):
                return Finish(TurnStatus.FAILED, failure)
            case Stay(questions):
                return Park([Question(each.id, each.value) for each in questions])
            case ParkAtBreakpoint(question_id, nodes):
                return Park([breakpoint_question(question_id, nodes)])
            case Begin(needs_repair):
                await self._begin(state, needs_repair)
            case Resume(given):
                await self._stream(Command(resume=dict(given)), state)
            case Continue():
                await self._stream(None, state)
        return await self._conclude(answers)

    async def _begin(self, state: StateSnapshot, needs_repair: bool) -> None:
        """The first commit of the turn. A repair marks the head as this turn's, and LangGraph would take an input after
        it for one that was already sent; so it is then stored as an update that stands for the input."""
        turn = self.attempt.turn
        if needs_repair:
            await repair(self._graph, turn.conversation, turn.id, Mend())
        elif not owns_head(turn.id, state):
            self.attempt.reuse_read()  # there are no tasks: only the plan has seen it
            await self._stream(graph_input(turn), state)
            return
        await self._graph.aupdate_state(self._config, graph_input(turn), as_node=INPUT)
        await self._stream(None, await self._head())

    async def _stream(self, given: Any, state: StateSnapshot) -> None:
        step = int((state.metadata or {}).get("step", -2)) + 1
        relay = self._relay = Relay(self.attempt, self._clock, recorded_tasks(state), step)
        parts = self._graph.astream(
            given,
            self._config,
            stream_mode=STREAM_MODES,
            version="v2",
            subgraphs=True,
            durability="sync",
            control=self._control,
        )
        try:
            async with aclosing(parts) as stream:  # type: ignore[type-var]
                async for part in stream:
                    relay.feed(part)
                    self._tell_progress()
        except asyncio.CancelledError:
            relay.discard()
            raise
        finally:
            relay.close()

    def _tell_progress(self) -> None:
        if self._progressed is not None and self.attempt.progressed:
            self._progressed()
            self._progressed = None

    # -- what an end means --------------------------------------------------------------------------------------------

    async def _conclude(self, answers: Mapping[str, Any]) -> Ending:
        """After the stream ended by itself and its rows are committed. A question is never told from the stream, which
        says it before it is durable; that a checkpoint leaves nothing to do needs no second look."""
        if self._relay is not None and self._relay.at_end:
            return Finish(TurnStatus.COMPLETED)
        state = await self._head()
        if state.interrupts:
            if all(each.id in answers for each in state.interrupts):
                return Finish(TurnStatus.FAILED, failures.question_repeated())
            return Park([Question(each.id, each.value) for each in state.interrupts])
        if state.tasks:
            return Park([breakpoint_question(breakpoint_id(state), [task.name for task in state.tasks])])
        return Finish(TurnStatus.COMPLETED)

    def _drained(self) -> Ending:
        if not self._control.spent:
            return Release()
        return Finish(
            TurnStatus.FAILED, failures.recursion_limit(self._steps_used(), self._agent.settings.recursion_limit)
        )

    async def _out_of_steps(self) -> Ending:
        """LangGraph counts the step that would find nothing to do, and it counts a subgraph's own steps."""
        if finished(self.attempt.turn.id, await self._head()):
            return Finish(TurnStatus.COMPLETED)
        if self._control.spent:
            return self._drained()
        return Finish(TurnStatus.FAILED, failures.subgraph_recursion_limit(self._agent.settings.recursion_limit))

    async def _failed(self, error: BaseException) -> Ending:
        if not _unstorable(self.attempt.latched):
            self._raise_if_lost()
        self._log.warning("turn failed", error=type(error).__name__, exc_info=error)
        try:
            head = await read_head(self._graph, self._config)
        except Exception as unreadable:
            self._log.warning("the thread cannot be read", error=type(unreadable).__name__)
            return Finish(TurnStatus.FAILED, failures.failure_of(error, None))
        if head.fault is not None and failures.same(error, head.fault):
            return Finish(TurnStatus.FAILED, _rejected(head))
        node = next((task.name for task in head.state.tasks if failed(task)), None)
        return Finish(TurnStatus.FAILED, failures.failure_of(error, node))

    async def _end(self, ending: Ending) -> None:
        match ending:
            case Undo():
                await self._undo()
                await self.attempt.finish(TurnStatus.CANCELLED)
            case Park(questions):
                await self.attempt.park(questions)
            case Finish(status, failure):
                await self.attempt.finish(status, failure)
            case Release():
                await self.attempt.release(Outcome.RELEASED)
        self._log.info("attempt ended", ending=name_of(ending))

    async def _undo(self) -> None:
        spoken = self._relay.spoken() if self._relay is not None else None
        try:
            await undo(self._graph, self.attempt.turn, spoken)
        except (LeaseLost, StorageFull, StorageError):
            raise
        except Exception as error:  # the graph's own code (a reducer, a router): the cancel still counts
            self._raise_if_lost()
            self._log.exception("the thread was not wholly repaired", error=type(error).__name__)

    async def _give_back(self, error: StorageError | StorageFull) -> None:
        """Nothing of this turn could be read or written: it is nobody's failure and spends no attempt. Where even this
        cannot be written it is tried until the disk takes writes again: no sweep takes a turn that this process holds, and
        the fence refuses what comes too late. At a shutdown the turn is left to its lease."""
        self._log.error("storage failed; the turn is handed back", error=error.message)
        for wait_seconds in chain(HAND_BACK_WAITS_SECONDS, repeat(HAND_BACK_WAITS_SECONDS[-1])):
            if wait_seconds and await self._stopped_within(wait_seconds):
                return
            try:
                await self._hand_back(error)
                return
            except LeaseLost:
                return
            except (StorageFull, StorageError) as again:
                self._log.error("the turn could not be handed back", error=again.message)

    async def _stopped_within(self, seconds: float) -> bool:
        """Waits so long; True, and at once, when this process stops."""
        waits = [asyncio.create_task(self._clock.sleep(seconds)), asyncio.create_task(self._stopping.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return self._stopping.is_set() and not waits[0].done()

    async def _hand_back(self, error: StorageError | StorageFull) -> None:
        not_before = self._clock.now() + timedelta(seconds=STORAGE_RETRY_SECONDS)
        if self.attempt.latched is None:
            await self.attempt.release(Outcome.RELEASED, not_before=not_before, error=error.message)
        else:
            await self.attempt.give_up(not_before=not_before, error=error.message)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def _head(self, *, subgraphs: bool = False) -> StateSnapshot:
        return await self._graph.aget_state(self._config, subgraphs=subgraphs)

    async def _breakpoints(self, state: StateSnapshot) -> Breakpoints:
        before = _nodes(self._graph.interrupt_before_nodes)
        after = _nodes(self._graph.interrupt_after_nodes)
        ran = await self._ran(state) if after else ()
        return Breakpoints(before, after, ran)

    async def _ran(self, state: StateSnapshot) -> Sequence[str]:
        """The nodes of the step that made the head."""
        if state.parent_config is None or (state.metadata or {}).get("source") != "loop":
            return ()
        parent = await self._graph.aget_state(state.parent_config)
        return [task.name for task in parent.tasks]

    def _steps_left(self) -> int:
        limit = self._agent.settings.recursion_limit
        return steps_left(limit, self.attempt.supersteps, self.attempt.turn.budget_from)

    def _steps_used(self) -> int:
        return self._agent.settings.recursion_limit - self._steps_left()


def _unstorable(latched: BaseException | None) -> TypeGuard[BaseException]:
    """Whether an attempt latched on what was to be written, not on who may write or on the disk."""
    return latched is not None and not isinstance(latched, LeaseLost | StorageFull | StorageError)


def _rejected(head: Head) -> Failure | None:
    if head.fault is None:
        return None
    return failures.state_rejected(head.fault, [task.name for task in head.state.tasks])


def _cut_from_outside() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _nodes(named: Sequence[str] | str) -> tuple[str, ...]:
    return (named,) if isinstance(named, str) else tuple(named)


async def _settle(work: asyncio.Task[Any]) -> None:
    """Ends the work if it still runs, and waits for it."""
    if not work.done():
        work.cancel()
        await asyncio.wait({work})
