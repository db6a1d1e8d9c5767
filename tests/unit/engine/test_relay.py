"""Tokens and traces that leave a drive, from stream parts as LangGraph sends them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from langchain_core.messages import AIMessage, AIMessageChunk

from perdure.engine.relay import COALESCE_CHARACTERS, COALESCE_SECONDS, Partial, Relay
from perdure.store.base import LeasedAttempt
from perdure.testing import FakeClock


class Recorder:
    def __init__(self) -> None:
        self.out: list[tuple[Any, ...]] = []

    def token(self, message_id: str, text: str) -> None:
        self.out.append((message_id, text))

    def trace(self, node: str, name: str, step: int, phase: str, **more: Any) -> None:
        self.out.append((node, name, step, phase, more))


class Scene:
    def __init__(self, recorded: frozenset[str] = frozenset(), step: int = 1) -> None:
        self.clock = FakeClock()
        self.recorder = Recorder()
        self.relay = Relay(cast("LeasedAttempt", self.recorder), self.clock, recorded, step)

    def hear(self, text: str, id: str = "m1", place: str = "model:t1") -> None:
        heard = (AIMessageChunk(content=text, id=id), {"langgraph_checkpoint_ns": place})
        self.relay.feed({"type": "messages", "ns": (), "data": heard})

    def task(self, name: str, ns: tuple[str, ...] = (), **more: Any) -> None:
        self.relay.feed({"type": "tasks", "ns": ns, "data": {"id": f"task-{name}", "name": name, **more}})

    def checkpoint(self, step: int, ns: tuple[str, ...] = ()) -> None:
        self.relay.feed({"type": "checkpoints", "ns": ns, "data": {"metadata": {"step": step}}})

    @property
    def out(self) -> list[tuple[Any, ...]]:
        return self.recorder.out


async def test_the_first_text_leaves_at_once_and_what_follows_is_gathered() -> None:
    scene = Scene()
    scene.hear("a")
    scene.hear("b")
    scene.hear("c")
    assert scene.out == [("m1", "a")]
    await asyncio.sleep(0)
    scene.clock.advance(COALESCE_SECONDS)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert scene.out == [("m1", "a"), ("m1", "bc")]


async def test_much_text_does_not_wait() -> None:
    scene = Scene()
    scene.hear("a")
    scene.hear("b" * COALESCE_CHARACTERS)
    assert scene.out[1:] == [("m1", "b" * COALESCE_CHARACTERS)]


async def test_text_leaves_before_anything_else_that_the_stream_tells() -> None:
    scene = Scene()
    scene.hear("a")
    scene.hear("b")
    scene.task("model", result={})
    assert scene.out == [("m1", "a"), ("m1", "b"), ("model", "model", 1, "leave", {})]


async def test_two_messages_are_never_mixed() -> None:
    scene = Scene()
    scene.hear("a", "m1")
    scene.hear("b", "m1")
    scene.hear("c", "m2")
    scene.relay.close()
    assert scene.out == [("m1", "a"), ("m1", "b"), ("m2", "c")]


async def test_whole_messages_and_empty_chunks_are_no_tokens() -> None:
    scene = Scene()
    scene.relay.feed({"type": "messages", "ns": (), "data": (AIMessage(content="whole", id="m1"), {})})
    scene.hear("")
    scene.relay.close()
    assert scene.out == []
    assert scene.relay.spoken() == []


async def test_a_call_that_is_made_again_takes_the_place_of_what_was_said_before() -> None:
    scene = Scene()
    scene.hear("half an ans", "m1")
    scene.hear("whole", "m2")
    assert scene.relay.spoken() == [Partial("m2", "whole", frozenset({"t1"}))]


async def test_all_that_is_said_side_by_side_counts() -> None:
    scene = Scene()
    scene.hear("a", "m1", "left:t1")
    scene.hear("b", "m2", "right:t2|inner:t3")
    scene.hear("c", "m3", "left:t1")
    scene.hear("d", "m1", "left:t1")
    assert scene.relay.spoken() == [
        Partial("m1", "ad", frozenset({"t1"})),
        Partial("m2", "b", frozenset({"t2", "t3"})),
        Partial("m3", "c", frozenset({"t1"})),
    ]


async def test_what_a_task_said_that_has_ended_is_in_what_it_wrote() -> None:
    scene = Scene()
    scene.hear("a", "m1", "classify:task-classify")
    scene.hear("b", "m2", "agent:task-agent|model:task-inner")
    scene.task("inner", ("agent:task-agent",), result={})
    scene.task("classify", result={})
    assert [each.id for each in scene.relay.spoken()] == ["m2"]


async def test_discarded_text_never_leaves() -> None:
    scene = Scene()
    scene.hear("a")
    scene.hear("b")
    scene.relay.discard()
    scene.relay.close()
    assert scene.out == [("m1", "a")]


async def test_a_task_with_a_recorded_result_does_not_start_again() -> None:
    scene = Scene(recorded=frozenset({"task-a"}))
    scene.task("a")
    scene.task("b")
    assert scene.out == [("b", "b", 1, "enter", {})]


async def test_traces_name_the_way_into_a_subgraph_and_its_own_step() -> None:
    scene = Scene(step=4)
    scene.checkpoint(7, ("outer:1",))
    scene.task("inner", ("outer:1",))
    scene.task("outer")
    scene.checkpoint(4)
    scene.task("next")
    assert scene.out == [
        ("inner", "outer/inner", 8, "enter", {}),
        ("outer", "outer", 4, "enter", {}),
        ("next", "next", 5, "enter", {}),
    ]


async def test_a_leave_says_when_it_was_none() -> None:
    scene = Scene()
    scene.task("a", result={}, error="boom")
    scene.task("b", result={}, interrupts=[{"id": "i"}])
    assert [each[4] for each in scene.out] == [{"data": {"outcome": "failed"}}, {"data": {"outcome": "interrupted"}}]
