"""A user's graph may install `langchain-mcp-adapters` beside Perdure, which uses the protocol's SDK directly."""

from __future__ import annotations

import sys
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_mcp_adapters.client import MultiServerMCPClient
from langgraph.graph import END, START, MessagesState, StateGraph
from packaging.requirements import Requirement

import perdure
from perdure import ledger
from perdure.clock import SystemClock
from perdure.effects import EffectClass
from perdure.graph.mcp import McpServers
from tests.servers.driving import RecordingLedger
from tests.servers.process import ROOT

OWN = {"command": sys.executable, "args": [str(ROOT / "tests/servers/mcp_stdio_server.py")]}


def range_of(distribution: str) -> Requirement:
    (found,) = [each for each in map(Requirement, requires(distribution) or ()) if each.name == "mcp"]
    return found


def test_the_ranges_of_both_hold_the_installed_sdk_and_ours_asks_for_no_more_than_theirs_allows() -> None:
    ours, theirs = range_of("perdure"), range_of("langchain-mcp-adapters")
    assert ours.specifier.contains(version("mcp"))
    assert theirs.specifier.contains(version("mcp"))
    (lowest,) = [each.version for each in ours.specifier if each.operator == ">="]
    assert theirs.specifier.contains(lowest)


async def test_tools_of_the_adapters_run_under_the_guard_beside_our_own_sessions(tmp_path: Path) -> None:
    client = MultiServerMCPClient({"own": {"transport": "stdio", **OWN}})  # type: ignore[dict-item]
    tools = await client.get_tools()
    config = tmp_path / "mcp.json"
    config.write_text(f'{{"mcpServers": {{"own": {{"command": "{OWN["command"]}", "args": ["{OWN["args"][0]}"]}}}}}}')
    servers = McpServers(config, SystemClock())
    record = RecordingLedger()
    token = ledger.current.set(record)
    try:
        answer = await _graph(tools).ainvoke({"messages": [_asking("echo", text="theirs")]})
        ours = {each.name: each for each in await servers.tools()}
        assert await ours["own__echo"].ainvoke({"text": "ours"}) == "echo: ours"
    finally:
        ledger.current.reset(token)
        await servers.close()
    result = answer["messages"][-1]
    assert isinstance(result, ToolMessage)
    assert "echo: theirs" in str(result.content)
    (call,) = record.calls
    assert (call.name, call.effect) == ("echo", EffectClass.READ)
    (kept,) = record.records.values()
    assert kept.state is ledger.CallState.RECORDED


def _graph(tools: list[Any]) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("tools", perdure.ToolNode(tools))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    return graph.compile()


def _asking(name: str, **arguments: Any) -> AIMessage:
    return AIMessage("", id="asked", tool_calls=[{"id": "c1", "name": name, "args": arguments, "type": "tool_call"}])
