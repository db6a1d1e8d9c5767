from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send

from perdure.messages import wire_message
from perdure.store.sqlite.rendering import messages
from tests.conformance.savers import Opened, Owner, opened

USAGE: Any = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]


def config(run_id: str = "one") -> Any:
    return {"configurable": {"thread_id": "t"}, "metadata": {"run_id": run_id}}


def question(text: str = "hello", message_id: str = "h") -> Any:
    return {"messages": [HumanMessage(text, id=message_id)]}


def one_node(database: Opened, owner: Owner, *returned: Any) -> Any:
    graph: Any = StateGraph(State)
    graph.add_node("work", lambda state: {"messages": list(returned)})
    graph.add_edge(START, "work")
    graph.add_edge("work", END)
    return graph.compile(checkpointer=database.saver_of(owner))


def events(owner: Owner) -> list[Any]:
    return [message for plan in owner.plans for message in plan.messages]


async def test_each_new_message_is_told_once_with_the_item_that_holds_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        owner = database.owner("t", "one")
        answer = AIMessage("hi", id="a", usage_metadata=USAGE)
        await one_node(database, owner, answer).ainvoke(question(), config(), durability="sync")
        assert events(owner) == [wire_message(HumanMessage("hello", id="h")), wire_message(answer)]
        stored = [item for item in owner.items if item is not None]
        rendered = await database.readers.run(lambda c: messages(c, database.shared.serializer, stored))
        assert [rendered[item] for item in stored] == events(owner)


async def test_count_and_usage_follow_the_committed_messages(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        owner = database.owner("t", "one")
        answer = AIMessage("hi", id="a", usage_metadata=USAGE)
        await one_node(database, owner, answer).ainvoke(question(), config(), durability="sync")
        assert [plan.message_count for plan in owner.plans if plan.message_count is not None] == [1, 2]
        assert [dict(plan.usage) for plan in owner.plans if plan.usage] == [USAGE]
        second = database.owner("t", "two")
        edited = AIMessage("edited", id="a", usage_metadata=USAGE)
        await one_node(database, second, edited, RemoveMessage(id="h")).ainvoke(
            question("more", "h2"), config("two"), durability="sync"
        )
        assert [plan.message_count for plan in second.plans if plan.message_count is not None] == [3, 2]
        assert [plan.usage for plan in second.plans if plan.usage] == []


async def test_an_edited_and_a_removed_message_are_told(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        await one_node(database, database.owner("t", "one"), AIMessage("hi", id="a")).ainvoke(
            question(), config(), durability="sync"
        )
        for forgotten, (run_id, text) in enumerate([("two", "edited"), ("three", "edited again")]):
            if forgotten:
                database.shared.forget("t")
            owner = database.owner("t", run_id)
            graph = one_node(database, owner)
            await graph.aupdate_state(config(run_id), {"messages": [AIMessage(text, id="a")]}, as_node="work")
            assert events(owner) == [wire_message(AIMessage(text, id="a"))]
        owner = database.owner("t", "four")
        await one_node(database, owner).aupdate_state(
            config("four"), {"messages": [RemoveMessage(id="h")]}, as_node="work"
        )
        assert events(owner) == [{"id": "h", "status": "removed"}]
        assert owner.items == [None]
        assert sum(plan.supersteps for plan in owner.plans) == 0


async def test_a_tools_result_is_told_with_its_writes_under_its_nodes_name(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        owner = database.owner("t", "one")

        async def call_tools(state: State) -> dict[str, Any]:
            return {"messages": [AIMessage("", id="a", tool_calls=_calls())]}

        async def run_tool(call: dict[str, Any]) -> dict[str, Any]:
            status: Any = "error" if call["name"] == "second" else "success"
            return {
                "messages": [ToolMessage("x", name=call["name"], tool_call_id=call["id"], status=status, id=call["id"])]
            }

        graph: Any = StateGraph(State)
        graph.add_node("model", call_tools)
        graph.add_node("tools", run_tool)
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", lambda state: [Send("tools", call) for call in _calls()], ["tools"])
        graph.add_edge("tools", END)
        await graph.compile(checkpointer=database.saver_of(owner)).ainvoke(question(), config(), durability="sync")
        told = [(plan, trace) for plan in owner.plans for trace in plan.traces]
        assert sorted((trace for _, trace in told), key=lambda trace: str(trace["call_id"])) == [
            {
                "node": "tools",
                "name": "first",
                "step": 2,
                "phase": "result",
                "call_id": "c1",
                "data": {"status": "success"},
            },
            {
                "node": "tools",
                "name": "second",
                "step": 2,
                "phase": "result",
                "call_id": "c2",
                "data": {"status": "error"},
            },
        ]
        assert all(plan.progress and not plan.messages for plan, _ in told)


async def test_a_tool_that_ran_in_a_subgraph_is_told_once(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        owner = database.owner("t", "one")
        inner: Any = StateGraph(State)
        inner.add_node("tool", lambda state: {"messages": [ToolMessage("x", name="f", tool_call_id="c", id="r")]})
        inner.add_edge(START, "tool")
        outer: Any = StateGraph(State)
        outer.add_node("inner", inner.compile())
        outer.add_edge(START, "inner")
        await outer.compile(checkpointer=database.saver_of(owner)).ainvoke(question(), config(), durability="sync")
        assert [trace["node"] for plan in owner.plans for trace in plan.traces] == ["tool"]
        assert [message["id"] for message in events(owner)] == ["h", "r"]
        assert sum(plan.supersteps for plan in owner.plans) == 1


async def test_an_interrupt_is_no_progress(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        await one_node(database, database.owner("t", "one")).ainvoke(question(), config(), durability="sync")
        owner = database.owner("t", "one")
        place: Any = config()
        place["configurable"] |= {"checkpoint_ns": "", "checkpoint_id": "x"}
        await database.saver_of(owner).aput_writes(place, [("__interrupt__", ["asks"])], "task", "~__pregel_pull, work")
        await database.saver_of(owner).aput_writes(place, [("messages", [])], "other", "~__pregel_pull, work")
        assert [plan.progress for plan in owner.plans] == [False, True]


def _calls() -> list[Any]:
    return [
        {"name": "first", "args": {}, "id": "c1", "type": "tool_call"},
        {"name": "second", "args": {}, "id": "c2", "type": "tool_call"},
    ]
