"""A store with its clock and what it told, and the few moves that most tests of the journal begin with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Protocol, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from perdure.effects import EffectClass, Gate, GateRequest
from perdure.events import Event
from perdure.ledger import ToolCall, idempotency_key
from perdure.store.base import LeasedAttempt, Notify, Question, Recovered, Store
from perdure.testing import FakeClock
from perdure.turns import Accepted, Card, DecisionKind, Failure, FailureCode, Limits, NewTurn, RequestKey, Turn, Verdict

OWNER = "anna"
STRANGER = "boris"
LEASE_SECONDS = 30.0
BROKEN = Failure(FailureCode.AGENT_FAILURE, "agent_failure", "The agent broke. Look at its log.")


class Heard:
    """A `Notify` that remembers."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.rings: list[str] = []

    def publish(self, event: Event) -> None:
        self.events.append(event)

    def ring(self, topic: str) -> None:
        self.rings.append(topic)

    def of(self, turn: str) -> list[Event]:
        return [event for event in self.events if event.turn == turn]


class OpenStore(Protocol):
    """Opens the same database, again and again."""

    def __call__(self, *, clock: FakeClock, limits: Limits, notify: Notify) -> Awaitable[Store]: ...


class Journal:
    """One database over several starts. `crash` and `restart` open it anew."""

    def __init__(self, open_store: OpenStore, vanish: Callable[[Store], Awaitable[None]], limits: Limits) -> None:
        self._open = open_store
        self._vanish = vanish
        self._limits = limits
        self._count = 0
        self.clock = FakeClock()
        self.heard = Heard()
        self.store: Store

    async def start(self) -> None:
        self.store = await self._open(clock=self.clock, limits=self._limits, notify=self.heard)

    async def crash(self) -> None:
        """The process vanishes, as far as the database can tell, and another one starts."""
        await self._vanish(self.store)
        await self.start()

    async def restart(self) -> None:
        await self.store.close()
        await self.start()

    def name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count}"

    async def accept(
        self,
        message: str = "hello",
        *,
        conversation: str | None = None,
        owner: str = OWNER,
        agent: str = "agent",
        when_busy: str = "reject",
        discard_pending: bool = False,
        key: str | None = None,
        digest: str = "",
    ) -> Accepted:
        return await self.store.accept(
            NewTurn(
                turn_id=self.name("turn"),
                owner=owner,
                agent=agent,
                input={"message": message},
                conversation=conversation,
                new_conversation_id=self.name("conversation"),
                title=message,
                when_busy=when_busy,
                discard_pending=discard_pending,
                request_key=RequestKey(key, digest) if key is not None else None,
            )
        )

    async def claim(
        self, agents: Mapping[str, int | None] | None = None, *, suspects: bool = False, asking: bool = False
    ) -> LeasedAttempt | None:
        now = self.clock.now()
        return await self.store.claim(
            agents=agents or {"agent": None},
            suspects=suspects,
            now=now,
            lease_expires_at=now + timedelta(seconds=LEASE_SECONDS),
            asking=asking,
        )

    async def claimed(self) -> LeasedAttempt:
        attempt = await self.claim()
        assert attempt is not None, "no turn was due"
        return attempt

    async def running(self) -> LeasedAttempt:
        """A new conversation's first turn, claimed."""
        await self.accept()
        return await self.claimed()

    async def parked(self, *questions: Question) -> LeasedAttempt:
        """A new conversation's first turn, parked for these; the attempt that parked it."""
        attempt = await self.running()
        await attempt.park(questions)
        return attempt

    async def cards(self, turn: str) -> dict[str, Card]:
        """By interrupt id."""
        return {card.interrupt_id: card for card in await self.store.cards(None, turn)}

    async def turn(self, turn: str) -> Turn:
        return await self.store.turn(OWNER, turn)

    async def answer(
        self, conversation: str, answers: Mapping[str, Any], by: str = OWNER, key: RequestKey | None = None
    ) -> Accepted:
        """Answers to questions of the graph's own."""
        said = {interrupt: Verdict(DecisionKind.ANSWER, value=value) for interrupt, value in answers.items()}
        return await self.store.answer(OWNER, conversation, said, by, key)

    async def answers(self, turn: str) -> Mapping[str, Any]:
        verdicts = {interrupt: card.verdict for interrupt, card in (await self.store.verdicts(turn)).items()}
        return {interrupt: verdict.value for interrupt, verdict in verdicts.items() if verdict is not None}

    async def recover(self, attempt: LeasedAttempt, *, manual: bool = False) -> Recovered | None:
        return await self.store.recover(attempt.turn.id, attempt.turn.epoch, now=self.clock.now(), manual=manual)

    async def die(self, attempt: LeasedAttempt) -> Recovered:
        """The process dies, the next one finds the orphan and moves it on."""
        await self.crash()
        recovered = await self.recover(attempt)
        assert recovered is not None
        return recovered


def gate(
    name: str = "charge_card",
    *,
    uncertain: bool = False,
    expires_seconds: float | None = None,
    deciders: Sequence[str] = (),
) -> Question:
    """A question about one tool call, as the guard asks it."""
    request = GateRequest(
        gate=Gate.UNCERTAIN if uncertain else Gate.APPROVAL,
        key=f"key-{name}".encode("ascii", "replace").decode(),
        call_id=f"call-{name}",
        message_id="m-1",
        tool=name,
        server="bank",
        arguments={"amount": 5},
        effect=EffectClass.ONCE,
        starts=int(uncertain),
        why="The process ended." if uncertain else "",
        expires_seconds=expires_seconds,
        deciders=deciders,
    )
    return Question(request.id, request.value(), request)


def ask(interrupt: str = "i-1", request: Any = "really?") -> Question:
    """A question of the graph's own."""
    return Question(interrupt, request)


async def intend(attempt: LeasedAttempt, call: ToolCall, *, task: str = "task", step: int = 1) -> str:
    """Records that a call is about to start; its key."""
    key = idempotency_key(attempt.turn.id, call)
    await attempt.intend(call, key, task, "tools", step)
    return key


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


async def work(attempt: LeasedAttempt, *replies: str, question: str | None = "hello") -> None:
    """Drives a graph of one node per reply with the attempt's checkpointer: real checkpoints, writes and messages."""
    graph = StateGraph(State)
    before = START
    for number, reply in enumerate(replies or ("hi",)):
        message = AIMessage(reply, id=f"{attempt.turn.id}-reply-{number}")
        graph.add_node(f"node-{number}", _node(message))
        graph.add_edge(before, f"node-{number}")
        before = f"node-{number}"
    graph.add_edge(before, END)
    turn = attempt.turn
    compiled = graph.compile(checkpointer=attempt.checkpointer)
    start = {"messages": [HumanMessage(question, id=f"{turn.id}-input")]} if question else None
    await compiled.ainvoke(  # type: ignore[call-overload]
        start,
        {"configurable": {"thread_id": turn.conversation}, "metadata": {"run_id": turn.id}},
        durability="sync",
    )


async def step(attempt: LeasedAttempt) -> None:
    """One more superstep of a graph that never ends: progress, again and again, by the same turn."""

    async def again(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage("again", id=f"{attempt.turn.id}-{len(state['messages'])}")]}

    graph = StateGraph(State)
    graph.add_node("again", again)
    graph.add_edge(START, "again")
    graph.add_edge("again", "again")
    turn = attempt.turn
    compiled = graph.compile(checkpointer=attempt.checkpointer, interrupt_before=["again"])
    config = {"configurable": {"thread_id": turn.conversation}, "metadata": {"run_id": turn.id}}
    start = {"messages": [HumanMessage("hello", id=f"{turn.id}-input")]} if turn.input else None
    await compiled.ainvoke(start, config, durability="sync")  # type: ignore[call-overload]


def _node(message: AIMessage) -> Any:
    async def node(state: State) -> dict[str, Any]:
        return {"messages": [message]}

    return node
