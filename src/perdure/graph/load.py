"""Agents from settings: the built-in graph, or the user's own from a file or a module."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.graph import StateGraph
from langgraph.pregel import Pregel

from perdure.clock import Clock
from perdure.config import AgentSettings, Settings
from perdure.effects import ToolPolicy
from perdure.errors import ConfigurationError
from perdure.graph.ask import ModelCall
from perdure.graph.build import ModelNode, ToolsNode, build
from perdure.graph.coverage import Coverage, coverage_of
from perdure.graph.demo_tools import demo_tools
from perdure.graph.effect import declaration_of
from perdure.graph.errors import PromptUnreadable
from perdure.graph.faults import Faults
from perdure.graph.mcp import McpServers, read_mcp_config
from perdure.graph.mcp_config import McpConfig
from perdure.graph.models import DEMO, ModelSource
from perdure.graph.policy import check_covered, check_gates, tool_policy, unknown_gates
from perdure.graph.prompts import read_prompt
from perdure.graph.sources import load_attribute
from perdure.graph.tools import ToolRegistry, load_tools

Graph = Pregel[Any, Any, Any, Any]


@dataclass(frozen=True, slots=True)
class HostedGraph:
    """An agent ready to be driven. The engine gives `graph` its checkpointer; nothing here has one."""

    name: str
    settings: AgentSettings
    graph: Graph
    input_kind: str
    """`message` (the graph has a `messages` channel) or `json`."""

    notices: tuple[str, ...] = ()
    """What a person should know once, at start: one sentence each."""

    state_types: tuple[type, ...] = ()
    """Extra types the state may hold, resolved from the settings."""

    model: ModelSource | None = field(default=None, repr=False)
    tools: ToolRegistry | None = field(default=None, repr=False)
    policy: ToolPolicy = field(default_factory=ToolPolicy)
    uncovered_tools: tuple[str, ...] = ()
    """Tools of a user's graph that do not pass the guard: nothing is promised of them."""

    def problems(self) -> list[str]:
        """Why the agent is degraded now, one sentence each with what to do. No network call."""
        problems = [*(self.model.problems() if self.model else ()), *(self.tools.problems() if self.tools else ())]
        if self.tools is not None:
            problems.extend(unknown_gates(self.settings, self.tools.listed()))
        try:
            read_prompt(prompt_path(self.settings))
        except PromptUnreadable as error:
            problems.append(error.message)
        return problems

    async def connect(self) -> None:
        """Connects to the MCP servers without which the agent does not answer; others are connected when they are needed."""
        if self.tools is not None:
            await self.tools.connect()

    async def close(self) -> None:
        """Closes the MCP sessions and their children."""
        if self.tools is not None:
            await self.tools.close()


async def load_agent(agent: AgentSettings, settings: Settings, clock: Clock) -> HostedGraph:
    """Raises ConfigurationError with every fault: a file that does not import, tools that clash, a broken `mcp.json`,
    unknown types.

    Does no network call: a missing model or a dead MCP server makes an agent degraded, not unloadable.
    """
    faults = Faults()
    types: tuple[type, ...] = ()
    policy = ToolPolicy()
    with faults:
        types = resolve_state_types(agent)
    with faults:
        policy = tool_policy(agent)
    if agent.graph is None:
        return _built_in(agent, settings, clock, faults, types=types, policy=policy)
    with faults:
        graph, notices = await _own_graph(agent, agent.graph)
        coverage = coverage_of(graph)
        notices = (*notices, *_uncovered(agent, coverage))
        check_gates(agent, {*coverage.covered, *coverage.uncovered}, None)
        check_covered(agent, policy, coverage.uncovered)
    faults.refuse()
    kind = "message" if "messages" in graph.channels else "json"
    uncovered = coverage.uncovered
    return HostedGraph(agent.name, agent, graph, kind, notices, types, policy=policy, uncovered_tools=uncovered)


def _uncovered(agent: AgentSettings, coverage: Coverage) -> Iterator[str]:
    if coverage.uncovered:
        names = ", ".join(f"`{each}`" for each in coverage.uncovered)
        yield (
            f"The graph of agent {agent.name!r} runs {names} in a tool node of LangGraph's own: these tools may run twice after a "
            "crash, and nobody can be asked before them. Use perdure.ToolNode there, or give create_agent "
            "perdure.DurableToolsMiddleware(). See docs/effects.md."
        )


def _built_in(
    agent: AgentSettings,
    settings: Settings,
    clock: Clock,
    faults: Faults,
    *,
    types: tuple[type, ...],
    policy: ToolPolicy,
) -> HostedGraph:
    own = demo_tools() if agent.model == DEMO else []
    config: McpConfig | None = None
    with faults:
        config = _server_config(agent)
    with faults:
        python = [*own, *load_tools(agent.tools, agent.base, agent.name)]
        ToolRegistry(python)  # refuses names that clash, whatever became of the servers
        _check_declared(python)
        if config is not None:
            check_gates(agent, {each.name for each in python}, {each.name for each in config.servers})
    faults.refuse()
    path = _server_path(agent)
    registry = ToolRegistry(python, McpServers(path, clock) if path else None)
    source = ModelSource(agent.model, agent.model_base_url)
    call = ModelCall(source, clock, settings.model_retry_seconds, settings.model_idle_timeout_seconds)
    graph = build(
        ModelNode(call, registry, prompt_path(agent), agent.context_tokens),
        ToolsNode(registry, clock, settings.tool_timeout_seconds),
    )
    notices = config.notices if config else ()
    return HostedGraph(agent.name, agent, graph, "message", notices, types, source, registry, policy)


def prompt_path(agent: AgentSettings) -> Path | None:
    return agent.base / agent.system_prompt_file if agent.system_prompt_file else None


def _server_path(agent: AgentSettings) -> Path | None:
    return (agent.base / agent.mcp_config).resolve() if agent.mcp_config is not None else None


def _server_config(agent: AgentSettings) -> McpConfig:
    path = _server_path(agent)
    return read_mcp_config(path) if path is not None else McpConfig()


def _check_declared(tools: Sequence[BaseTool]) -> None:
    """A class that is none, in a tool's metadata, is refused at start and not at its first call."""
    for each in tools:
        declaration_of(each)


async def _own_graph(agent: AgentSettings, reference: str) -> tuple[Graph, tuple[str, ...]]:
    found = load_attribute(reference, agent.base, what="The graph", owner=agent.name)
    graph = await _made(found, reference, agent.name)
    if isinstance(graph, StateGraph):
        return graph.compile(), ()
    if not isinstance(graph, Pregel):
        raise ConfigurationError(
            f"The graph {reference!r} of agent {agent.name!r} is a {type(graph).__name__}: it must be a StateGraph, a "
            "compiled graph, or a function that returns one."
        )
    if graph.checkpointer in (None, False, True):
        return graph, ()
    notice = (
        f"The graph {reference!r} of agent {agent.name!r} was compiled with a {type(graph.checkpointer).__name__}: it is "
        "served with Perdure's own checkpointer instead."
    )
    return graph, (notice,)


async def _made(found: Any, reference: str, owner: str) -> Any:
    """A factory's graph: sync or async, with or without a config argument. Anything else as it is."""
    if isinstance(found, StateGraph | Pregel) or not callable(found):
        return found
    try:
        wanted = [
            each for each in inspect.signature(found).parameters.values() if each.default is inspect.Parameter.empty
        ]
        made = found(*({"configurable": {}} for _ in wanted[:1]))
        return await made if inspect.isawaitable(made) else made
    except (Exception, SystemExit) as error:  # whatever the user's factory raises
        raise ConfigurationError(
            f"The graph factory {reference!r} of agent {owner!r} failed: {type(error).__name__}: {error}"
        ) from error


def resolve_state_types(agent: AgentSettings) -> tuple[type, ...]:
    """The classes of `state_types`. Raises ConfigurationError for each that is not there or not a class."""
    types: list[type] = []
    faults = Faults()
    for reference in agent.state_types:
        with faults:
            found = load_attribute(reference, agent.base, what="A state type", owner=agent.name)
            if not isinstance(found, type):
                raise ConfigurationError(f"The state type {reference!r} of agent {agent.name!r} is not a class.")
            types.append(found)
    faults.refuse()
    return tuple(types)


async def load_agents(settings: Settings, clock: Clock) -> Sequence[HostedGraph]:
    """Every agent of the settings, in order. Raises ConfigurationError with the faults of all of them."""
    hosted: list[HostedGraph] = []
    faults = Faults()
    for agent in settings.agents:
        with faults:
            hosted.append(await load_agent(agent, settings, clock))
        with faults:
            _check_prompt(agent)
    faults.refuse()
    return hosted


def _check_prompt(agent: AgentSettings) -> None:
    """A start refuses what a later loss only degrades: nobody has been answered without the prompt yet."""
    path = prompt_path(agent)
    if path is not None and not path.is_file():
        raise ConfigurationError(
            f"`system_prompt_file` of agent {agent.name!r} names {path}, which is not a file. Correct it, or put it there."
        )
