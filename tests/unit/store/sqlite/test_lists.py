from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from perdure.store.sqlite.checkpointer import Checkpointer
from perdure.store.sqlite.lists import MAX_DEPTH
from tests.conformance.savers import Opened, opened


async def put(saver: Checkpointer, values: dict[str, Any], parent: str | None = None, thread: str = "t") -> str:
    """A checkpoint with these channel values on top of the parent."""
    checkpoint = empty_checkpoint()
    checkpoint["id"] = str(uuid6())
    checkpoint["channel_values"] = values
    version = saver.get_next_version(None, None)
    checkpoint["channel_versions"] = dict.fromkeys(values, version)
    configurable = {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": parent}
    stored = await saver.aput(
        {"configurable": configurable}, checkpoint, {"source": "loop", "step": 1}, dict.fromkeys(values, version)
    )
    return str(stored["configurable"]["checkpoint_id"])


async def read(saver: Checkpointer, checkpoint_id: str | None = None, thread: str = "t") -> dict[str, Any]:
    configurable = {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}
    found = await saver.aget_tuple({"configurable": configurable})
    assert found is not None
    return found.checkpoint["channel_values"]


def messages(count: int, start: int = 0) -> list[Any]:
    return [HumanMessage(f"message {n}", id=f"m{n}") for n in range(start, start + count)]


async def sizes(database: Opened) -> tuple[int, int, int]:
    return (await database.count("items"), await database.count("lists"), await database.count("list_elements"))


async def test_appending_adds_the_new_elements_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        first = await put(database.saver, {"messages": messages(50)})
        await put(database.saver, {"messages": messages(52)}, first)
        assert await sizes(database) == (52, 1, 52)
        assert await read(database.saver) == {"messages": messages(52)}
        assert await read(database.saver, first) == {"messages": messages(50)}


async def test_two_branches_that_append_to_one_list_keep_apart(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        base = await put(database.saver, {"messages": messages(5)})
        left = await put(database.saver, {"messages": [*messages(5), AIMessage("left", id="left")]}, base)
        right = await put(database.saver, {"messages": [*messages(5), AIMessage("right", id="right")]}, base)
        await put(database.saver, {"messages": [*messages(5), AIMessage("left", id="left"), *messages(1, 9)]}, left)
        assert [message.id for message in (await read(database.saver, left))["messages"]][5:] == ["left"]
        assert [message.id for message in (await read(database.saver, right))["messages"]][5:] == ["right"]
        assert await sizes(database) == (8, 2, 5 + 1 + 1 + 1)


async def test_an_edit_shares_what_stands_before_it_and_the_bytes_of_what_stands_behind(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        before = messages(100)
        base = await put(database.saver, {"messages": before})
        edited = [*before[:90], HumanMessage("other", id="m90"), *before[91:]]
        await put(database.saver, {"messages": edited}, base)
        assert await sizes(database) == (101, 2, 100 + 10)
        assert await read(database.saver) == {"messages": edited}
        assert await read(database.saver, base) == {"messages": before}


async def test_a_shorter_list_is_no_new_list(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        base = await put(database.saver, {"messages": messages(5)})
        shorter = await put(database.saver, {"messages": messages(3)}, base)
        await put(database.saver, {"messages": [*messages(3), HumanMessage("new", id="new")]}, shorter)
        assert await sizes(database) == (6, 2, 6)
        assert [message.id for message in (await read(database.saver))["messages"]] == ["m0", "m1", "m2", "new"]


async def test_a_chain_of_edits_stays_shallow(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        values, head = messages(3), None
        for n in range(3 * MAX_DEPTH):
            values = [*values, HumanMessage("x", id=f"x{n}"), HumanMessage("end", id="end")]
            head = await put(database.saver, {"messages": values}, head)
            values = values[:-1]
        ((deepest,),) = await database.rows("SELECT max(depth) FROM lists")
        assert 0 < deepest <= MAX_DEPTH
        assert len((await read(database.saver))["messages"]) == 3 + 3 * MAX_DEPTH + 1


async def test_a_message_in_an_input_in_writes_and_in_the_state_is_stored_once(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        message = HumanMessage("only once " * 50, id="m")
        base = await put(database.saver, {"__start__": {"messages": [message]}})
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": base}}
        await database.saver.aput_writes(config, [("messages", [message])], "task")
        await put(database.saver, {"messages": [message]}, base)
        assert await database.rows("SELECT count(*) FROM items WHERE instr(data, 'only once')") == [(1,)]
        found = await database.saver.aget_tuple(config)
        assert found is not None
        assert found.pending_writes == [("task", "messages", [message])]
        assert found.checkpoint["channel_values"] == {"__start__": {"messages": [message]}}


async def test_large_plain_elements_are_shared_between_writes_and_state_too(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        document = {"text": "a long text " * 50, "tags": ["a", "b"]}
        base = await put(database.saver, {"count": 1})
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": base}}
        await database.saver.aput_writes(config, [("documents", [document])], "task")
        await put(database.saver, {"documents": [document, {"text": "small"}]}, base)
        assert await database.rows("SELECT count(*) FROM items WHERE instr(data, 'a long text')") == [(1,)]
        assert await read(database.saver) == {"documents": [document, {"text": "small"}]}


async def test_equal_numbers_of_different_types_are_different_values(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        head = None
        for number in (1, True, 1.0, 1):
            message = AIMessage("", id="a", tool_calls=[{"name": "f", "args": {"n": number}, "id": "c"}])
            head = await put(database.saver, {"messages": [message], "log": ["text", number]}, head)
            values = await read(database.saver, head)
            stored = values["messages"][0].tool_calls[0]["args"]["n"]
            assert (type(stored), type(values["log"][1])) == (type(number), type(number))


async def test_nobody_holds_what_a_reader_was_given(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        message = AIMessage("first", id="a", additional_kwargs={"deep": {"list": [1]}})
        head = await put(database.saver, {"messages": [message], "table": {"a": [1]}})
        message.content = "edited by its author"
        for _ in range(2):
            values = await read(database.saver)
            assert values["messages"][0].content == "first"
            assert values["messages"][0].additional_kwargs == {"deep": {"list": [1]}}
            assert values["table"] == {"a": [1]}
            values["messages"][0].content = "edited by a reader"
            values["messages"][0].additional_kwargs["deep"]["list"].append(2)
            values["table"]["a"].append(2)
        again = await put(database.saver, {"messages": values["messages"]}, head)
        assert (await read(database.saver, again))["messages"][0].content == "edited by a reader"
        assert (await read(database.saver, head))["messages"][0].content == "first"


async def test_random_lists_come_back_as_they_were_after_a_restart(tmp_path: Path) -> None:
    dice = random.Random(7)
    values: list[Any] = []
    head: str | None = None
    expected: dict[str, list[Any]] = {}
    async with opened(tmp_path / "a.db", memory_bytes=0) as database:
        for n in range(120):
            values = list(values)
            at = dice.randrange(len(values) + 1)
            match dice.choice(["insert", "append", "append", "remove", "swap", "replace"]):
                case "insert":
                    values.insert(at, HumanMessage(f"i{n}", id=f"i{n}"))
                case "append":
                    values.append(dice.choice([AIMessage(f"a{n}", id=f"a{n}"), f"text {n}", {"n": n}, None, 2.5]))
                case "remove":
                    del values[at:]
                case "swap":
                    values.reverse()
                case _:
                    values = [HumanMessage(f"r{n}", id=f"r{n}")]
            parent = dice.choice(list(expected)) if expected and dice.random() < 0.2 else head
            head = await put(database.saver, {"values": values}, parent)
            expected[head] = values
            if dice.random() < 0.1:
                database.shared.forget("t")
    async with opened(tmp_path / "a.db") as database:
        for checkpoint_id, values in expected.items():
            assert (await read(database.saver, checkpoint_id))["values"] == values
