"""MCP servers as real processes, over stdio and over HTTP, killed in the middle of a call."""

from __future__ import annotations

import array
import asyncio
import fcntl
import json
import os
import signal
import sys
import termios
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import ToolException

from perdure import ledger
from perdure.clock import SystemClock
from perdure.config import AgentSettings, Settings
from perdure.effects import EffectClass, ToolPolicy
from perdure.graph.load import load_agent
from perdure.graph.mcp import CallLost, McpServers, ServerMissing
from perdure.graph.mcp_tool import McpTool
from tests.servers.driving import Conversation, RecordingLedger
from tests.servers.preloaded import Forked, preloaded
from tests.servers.process import ROOT, OpenAiServer, accepts, alive, free_port, until

OWN = str(ROOT / "tests/servers/mcp_stdio_server.py")
STDIO = {"command": sys.executable, "args": [OWN]}

ELDERS: set[int] = set()


class HttpServer:
    """The test server over HTTP, always on the same port."""

    def __init__(self, kind: str = "streamable-http") -> None:
        self._kind = kind
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/{'sse' if kind == 'sse' else 'mcp'}"
        self._process: Forked | None = None

    async def start(self) -> None:
        self._process = preloaded().module("tests.servers.mcp_server", str(self.port), self._kind)
        await until(lambda: accepts(self.port), "the server listens")

    async def close_its_door(self) -> None:
        """It takes no connection any more and goes on with the calls that are under way."""
        assert self._process is not None
        self._process.terminate()
        await until(lambda: not accepts(self.port), "the server takes no connection any more")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None


@pytest.fixture
def http() -> Iterator[HttpServer]:
    server = HttpServer()
    yield server
    server.kill()


@pytest.fixture
def sse() -> Iterator[HttpServer]:
    server = HttpServer("sse")
    yield server
    server.kill()


@pytest.fixture
def configure(tmp_path: Path) -> Callable[..., Path]:
    def write(**servers: Any) -> Path:
        path = tmp_path / "mcp.json"
        path.write_text(json.dumps({"mcpServers": servers}))
        return path

    return write


@asynccontextmanager
async def opened(path: Path, connect_seconds: float = 60.0) -> AsyncIterator[McpServers]:
    servers = McpServers(path, SystemClock(), connect_seconds)
    try:
        yield servers
    finally:
        await servers.close()


async def tool(servers: McpServers, name: str) -> McpTool:
    found = await servers.find(name)
    assert isinstance(found, McpTool), found
    return found


async def read_when_written(marker: Path) -> int:
    await until(marker.exists, f"{marker} is written")
    return int(marker.read_text())


async def test_the_time_server_answers_over_stdio_inside_the_agents_graph(configure: Callable[..., Path]) -> None:
    path = configure(time={"command": sys.executable, "args": ["-m", "mcp_server_time"]})
    async with opened(path) as servers:
        names = [each.name for each in await servers.tools()]
        assert names == ["time__get_current_time", "time__convert_time"]
        answer = await (await tool(servers, "time__get_current_time")).ainvoke({"timezone": "Etc/UTC"})
        assert json.loads(answer)["timezone"] == "Etc/UTC"
        with pytest.raises(ToolException, match="Nowhere"):
            await (await tool(servers, "time__get_current_time")).ainvoke({"timezone": "Nowhere"})


async def test_the_time_server_killed_while_it_is_called_is_an_error_and_is_started_again(
    configure: Callable[..., Path],
) -> None:
    path = configure(time={"command": sys.executable, "args": ["-m", "mcp_server_time"]})
    async with opened(path) as servers:
        clock = await tool(servers, "time__get_current_time")
        (server,) = ours()
        # A stopped process has received the call and cannot answer it: killed then, it dies in mid-call.
        (child,) = children(server)
        await stop(child)
        call = asyncio.create_task(clock.ainvoke({"timezone": "Etc/UTC"}))
        await until(lambda: unread(child) > 0, "the call has reached the server's input")
        os.kill(child, signal.SIGKILL)
        with pytest.raises(CallLost, match="may or may not have taken effect"):
            await call
        again = await tool(servers, "time__get_current_time")
        assert "Etc/UTC" in await again.ainvoke({"timezone": "Etc/UTC"})


async def test_a_stdio_server_killed_in_mid_call_fails_the_call_and_is_reconnected(
    configure: Callable[..., Path], tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    async with opened(configure(own=STDIO)) as servers:
        call = asyncio.create_task((await tool(servers, "own__hang")).ainvoke({"marker": str(marker)}))
        os.kill(await read_when_written(marker), signal.SIGKILL)
        with pytest.raises(CallLost, match="killed by signal 9"):
            await call
        assert await (await tool(servers, "own__echo")).ainvoke({"text": "hi"}) == "echo: hi"
        assert servers.problems() == []


async def test_an_http_server_killed_in_mid_call_fails_the_call_and_is_reconnected(
    configure: Callable[..., Path], http: HttpServer, tmp_path: Path
) -> None:
    await http.start()
    marker = tmp_path / "marker"
    async with opened(configure(far={"url": http.url})) as servers:
        call = asyncio.create_task((await tool(servers, "far__hang")).ainvoke({"marker": str(marker)}))
        await read_when_written(marker)
        http.kill()
        with pytest.raises(CallLost, match="may or may not have taken effect"):
            await call
        assert await servers.tools() == []
        assert "`far` is not available" in servers.problems()[0]
        await http.start()
        assert await (await tool(servers, "far__echo")).ainvoke({"text": "hi"}) == "echo: hi"
        assert servers.problems() == []


async def test_an_http_server_that_was_restarted_between_calls_is_called_once_and_answers(
    configure: Callable[..., Path], http: HttpServer
) -> None:
    await http.start()
    async with opened(configure(far={"type": "http", "url": http.url})) as servers:
        echo = await tool(servers, "far__echo")
        assert await echo.ainvoke({"text": "one"}) == "echo: one"
        http.kill()
        await http.start()
        assert await echo.ainvoke({"text": "two"}) == "echo: two"


async def test_a_call_to_an_http_server_that_is_down_says_that_it_was_not_called(
    configure: Callable[..., Path], http: HttpServer
) -> None:
    await http.start()
    async with opened(configure(far={"url": http.url})) as servers:
        echo = await tool(servers, "far__echo")
        http.kill()
        with pytest.raises(ToolException, match=r"not available.*It was not called") as caught:
            await echo.ainvoke({"text": "one"})
        assert not isinstance(caught.value, CallLost)


async def test_a_call_under_way_is_not_sent_again_because_another_one_could_not_be_sent(
    configure: Callable[..., Path], http: HttpServer, tmp_path: Path
) -> None:
    await http.start()
    async with opened(configure(far={"url": http.url})) as servers:
        marker = tmp_path / "marker"
        under_way = asyncio.create_task((await tool(servers, "far__hang")).ainvoke({"marker": str(marker)}))
        await read_when_written(marker)
        echo = await tool(servers, "far__echo")
        await http.close_its_door()
        with pytest.raises(ToolException, match="It was not called"):
            await echo.ainvoke({"text": "hi"})
        with pytest.raises(CallLost, match="may or may not have taken effect"):
            await under_way


@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_a_call_that_was_turned_away_at_the_door_is_sent_once_more_in_a_new_session(
    configure: Callable[..., Path], http: HttpServer, status: int
) -> None:
    await http.start()
    async with opened(configure(far={"url": http.url})) as servers:
        echo = await tool(servers, "far__echo")
        assert await echo.ainvoke({"text": f"status {status}"}) == f"echo: status {status}"


@pytest.mark.parametrize("status", [500, 502, 504, 408])
async def test_of_a_call_that_a_gateway_gave_up_nobody_knows_the_outcome(
    configure: Callable[..., Path], http: HttpServer, status: int
) -> None:
    await http.start()
    async with opened(configure(far={"url": http.url})) as servers:
        echo = await tool(servers, "far__echo")
        with pytest.raises(CallLost, match=f"it answered {status}"):
            await echo.ainvoke({"text": f"status {status}"})
        assert await echo.ainvoke({"text": "again"}) == "echo: again"


async def test_a_server_that_is_busy_refuses_one_call_and_the_others_go_on(
    configure: Callable[..., Path], http: HttpServer, tmp_path: Path
) -> None:
    await http.start()
    async with opened(configure(far={"url": http.url})) as servers:
        marker = tmp_path / "marker"
        under_way = asyncio.create_task((await tool(servers, "far__hang")).ainvoke({"marker": str(marker)}))
        await read_when_written(marker)
        echo = await tool(servers, "far__echo")
        with pytest.raises(ToolException, match="429 Too Many Requests, and asks to wait: 7") as caught:
            await echo.ainvoke({"text": "status 429"})
        assert not isinstance(caught.value, CallLost)
        assert await echo.ainvoke({"text": "hi"}) == "echo: hi"
        assert not under_way.done()
        http.kill()
        with pytest.raises(CallLost):
            await under_way


async def test_a_server_over_sse_answers_is_killed_in_mid_call_and_is_reconnected(
    configure: Callable[..., Path], sse: HttpServer, tmp_path: Path
) -> None:
    await sse.start()
    async with opened(configure(old={"type": "sse", "url": sse.url})) as servers:
        echo = await tool(servers, "old__echo")
        assert await echo.ainvoke({"text": "one"}) == "echo: one"
        marker = tmp_path / "marker"
        call = asyncio.create_task((await tool(servers, "old__hang")).ainvoke({"marker": str(marker)}))
        await read_when_written(marker)
        sse.kill()
        with pytest.raises(CallLost, match="may or may not have taken effect"):
            await call
        with pytest.raises(ToolException, match="It was not called"):
            await echo.ainvoke({"text": "two"})
        await sse.start()
        assert await echo.ainvoke({"text": "two"}) == "echo: two"


@pytest.mark.parametrize(("status", "known"), [(403, True), (502, False)])
async def test_a_call_over_sse_that_is_refused_does_not_wait_for_ever(
    configure: Callable[..., Path], sse: HttpServer, status: int, known: bool
) -> None:
    await sse.start()
    async with opened(configure(old={"type": "sse", "url": sse.url})) as servers:
        call = (await tool(servers, "old__echo")).ainvoke({"text": f"status {status}"})
        if known:
            assert await call == f"echo: status {status}"
        else:
            with pytest.raises(CallLost, match=f"it answered {status}"):
                await call


async def test_a_dead_server_hides_no_other_and_says_why(configure: Callable[..., Path]) -> None:
    path = configure(
        own=STDIO,
        absent={"command": "no-such-program"},
        broken={"command": sys.executable, "args": ["-c", "import sys; sys.exit('no licence found')"]},
        down={"url": f"http://127.0.0.1:{free_port()}/mcp"},
    )
    async with opened(path) as servers:
        assert {each.server_name for each in await servers.tools()} == {"own"}
        problems = "\n".join(servers.problems())
        assert "`absent` is not available" in problems
        assert "cannot start no-such-program: No such file or directory" in problems
        assert "no licence found" in problems
        assert "`down` is not available" in problems
        missing = await servers.find("absent__anything")
        assert isinstance(missing, str)
        assert "no-such-program" in missing


async def test_a_server_that_never_answers_is_given_up_and_leaves_no_process(configure: Callable[..., Path]) -> None:
    path = configure(mute={"command": sys.executable, "args": ["-c", "import signal; signal.pause()"]})
    async with opened(path, connect_seconds=0.5) as servers:
        assert await servers.tools() == []
        assert "did not answer within 0.5 seconds" in servers.problems()[0]
        assert ours() == []


async def test_a_mended_file_is_read_again(configure: Callable[..., Path]) -> None:
    path = configure(own={"command": "no-such-program"})
    async with opened(path) as servers:
        assert await servers.tools() == []
        path.write_text("{")
        assert await servers.tools() == []
        assert "not valid JSON" in servers.problems()[0]
        configure(own=STDIO)
        assert "own__echo" in {each.name for each in await servers.tools()}
        assert servers.problems() == []


async def test_a_server_taken_from_the_file_is_closed(configure: Callable[..., Path]) -> None:
    path = configure(own=STDIO)
    async with opened(path) as servers:
        pid = int(await (await tool(servers, "own__pid")).ainvoke({}))
        configure()
        path.write_text('{"mcpServers": {}}')
        assert await servers.tools() == []
        await until(lambda: not alive(pid), "the server has ended")


async def test_a_hung_server_is_replaced_after_a_call_was_given_up(
    configure: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.graph.mcp._PING_SECONDS", 0.2)
    async with opened(configure(own=STDIO)) as servers:
        pid = int(await (await tool(servers, "own__pid")).ainvoke({}))
        await stop(pid)
        call = asyncio.create_task((await tool(servers, "own__echo")).ainvoke({"text": "hi"}))
        await until(lambda: unread(pid) > 0, "the call has reached the server's input")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await (await tool(servers, "own__echo")).ainvoke({"text": "again"}) == "echo: again"
        assert not alive(pid)


async def test_a_server_that_is_at_work_on_another_call_is_not_replaced(
    configure: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("perdure.graph.mcp._PING_SECONDS", 0.2)
    async with opened(configure(own=STDIO)) as servers:
        echo = await tool(servers, "own__echo")
        hang = await tool(servers, "own__hang")
        at_work = asyncio.create_task(hang.ainvoke({"marker": str(tmp_path / "marker")}))
        pid = await read_when_written(tmp_path / "marker")
        given_up = asyncio.create_task(echo.ainvoke({"text": "one"}))
        await until(lambda: unread(pid) > 0, "the second call has reached the server's input")
        before = unread(pid)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        third = asyncio.create_task(echo.ainvoke({"text": "two"}))
        await until(lambda: unread(pid) > before, "the third call has reached the same server")
        assert not at_work.done()
        os.kill(pid, signal.SIGKILL)
        for each in (at_work, third):
            with pytest.raises(CallLost):
                await each


async def test_a_tool_that_a_server_adds_later_is_found(configure: Callable[..., Path]) -> None:
    async with opened(configure(own=STDIO)) as servers:
        await (await tool(servers, "own__grow")).ainvoke({})
        assert await (await tool(servers, "own__grown")).ainvoke({}) == "grown"
        assert "own__grown" in {each.name for each in await servers.tools()}


async def test_a_tools_own_error_is_told_with_its_words(configure: Callable[..., Path]) -> None:
    async with opened(configure(own=STDIO)) as servers:
        with pytest.raises(ToolException, match="the kettle is cold") as caught:
            await (await tool(servers, "own__boom")).ainvoke({})
        assert not isinstance(caught.value, CallLost)


async def test_an_answer_that_cannot_be_read_ends_the_call_and_chatter_does_not(configure: Callable[..., Path]) -> None:
    async with opened(configure(own=STDIO)) as servers:
        assert await (await tool(servers, "own__chatter")).ainvoke({}) == "Excuse me."
        with pytest.raises(ToolException, match="cannot be read"):
            await (await tool(servers, "own__half")).ainvoke({})


async def test_a_stdio_server_gets_no_variable_that_it_was_not_given(
    configure: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    async with opened(configure(own={**STDIO, "env": {"GIVEN": "yes"}})) as servers:
        names = (await (await tool(servers, "own__variables")).ainvoke({})).split()
    assert "GIVEN" in names
    assert "PATH" in names
    assert "OPENAI_API_KEY" not in names


async def test_close_leaves_no_child(configure: Callable[..., Path]) -> None:
    async with opened(configure(own=STDIO)) as servers:
        pid = int(await (await tool(servers, "own__pid")).ainvoke({}))
        assert alive(pid)
    assert not alive(pid)
    assert ours() == []


async def test_the_agents_graph_reaches_an_mcp_server_and_closes_it(configure: Callable[..., Path]) -> None:
    path = configure(own=STDIO)
    settings = AgentSettings(name="agent", mcp_config=path)
    agent = await load_agent(settings, Settings(), SystemClock())
    assert ours() == []
    assert agent.tools is not None
    assert "own__echo" in {each.tool.name for each in await agent.tools.all()}
    await agent.close()
    assert ours() == []


async def test_a_server_killed_under_a_call_that_may_be_repeated_is_an_error_for_the_model_which_may_call_it_again(
    configure: Callable[..., Path], openai: OpenAiServer, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    openai.script(
        {"calls": [{"id": "call_0", "name": "own__hang", "arguments": {"marker": str(marker)}}]},
        {"calls": [{"id": "call_0", "name": "own__echo", "arguments": {"text": "hi"}}]},
        {"say": "done"},
    )
    settings = AgentSettings(
        name="agent", model="openai:any", model_base_url=openai.base_url, mcp_config=configure(own=STDIO)
    )
    agent = await load_agent(settings, Settings(), SystemClock())
    chat = Conversation(agent)
    chat.record.policy = ToolPolicy(effects=[("own__hang", EffectClass.KEYED)])
    turn = asyncio.create_task(chat.say("go"))
    os.kill(await read_when_written(marker), signal.SIGKILL)
    messages = await turn
    failed, answered = [each for each in messages if isinstance(each, ToolMessage)]
    assert (failed.status, failed.name) == ("error", "own__hang")
    assert "may or may not have taken effect" in str(failed.content)
    assert (answered.status, answered.content) == ("success", "echo: hi")
    assert messages[-1].content == "done "
    assert [each.server for each in chat.record.calls] == ["own", "own"]
    await agent.close()


@contextmanager
def keyed(key: str) -> Iterator[None]:
    token = ledger.current_key.set(key)
    try:
        yield
    finally:
        ledger.current_key.reset(token)


@contextmanager
def in_a_turn() -> Iterator[None]:
    token = ledger.current.set(RecordingLedger())
    try:
        yield
    finally:
        ledger.current.reset(token)


async def test_the_idempotency_key_reaches_a_server_in_the_requests_meta(configure: Callable[..., Path]) -> None:
    async with opened(configure(own=STDIO)) as servers:
        show = await tool(servers, "own__show_meta")
        with keyed("turn-1-abc"):
            assert json.loads(await show.ainvoke({})) == {"perdure/idempotency-key": "turn-1-abc"}
        assert json.loads(await show.ainvoke({})) is None


async def test_a_server_that_wants_the_key_as_an_argument_gets_it_and_the_model_does_not_see_it(
    configure: Callable[..., Path],
) -> None:
    async with opened(configure(own={**STDIO, "idempotencyArgument": "idempotency_key"})) as servers:
        remember, echo = await tool(servers, "own__remember"), await tool(servers, "own__echo")
        shown: Any = remember.tool_call_schema
        assert list(shown["properties"]) == shown["required"] == ["text"]
        assert (remember.effect, remember.key_argument, echo.key_argument) == (
            EffectClass.KEYED,
            "idempotency_key",
            None,
        )
        with keyed("k-1"):
            assert await remember.ainvoke({"text": "milk"}) == "milk under k-1"
            assert await remember.ainvoke({"text": "milk", "idempotency_key": "made up"}) == "milk under k-1"
            assert await echo.ainvoke({"text": "hi"}) == "echo: hi"
        assert await remember.ainvoke({"text": "milk", "idempotency_key": "made up"}) == "milk under none"
        assert servers.problems() == []


async def test_an_argument_that_no_tool_takes_is_told_and_nothing_is_declared(configure: Callable[..., Path]) -> None:
    async with opened(configure(own={**STDIO, "idempotencyArgument": {"remember": "request_id"}})) as servers:
        assert (await tool(servers, "own__remember")).effect is None
        assert "names 'request_id', which no tool for 'remember' takes" in servers.problems()[0]


async def test_what_a_server_says_of_its_tools_becomes_their_declared_effect(configure: Callable[..., Path]) -> None:
    async with opened(configure(own=STDIO)) as servers:
        said = {each.remote_name: each.effect for each in await servers.tools()}
    assert (said["echo"], said["grow"]) == (EffectClass.READ, EffectClass.KEYED)
    assert (said["boom"], said["hang"], said["remember"]) == (None, None, None)


async def test_only_the_tools_that_are_let_in_exist(configure: Callable[..., Path]) -> None:
    path = configure(own={**STDIO, "includeTools": ["e*", "pid", "boom"], "excludeTools": ["boom"]})
    async with opened(path) as servers:
        assert {each.name for each in await servers.tools()} == {"own__echo", "own__pid"}
        assert await servers.find("own__boom") is None
        assert servers.problems() == []


async def test_a_tool_that_is_shut_out_by_a_wrong_name_is_told(configure: Callable[..., Path]) -> None:
    async with opened(configure(own={**STDIO, "excludeTools": ["bomb"]})) as servers:
        await servers.tools()
        assert "`excludeTools` names 'bomb', and the server has no such tool" in servers.problems()[0]


async def test_a_call_past_the_servers_time_is_lost_and_other_tools_have_theirs(
    configure: Callable[..., Path], tmp_path: Path
) -> None:
    async with opened(configure(own={**STDIO, "timeout": {"hang": 1000}})) as servers:
        hang = await tool(servers, "own__hang")
        with pytest.raises(CallLost, match=r"did not answer within 1 seconds.*may or may not have taken effect"):
            await hang.ainvoke({"marker": str(tmp_path / "marker")})
        await until((tmp_path / "marker").exists, "the server has got the call")


async def test_an_agent_does_not_answer_without_a_server_that_is_required(configure: Callable[..., Path]) -> None:
    path = configure(own=STDIO, absent={"command": "no-such-program", "required": True})
    async with opened(path) as servers:
        with pytest.raises(ServerMissing, match="cannot start no-such-program"):
            await servers.start()
        with in_a_turn(), pytest.raises(ServerMissing, match="`absent` is not available") as caught:
            await servers.tools()
        assert caught.value.failure.reason == "mcp_server_missing"
        assert "own__echo" in {each.name for each in await servers.tools()}  # for who only looks, as the doctor does
        assert servers.missing() == servers.problems()
        configure(own={**STDIO, "required": True})
        with in_a_turn():
            assert "own__echo" in {each.name for each in await servers.tools()}
        assert servers.missing() == []


async def test_a_required_server_that_is_still_on_its_way_up_is_waited_for(
    configure: Callable[..., Path], http: HttpServer
) -> None:
    path = configure(far={"url": http.url, "required": True, "initTimeout": 60000})
    async with opened(path) as servers:
        starting = asyncio.create_task(servers.start())
        await until(lambda: servers.missing() != [], "the first try is under way")
        await http.start()
        await starting
        assert servers.missing() == []


async def test_a_server_is_not_given_more_time_to_connect_than_its_entry_says(configure: Callable[..., Path]) -> None:
    mute = {"command": sys.executable, "args": ["-c", "import signal; signal.pause()"], "initTimeout": 1000}
    async with opened(configure(mute=mute)) as servers:
        assert await servers.tools() == []
        assert "did not answer within 1 seconds" in servers.problems()[0]


HOLDER = """
import asyncio, sys
from pathlib import Path
from perdure.clock import SystemClock
from perdure.graph.mcp import McpServers

async def main():
    servers = McpServers(Path(sys.argv[1]), SystemClock())
    hang = await servers.find("own__hang")
    await hang.ainvoke({"marker": sys.argv[2]})

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
async def test_kill_9_of_the_parent_leaves_no_orphan_even_in_mid_call(
    configure: Callable[..., Path], tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    # As `npx` and `uvx` do: the configured program is not the server but starts it.
    wrapper = f"import subprocess, sys; subprocess.run([sys.executable, {OWN!r}])"
    path = configure(own={"command": sys.executable, "args": ["-c", wrapper]})
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLDER, str(path), str(marker), cwd=ROOT)
    server = await read_when_written(marker)
    (launcher,) = children(holder.pid)
    (wrapping,) = children(launcher)
    holder.send_signal(signal.SIGKILL)
    await holder.wait()
    for pid in (server, wrapping, launcher):
        await until(lambda pid=pid: not alive(pid), f"process {pid} has ended")  # type: ignore[misc]


def ours() -> list[int]:
    """Children of this process that began with the test: other suites in it may keep a fork server."""
    return [child for child in children(os.getpid()) if child not in ELDERS]


@pytest.fixture(autouse=True)
def elders() -> None:
    ELDERS.clear()
    ELDERS.update(children(os.getpid()))


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in text.split() if alive(int(each))]


async def stop(pid: int) -> None:
    """Stops every thread of the process: from then on it reads nothing."""
    os.kill(pid, signal.SIGSTOP)
    await until(lambda: set(thread_states(pid)) == {"T"}, f"process {pid} has stopped")


def thread_states(pid: int) -> list[str]:
    stats = [each.joinpath("stat").read_text() for each in Path(f"/proc/{pid}/task").iterdir()]
    return [each.rpartition(")")[2].split()[0] for each in stats]


def unread(pid: int) -> int:
    """Bytes that wait in the standard input of the process."""
    count = array.array("i", [0])
    with open(f"/proc/{pid}/fd/0", "rb", opener=lambda path, _: os.open(path, os.O_RDONLY | os.O_NONBLOCK)) as pipe:
        fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]
