"""What serves, for operators: processes, MCP servers, the database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perdure.agent.base import McpHealth, ServerInfo
from perdure.graph.load import HostedGraph
from perdure.store.base import Store
from perdure.turns import Person


async def server_info(store: Store, agents: Iterable[HostedGraph], person: Person, *, draining: bool) -> ServerInfo:
    """Of the database nothing for who does not see everything; of workers only how many of their own turns they drive."""
    return ServerInfo(
        draining=draining,
        workers=await store.workers(person.scope),
        own=store.owner_name,
        mcp_servers=[health for agent in agents for health in _mcp_of(agent)],
        database=await store.size() if person.scope is None else None,
    )


def _mcp_of(agent: HostedGraph) -> Iterator[McpHealth]:
    """As of its last contact: reading this connects to nothing."""
    for server in agent.tools.health() if agent.tools is not None else ():
        state = "connected" if server.connected else "failing" if server.problem else "idle"
        yield McpHealth(agent.name, server.name, state, server.tools, server.problem)
