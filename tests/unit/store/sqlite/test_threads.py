from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages

from perdure.errors import BadRequest
from perdure.store.sqlite.threads import prune_superseded
from tests.conformance.savers import Opened, opened

TABLES = ("spaces", "checkpoints", "writes", "lists", "list_elements", "items")


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Delta(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=4)]


def graph_of(database: Opened, schema: Any = State) -> Any:
    async def answer(state: Any) -> dict[str, Any]:
        return {"messages": [AIMessage("answer " * 40, id=f"a{len(state['messages'])}")]}

    graph = StateGraph(schema)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph.compile(checkpointer=database.saver)


async def turn(graph: Any, thread: str, number: int) -> None:
    config = {"configurable": {"thread_id": thread}, "metadata": {"run_id": f"{thread}-{number}"}}
    await graph.ainvoke({"messages": [HumanMessage("question " * 40, id=f"h{number}")]}, config, durability="sync")


async def contents(graph: Any, thread: str) -> list[Any]:
    state = await graph.aget_state({"configurable": {"thread_id": thread}})
    return [(message.id, message.content) for message in state.values.get("messages", [])]


async def counts(database: Opened) -> dict[str, int]:
    return {table: await database.count(table) for table in TABLES}


async def dangling(database: Opened) -> list[Any]:
    """References to rows that are gone."""
    return await database.rows(
        """
        SELECT 'element', item_id FROM list_elements WHERE item_id NOT IN (SELECT id FROM items)
        UNION ALL SELECT 'list', list_id FROM list_elements WHERE list_id NOT IN (SELECT id FROM lists)
        UNION ALL SELECT 'value', v.value FROM checkpoints c, json_each(c.refs, '$.v') v
                  WHERE v.value NOT IN (SELECT id FROM items)
        UNION ALL SELECT 'channel', json_extract(l.value, '$[0]') FROM checkpoints c, json_each(c.refs, '$.l') l
                  WHERE json_extract(l.value, '$[0]') NOT IN (SELECT id FROM lists)
        UNION ALL SELECT 'parent', parent_id FROM lists
                  WHERE parent_id IS NOT NULL AND parent_id NOT IN (SELECT id FROM lists)
        """
    )


async def test_deleting_a_thread_leaves_nothing_of_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        graph = graph_of(database)
        await turn(graph, "kept", 0)
        before = await counts(database)
        for number in range(3):
            await turn(graph, "gone", number)
        await graph.aupdate_state(
            {"configurable": {"thread_id": "gone"}}, {"messages": [RemoveMessage(id="h1")]}, as_node="answer"
        )
        await database.saver.adelete_thread("gone")
        assert await counts(database) == before
        assert await contents(graph, "gone") == []
        assert len(await contents(graph, "kept")) == 2


async def test_a_copy_shares_the_stored_messages_and_survives_the_original(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        graph = graph_of(database)
        for number in range(3):
            await turn(graph, "original", number)
        shared = (await counts(database))["items"]
        await database.saver.acopy_thread("original", "copy")
        assert (await counts(database))["items"] == shared
        before = await contents(graph, "copy")
        await turn(graph, "original", 3)
        await turn(graph, "copy", 4)
        await database.saver.adelete_thread("original")
        assert await dangling(database) == []
        assert (await contents(graph, "copy"))[:6] == before
        await turn(graph, "copy", 5)
        assert len(await contents(graph, "copy")) == 10
        await database.saver.adelete_thread("copy")
        assert set((await counts(database)).values()) == {0}


async def test_the_original_survives_its_copy(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        graph = graph_of(database)
        await turn(graph, "original", 0)
        await database.saver.acopy_thread("original", "copy")
        await turn(graph, "copy", 1)
        before = await contents(graph, "original")
        await database.saver.adelete_thread("copy")
        assert await dangling(database) == []
        assert await contents(graph, "original") == before


async def test_copying_into_a_thread_that_has_checkpoints_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        graph = graph_of(database)
        await turn(graph, "a", 0)
        await turn(graph, "b", 0)
        with pytest.raises(BadRequest, match="has checkpoints already"):
            await database.saver.acopy_thread("a", "b")


async def test_pruning_keeps_the_head_and_gives_removed_messages_back(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        graph = graph_of(database)
        for number in range(3):
            await turn(graph, "t", number)
        await graph.aupdate_state(
            {"configurable": {"thread_id": "t"}}, {"messages": [RemoveMessage(id="h0")]}, as_node="answer"
        )
        before = await contents(graph, "t")
        await database.saver.aprune(["t"])
        assert await contents(graph, "t") == before
        assert await dangling(database) == []
        assert (await counts(database))["checkpoints"] == 1
        assert await database.rows("SELECT count(*) FROM items") == [(len(before),)]
        assert len([state async for state in graph.aget_state_history({"configurable": {"thread_id": "t"}})]) == 1
        await turn(graph, "t", 7)
        assert len(await contents(graph, "t")) == len(before) + 2


async def test_pruning_keeps_a_message_that_an_event_still_shows_until_the_event_goes(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        graph = graph_of(database)
        await turn(graph, "t", 0)
        ((item,),) = await database.rows("SELECT item_id FROM list_elements ORDER BY idx LIMIT 1")

        def remember(connection: Any) -> None:
            connection.execute(
                "INSERT INTO conversations (id, owner, agent, title, created_at, updated_at) VALUES ('t','o','a','',0,0)"
            )
            connection.execute(
                "INSERT INTO events (conversation, seq, turn, attempt, kind, at, item_id) VALUES ('t',1,'x',1,'message',0,?)",
                (item,),
            )

        await database.writer.submit(remember)
        await graph.aupdate_state(
            {"configurable": {"thread_id": "t"}}, {"messages": [RemoveMessage(id="h0")]}, as_node="answer"
        )
        await database.saver.aprune(["t"])
        assert await database.rows("SELECT count(*) FROM items WHERE id = ?", item) == [(1,)]

        def release(connection: Any) -> None:
            connection.execute("DELETE FROM events")
            prune_superseded(connection, "t", [item])

        await database.writer.submit(release)
        assert await database.rows("SELECT count(*) FROM items WHERE id = ?", item) == [(0,)]


async def test_pruning_keeps_what_a_delta_channel_is_rebuilt_from(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        graph = graph_of(database, Delta)
        for number in range(7):
            await turn(graph, "t", number)
        before = await contents(graph, "t")
        assert len(before) == 14
        await database.saver.aprune(["t"])
        assert await contents(graph, "t") == before
        assert await dangling(database) == []
        await turn(graph, "t", 8)
        assert len(await contents(graph, "t")) == 16


async def test_deleting_a_turns_checkpoints_leaves_the_earlier_head(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        graph = graph_of(database)
        await turn(graph, "t", 0)
        before = await contents(graph, "t")
        await turn(graph, "t", 1)
        await database.saver.adelete_for_runs(["t-1"])
        assert await contents(graph, "t") == before
        assert await dangling(database) == []
        assert await database.rows("SELECT count(*) FROM items") == [(len(before),)] or len(before) < 3
