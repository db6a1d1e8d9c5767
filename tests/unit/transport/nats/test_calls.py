"""Calls and their answers over a real server: once, within their time, also when they come twice or somebody goes away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, Self

import pytest
from pydantic import BaseModel, ConfigDict, model_validator
from structlog.testing import capture_logs

from perdure.errors import AgentUnavailable, BadRequest, NotReady, PerdureError, TooLarge, TurnInProgress
from perdure.testing import FakeClock
from perdure.transport.nats import answerer as module
from perdure.transport.nats import jsonrpc
from perdure.transport.nats.answerer import Answerer, Method, Remembered
from perdure.transport.nats.caller import Caller
from perdure.transport.nats.connection import Connection, NoResponders
from perdure.transport.nats.names import Names
from tests.servers.nats_server import NatsServer, Servers
from tests.servers.process import LIMIT_SECONDS
from tests.unit.transport.nats.conftest import Connect

LONG = LIMIT_SECONDS


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = ""
    size: int = 0

    @model_validator(mode="after")
    def _rule(self) -> Self:
        if self.size < 0:
            raise ValueError("Ask for more than nothing.")
        return self


class Desk:
    """What the agent does, and how often."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = asyncio.Event()
        self.go.set()
        self.arrived = asyncio.Event()

    async def echo(self, params: Asked) -> Any:
        self.asked.append(params.text)
        self.arrived.set()
        await self.go.wait()
        return {"text": params.text, "count": len(self.asked), "filler": "x" * params.size}

    async def busy(self, params: Asked) -> Any:
        self.asked.append(params.text)
        raise TurnInProgress("One is active.", conversation="c1", turn="t1", details={"since": 3})

    async def defect(self, params: Asked) -> Any:
        raise RuntimeError("the key is hunter2")

    async def describe(self, params: Asked) -> Any:
        return {"name": "alpha"}

    @property
    def methods(self) -> dict[str, Method[Any]]:
        return {
            "echo": Method(Asked, self.echo),
            "busy": Method(Asked, self.busy),
            "defect": Method(Asked, self.defect),
            "agent/describe": Method(Asked, self.describe),
        }


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


Serve = Callable[..., Any]


@pytest.fixture
async def serve(names: Names, desk: Desk, clock: FakeClock) -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def make(connection: Connection, agent: str = "alpha", **options: Any) -> Answerer:
            answerer = Answerer(connection, names, agent, desk.methods, clock=clock, **options)
            await answerer.start()
            stack.push_async_callback(answerer.stop, within_seconds=0.0)
            return answerer

        yield make


@pytest.fixture
async def caller(nats: NatsServer, names: Names, connect: Connect, serve: Serve) -> Caller:
    await serve(await connect(nats, agent="alpha"))
    return Caller(await connect(nats), names)


async def call(caller: Caller, method: str = "echo", **options: Any) -> Any:
    given = {"within_seconds": LONG, **options}
    params = given.pop("params", {})
    return await caller.call(given.pop("agent", "alpha"), method, params, **given)


# -- one call ---------------------------------------------------------------------------------------------------------


async def test_a_call_gets_its_result(caller: Caller) -> None:
    assert (await call(caller, params={"text": "né"}))["text"] == "né"


async def test_many_calls_at_once_get_their_own_results(caller: Caller) -> None:
    got = await asyncio.gather(*(call(caller, params={"text": str(number)}) for number in range(100)))
    assert [each["text"] for each in got] == [str(number) for number in range(100)]


async def test_a_result_larger_than_a_message_comes_in_parts(caller: Caller) -> None:
    got = await asyncio.gather(*(call(caller, params={"text": str(n), "size": 3_000_000 + n}) for n in range(3)))
    assert [(each["text"], len(each["filler"])) for each in got] == [(str(n), 3_000_000 + n) for n in range(3)]


async def test_a_result_that_is_too_large_for_anybody_is_an_error(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonrpc, "MAX_REPLY_BYTES", 1_500_000)
    with pytest.raises(TooLarge, match="Ask for less"):
        await call(caller, params={"size": 2_000_000})


async def test_params_larger_than_a_message_are_refused_before_they_are_sent(caller: Caller, desk: Desk) -> None:
    with pytest.raises(TooLarge):
        await call(caller, params={"text": "x" * 1_100_000})
    assert not desk.asked


async def test_an_error_of_the_agent_is_raised_as_itself(caller: Caller) -> None:
    with pytest.raises(TurnInProgress, match="One is active") as raised:
        await call(caller, "busy")
    assert (raised.value.conversation, raised.value.turn, raised.value.details) == ("c1", "t1", {"since": 3})


async def test_wrong_params_are_named(caller: Caller, desk: Desk) -> None:
    with pytest.raises(BadRequest, match="`nonsense`"):
        await call(caller, params={"nonsense": 1})
    with pytest.raises(BadRequest, match="`size`"):
        await call(caller, params={"size": "many"})
    with pytest.raises(BadRequest, match=r"^Ask for more than nothing\.$"):
        await call(caller, params={"size": -1})
    assert not desk.asked


async def test_an_unknown_method_is_refused(caller: Caller) -> None:
    with pytest.raises(BadRequest, match="dance"):
        await call(caller, "dance")


async def test_a_name_that_no_agent_can_have_is_refused(caller: Caller) -> None:
    with pytest.raises(BadRequest):
        await call(caller, agent="*")


async def test_a_defect_is_told_without_its_text_which_stays_in_the_log(caller: Caller) -> None:
    with capture_logs() as logs, pytest.raises(PerdureError, match="its log") as raised:
        await call(caller, "defect")
    assert raised.value.code == "INTERNAL"
    assert "hunter2" not in str(raised.value)
    assert [each["method"] for each in logs if each["log_level"] == "error"] == ["defect"]


async def test_bytes_that_are_no_request_get_an_error(
    nats: NatsServer, names: Names, connect: Connect, caller: Caller
) -> None:
    asking = await connect(nats)
    for data, code in ((b"{", -32700), (b'{"jsonrpc":"2.0","id":"i7"}', -32600)):
        reply = json.loads((await asyncio.wait_for(await asking.ask(names.requests("alpha"), data), LONG)).data)
        assert reply["error"]["code"] == code
    assert reply["id"] == "i7"


# -- twice ------------------------------------------------------------------------------------------------------------


async def test_a_call_that_comes_again_is_answered_from_memory(caller: Caller, desk: Desk, clock: FakeClock) -> None:
    again: dict[str, Any] = {"params": {"text": "once"}, "request_id": jsonrpc.new_id()}
    assert await call(caller, **again) == await call(caller, **again)
    assert desk.asked == ["once"]
    clock.advance(module.MEMORY_SECONDS + 1)
    assert (await call(caller, **again))["count"] == 2


async def test_an_error_is_remembered_too(caller: Caller, desk: Desk) -> None:
    request_id = jsonrpc.new_id()
    for _ in range(2):
        with pytest.raises(TurnInProgress):
            await call(caller, "busy", request_id=request_id)
    assert len(desk.asked) == 1


async def test_a_call_that_comes_again_while_it_is_under_way_joins_it(caller: Caller, desk: Desk) -> None:
    desk.go.clear()
    request_id = jsonrpc.new_id()
    calls = [asyncio.create_task(call(caller, params={"text": "a"}, request_id=request_id)) for _ in range(3)]
    await asyncio.wait_for(desk.arrived.wait(), LONG)
    assert (await call(caller, "agent/describe"))["name"] == "alpha", "the three have arrived before this one"
    desk.go.set()
    results = await asyncio.gather(*calls)
    assert [each["count"] for each in results] == [1, 1, 1]


async def test_the_same_id_with_other_content_is_another_call(caller: Caller, desk: Desk) -> None:
    request_id = jsonrpc.new_id()
    for text in ("a", "b"):
        assert (await call(caller, params={"text": text}, request_id=request_id))["text"] == text


async def test_an_id_that_may_be_a_counter_is_never_taken_for_a_repetition(caller: Caller, desk: Desk) -> None:
    for count in (1, 2):
        assert (await call(caller, params={"text": "a"}, request_id="1"))["count"] == count


async def test_memory_is_bounded(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEMORY_BYTES", 100)
    monkeypatch.setattr(module, "MEMORY_REPLIES", 5)
    memory = Remembered(clock)
    for number in range(10):
        memory.keep(b"%d" % number, b"x")
    assert [number for number in range(10) if memory.reply(b"%d" % number)] == [5, 6, 7, 8, 9]
    memory.keep(b"large", b"x" * 99)
    assert [number for number in range(10) if memory.reply(b"%d" % number)] == [9]
    memory.keep(b"larger", b"x" * 1_000)
    assert memory.reply(b"larger") is not None, "the last one may be asked for again soon"
    clock.advance(module.MEMORY_SECONDS)
    assert memory.reply(b"larger") is None


# -- too many, too late -----------------------------------------------------------------------------------------------


async def test_over_its_bound_an_agent_says_that_it_is_not_ready_and_remembers_nothing_of_it(
    nats: NatsServer, names: Names, connect: Connect, serve: Serve, desk: Desk
) -> None:
    await serve(await connect(nats, agent="alpha"), max_concurrent=1)
    caller = Caller(await connect(nats), names)
    desk.go.clear()
    first = asyncio.create_task(call(caller, params={"text": "a"}))
    await asyncio.wait_for(desk.arrived.wait(), LONG)
    request_id = jsonrpc.new_id()
    with pytest.raises(NotReady, match="too many"):
        await call(caller, params={"text": "b"}, request_id=request_id)
    desk.go.set()
    await first
    assert (await call(caller, params={"text": "b"}, request_id=request_id))["text"] == "b"


async def test_who_stops_takes_no_more_and_finishes_what_it_began(
    nats: NatsServer, names: Names, connect: Connect, serve: Serve, desk: Desk
) -> None:
    answerer = await serve(await connect(nats, agent="alpha"))
    here = await connect(nats)
    desk.go.clear()
    under_way = asyncio.create_task(call(Caller(here, names), params={"text": "a"}))
    await asyncio.wait_for(desk.arrived.wait(), LONG)
    stopping = asyncio.create_task(answerer.stop(within_seconds=LONG))
    await _nobody_there(here, names.requests("alpha"))
    assert not stopping.done()
    desk.go.set()
    assert (await under_way)["text"] == "a"
    await stopping


async def test_who_stops_cuts_what_takes_too_long(
    nats: NatsServer, names: Names, connect: Connect, serve: Serve, desk: Desk
) -> None:
    answerer = await serve(await connect(nats, agent="alpha"))
    caller = Caller(await connect(nats), names)
    desk.go.clear()
    cut = asyncio.create_task(call(caller))
    await asyncio.wait_for(desk.arrived.wait(), LONG)
    await answerer.stop(within_seconds=0.01)
    with pytest.raises(NotReady, match="stopping"):
        await cut


async def test_no_answer_within_the_time_means_that_it_may_have_arrived(caller: Caller, desk: Desk) -> None:
    desk.go.clear()
    with pytest.raises(AgentUnavailable, match="may have arrived"):
        await call(caller, within_seconds=0.2)
    await asyncio.wait_for(desk.arrived.wait(), LONG)
    desk.go.set()
    assert len(desk.asked) == 1


# -- coming and going -------------------------------------------------------------------------------------------------


async def test_an_agent_that_is_not_there_is_waited_for_as_long_as_said(
    nats: NatsServer, names: Names, connect: Connect, serve: Serve
) -> None:
    caller = Caller(await connect(nats), names)
    await _told_in_vain(caller, "alpha is not there")
    waiting = asyncio.create_task(call(caller, params={"text": "late"}))
    await serve(await connect(nats, agent="alpha"))
    assert (await waiting)["text"] == "late"


async def test_nats_away_is_waited_for_as_long_as_said(
    servers: Servers, names: Names, connect: Connect, serve: Serve
) -> None:
    server = await servers.start()
    here, there = await connect(server), await connect(server, agent="alpha")
    await serve(there)
    caller = Caller(here, names)
    server.kill()
    await _told_in_vain(caller, "cannot be reached")
    waiting = asyncio.create_task(call(caller, params={"text": "later"}))
    await server.start()
    assert (await waiting)["text"] == "later"


async def test_a_call_cut_by_the_loss_of_nats_is_sent_again_and_done_once(
    servers: Servers, names: Names, connect: Connect, serve: Serve, desk: Desk
) -> None:
    server = await servers.start()
    here, there = await connect(server), await connect(server, agent="alpha")
    await serve(there)
    desk.go.clear()
    calling = asyncio.create_task(call(Caller(here, names), params={"text": "a"}))
    await asyncio.wait_for(desk.arrived.wait(), LONG)
    await server.restart()
    desk.go.set()
    assert (await calling)["count"] == 1
    assert desk.asked == ["a"]


# -- discovery --------------------------------------------------------------------------------------------------------


async def test_every_agent_answers_discovery(nats: NatsServer, names: Names, connect: Connect, serve: Serve) -> None:
    for agent in ("alpha", "beta", "gamma"):
        await serve(await connect(nats, agent=agent), agent)
    found: list[Any] = []
    async for each in Caller(await connect(nats), names).discover(within_seconds=LONG):
        found.append(each)
        if len(found) == 3:
            break
    assert found == [{"name": "alpha"}] * 3


async def test_discovery_ends_at_once_where_there_is_nobody_and_serves_nothing_else(
    nats: NatsServer, names: Names, connect: Connect, serve: Serve, desk: Desk
) -> None:
    here = await connect(nats)
    assert [each async for each in Caller(here, names).discover(within_seconds=LONG)] == []
    await serve(await connect(nats, agent="alpha"))
    request = jsonrpc.encode_request("echo", {}, jsonrpc.new_id())
    reply = json.loads((await asyncio.wait_for(await here.ask(names.discover, request), LONG)).data)
    assert reply["error"]["code"] == jsonrpc.METHOD_NOT_FOUND
    assert not desk.asked


async def test_discovery_without_nats_says_so(servers: Servers, names: Names, connect: Connect) -> None:
    server = await servers.start()
    here = await connect(server)
    server.kill()
    await asyncio.wait_for(_lost(here), LONG)
    with pytest.raises(AgentUnavailable):
        async for _ in Caller(here, names).discover(within_seconds=LONG):
            pass


async def _told_in_vain(caller: Caller, words: str) -> None:
    """Who calls is told why there is no answer, once the time was enough to learn it."""
    seconds, said = 0.1, ""
    while words not in said:
        assert seconds < LONG, said
        with pytest.raises(AgentUnavailable) as raised:
            await call(caller, within_seconds=seconds)
        said = str(raised.value)
        seconds *= 4


async def _nobody_there(connection: Connection, subject: str) -> None:
    async with asyncio.timeout(LONG):
        while True:
            answer = await connection.ask(subject, jsonrpc.encode_request("echo", {}, jsonrpc.new_id()))
            try:
                await asyncio.wait_for(answer, 0.05)
            except NoResponders:
                return
            except TimeoutError:
                pass


async def _lost(connection: Connection) -> None:
    with connection.listen() as bell:
        while connection.connected:
            await bell.wait()
