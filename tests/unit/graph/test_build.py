from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.types import Command, interrupt

from perdure import failpoints, ledger
from perdure.clock import Clock, SystemClock
from perdure.effects import Gate, gate_request
from perdure.failpoints import FailpointError
from perdure.graph.ask import ModelCall
from perdure.graph.build import ModelNode, ToolsNode, build
from perdure.graph.effect import effect
from perdure.graph.history import NOT_RECORDED
from perdure.graph.keys import call_key
from perdure.graph.load import HostedGraph
from perdure.graph.mcp import CallLost
from perdure.graph.tools import ToolRegistry
from tests.servers.driving import Conversation
from tests.unit.graph.conftest import SteppedClock
from tests.unit.graph.scripted import ScriptedModel, ScriptedSource, asks, says


class Agent:
    def __init__(self, replies: Sequence[AIMessage], tools: Sequence[BaseTool], clock: Clock, **options: Any) -> None:
        self.model = ScriptedModel(replies=list(replies), sent=[], bound=[])
        registry = ToolRegistry(tools)
        call = ModelCall(ScriptedSource(self.model), SystemClock(), retry_seconds=0, idle_seconds=1e9)
        nodes = ModelNode(call, registry, **options), ToolsNode(registry, clock, timeout_seconds=60)
        self.chat = Conversation(HostedGraph("agent", None, build(*nodes), "message"))  # type: ignore[arg-type]

    async def say(self, text: str) -> list[BaseMessage]:
        return await self.chat.say(text)


Make = Callable[..., Agent]


@pytest.fixture
def make() -> Make:
    def agent(replies: Sequence[AIMessage], *tools: BaseTool, clock: Clock | None = None, **options: Any) -> Agent:
        return Agent(replies, tools, clock or SystemClock(), **options)

    return agent


@pytest.fixture
async def armed() -> AsyncIterator[Callable[[str], None]]:
    yield failpoints.arm
    failpoints.arm("")


def result(messages: Sequence[BaseMessage]) -> ToolMessage:
    (only,) = [each for each in messages if isinstance(each, ToolMessage)]
    return only


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def test_a_call_goes_to_its_tool_and_the_result_back_to_the_model(make: Make) -> None:
    agent = make([asks(("add", {"a": 1, "b": 2})), says("three")], add)
    messages = await agent.say("1 + 2")
    assert [each.type for each in messages] == ["human", "ai", "tool", "ai"]
    assert result(messages).content == "3"
    assert agent.model.sent[1] == messages[:3]
    assert agent.model.bound == ["add", "add"]
    assert messages[-1].content == "three"


async def test_the_intent_is_recorded_before_the_tool_starts_and_names_the_committed_message(make: Make) -> None:
    seen: list[int] = []

    @tool
    async def look() -> str:
        """Looks."""
        seen.append(len(agent.chat.record.calls))
        return "seen"

    agent = make([asks(("look", {})), says("ok")], look)
    messages = await agent.say("look")
    (call,) = agent.chat.record.calls
    assert seen == [1]
    assert (call.id, call.name, call.message_id, call.server) == ("c0", "look", messages[1].id, None)


async def test_a_ledger_that_refuses_the_intent_keeps_the_tool_from_starting(make: Make) -> None:
    started: list[str] = []

    @tool
    async def act() -> None:
        """Acts."""
        started.append("act")

    agent = make([asks(("act", {}))], act)

    async def refuse(_: ledger.ToolCall) -> None:
        raise PermissionError("the lease is lost")

    agent.chat.record.intend = refuse  # type: ignore[method-assign,assignment]
    with pytest.raises(PermissionError):
        await agent.say("act")
    assert started == []


async def test_each_call_is_a_task_of_its_own_so_a_finished_sibling_is_not_repeated(make: Make) -> None:
    done: list[str] = []
    broken = [True]
    entered = asyncio.Event()

    @tool
    async def quick() -> str:
        """Quick."""
        done.append("quick")
        return "quick"

    @effect("read")
    @tool
    async def cut() -> str:
        """Cut by the crash the first time."""
        if broken:
            entered.set()
            await asyncio.Event().wait()
        done.append("cut")
        return "cut"

    agent = make([asks(("quick", {}), ("cut", {})), says("both")], quick, cut)
    work = asyncio.create_task(agent.say("both"))
    await entered.wait()
    while not await agent.chat.results():
        await asyncio.sleep(0.001)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    broken.clear()
    messages = await agent.chat.drive(None)
    assert done == ["quick", "cut"]
    assert messages[-1].content == "both"


async def test_results_have_ids_that_come_from_the_call(make: Make) -> None:
    first = make([asks(("add", {"a": 1, "b": 2})).model_copy(update={"id": "m"}), says("x")], add)
    second = make([asks(("add", {"a": 5, "b": 2})).model_copy(update={"id": "m"}), says("x")], add)
    assert result(await first.say("go")).id == result(await second.say("go")).id


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("subtract", {}), ["no tool named `subtract`", "add"]),
        (("add", {"a": 1}), ["`add` was not called", "b: Field required"]),
        (("add", {"a": 1, "b": "x"}), ["`add` was not called", "b: Input should be a valid integer"]),
    ],
)
async def test_a_call_that_cannot_be_made_is_an_error_for_the_model_and_no_intent(
    make: Make, call: tuple[str, dict[str, Any]], words: list[str]
) -> None:
    agent = make([asks(call), says("sorry")], add)
    answer = result(await agent.say("go"))
    assert answer.status == "error"
    assert [word for word in words if word not in str(answer.content)] == []
    assert agent.chat.record.calls == []


async def test_a_tools_error_is_an_answer_that_names_the_tool_and_the_error(make: Make) -> None:
    @tool
    async def boom() -> str:
        """Fails."""
        raise ValueError("the kettle is cold")

    answer = result(await make([asks(("boom", {})), says("oh")], boom).say("go"))
    assert (answer.status, answer.content) == ("error", "The tool `boom` failed: the kettle is cold")


def forever(ended: list[str]) -> BaseTool:
    @tool
    async def forever() -> str:
        """Never ends."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("forever")
        return ""

    return forever


async def test_a_tool_that_runs_too_long_is_ended_and_the_model_is_told(make: Make, clock: SteppedClock) -> None:
    ended: list[str] = []
    slow = effect("read")(forever(ended))
    answer = result(await make([asks(("forever", {})), says("oh")], slow, clock=clock).say("go"))
    assert answer.status == "error"
    assert "did not answer within 60 seconds" in str(answer.content)
    assert "may or may not have taken effect" in str(answer.content)
    assert ended == ["forever"]


async def test_a_once_tool_that_runs_too_long_is_a_question_to_a_person(make: Make, clock: SteppedClock) -> None:
    ended: list[str] = []
    agent = make([asks(("forever", {})), says("oh")], forever(ended), clock=clock)
    assert [each.type for each in await agent.say("go")] == ["human", "ai"]
    (asked,) = await agent.chat.interrupts()
    gate = gate_request(asked.id, asked.value)
    assert gate is not None
    assert (gate.gate, gate.tool, gate.starts) == (Gate.UNCERTAIN, "forever", 1)
    assert "did not answer within 60 seconds" in gate.why
    assert ended == ["forever"]


async def test_a_server_that_is_lost_during_a_call_leaves_its_outcome_open(make: Make) -> None:
    @tool
    async def send() -> str:
        """Sends."""
        raise CallLost("The MCP server `mail` is not available: it closed. The call was under way")

    repeatable = await make([asks(("send", {})), says("oh")], effect("keyed")(send.model_copy())).say("go")
    assert "The call was under way" in str(result(repeatable).content)
    agent = make([asks(("send", {})), says("oh")], send)
    assert [each.type for each in await agent.say("go")] == ["human", "ai"]
    (asked,) = await agent.chat.interrupts()
    assert "The call was under way" in asked.value["why"]


async def test_a_synchronous_tool_runs_in_a_thread_with_the_context_of_the_turn(make: Make) -> None:
    word: contextvars.ContextVar[str] = contextvars.ContextVar("word", default="lost")
    where: list[int] = []

    @tool
    def look() -> str:
        """Looks."""
        where.append(threading.get_ident())
        return word.get()

    agent = make([asks(("look", {})), says("ok")], look)
    word.set("kept")
    assert result(await agent.say("go")).content == "kept"
    assert where != [threading.get_ident()]


async def test_tools_get_state_runtime_and_the_idempotency_key(make: Make) -> None:
    @tool
    async def look(state: Annotated[dict[str, Any], InjectedState], runtime: ToolRuntime[Any, Any]) -> str:
        """Looks."""
        return f"{len(state['messages'])} {runtime.tool_call_id} {call_key(runtime.config)}"

    agent = make([asks(("look", {})), says("ok")], look)
    messages = await agent.say("go")
    (call,) = agent.chat.record.calls
    assert call.message_id == messages[1].id
    assert result(messages).content == f"2 c0 {ledger.idempotency_key('turn-1', call)}"


async def test_a_tool_may_return_a_command(make: Make) -> None:
    @tool
    async def note(runtime: ToolRuntime[Any, Any]) -> Command[Any]:
        """Adds a message of its own."""
        answer = ToolMessage("noted", tool_call_id=runtime.tool_call_id or "")
        return Command(update={"messages": [answer, HumanMessage("by the way")]})

    messages = await make([asks(("note", {})), says("ok")], note).say("go")
    assert [each.type for each in messages] == ["human", "ai", "tool", "human", "ai"]
    assert all(each.id for each in messages)


async def test_an_interrupt_in_a_tool_parks_and_is_no_tool_error(make: Make) -> None:
    @tool
    async def ask() -> str:
        """Asks a person."""
        return f"they said {interrupt('may I?')}"

    agent = make([asks(("ask", {})), says("ok")], ask)
    parked = await agent.say("go")
    assert [each.type for each in parked] == ["human", "ai"]
    messages = await agent.chat.drive(Command(resume="yes"))
    assert result(messages).content == "they said yes"


async def test_a_result_too_large_for_a_thread_is_cut_and_says_so(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.graph.build.MAX_RESULT_BYTES", 10)

    @tool
    async def flood() -> str:
        """Floods."""
        return "ü" * 100

    answer = str(result(await make([asks(("flood", {})), says("ok")], flood).say("go")).content)
    assert answer.startswith("üüüüü\n[")
    assert "was 200 bytes; the first 10 are kept" in answer


async def test_text_that_could_not_be_stored_is_made_storable(make: Make) -> None:
    @tool
    async def half() -> str:
        """Half a pair."""
        return "half \ud83d"

    assert result(await make([asks(("half", {})), says("ok")], half).say("go")).content == "half ?"


async def test_the_prompt_is_read_at_every_call_and_never_stored(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "prompt.md"
    path.write_text("Be brief.")
    agent = make([says("a"), says("b")], prompt_file=path)
    await agent.say("one")
    path.write_text("Be long.")
    messages = await agent.say("two")
    assert [sent[0] for sent in agent.model.sent] == [SystemMessage("Be brief."), SystemMessage("Be long.")]
    assert not any(isinstance(each, SystemMessage) for each in messages)


async def test_the_model_gets_a_valid_history_and_the_thread_is_left_as_it_is(make: Make) -> None:
    agent = make([says("ok")], add)
    broken = [HumanMessage("add", id="h0"), asks(("add", {"a": 1, "b": 2})), HumanMessage("well?", id="h1")]
    messages = await agent.chat.drive({"messages": broken})
    (sent,) = agent.model.sent
    assert [each.type for each in sent] == ["human", "ai", "tool", "human"]
    assert sent[2].content == NOT_RECORDED
    assert [each.type for each in messages] == ["human", "ai", "human", "ai"]


async def test_what_does_not_fit_is_left_out_of_the_call_told_by_a_note_and_kept_in_the_thread(make: Make) -> None:
    agent = make([says("a"), says("b")], context_tokens=40)
    await agent.say("word " * 100)
    assert agent.chat.record.notes == []
    messages = await agent.say("short")
    assert [each.content for each in agent.model.sent[1]] == ["short"]
    ((phase, data),) = agent.chat.record.notes
    assert (phase, data["dropped"]) == ("trim", 2)
    assert 0 < data["kept_tokens"] <= 40
    assert len(messages) == 4


async def test_a_model_that_repeats_its_message_ids_overwrites_nothing(make: Make) -> None:
    same = [AIMessage("first", id="chatcmpl-0"), AIMessage("second", id="chatcmpl-0")]
    agent = make(same)
    await agent.say("one")
    messages = await agent.say("two")
    assert [each.content for each in messages] == ["one", "first", "two", "second"]


@pytest.mark.parametrize("place", ["model_call.before", "model_call.after", "tool_call.before", "tool_call.after"])
async def test_each_outside_call_passes_its_failpoints(make: Make, armed: Callable[[str], None], place: str) -> None:
    agent = make([asks(("add", {"a": 1, "b": 2})), says("ok")], add)
    armed(f"{place}:error")
    with pytest.raises(FailpointError, match=place):
        await agent.say("go")


async def test_the_graph_runs_without_a_ledger_too(make: Make) -> None:
    agent = make([asks(("add", {"a": 1, "b": 2})), says("ok")], add)
    assert ledger.current.get() is None
    state = await agent.chat.hosted.graph.ainvoke({"messages": [HumanMessage("go")]})
    assert state["messages"][-1].content == "ok"
