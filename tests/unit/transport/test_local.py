"""The in-process transport: order, bounds, retained tokens, wake-ups."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.events import Event, EventKind
from perdure.transport.base import Bell, SlowWatcher, Subscription, Transport
from perdure.transport.local import LocalTransport

AT = datetime(2026, 1, 2, tzinfo=UTC)


def event(seq: int, kind: EventKind, turn: str = "t1", conversation: str = "c1", **payload: Any) -> Event:
    return Event(seq, conversation, turn, 1, kind, AT, payload)


def token(seq: int, text: str = "x", message_id: str = "m1", **more: Any) -> Event:
    return event(seq, EventKind.TOKEN, message_id=message_id, text=text, **more)


def message(seq: int, message_id: str = "m1") -> Event:
    return event(seq, EventKind.MESSAGE, message={"id": message_id, "role": "assistant", "content": "x"})


def retained(transport: LocalTransport, conversation: str = "c1") -> list[int]:
    with transport.subscribe(conversation) as subscription:
        return [item.seq for item in subscription.retained]


async def woken(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, 60)


def test_it_is_a_transport() -> None:
    transport: Transport = LocalTransport()
    with transport.subscribe("c") as subscription, transport.listen("queue") as bell:
        _subscription: Subscription = subscription
        _bell: Bell = bell


async def test_a_watcher_gets_the_events_of_its_conversation_in_order() -> None:
    transport = LocalTransport()
    with transport.subscribe("c1") as watcher:
        transport.publish(token(1))
        transport.publish(token(1, conversation="c2"))
        transport.publish(message(2))
        assert [item.seq for item in watcher.take()] == [1, 2]
        assert watcher.take() == []


async def test_a_waiting_watcher_is_woken_by_an_event() -> None:
    transport = LocalTransport()
    with transport.subscribe("c1") as watcher:
        waiting = asyncio.create_task(watcher.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        transport.publish(token(1))
        await woken(waiting)
        assert len(watcher.take()) == 1


async def test_what_came_before_the_wait_is_not_missed() -> None:
    transport = LocalTransport()
    with transport.subscribe("c1") as watcher:
        transport.publish(token(1))
        await woken(watcher.wait())


async def test_too_many_unread_events_cut_the_watcher_off_and_nobody_else() -> None:
    transport = LocalTransport(max_queued_events=3)
    with transport.subscribe("c1") as slow, transport.subscribe("c1") as fast:
        for seq in range(1, 6):
            transport.publish(token(seq))
            assert len(fast.take()) == 1
        await woken(slow.wait())
        with pytest.raises(SlowWatcher):
            slow.take()


def test_too_many_unread_bytes_cut_the_watcher_off() -> None:
    transport = LocalTransport(max_queued_bytes=100)
    with transport.subscribe("c1") as watcher:
        transport.publish(event(1, EventKind.MESSAGE, message={"id": "m", "tool_calls": [{"args": {"a": "x" * 101}}]}))
        with pytest.raises(SlowWatcher):
            watcher.take()


def test_reading_gives_the_whole_bound_back() -> None:
    transport = LocalTransport(max_queued_bytes=100)
    with transport.subscribe("c1") as watcher:
        for seq in range(1, 10):
            transport.publish(token(seq, "x" * 60))
            assert len(watcher.take()) == 1


def test_a_new_watcher_gets_the_unreplaced_tokens_without_a_gap_to_live() -> None:
    transport = LocalTransport()
    transport.publish(token(1, message_id="m1"))
    transport.publish(token(2, message_id="m2"))
    transport.publish(token(3, message_id="m1"))
    with transport.subscribe("c1") as watcher:
        transport.publish(token(4))
        assert [item.seq for item in watcher.retained] == [1, 2, 3]
        assert [item.seq for item in watcher.take()] == [4]


def test_a_message_replaces_the_tokens_of_its_id_only() -> None:
    transport = LocalTransport()
    transport.publish(token(1, message_id="m1"))
    transport.publish(token(2, message_id="m2"))
    transport.publish(message(3, "m1"))
    assert retained(transport) == [2]


@pytest.mark.parametrize("kind", [EventKind.REWIND, EventKind.END, EventKind.CHAT_ERROR])
def test_a_rewind_and_an_ending_drop_every_token_of_the_turn(kind: EventKind) -> None:
    transport = LocalTransport()
    transport.publish(token(1))
    transport.publish(event(2, kind))
    assert retained(transport) == []


def test_tokens_of_the_next_turn_displace_those_of_the_last() -> None:
    transport = LocalTransport()
    transport.publish(token(1, turn="t1"))
    transport.publish(token(2, turn="t2"))
    assert retained(transport) == [2]


def test_the_end_of_another_turn_leaves_the_tokens_alone() -> None:
    transport = LocalTransport()
    transport.publish(token(1, turn="t2"))
    transport.publish(event(2, EventKind.END, turn="t1"))
    assert retained(transport) == [1]


def test_a_late_watcher_never_gets_text_that_starts_in_the_middle() -> None:
    transport = LocalTransport(max_retained_tokens=3)
    with transport.subscribe("c1") as early:
        for seq in range(1, 6):
            transport.publish(token(seq))
        transport.publish(token(6, message_id="m2"))
        with transport.subscribe("c1") as late:
            transport.publish(token(7))
            transport.publish(message(8, "m1"))
            assert [item.seq for item in late.retained] == [6]
            assert [item.seq for item in late.take()] == [8]
        assert [item.seq for item in early.take()] == list(range(1, 9))


def test_retained_text_is_bounded_by_its_size() -> None:
    transport = LocalTransport(max_retained_bytes=10)
    transport.publish(token(1, "x" * 11))
    assert retained(transport) == []


async def test_a_ring_is_remembered_once_until_somebody_waits() -> None:
    transport = LocalTransport()
    with transport.listen("queue") as bell:
        transport.ring("queue")
        transport.ring("queue")
        assert await woken(bell.wait(0.0))
        assert not await woken(bell.wait(0.0))


async def test_a_ring_wakes_every_listener_of_its_topic_and_no_other() -> None:
    transport = LocalTransport()
    with transport.listen("queue") as first, transport.listen("queue") as second, transport.listen("cancel") as other:
        waiting = [asyncio.create_task(bell.wait()) for bell in (first, second)]
        await asyncio.sleep(0)
        transport.ring("queue")
        assert await woken(asyncio.gather(*waiting)) == [True, True]
        assert not await woken(other.wait(0.0))


async def test_a_cancelled_wait_loses_no_ring() -> None:
    transport = LocalTransport()
    with transport.listen("queue") as bell:
        waiting = asyncio.create_task(bell.wait())
        await asyncio.sleep(0)
        transport.ring("queue")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert await woken(bell.wait(0.0))


async def test_closing_wakes_every_waiter_with_nothing_to_take() -> None:
    transport = LocalTransport()
    with transport.subscribe("c1") as watcher, transport.listen("queue") as bell:
        waiting = asyncio.gather(watcher.wait(), bell.wait())
        await asyncio.sleep(0)
        transport.close()
        await woken(waiting)
        assert watcher.take() == []
        with transport.subscribe("c1") as late:
            await woken(late.wait())


def test_nothing_is_kept_of_watchers_that_left() -> None:
    transport = LocalTransport()
    with transport.subscribe("c1"), transport.listen("queue"):
        assert transport.watchers == 1
    assert transport.watchers == 0
    assert not transport._watchers
    assert not transport._bells


async def test_the_watchers_of_a_deleted_conversation_get_what_is_queued_and_then_know() -> None:
    transport = LocalTransport()
    with transport.subscribe("c") as live, transport.subscribe("other") as other:
        transport.forget("c")
        await live.wait()
        assert (live.take(), live.gone) == ([], True)
        assert not other.gone
    with transport.subscribe("c") as fresh:
        assert not fresh.gone
