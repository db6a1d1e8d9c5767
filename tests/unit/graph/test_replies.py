from __future__ import annotations

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import tool_call, tool_call_chunk

from perdure.graph.replies import joined, settled


def piece(
    text: str = "", id: str | None = None, arguments: str | None = None, name: str | None = None
) -> AIMessageChunk:
    calls = [] if arguments is None else [tool_call_chunk(name=name, args=arguments, id=name and "c1", index=0)]
    return AIMessageChunk(content=text, id=id, tool_call_chunks=calls)


def test_pieces_become_one_message_under_the_id_its_text_was_streamed_with() -> None:
    message = joined([piece("", "msg_provider"), piece("one ", "lc_run--1"), piece("two", "lc_run--1")])
    assert type(message) is AIMessage
    assert (message.content, message.id) == ("one two", "lc_run--1")


def test_arguments_in_pieces_become_one_call() -> None:
    message = joined(
        [piece(id="m", arguments="", name="add"), piece(id="m", arguments='{"a": '), piece(arguments="1}")]
    )
    assert message.tool_calls == [tool_call(name="add", args={"a": 1}, id="c1")]
    assert message.invalid_tool_calls == []


def test_a_call_without_arguments_has_none() -> None:
    message = joined([piece(id="m", arguments="", name="tick")])
    assert message.tool_calls == [tool_call(name="tick", args={}, id="c1")]


def test_arguments_cut_in_the_middle_are_never_completed_by_guessing() -> None:
    message = joined([piece(id="m", arguments='{"path": "/tmp/important-fi', name="remove")])
    assert message.tool_calls == []
    assert message.invalid_tool_calls[0]["args"] == '{"path": "/tmp/important-fi'
    assert message.invalid_tool_calls[0]["id"] == "c1"


def test_an_id_that_the_thread_has_already_is_not_used_again() -> None:
    assert settled(AIMessage("x", id="m1"), {"m1"}).id != "m1"
    assert settled(AIMessage("x", id="m2"), {"m1"}).id == "m2"
    assert settled(AIMessage("x"), set()).id


def test_calls_of_one_answer_get_ids_that_tell_them_apart() -> None:
    calls = [tool_call(name="a", args={}, id=each) for each in ("c", "c", None, "")]
    ids = [call["id"] for call in settled(AIMessage("", id="m", tool_calls=calls), set()).tool_calls]
    assert ids[0] == "c"
    assert len(set(ids)) == 4
    assert all(ids)
