"""Forks: what they share, what each keeps when the other goes, where they part, and what can be found."""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import apsw
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer

from perdure.errors import ForkPointGone, IdempotencyConflict, NotFound
from perdure.forks import FirstTurn, Forked, ForkPoint, NewFork
from perdure.messages import wire_message
from perdure.store.sqlite.store import SQLiteStore
from perdure.turns import Origin, RequestKey, TurnStatus
from tests.conformance.journal import OWNER, STRANGER, Journal, State, ask, work


async def said(journal: Journal, *questions: str, conversation: str | None = None) -> str:
    """A turn for each question, each answered with two messages; the conversation."""
    for question in questions:
        conversation = (await journal.accept(question, conversation=conversation)).conversation
        attempt = await journal.claimed()
        await work(attempt, f"one of {question}", f"two of {question}", question=question)
        await attempt.finish(TurnStatus.COMPLETED)
    assert conversation is not None
    return conversation


async def thread(journal: Journal, conversation: str) -> list[AnyMessage]:
    config: RunnableConfig = {"configurable": {"thread_id": conversation}}
    head = await journal.store.reader().aget_tuple(config)
    return list(head.checkpoint["channel_values"].get("messages", [])) if head is not None else []


async def texts(journal: Journal, conversation: str) -> list[str]:
    return [str(message.content) for message in await thread(journal, conversation)]


async def at(journal: Journal, conversation: str, checkpoint: str | None) -> list[AnyMessage]:
    if checkpoint is None:
        return []
    config: RunnableConfig = {"configurable": {"thread_id": conversation, "checkpoint_id": checkpoint}}
    found = await journal.store.reader().aget_tuple(config)
    assert found is not None
    return list(found.checkpoint["channel_values"].get("messages", []))


async def message_of(journal: Journal, conversation: str, text: str) -> str:
    return next(str(each.id) for each in await thread(journal, conversation) if each.content == text)


async def forked(
    journal: Journal,
    conversation: str,
    point: ForkPoint,
    message: str | None = None,
    *,
    owner: str = OWNER,
    scope: str | None = OWNER,
    key: RequestKey | None = None,
) -> Forked:
    past: Sequence[AnyMessage] = await at(journal, conversation, point.checkpoint)
    return await journal.store.fork(
        NewFork(
            id=journal.name("fork"),
            source=conversation,
            scope=scope,
            owner=owner,
            by=owner,
            point=point,
            title=None,
            messages=[wire_message(each) for each in past],
            turn=FirstTurn(journal.name("turn"), {"message": message}) if message is not None else None,
            request_key=key,
        )
    )


async def fork_before(journal: Journal, conversation: str, text: str, message: str | None = None) -> Forked:
    point = await journal.store.fork_point(OWNER, conversation, message=await message_of(journal, conversation, text))
    return await forked(journal, conversation, point, message)


async def answer(journal: Journal, made: Forked, question: str) -> None:
    """Drives the fork's first turn."""
    attempt = await journal.claimed()
    assert attempt.turn.id == made.turn
    await work(attempt, f"one of {question}", f"two of {question}", question=question)
    await attempt.finish(TurnStatus.COMPLETED)


def reader(journal: Journal) -> apsw.Connection:
    assert isinstance(journal.store, SQLiteStore)
    return apsw.Connection(str(journal.store.path), flags=apsw.SQLITE_OPEN_READONLY)


def damage(journal: Journal) -> list[Any]:
    """What SQLite and our own references say is wrong with the file."""
    connection = reader(journal)
    try:
        checked = [row for row in connection.execute("PRAGMA integrity_check") if row != ("ok",)]
        checked += list(connection.execute("PRAGMA foreign_key_check"))
        return checked + list(
            connection.execute(
                """
                SELECT 'element', item_id FROM list_elements WHERE item_id NOT IN (SELECT id FROM items)
                UNION ALL SELECT 'list', list_id FROM list_elements WHERE list_id NOT IN (SELECT id FROM lists)
                UNION ALL SELECT 'value', v.value FROM checkpoints c, json_each(c.refs, '$.v') v
                          WHERE v.value NOT IN (SELECT id FROM items)
                UNION ALL SELECT 'channel', json_extract(l.value, '$[0]') FROM checkpoints c, json_each(c.refs, '$.l') l
                          WHERE json_extract(l.value, '$[0]') NOT IN (SELECT id FROM lists)
                UNION ALL SELECT 'parent', parent_id FROM lists
                          WHERE parent_id IS NOT NULL AND parent_id NOT IN (SELECT id FROM lists)
                UNION ALL SELECT 'event', item_id FROM events
                          WHERE item_id IS NOT NULL AND item_id NOT IN (SELECT id FROM items)
                UNION ALL SELECT 'checkpoint', checkpoint_id FROM checkpoints c WHERE parent_id IS NOT NULL
                          AND NOT EXISTS (SELECT 1 FROM checkpoints p WHERE p.space = c.space AND p.checkpoint_id = c.parent_id)
                """
            )
        )
    finally:
        connection.close()


def stored(journal: Journal, text: str) -> bool:
    """Whether a message with this text is anywhere in the file's items."""
    connection = reader(journal)
    try:
        return bool(list(connection.execute("SELECT 1 FROM items WHERE instr(data, ?) LIMIT 1", (text.encode(),))))
    finally:
        connection.close()


def count(journal: Journal, table: str) -> int:
    connection = reader(journal)
    try:
        return int(next(iter(connection.execute(f"SELECT count(*) FROM {table}")))[0])
    finally:
        connection.close()


# -- where one begins ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["b", "one of b", "two of b"])
async def test_a_fork_before_any_message_of_a_turn_begins_before_that_turn(journal: Journal, text: str) -> None:
    source = await said(journal, "a", "b", "c")
    made = await fork_before(journal, source, text)
    assert await texts(journal, made.conversation) == ["a", "one of a", "two of a"]
    turns = (await journal.store.turns(OWNER, limit=9, conversation=source)).items
    read = await journal.store.conversation(OWNER, made.conversation)
    assert read.forked_from is not None
    assert (read.forked_from.conversation, read.forked_from.turn) == (source, turns[1].id)
    assert (read.message_count, read.status, read.title) == (3, None, "a (2)")
    assert (await journal.store.conversation(OWNER, source)).message_count == 9


async def test_forks_without_a_title_are_told_apart_by_a_number(journal: Journal) -> None:
    source = await said(journal, "a")
    made = [await fork_before(journal, source, "a", "A"), await fork_before(journal, source, "a", "A")]
    made.append(await fork_before(journal, source, "one of a", "A"))
    await answer(journal, made[0], "A")
    made.append(await fork_before(journal, made[0].conversation, "A", "B"))
    titles = [(await journal.store.conversation(OWNER, each.conversation)).title for each in made]
    assert titles == ["a (2)", "a (3)", "a (4)", "a (5)"]


async def test_a_fork_before_the_first_message_begins_with_nothing(journal: Journal) -> None:
    source = await said(journal, "a")
    made = await fork_before(journal, source, "a", "A")
    read = await journal.store.conversation(OWNER, made.conversation)
    assert read.forked_from is not None and read.forked_from.checkpoint is None
    assert (made.status, read.message_count) == (TurnStatus.QUEUED, 0)
    await answer(journal, made, "A")
    assert await texts(journal, made.conversation) == ["A", "one of A", "two of A"]
    assert await texts(journal, source) == ["a", "one of a", "two of a"]


async def test_a_fork_of_a_checkpoint_has_its_state_and_what_was_under_way_stays_behind(journal: Journal) -> None:
    source = await said(journal, "a")
    await journal.accept("b", conversation=source)
    attempt = await journal.claimed()
    await work(attempt, "one of b", question="b")
    config: RunnableConfig = {"configurable": {"thread_id": source}}
    history = [one async for one in journal.store.reader().alist(config)]
    within = next(one for one in history if one.checkpoint["channel_values"]["messages"][-1].content == "b")
    assert within.pending_writes, "the reply was written on top of it"
    identity = within.config["configurable"]["checkpoint_id"]
    point = await journal.store.fork_point(OWNER, source, checkpoint=identity)
    assert point == ForkPoint(identity, None)
    made = await forked(journal, source, point)
    head = await journal.store.reader().aget_tuple({"configurable": {"thread_id": made.conversation}})
    assert head is not None and head.checkpoint == within.checkpoint
    assert head.pending_writes == []
    await attempt.finish(TurnStatus.COMPLETED)
    assert (await texts(journal, source))[-1] == "one of b"


async def test_a_checkpoint_that_holds_an_input_alone_is_the_place_before_that_message(journal: Journal) -> None:
    source = await said(journal, "a", "b")
    config: RunnableConfig = {"configurable": {"thread_id": source}}
    history = [one async for one in journal.store.reader().alist(config)]
    held = next(one for one in history if one.metadata["source"] == "input")
    assert held.parent_config is not None
    point = await journal.store.fork_point(OWNER, source, checkpoint=held.config["configurable"]["checkpoint_id"])
    assert point == ForkPoint(held.parent_config["configurable"]["checkpoint_id"], held.metadata["run_id"])


async def test_what_is_not_there_cannot_be_forked(journal: Journal) -> None:
    source = await said(journal, "a")
    other = await said(journal, "other")
    foreign = await message_of(journal, other, "other")
    for asked in ({"message": "nothing"}, {"message": foreign}, {"checkpoint": "nothing"}):
        with pytest.raises(NotFound):
            await journal.store.fork_point(OWNER, source, **asked)
    with pytest.raises(NotFound):
        await journal.store.fork_point(STRANGER, source, message=await message_of(journal, source, "a"))
    point = await journal.store.fork_point(OWNER, source, message=await message_of(journal, source, "a"))
    with pytest.raises(NotFound):
        await forked(journal, source, point, owner=STRANGER, scope=STRANGER)
    assert len((await journal.store.conversations(None, limit=9)).items) == 2


async def test_a_fork_can_be_forked_in_the_past_that_it_shares(journal: Journal) -> None:
    source = await said(journal, "a", "b", "c")
    child = (await fork_before(journal, source, "c", "C")).conversation
    await answer(journal, Forked(child, (await journal.store.last_turn(OWNER, child)).id, None), "C")  # type: ignore[union-attr]
    await journal.store.delete(OWNER, source)
    grandchild = await fork_before(journal, child, "one of b", "B")
    await answer(journal, grandchild, "B")
    assert await texts(journal, grandchild.conversation) == ["a", "one of a", "two of a", "B", "one of B", "two of B"]
    assert (await texts(journal, child))[-3:] == ["C", "one of C", "two of C"]
    assert damage(journal) == []


class Delta(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=4)]


class Kept(TypedDict, total=False):
    seen: Annotated[list[str], operator.add]


async def drive(journal: Journal, graph: Any, question: str, conversation: str | None) -> str:
    """One turn of a graph; its conversation."""
    accepted = await journal.accept(question, conversation=conversation)
    attempt = await journal.claimed()
    config = {"configurable": {"thread_id": accepted.conversation}, "metadata": {"run_id": accepted.turn}}
    bound = copy.copy(graph)
    bound.checkpointer = attempt.checkpointer
    message = HumanMessage(question, id=f"msg-{accepted.turn}")
    await bound.ainvoke({"messages": [message]}, config, durability="sync")
    await attempt.finish(TurnStatus.COMPLETED)
    return accepted.conversation


async def values(journal: Journal, graph: Any, conversation: str, *, subgraphs: bool = False) -> Any:
    bound = copy.copy(graph)
    bound.checkpointer = journal.store.reader()
    state = await bound.aget_state({"configurable": {"thread_id": conversation}}, subgraphs=subgraphs)
    return [message.content for message in state.values.get("messages", [])]


async def test_a_value_that_is_kept_as_its_changes_is_whole_in_a_fork(journal: Journal) -> None:
    async def reply(state: Any) -> dict[str, Any]:
        return {"messages": [AIMessage(f"answer {len(state['messages'])}", id=f"a{len(state['messages'])}")]}

    graph = StateGraph(Delta)
    graph.add_node("reply", reply)
    graph.add_edge(START, "reply")
    graph.add_edge("reply", END)
    compiled = graph.compile()
    source: str | None = None
    before: dict[str, Any] = {}
    for number in range(7):
        source = await drive(journal, compiled, f"q{number}", source)
        page = await journal.store.checkpoints(OWNER, source, limit=1)
        before[page.items[0]] = await values(journal, compiled, source)
    assert source is not None
    for checkpoint, held in list(before.items())[:-1]:
        point = await journal.store.fork_point(OWNER, source, checkpoint=checkpoint)
        made = await journal.store.fork(
            NewFork(journal.name("fork"), source, OWNER, OWNER, OWNER, point, None, messages=())
        )
        assert await values(journal, compiled, made.conversation) == held
        await drive(journal, compiled, "another", made.conversation)
        assert (await values(journal, compiled, made.conversation))[:-1] == [*held, "another"]
    await journal.store.delete(OWNER, source)
    assert damage(journal) == []


async def test_what_a_subgraph_keeps_over_the_turns_is_that_of_the_place(journal: Journal) -> None:
    async def note(state: Any) -> dict[str, Any]:
        return {"seen": [f"{len(state.get('seen', []))}"]}

    inner = StateGraph(Kept)
    inner.add_node("note", note)
    inner.add_edge(START, "note")
    inner.add_edge("note", END)
    lasting = inner.compile(checkpointer=True)

    async def reply(state: State) -> dict[str, Any]:
        kept = await lasting.ainvoke({})
        return {"messages": [AIMessage(",".join(kept["seen"]), id=f"a{len(state['messages'])}")]}

    graph = StateGraph(State)
    graph.add_node("reply", reply)
    graph.add_edge(START, "reply")
    graph.add_edge("reply", END)
    compiled = graph.compile()
    source: str | None = None
    for number in range(3):
        source = await drive(journal, compiled, f"q{number}", source)
    assert source is not None
    assert (await values(journal, compiled, source))[-1] == "0,1,2"
    made = await fork_before(journal, source, "q2")
    await drive(journal, compiled, "other", made.conversation)
    assert (await values(journal, compiled, made.conversation))[-1] == "0,1,2", "the third note, not the fourth"
    await drive(journal, compiled, "q3", source)
    assert (await values(journal, compiled, source))[-1] == "0,1,2,3"


# -- what is shared -----------------------------------------------------------------------------------------------------


async def test_a_fork_stores_no_message_a_second_time(journal: Journal) -> None:
    source = await said(journal, *(f"{number} " + "x" * 2_000 for number in range(6)))
    items = count(journal, "items")
    made = await fork_before(journal, source, "5 " + "x" * 2_000)
    assert count(journal, "items") == items
    assert len(await thread(journal, made.conversation)) == 15


async def test_parent_and_fork_go_their_own_ways(journal: Journal) -> None:
    source = await said(journal, "a", "b")
    made = await fork_before(journal, source, "b", "B")
    await answer(journal, made, "B")
    await said(journal, "d", conversation=source)
    await said(journal, "D", conversation=made.conversation)
    assert [text for text in await texts(journal, source) if len(text) == 1] == ["a", "b", "d"]
    assert [text for text in await texts(journal, made.conversation) if len(text) == 1] == ["a", "B", "D"]
    await journal.restart()
    assert [text for text in await texts(journal, made.conversation) if len(text) == 1] == ["a", "B", "D"]
    assert damage(journal) == []


@pytest.mark.parametrize("first", ["source", "fork"])
async def test_whichever_is_deleted_the_other_stays_whole_and_goes_on(journal: Journal, first: str) -> None:
    source = await said(journal, "shared", "left of it", "more of it")
    made = await fork_before(journal, source, "left of it", "right of it")
    await answer(journal, made, "right of it")
    gone, kept = (source, made.conversation) if first == "source" else (made.conversation, source)
    before = await thread(journal, kept)
    await journal.store.delete(OWNER, gone)
    assert await thread(journal, kept) == before
    assert damage(journal) == []
    await said(journal, "on", conversation=kept)
    await journal.restart()
    assert (await thread(journal, kept))[: len(before)] == before
    assert damage(journal) == []
    await journal.store.delete(OWNER, kept)
    for table in (
        "items",
        "lists",
        "list_elements",
        "checkpoints",
        "writes",
        "spaces",
        "events",
        "searchable",
        "words_docsize",
    ):
        assert count(journal, table) == 0, table


async def test_nothing_is_kept_of_a_deleted_parent_but_what_the_fork_shares(journal: Journal) -> None:
    source = await said(journal, "shared", "secret of the parent", "more secret")
    made = await fork_before(journal, source, "secret of the parent")
    await journal.store.delete(OWNER, source)
    assert not stored(journal, "secret")
    assert stored(journal, "shared")
    assert await texts(journal, made.conversation) == ["shared", "one of shared", "two of shared"]
    assert damage(journal) == []


async def test_words_of_a_deleted_parent_that_a_fork_says_again_are_stored_for_the_fork(journal: Journal) -> None:
    """The very same message: the fork must not lean on a row that goes with the parent."""

    async def reply(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage("the same", id=f"a{len(state['messages'])}")]}

    graph = StateGraph(State)
    graph.add_node("reply", reply)
    graph.add_edge(START, "reply")
    graph.add_edge("reply", END)
    compiled = graph.compile()
    source = await drive(journal, compiled, "a", None)
    await drive(journal, compiled, "b", source)
    made = await fork_before(journal, source, "b")
    assert await values(journal, compiled, made.conversation) == ["a", "the same"]
    await journal.store.delete(OWNER, source)
    await drive(journal, compiled, "c", made.conversation)
    await journal.restart()
    assert await values(journal, compiled, made.conversation) == ["a", "the same", "c", "the same"]
    assert damage(journal) == []


@pytest.mark.parametrize("status", ["running", "parked"])
async def test_a_conversation_is_forked_while_a_turn_of_it_runs_or_waits(journal: Journal, status: str) -> None:
    source = await said(journal, "a")
    await journal.accept("b", conversation=source)
    attempt = await journal.claimed()
    await work(attempt, "one of b", question="b")
    if status == "parked":
        await attempt.park([ask()])
    made = await fork_before(journal, source, "b", "B")
    turn = await journal.turn(attempt.turn.id)
    assert turn.status == status and made.status is TurnStatus.QUEUED
    assert await journal.cards(made.turn or "") == {}
    await answer(journal, made, "B")
    assert [text for text in await texts(journal, made.conversation) if len(text) == 1] == ["a", "B"]
    assert (await journal.turn(attempt.turn.id)) == turn


async def test_events_of_a_fork_are_its_own_alone_and_count_from_one(journal: Journal) -> None:
    source = await said(journal, "a", "b")
    made = await fork_before(journal, source, "b")
    assert await journal.store.events(made.conversation) == []
    assert await journal.store.last_turn(OWNER, made.conversation) is None
    accepted = await journal.accept("B", conversation=made.conversation)
    await answer(journal, Forked(made.conversation, accepted.turn, None), "B")
    events = await journal.store.events(made.conversation)
    told = [event.payload["message"]["content"] for event in events if "message" in event.payload]
    assert told == ["B", "one of B", "two of B"]
    assert events[0].seq == 1 and {event.turn for event in events} == {accepted.turn}


# -- the house ----------------------------------------------------------------------------------------------------------


async def test_retention_of_the_parent_takes_nothing_from_the_fork(journal: Journal) -> None:
    source = await said(journal, "a", "b", "c")
    made = await fork_before(journal, source, "c", "C")
    await answer(journal, made, "C")
    before = await thread(journal, made.conversation)
    journal.clock.advance(10 * 86_400)
    planned = await journal.store.prune(journal.clock.now() - timedelta(days=1), dry_run=True)
    assert await journal.store.prune(journal.clock.now() - timedelta(days=1), dry_run=False) == planned
    assert await thread(journal, made.conversation) == before
    assert len((await journal.store.checkpoints(OWNER, made.conversation, limit=50)).items) == 1
    assert damage(journal) == []
    with pytest.raises(ForkPointGone):
        await fork_before(journal, source, "b")
    with pytest.raises(ForkPointGone):
        await fork_before(journal, made.conversation, "a")
    await said(journal, "d", conversation=made.conversation)
    again = await fork_before(journal, made.conversation, "d")
    assert await thread(journal, again.conversation) == before


async def test_retention_leaves_a_fresh_fork_of_an_old_conversation_alone(journal: Journal) -> None:
    source = await said(journal, "a", "b", "c")
    journal.clock.advance(10 * 86_400)
    made = await fork_before(journal, source, "c")
    await journal.store.prune(journal.clock.now() - timedelta(days=1), dry_run=False)
    again = await fork_before(journal, made.conversation, "b")
    assert await texts(journal, again.conversation) == ["a", "one of a", "two of a"]
    assert damage(journal) == []


async def test_forks_survive_a_backup(journal: Journal, tmp_path: Path) -> None:
    source = await said(journal, "a", "b")
    made = await fork_before(journal, source, "b", "B")
    await journal.store.backup(tmp_path / "copy.db")
    connection = apsw.Connection(str(tmp_path / "copy.db"), flags=apsw.SQLITE_OPEN_READONLY)
    assert list(connection.execute("SELECT forked_from FROM conversations WHERE id = ?", (made.conversation,))) == [
        (source,)
    ]
    assert list(connection.execute("SELECT count(*) FROM words WHERE words MATCH 'shared OR b'")) != [(0,)]
    connection.close()


async def test_a_key_makes_a_fork_once_and_stands_for_nothing_else(journal: Journal) -> None:
    source = await said(journal, "a", "b")
    point = await journal.store.fork_point(OWNER, source, message=await message_of(journal, source, "b"))
    for message in ("B", None):
        key = RequestKey(journal.name("key"), f"digest of {message}")
        made = await forked(journal, source, point, message, key=key)
        again = await forked(journal, source, point, message, key=key)
        assert again.repeated and (again.conversation, again.turn) == (made.conversation, made.turn)
        assert await journal.store.repeated_fork(OWNER, key) == again
        with pytest.raises(IdempotencyConflict):
            await journal.accept("other", key=key.key, digest="another")
    assert len((await journal.store.conversations(OWNER, limit=9)).items) == 3


async def test_a_fork_belongs_to_who_makes_it_and_its_source_is_told_of_it(journal: Journal) -> None:
    source = await said(journal, "a", "b")
    point = await journal.store.fork_point(None, source, message=await message_of(journal, source, "b"))
    made = await forked(journal, source, point, owner=STRANGER, scope=None)
    assert (await journal.store.conversation(STRANGER, made.conversation)).owner == STRANGER
    with pytest.raises(NotFound):
        await journal.store.conversation(OWNER, made.conversation)
    deed = (await journal.store.audit(OWNER, limit=1)).items[0]
    assert (deed.action, deed.by, deed.conversation) == ("fork", STRANGER, source)
    assert await journal.store.branches(OWNER, source) == []


# -- where they part ----------------------------------------------------------------------------------------------------


async def parted(journal: Journal, conversation: str) -> list[tuple[str | None, list[tuple[str, str | None, bool]]]]:
    found = await journal.store.branches(OWNER, conversation)
    return [(each.turn, [(way.conversation, way.turn, way.current) for way in each.branches]) for each in found]


async def test_branches_of_one_place_are_the_same_from_every_side(journal: Journal) -> None:
    source = await said(journal, "a", "b", "c")
    (c, b, a) = (turn.id for turn in (await journal.store.turns(OWNER, limit=9, conversation=source)).items)
    one = await fork_before(journal, source, "b", "B")
    await answer(journal, one, "B")
    two = await fork_before(journal, one.conversation, "one of B", "B again")
    ways = [(source, b), (one.conversation, one.turn), (two.conversation, two.turn)]
    for place, (conversation, turn) in enumerate(ways):
        expected = [(*way, number == place) for number, way in enumerate(ways)]
        assert await parted(journal, conversation) == [(turn, expected)]
    late = await fork_before(journal, source, "c", "C")
    assert await parted(journal, late.conversation) == [
        (b, [(late.conversation, b, True), (one.conversation, one.turn, False), (two.conversation, two.turn, False)]),
        (late.turn, [(source, c, False), (late.conversation, late.turn, True)]),
    ]
    start = await fork_before(journal, source, "a", "A")
    assert (await parted(journal, source))[0] == (a, [(source, a, True), (start.conversation, start.turn, False)])


async def test_branches_outlive_the_conversation_they_came_from(journal: Journal) -> None:
    source = await said(journal, "a", "b")
    one = await fork_before(journal, source, "b", "B")
    two = await fork_before(journal, source, "b")
    await journal.store.delete(OWNER, source)
    assert await parted(journal, two.conversation) == [
        (None, [(one.conversation, one.turn, False), (two.conversation, None, True)])
    ]
    assert (await journal.store.conversation(OWNER, one.conversation)).forked_from is not None


async def test_a_conversation_alone_and_a_fork_within_a_turn_part_nowhere(journal: Journal) -> None:
    source = await said(journal, "a")
    assert await parted(journal, source) == []
    config: RunnableConfig = {"configurable": {"thread_id": source}}
    history = [one async for one in journal.store.reader().alist(config)]
    point = await journal.store.fork_point(OWNER, source, checkpoint=history[1].config["configurable"]["checkpoint_id"])
    made = await forked(journal, source, point, "on")
    assert (await journal.store.conversation(OWNER, made.conversation)).forked_from == Origin(
        source, None, point.checkpoint
    )
    assert await parted(journal, source) == await parted(journal, made.conversation) == []


# -- search -------------------------------------------------------------------------------------------------------------


async def found(journal: Journal, text: str, scope: str | None = OWNER) -> set[str]:
    page = await journal.store.conversations(scope, limit=50, text=text)
    return {each.id for each in page.items}


async def test_conversations_are_found_by_what_was_said_and_by_their_title(journal: Journal) -> None:
    kyiv = await said(journal, "Where is Київ on the map?")
    cafe = await said(journal, "A café, please", "and a Croissant")
    assert await found(journal, "київ") == {kyiv}
    assert await found(journal, "one croiss") == {cafe}, "all words in one message, the last one as a beginning"
    assert await found(journal, "cafe") == {cafe}, "accents do not matter"
    assert await found(journal, "croissant map") == set()
    await journal.store.rename(OWNER, kyiv, "Geography")
    assert await found(journal, "geogr") == {kyiv}
    await journal.store.delete(OWNER, kyiv)
    assert await found(journal, "geography") == await found(journal, "київ") == set()


async def test_a_search_stays_in_its_scope(journal: Journal) -> None:
    mine = await said(journal, "zebra")
    theirs = (await journal.accept("zebra", owner=STRANGER)).conversation
    assert await found(journal, "zebra") == {mine}
    assert await found(journal, "zebra", STRANGER) == {theirs}
    assert await found(journal, "zebra", None) == {mine, theirs}
    assert await found(journal, "o" + OWNER.encode().hex(), None) == set(), "owners are no words"


@pytest.mark.parametrize(
    "text",
    [
        '"',
        "'",
        'a" OR "b',
        "owner:anna",
        "NEAR(a b)",
        "* ^ - + ( )",
        "\x00zebra",
        "\ud800",
        "{owner} : x",
        "AND",
        "%_",
        " ",
    ],
)
async def test_no_text_breaks_a_search_or_leaves_the_scope(journal: Journal, text: str) -> None:
    await journal.accept("zebra a b and", owner=STRANGER)
    assert await found(journal, text) == set()
    await journal.store.turns(OWNER, limit=5, text=text)


async def test_the_past_of_a_fork_is_found_in_it_also_when_the_parent_is_gone(journal: Journal) -> None:
    source = await said(journal, "walrus", "giraffe")
    made = await fork_before(journal, source, "giraffe")
    assert await found(journal, "one of walrus") == {source, made.conversation}
    assert await found(journal, "one of giraffe") == {source}
    await journal.store.delete(OWNER, source)
    assert await found(journal, "walrus") == {made.conversation}
    assert await found(journal, "giraffe") == set()


async def test_pages_of_a_search_follow_each_other(journal: Journal) -> None:
    all_of_them = {await said(journal, f"zebra {number}") for number in range(5)}
    seen: list[str] = []
    cursor = None
    while True:
        page = await journal.store.conversations(OWNER, limit=2, cursor=cursor, text="zebra")
        seen += [each.id for each in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert len(seen) == 5 and set(seen) == all_of_them


# -- an operator's lists ------------------------------------------------------------------------------------------------


async def test_turns_are_found_by_attempts_by_words_and_by_id(journal: Journal) -> None:
    quiet = (await journal.accept("a quiet one")).turn
    attempt = await journal.claimed()
    await attempt.finish(TurnStatus.COMPLETED)
    busy = (await journal.accept("zebra")).turn
    await journal.die(await journal.claimed())
    await journal.claimed()

    async def turns(**asked: Any) -> list[str]:
        return [turn.id for turn in (await journal.store.turns(None, limit=9, **asked)).items]

    assert await turns(attempts_min=2) == [busy]
    assert await turns(attempts_min=1) == [busy, quiet]
    assert await turns(text="zebr") == await turns(text=busy) == [busy]
    assert await turns(text="quiet", attempts_min=2) == []
    assert await turns(text="owner_died") == []
    counts = await journal.store.turn_counts(OWNER)
    assert (counts[TurnStatus.RUNNING], counts[TurnStatus.COMPLETED], counts[TurnStatus.FAILED]) == (1, 1, 0)
    assert sum((await journal.store.turn_counts(STRANGER)).values()) == 0
    assert (await journal.store.turn_counts(None, agent="other"))[TurnStatus.COMPLETED] == 0
    (worker,) = await journal.store.workers(None)
    assert (worker.owner, worker.running) == (journal.store.owner_name, 1)
    assert (await journal.store.workers(STRANGER))[0].running == 0


async def test_a_fork_goes_on_as_a_fresh_thread_with_the_same_past_would(journal: Journal) -> None:
    source = await said(journal, "a", "b", "c")
    fresh = await said(journal, "a", "b")
    made = await fork_before(journal, source, "c", "next")
    await answer(journal, made, "next")
    await said(journal, "next", conversation=fresh)

    def shape(messages: Sequence[AnyMessage]) -> list[tuple[type, Any]]:
        return [(type(message), message.content) for message in messages]

    left, right = await thread(journal, made.conversation), await thread(journal, fresh)
    assert shape(left) == shape(right)
    assert [isinstance(each, HumanMessage) for each in left] == [isinstance(each, HumanMessage) for each in right]
    assert sum(isinstance(each, AIMessage) for each in left) == 6
