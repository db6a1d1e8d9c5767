"""`mcp.json` in the dialects people have: `mcpServers`, an editor's `servers`, or a bare map of servers. Pure.

`${VAR}`, `${env:VAR}` and `${VAR:-default}` are expanded in every string of a server, and so are an editor's `${workspaceFolder}`
and `${userHome}`. Each fault is one sentence that names the key and the cure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from perdure.errors import ConfigurationError
from perdure.graph.mcp_options import OPTION_KEYS, ServerOptions, read_options, switched_off

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_HTTP = frozenset({"http", "streamable_http", "streamable-http", "streamablehttp"})
_USED = OPTION_KEYS | {"command", "args", "env", "cwd", "url", "headers", "type", "transport"}


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One server, ready to connect to. `transport` is `stdio`, `http` or `sse`; the other fields belong to it."""

    name: str
    transport: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    options: ServerOptions = field(default_factory=ServerOptions)


@dataclass(frozen=True, slots=True)
class McpConfig:
    servers: tuple[ServerSpec, ...] = ()
    notices: tuple[str, ...] = ()
    """Keys of other programs that have no meaning here, one sentence each."""


def parse_mcp_config(text: str, *, source: Path, environment: Mapping[str, str]) -> McpConfig:
    """Relative folders start from the folder of `source`. Raises ConfigurationError with every fault found."""
    reading = _Reading(source, environment)
    config = reading.config(_json_object(text, source))
    if reading.problems:
        raise ConfigurationError(reading.problems)
    return config


def _json_object(text: str, source: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        comma = re.search(r",\s*$", text[: error.pos]) or re.match(r"\s*,\s*[}\]]", text[error.pos :])
        cure = "remove the comma before the closing bracket" if comma else "mend the JSON there"
        raise ConfigurationError(
            f"{source} is not valid JSON at line {error.lineno}, column {error.colno} ({error.msg}): {cure}."
        ) from error
    if not isinstance(value, dict):
        raise ConfigurationError(f"{source} must be a JSON object with the key mcpServers.")
    return value


def _places(source: Path) -> Mapping[str, str]:
    """What editors call the project's folder and the person's own. A file in `.vscode` or `.cursor` is of the folder above."""
    folder = source.parent.resolve()
    project = folder.parent if folder.name in {".vscode", ".cursor"} else folder
    return {"workspaceFolder": str(project), "userHome": str(Path.home())}


class _Reading:
    """One pass over the file that collects every fault before it refuses."""

    def __init__(self, source: Path, environment: Mapping[str, str]) -> None:
        self.problems: list[str] = []
        self._notices: list[str] = []
        self._source = source
        self._environment = {**_places(source), **environment}

    def config(self, value: Mapping[str, Any]) -> McpConfig:
        root, entries = self._entries(value)
        servers = [self._server(f"{root}{name}", name, entry) for name, entry in entries.items()]
        return McpConfig(tuple(each for each in servers if each is not None), tuple(self._notices))

    def _entries(self, value: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        named = [key for key in ("mcpServers", "servers") if key in value]
        if len(named) == 2:
            self._fault("mcpServers", "the file has `servers` too: keep one of the two")
        if not named:
            return "", {key: each for key, each in value.items() if not key.startswith(("_", "$")) and key != "inputs"}
        entries = value[named[0]]
        if not isinstance(entries, dict):
            self._fault(named[0], "it must be an object that maps a name to each server")
            return f"{named[0]}.", {}
        return f"{named[0]}.", entries

    def _server(self, key: str, name: str, entry: Any) -> ServerSpec | None:
        if not _NAME.fullmatch(name) or "__" in name:
            self._fault(key, "a server's name may hold letters, digits, - and single _ only: rename it")
            return None
        if not isinstance(entry, dict):
            self._fault(key, "it must be an object with `command` (a program) or `url` (a remote server)")
            return None
        if switched_off(key, entry, self._fault):
            return None
        for unknown in sorted(set(entry) - _USED):
            if not unknown.startswith("_"):
                self._notices.append(f"{self._source}: {key}.{unknown} has no meaning for Perdure and is not used.")
        transport = self._transport(key, entry)
        options = read_options(key, entry, self._fault)
        if transport is None:
            return None
        if transport == "stdio":
            return self._stdio(key, name, entry, options)
        return self._remote(key, name, entry, transport, options)

    def _transport(self, key: str, entry: Mapping[str, Any]) -> str | None:
        if ("command" in entry) == ("url" in entry):
            which = "has both `command` and `url`: keep" if "url" in entry else "has neither `command` nor `url`: give"
            self._fault(key, f"it {which} `command` for a local program or `url` for a remote server")
            return None
        said = entry.get("type", entry.get("transport"))
        if said is None:
            return "stdio" if "command" in entry else "http"
        kind = str(said).lower()
        kind = "http" if kind in _HTTP else kind
        if kind not in {"stdio", "http", "sse"}:
            self._fault(f"{key}.type", f"{said!r} is not known: write stdio, http or sse")
            return None
        if (kind == "stdio") != ("command" in entry):
            self._fault(f"{key}.type", f"{said!r} does not fit: `command` goes with stdio, `url` with http or sse")
            return None
        return kind

    def _stdio(self, key: str, name: str, entry: Mapping[str, Any], options: ServerOptions) -> ServerSpec:
        args = entry.get("args", [])
        if not isinstance(args, list):
            self._fault(f"{key}.args", "it must be a list of texts")
            args = []
        cwd = self._text(f"{key}.cwd", entry["cwd"]) if entry.get("cwd") is not None else "."
        return ServerSpec(
            name=name,
            transport="stdio",
            command=self._text(f"{key}.command", entry["command"], required=True),
            args=tuple(self._text(f"{key}.args[{index}]", each) for index, each in enumerate(args)),
            env=self._texts(f"{key}.env", entry.get("env")),
            cwd=(self._source.parent / Path(cwd).expanduser()).resolve(),
            options=options,
        )

    def _remote(
        self, key: str, name: str, entry: Mapping[str, Any], transport: str, options: ServerOptions
    ) -> ServerSpec:
        url = self._text(f"{key}.url", entry["url"], required=True)
        if url and (urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname):
            self._fault(f"{key}.url", f"{url!r} is not an http or https address")
        headers = self._texts(f"{key}.headers", entry.get("headers"))
        return ServerSpec(name=name, transport=transport, url=url, headers=headers, options=options)

    def _texts(self, key: str, value: Any) -> Mapping[str, str]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._fault(key, "it must be an object that maps names to texts")
            return {}
        return {name: self._text(f"{key}.{name}", each) for name, each in value.items()}

    def _text(self, key: str, value: Any, *, required: bool = False) -> str:
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            self._fault(key, "it must be a text: put it in double quotes")
            return ""
        if required and not value.strip():
            self._fault(key, "it is empty")
        return _VARIABLE.sub(lambda match: self._expanded(key, match.group(1)), value)

    def _expanded(self, key: str, expression: str) -> str:
        name, has_default, default = expression.removeprefix("env:").partition(":-")
        if expression.startswith("input:"):
            wanted = re.sub(r"\W", "_", expression.removeprefix("input:")).upper()
            self._fault(
                key,
                f"${{{expression}}} asks a person, and no one is there to type it: write ${{{wanted}}} and set that variable",
            )
            return ""
        value = self._environment.get(name, "")
        if value or has_default:
            return value or default
        if name in self._environment:
            return ""
        self._fault(key, f"the variable {name} is not set: set it, or write ${{{name}:-default}}")
        return ""

    def _fault(self, key: str, cure: str) -> None:
        self.problems.append(f"{self._source}: {key}: {cure}.")
