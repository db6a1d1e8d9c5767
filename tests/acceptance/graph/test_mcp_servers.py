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
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import ToolException

from perdure.clock import SystemClock
from perdure.config import AgentSettings, Settings
from perdure.graph.load import load_agent
from perdure.graph.mcp import McpServers, McpTool
from tests.servers.driving import Conversation
from tests.servers.process import ROOT, OpenAiServer, ServerProcess, accepts, alive, free_port, until

OWN = str(ROOT / "tests/servers/mcp_stdio_server.py")
STDIO = {"command": sys.executable, "args": [OWN]}

ELDERS: set[int] = set()


class HttpServer:
    """The test server over HTTP, always on the same port."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._process: ServerProcess | None = None

    async def start(self) -> None:
        self._process = ServerProcess("tests.servers.mcp_server", str(self.port))
        await until(lambda: accepts(self.port), "the server listens")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None


@pytest.fixture
def http() -> Iterator[HttpServer]:
    server = HttpServer()
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
async def opened(path: Path, connect_seconds: float = 30.0) -> AsyncIterator[McpServers]:
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
        with pytest.raises(ToolException, match="may or may not have taken effect"):
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
        with pytest.raises(ToolException, match="killed by signal 9"):
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
        with pytest.raises(ToolException, match="may or may not have taken effect"):
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
        with pytest.raises(ToolException, match="not available"):
            await echo.ainvoke({"text": "one"})


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


async def test_a_tool_that_a_server_adds_later_is_found(configure: Callable[..., Path]) -> None:
    async with opened(configure(own=STDIO)) as servers:
        await (await tool(servers, "own__grow")).ainvoke({})
        assert await (await tool(servers, "own__grown")).ainvoke({}) == "grown"
        assert "own__grown" in {each.name for each in await servers.tools()}


async def test_a_tools_own_error_is_told_with_its_words(configure: Callable[..., Path]) -> None:
    async with opened(configure(own=STDIO)) as servers:
        with pytest.raises(ToolException, match="the kettle is cold"):
            await (await tool(servers, "own__boom")).ainvoke({})


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


async def test_a_server_killed_in_mid_call_is_an_error_for_the_model_which_may_call_it_again(
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
