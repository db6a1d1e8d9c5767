"""One attempt, from claim to end: state → plan → repair? → stream → conclude.

Only the stream (and what comes before it) may be cut: by a person's cancel, a shutdown's deadline, a lost lease or a
latched attempt. The cut work is always awaited before the attempt is ended, so no two drives of a turn overlap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from enum import Enum
from typing import Any, TypeGuard

import structlog
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained, GraphRecursionError
from langgraph.types import Command, StateSnapshot, StreamMode

from perdure import ledger
from perdure.clock import Clock
from perdure.engine import failures
from perdure.engine.answers import Answers
from perdure.engine.breaking import Breaking, rejection
from perdure.engine.breakpoints import breakpoints_at
from perdure.engine.concluding import Conclusion
from perdure.engine.control import StepControl, steps_left
from perdure.engine.endings import Ending, Finish, Park, Release, Undo, breakpoint_question
from perdure.engine.forgetting import asking_anew
from perdure.engine.heads import read_head
from perdure.engine.hosting import AnyGraph, host
from perdure.engine.inputs import graph_input
from perdure.engine.ledger import AttemptLedger
from perdure.engine.mending import Mending, load_calls
from perdure.engine.modelcalls import ModelCalls
from perdure.engine.plan import (
    AskAnew,
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
    owns_head,
    plan,
)
from perdure.engine.relay import Relay, recorded_tasks
from perdure.engine.repair import has_open_calls
from perdure.errors import LeaseLost, StorageError, StorageFull
from perdure.graph.load import HostedGraph
from perdure.store.base import LeasedAttempt, Question, Store
from perdure.turns import Failure, TurnStatus

INPUT = "__input__"
"""LangGraph's name for an update that stands for the input."""

STREAM_MODES: Sequence[StreamMode] = ("messages", "tasks", "checkpoints", "custom")

log = structlog.get_logger("perdure.engine")


class Cut(Enum):
    """Why the work was cut."""

    LIMIT = "limit"
    STOP = "stop"
    CANCEL = "cancel"
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
        *,
        tool_timeout_seconds: float = 300.0,
    ) -> None:
        """`progressed` is called once, when the attempt has committed something. `tool_timeout_seconds`: the longest that
        any tool call may take."""
        self.attempt = attempt
        self.parked: Sequence[Question] = ()
        """What the turn waits for, once the attempt has ended so."""

        self._agent = agent
        self._store = store
        self._clock = clock
        self._progressed: Callable[[], None] | None = progressed
        self._tool_timeout_seconds = tool_timeout_seconds
        self._graph = host(agent, attempt.checkpointer)
        self._config: RunnableConfig = {
            "configurable": {"thread_id": attempt.turn.conversation},
            "metadata": {"run_id": attempt.turn.id},
            "recursion_limit": agent.settings.recursion_limit,
        }
        self._control = StepControl(self._steps_left)
        self._relay: Relay | None = None
        self._ledger: AttemptLedger
        self._began: float
        """Monotonic seconds: when the work on the turn would have begun, had nobody paused."""

        self._work: asyncio.Task[Ending] | None = None
        self._cause: Cut | None = None
        self._limit: Failure | None = None
        self._stopping = asyncio.Event()
        self._log = log.bind(turn=attempt.turn.id, conversation=attempt.turn.conversation, attempt=attempt.number)
        self._breaking = Breaking(attempt, self._graph, self._config, self._control, self._log)
        self._mending = Mending(agent, self._graph, store, attempt.turn)
        self._conclusion = Conclusion(attempt, self._mending, clock, self._stopping, self._log)

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

    def _cut(self, cause: Cut) -> None:
        """A person's cancel counts although a limit came first; a lost lease is stronger than everything. What was cut has time
        to end and is not cut again, unless this process must end or may not write any more."""
        before = self._cause
        if before in {None, Cut.LIMIT} or cause is Cut.LOST:
            self._cause = cause
        if self._work is not None and (before is None or cause in {Cut.STOP, Cut.LOST}):
            self._work.cancel()

    def _reach(self, limit: Failure, at_once: bool) -> None:
        """The work ends now, or behind the step that is under way."""
        self._limit = self._limit or limit
        if at_once:
            self._cut(Cut.LIMIT)
        else:
            self._control.request_drain()

    def _grace_seconds(self) -> float:
        """How long a call that is under way may take to end, when its task was cut."""
        over = self._stopping.is_set() or self._cause is Cut.LOST or self.attempt.latched is not None
        return 0.0 if over else self._tool_timeout_seconds

    # -- the pipe -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Returns when the attempt has ended, or cannot be ended from here: then its lease lapses and the sweep acts."""
        self.attempt.on_latch(self.lose)
        self._log.info("turn claimed", agent=self._agent.name)
        try:
            try:
                await self._attempted()
            except (LeaseLost, StorageFull, StorageError):
                raise
            except Exception as error:  # nobody foresaw it: the turn must not stay `running` for it
                self._log.exception("the attempt broke; its turn is ended as failed")
                await self.attempt.finish(TurnStatus.FAILED, failures.failure_of(error, None))
        except LeaseLost:
            self._log.warning("turn belongs to another attempt; this one stops")
        except (StorageFull, StorageError) as error:
            await self._conclusion.give_back(error)

    async def _attempted(self) -> None:
        """The whole way from the ledger to the end of the attempt."""
        turn, settings = self.attempt.turn, self._agent.settings
        calls = await load_calls(self._agent, self._graph, self._store, turn.id)
        loop = asyncio.get_running_loop()
        self._ledger = AttemptLedger(
            self.attempt,
            settings,
            calls,
            self._grace_seconds,
            lambda limit, at_once: loop.call_soon_threadsafe(self._reach, limit, at_once),
            draining=lambda: self._control.drain_requested,
        )
        if self.attempt.asking:
            self.parked = await self._conclusion.ask(self._ledger)
            return
        self._began = self._clock.monotonic() - turn.spent.seconds
        ledger.current.set(self._ledger)
        ModelCalls(self._ledger).watch()
        ending = await self._supervise()
        await self._conclusion.write(ending, self._ledger, self._relay.spoken() if self._relay is not None else ())
        if isinstance(ending, Park):
            self.parked = ending.questions

    async def _supervise(self) -> Ending:
        """Runs the work so that it can be cut, and tells what its end means."""
        if self._cause is not None:
            return await self._after_cut(self._cause)
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
            return await self._after_cut(self._cause or Cut.STOP)
        return self._despite_cut(self._work.result())

    async def _after_cut(self, cause: Cut) -> Ending:
        self._raise_if_lost()
        if cause is Cut.CANCEL:
            return Undo()
        return await self._breaking.limited(self._limit) if cause is Cut.LIMIT else Release()

    def _despite_cut(self, ending: Ending) -> Ending:
        """What the end of work means that had ended, or broke, when it was cut."""
        done = isinstance(ending, Finish) and ending.failure is None
        if self._cause is Cut.CANCEL and not done:
            return Undo()
        if self._cause is Cut.LIMIT and isinstance(ending, Finish) and not done:
            return Finish(TurnStatus.FAILED, self._limit)
        return ending

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
            answers = Answers(self._ledger.calls.cards)
            decided = plan(
                self.attempt.turn,
                state,
                answers,
                await breakpoints_at(self._graph, state) if head.fault is None else Breakpoints(),
                again=self.attempt.rewind is not None or self._retried(),
                open_calls=has_open_calls(state),
                rejected=rejection(head),
            )
            self._log.debug("turn planned", plan=type(decided).__name__)
            return await self._follow(decided, state, answers)
        except GraphDrained as error:
            if not self._control.drain_requested:  # a node's own, or of a graph that it ran
                return await self._breaking.failed(error)
            if self._limit is not None:
                return await self._breaking.limited(self._limit)
            return self._breaking.drained()
        except GraphRecursionError:
            return await self._breaking.out_of_steps()

    def _retried(self) -> bool:
        """Attempts without progress came before this one: a park sets their count back, unless all it did was to ask."""
        return self.attempt.turn.attempts_without_progress > 1

    async def _follow(self, decided: Plan, state: StateSnapshot, answers: Answers) -> Ending:
        sent: frozenset[str] = frozenset()
        match decided:
            case Cancel():
                return Undo()
            case Close():
                return Finish(TurnStatus.COMPLETED)
            case Refuse(failure):
                return Finish(TurnStatus.FAILED, failure)
            case Stay(questions):
                return answers.park(questions)
            case ParkAtBreakpoint(question_id, nodes):
                return Park([breakpoint_question(question_id, nodes)])
            case Begin(needs_repair):
                await self._begin(state, needs_repair)
            case Resume(given):
                sent = answers.keys(state.interrupts)
                await self._answer(given, state)
            case AskAnew():
                await self._stream(None, state, asking_anew(self._graph, self.attempt.turn.id))
            case Continue():
                await self._stream(None, state)
        return await self._conclude(answers, sent)

    async def _begin(self, state: StateSnapshot, needs_repair: bool) -> None:
        """The first commit of the turn. A repair marks the head as this turn's, and LangGraph would take an input after
        it for one that was already sent; so it is then stored as an update that stands for the input."""
        turn = self.attempt.turn
        if needs_repair:
            await self._mending.before_input()
        elif not owns_head(turn.id, state):
            self.attempt.reuse_read()  # there are no tasks: only the plan has seen it
            await self._stream(graph_input(turn), state)
            return
        await self._graph.aupdate_state(self._config, graph_input(turn), as_node=INPUT)
        await self._stream(None, await self._head())

    async def _answer(self, given: Mapping[str, Any], state: StateSnapshot) -> None:
        """A step that only gates stopped goes on without any answer."""
        await self._stream(Command(resume=dict(given)) if given else None, state)

    async def _stream(self, given: Any, state: StateSnapshot, graph: AnyGraph | None = None) -> None:
        step = int((state.metadata or {}).get("step", -2)) + 1
        relay = self._relay = Relay(self.attempt, self._clock, recorded_tasks(state), step)
        parts = (graph or self._graph).astream(
            given,
            self._config,
            stream_mode=STREAM_MODES,
            version="v2",
            subgraphs=True,
            durability="sync",
            control=self._control,
        )
        clock = asyncio.create_task(self._run_out_of_time())
        try:
            async with aclosing(parts) as stream:  # type: ignore[type-var]
                async for part in stream:
                    relay.feed(part)
                    self._tell_progress()
        except asyncio.CancelledError:
            relay.discard()
            raise
        finally:
            clock.cancel()
            relay.close()

    async def _run_out_of_time(self) -> None:
        """Ends the work when the turn has been worked on for as long as it may."""
        limit = self._agent.settings.max_turn_seconds
        if limit is not None:
            await self._clock.sleep(max(self._began + limit - self._clock.monotonic(), 0.0))
            self._reach(failures.time_limit(limit), at_once=True)

    def _tell_progress(self) -> None:
        if self._progressed is not None and self.attempt.progressed:
            self._progressed()
            self._progressed = None

    async def _failed(self, error: BaseException) -> Ending:
        if not _unstorable(self.attempt.latched):
            self._raise_if_lost()
        return await self._breaking.failed(error)

    # -- what an end means --------------------------------------------------------------------------------------------

    async def _conclude(self, answers: Answers, sent: frozenset[str]) -> Ending:
        """After a stream ended by itself and its rows are committed. A question is never told from the stream, which says it
        before it is durable; that a checkpoint leaves nothing to do needs no second look. `sent`: the questions whose
        answers this attempt has sent."""
        while self._relay is None or not self._relay.at_end:
            state = await self._head()
            asked = answers.keys(state.interrupts)
            if not asked:
                return self._stopped(state)
            if not all(answers.decided(each) for each in state.interrupts):
                return answers.park(state.interrupts)
            if asked <= sent:
                return Finish(TurnStatus.FAILED, failures.question_repeated())
            sent |= asked
            await self._answer(answers.own(state.interrupts), state)
        return Finish(TurnStatus.COMPLETED)

    def _stopped(self, state: StateSnapshot) -> Ending:
        if state.tasks:
            return Park([breakpoint_question(breakpoint_id(state), [task.name for task in state.tasks])])
        return Finish(TurnStatus.COMPLETED)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def _head(self) -> StateSnapshot:
        return await self._graph.aget_state(self._config)

    def _steps_left(self) -> int:
        limit = self._agent.settings.recursion_limit
        return steps_left(limit, self.attempt.supersteps, self.attempt.turn.budget_from)


def _unstorable(latched: BaseException | None) -> TypeGuard[BaseException]:
    """Whether an attempt latched on what was to be written, not on who may write or on the disk."""
    return latched is not None and not isinstance(latched, LeaseLost | StorageFull | StorageError)


def _cut_from_outside() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _settle(work: asyncio.Task[Any]) -> None:
    """Ends the work if it still runs, and waits for it."""
    if not work.done():
        work.cancel()
        await asyncio.wait({work})
