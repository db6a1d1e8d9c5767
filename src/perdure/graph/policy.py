"""What an agent's settings say about its tools, checked against the tools it has."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches

from perdure.config import AgentSettings
from perdure.effects import EffectClass, OnUncertain, ToolPolicy
from perdure.errors import ConfigurationError
from perdure.graph.effect import effect_class_of
from perdure.graph.faults import Faults
from perdure.graph.models import DEMO

_DEMO_GATES = ("restart_service",)
_WILD = frozenset("*?[")
_MOST_NAMES = 30


def tool_policy(agent: AgentSettings) -> ToolPolicy:
    """The demo agent gates `restart_service` beside what the settings name. Raises ConfigurationError for what is no
    `glob=class` and for an unknown `on_uncertain`."""
    demo = _DEMO_GATES if agent.graph is None and agent.model == DEMO else ()
    faults = Faults()
    effects: list[tuple[str, EffectClass]] = []
    on_uncertain = OnUncertain.ASK
    for entry in agent.effects:
        with faults:
            effects.append(_effect(entry, agent.name))
    with faults:
        on_uncertain = _on_uncertain(agent)
    faults.refuse()
    return ToolPolicy(
        needs_approval=(*agent.needs_approval, *(each for each in demo if each not in agent.needs_approval)),
        effects=tuple(effects),
        poll=tuple(agent.poll),
        on_uncertain=on_uncertain,
        approval_expires_seconds=agent.approval_expires_seconds,
        approval_deciders=tuple(agent.approval_deciders),
    )


def _effect(entry: str, owner: str) -> tuple[str, EffectClass]:
    pattern, separator, name = (part.strip() for part in entry.rpartition("="))
    if not separator or not pattern:
        raise ConfigurationError(
            f"`effects` of agent {owner!r} holds {entry!r}: write a tool's name or a glob, `=` and its class, such as `fs__read_*=read`."
        )
    return pattern, effect_class_of(name, f"`effects` of agent {owner!r}")


def _on_uncertain(agent: AgentSettings) -> OnUncertain:
    try:
        return OnUncertain(agent.on_uncertain)
    except ValueError:
        raise ConfigurationError(
            f"`on_uncertain` of agent {agent.name!r} is {agent.on_uncertain!r}: write ask, retry or fail."
        ) from None


def check_gates(agent: AgentSettings, tools: Collection[str], servers: Collection[str] | None) -> None:
    """A name that no tool has would gate nothing, in silence. `servers`: names of the MCP servers that are configured, None
    when the agent takes none. A name of a server's tool is checked when the server is reached (`unknown_gates`); a glob
    applies to whatever matches later. Raises ConfigurationError."""
    problems = [_unknown(agent, name, tools, servers) for name in _exact(agent.needs_approval) if name not in tools]
    found = [each for each in problems if each]
    if found:
        raise ConfigurationError(found)


def _unknown(agent: AgentSettings, name: str, tools: Collection[str], servers: Collection[str] | None) -> str | None:
    where = f"`needs_approval` of agent {agent.name!r} names `{name}`"
    server, remote, _ = name.partition("__")
    if not remote or servers is None:
        return f"{where}, and it has no such tool.{_meant(name, tools)} Its tools: {_list(tools)}."
    if server not in servers:
        return f"{where}, and no MCP server `{server}` is configured.{_meant(server, servers)} Its servers: {_list(servers)}."
    return None


def check_covered(agent: AgentSettings, policy: ToolPolicy, uncovered: Collection[str]) -> None:
    """A gate before a tool that does not pass the guard would never be asked. Raises ConfigurationError."""
    gated = sorted(name for name in uncovered if policy.gated(name))
    if gated:
        raise ConfigurationError(
            f"`needs_approval` of agent {agent.name!r} asks for approvals before {_list(gated)}, which its graph runs in a tool node "
            "of LangGraph's own, where nobody can be asked. Use perdure.ToolNode there, or give create_agent "
            "perdure.DurableToolsMiddleware()."
        )


def unknown_gates(agent: AgentSettings, known: Sequence[tuple[str, Collection[str]]]) -> Iterator[str]:
    """`known`: the connected servers and the tools they have now, by the names a model sees."""
    for server, tools in known:
        for name in _exact(agent.needs_approval):
            if name.startswith(f"{server}__") and name not in tools:
                yield (
                    f"`needs_approval` of agent {agent.name!r} names `{name}`, and the MCP server `{server}` has no such tool: nobody "
                    f"is asked.{_meant(name, tools)} Correct the name; the server has: {_list(tools)}."
                )


def _exact(patterns: Sequence[str]) -> Iterator[str]:
    return (each for each in patterns if not _WILD & set(each))


def _meant(name: str, names: Collection[str]) -> str:
    near = get_close_matches(name, sorted(names), n=1)
    return f" Did you mean `{near[0]}`?" if near else ""


def _list(names: Collection[str]) -> str:
    shown = sorted(names)[:_MOST_NAMES]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return (", ".join(f"`{each}`" for each in shown) or "none") + more
