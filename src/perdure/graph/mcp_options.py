"""What an entry of `mcp.json` says about a server beyond how to reach it: which tools, how long, under which key. Pure.

An option of a tool is one value for all tools of the server, or an object that maps names or globs (as the server spells
them) to values; the first that matches decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_ALLOW = ("includeTools", "allowedTools", "enabledTools", "tools")
_DENY = ("excludeTools", "disabledTools")
_SHORTEST_MILLISECONDS = 1000

OPTION_KEYS = frozenset(
    {"required", "disabled", "enabled", "timeout", "initTimeout", "idempotencyArgument", *_ALLOW, *_DENY}
)

Fault = Callable[[str, str], None]
"""Takes the key that is wrong and the cure."""


@dataclass(frozen=True, slots=True)
class PerTool(Generic[T]):
    """Values by glob on the server's own name of a tool."""

    values: tuple[tuple[str, T], ...] = ()

    def of(self, tool: str) -> T | None:
        return next((value for pattern, value in self.values if fnmatchcase(tool, pattern)), None)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    required: bool = False
    """The agent does not answer without it; other servers only take their tools with them."""

    call_seconds: PerTool[float] = PerTool()
    """How long one call may take; None leaves it to `tool_timeout_seconds`."""

    init_seconds: float | None = None
    """How long connecting may take, and how long a required server is waited for."""

    key_argument: PerTool[str] = PerTool()
    """The argument that takes the call's idempotency key. The model neither sees nor gives it."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def offers(self, tool: str) -> bool:
        return any(fnmatchcase(tool, each) for each in self.include) and not any(
            fnmatchcase(tool, each) for each in self.exclude
        )

    def misfits(self, tools: Mapping[str, Collection[str]]) -> list[str]:
        """What names no tool, or no argument, of the server; `tools` maps its tools to the names of their arguments."""
        said = [*((each, "excludeTools") for each in self.exclude), *((each, "includeTools") for each in self.include)]
        said += [(pattern, "timeout") for pattern, _ in self.call_seconds.values]
        misfits = [
            f"`{name}` names {pattern!r}, and the server has no such tool"
            for pattern, name in said
            if pattern != "*" and not any(fnmatchcase(tool, pattern) for tool in tools)
        ]
        for pattern, argument in self.key_argument.values:
            if not any(fnmatchcase(tool, pattern) and argument in given for tool, given in tools.items()):
                misfits.append(f"`idempotencyArgument` names {argument!r}, which no tool for {pattern!r} takes")
        return misfits


def switched_off(key: str, entry: Mapping[str, Any], fault: Fault) -> bool:
    """`"disabled": true`, or `"enabled": false` as some programs write it."""
    return _flag(key, entry, "disabled", False, fault) or not _flag(key, entry, "enabled", True, fault)


def read_options(key: str, entry: Mapping[str, Any], fault: Fault) -> ServerOptions:
    """Tells every fault of the entry's options."""
    init = entry.get("initTimeout")
    return ServerOptions(
        required=_flag(key, entry, "required", False, fault),
        call_seconds=_per_tool(f"{key}.timeout", entry.get("timeout"), _seconds, fault),
        init_seconds=None if init is None else _seconds(f"{key}.initTimeout", init, fault),
        key_argument=_per_tool(f"{key}.idempotencyArgument", entry.get("idempotencyArgument"), _name, fault),
        include=_patterns(key, entry, _ALLOW, ("*",), fault),
        exclude=_patterns(key, entry, _DENY, (), fault),
    )


def _flag(key: str, entry: Mapping[str, Any], name: str, default: bool, fault: Fault) -> bool:
    value = entry.get(name, default)
    if not isinstance(value, bool):
        fault(f"{key}.{name}", "it must be true or false, without quotes")
        return default
    return value


def _per_tool(key: str, value: Any, read: Callable[[str, Any, Fault], T | None], fault: Fault) -> PerTool[T]:
    if value is None:
        return PerTool()
    given = value.items() if isinstance(value, dict) else [("*", value)]
    found = [(pattern, read(f"{key}.{pattern}" if value is not each else key, each, fault)) for pattern, each in given]
    return PerTool(tuple((pattern, each) for pattern, each in found if each is not None))


def _seconds(key: str, value: Any, fault: Fault) -> float | None:
    """Milliseconds, as most programs count; a number that can only be meant as seconds is refused rather than guessed."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        fault(key, "it must be a number of milliseconds: 60000 is one minute")
        return None
    if value < _SHORTEST_MILLISECONDS:
        fault(key, f"{value:g} milliseconds is less than a second: for {value:g} seconds write {value * 1000:g}")
        return None
    return value / 1000


def _name(key: str, value: Any, fault: Fault) -> str | None:
    if not isinstance(value, str) or not value.strip():
        fault(key, 'it must be the name of an argument, such as "idempotency_key", or map tools to such names')
        return None
    return value


def _patterns(
    key: str, entry: Mapping[str, Any], names: tuple[str, ...], default: tuple[str, ...], fault: Fault
) -> tuple[str, ...]:
    given = [name for name in names if name in entry]
    if len(given) > 1:
        fault(f"{key}.{given[0]}", f"`{given[1]}` says the same: keep one of the two")
    if not given:
        return default
    value = entry[given[0]]
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        fault(f"{key}.{given[0]}", "it must be a list of the server's tool names or globs")
        return default
    return tuple(value)
