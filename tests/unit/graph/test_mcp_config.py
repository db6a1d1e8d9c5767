from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import ConfigurationError
from perdure.graph.mcp import read_mcp_config
from perdure.graph.mcp_config import McpConfig, ServerSpec, parse_mcp_config
from perdure.graph.mcp_tool import tool_name

CASES = Path(__file__).parents[2] / "cases" / "mcp"


def parse(value: Any, **environment: str) -> McpConfig:
    text = value if isinstance(value, str) else json.dumps(value)
    return parse_mcp_config(text, source=Path("/etc/mcp.json"), environment=environment)


def refusal(value: Any, **environment: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse(value, **environment)
    return "\n".join(caught.value.problems)


def test_the_desktop_dialect_is_one_stdio_server_with_its_environment_expanded() -> None:
    (server,) = read_mcp_config(CASES / "desktop.ok.json", {}).servers
    assert (server.name, server.transport, server.command) == ("memory", "stdio", "npx")
    assert server.args == ("-y", "@modelcontextprotocol/server-memory@2026.8.31")
    assert server.env == {"MEMORY_FILE_PATH": "memory.jsonl"}
    assert tool_name("memory", "read_graph") == "memory__read_graph"
    (server,) = read_mcp_config(CASES / "desktop.ok.json", {"MEMORY_FILE_PATH": "/data/m"}).servers
    assert server.env == {"MEMORY_FILE_PATH": "/data/m"}


def test_the_editors_dialect_means_the_same() -> None:
    time, search = read_mcp_config(CASES / "editor.ok.json", {}).servers
    assert (time.name, time.transport, time.command) == ("time", "stdio", "mcp-server-time")
    assert (search.transport, search.url) == ("http", "http://127.0.0.1:9/mcp")
    assert search.headers == {"Authorization": "Bearer none"}
    text = json.loads((CASES / "editor.ok.json").read_text())
    assert parse({"mcpServers": text["servers"]}) == parse({"servers": text["servers"]})


def test_a_bare_map_of_servers_is_accepted() -> None:
    fetch, notes = read_mcp_config(CASES / "flat.ok.json", {}).servers
    assert (fetch.transport, notes.transport) == ("stdio", "http")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("both", ["mcpServers.x", "both `command` and `url`", "keep"]),
        ("comma", ["at line 1, column", "remove the comma"]),
        ("input", ["servers.x.env.KEY", "${input:key}", "no one is there to type it", "${KEY}"]),
        ("names", ["mcpServers.a b", "mcpServers.a__b", "rename it"]),
        ("unset", ["mcpServers.x.env.KEY", "PERDURE_CASE_UNSET_VARIABLE is not set", ":-default}"]),
    ],
)
def test_a_broken_file_is_refused_with_the_key_and_the_cure(case: str, words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_mcp_config(CASES / f"{case}.bad.json", {})
    problems = "\n".join(caught.value.problems)
    assert [word for word in words if word not in problems] == []
    assert f"{case}.bad.json" in problems


def test_every_case_is_tested() -> None:
    assert {path.name for path in CASES.iterdir()} == {
        *(f"{name}.ok.json" for name in ("desktop", "editor", "flat")),
        *(f"{name}.bad.json" for name in ("both", "comma", "input", "names", "unset")),
    }


@pytest.mark.parametrize("kind", ["http", "streamable_http", "streamable-http", "streamableHttp"])
def test_every_name_of_streamable_http_is_known(kind: str) -> None:
    for key in ("type", "transport"):
        (server,) = parse({"mcpServers": {"x": {"url": "https://h/mcp", key: kind}}}).servers
        assert server == ServerSpec("x", "http", url="https://h/mcp")


def test_sse_and_a_server_that_is_switched_off() -> None:
    off = {"y": {"command": "y", "disabled": True}, "z": {"command": "z", "enabled": False}}
    config = parse({"mcpServers": {"x": {"url": "http://h", "type": "sse"}, **off}})
    assert [(each.name, each.transport) for each in config.servers] == [("x", "sse")]


def test_folders_start_from_the_file() -> None:
    given, none = parse({"mcpServers": {"x": {"command": "x", "cwd": "sub"}, "y": {"command": "y"}}}).servers
    assert (given.cwd, none.cwd) == (Path("/etc/sub"), Path("/etc"))


def test_variables_are_expanded_everywhere_and_an_empty_one_takes_the_default() -> None:
    entry = {"command": "${A}", "args": ["${env:B}", "${EMPTY:-d}", "${EMPTY}", "$A", "${A}${B}"]}
    (server,) = parse({"mcpServers": {"x": entry}}, A="a", B="b", EMPTY="").servers
    assert (server.command, server.args) == ("a", ("b", "d", "", "$A", "ab"))


@pytest.mark.parametrize(("file", "folder"), [("mcp.json", "/etc/project"), (".vscode/mcp.json", "/etc/project")])
def test_an_editors_words_for_the_projects_folder_and_the_home_are_known(file: str, folder: str) -> None:
    entry = {"command": "${workspaceFolder}/x", "args": ["${userHome}"]}
    source = Path("/etc/project") / file
    (server,) = parse_mcp_config(json.dumps({"servers": {"x": entry}}), source=source, environment={}).servers
    assert (server.command, server.args) == (f"{folder}/x", (str(Path.home()),))


def test_keys_of_other_programs_are_told_and_not_refused() -> None:
    config = parse({"mcpServers": {"x": {"command": "x", "autoApprove": ["y"], "_note": "mine"}}, "theme": "dark"})
    assert len(config.servers) == 1
    assert config.notices == ("/etc/mcp.json: mcpServers.x.autoApprove has no meaning for Perdure and is not used.",)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("[]", "JSON object"),
        ("{", "not valid JSON at line 1"),
        ({"mcpServers": []}, "mcpServers: it must be an object"),
        ({"mcpServers": {}, "servers": {}}, "keep one of the two"),
        ({"mcpServers": {"x": "npx y"}}, "mcpServers.x: it must be an object"),
        ({"mcpServers": {"x": {}}}, "neither `command` nor `url`"),
        ({"mcpServers": {"x": {"command": ""}}}, "mcpServers.x.command: it is empty"),
        ({"mcpServers": {"x": {"command": "x", "args": "a b"}}}, "mcpServers.x.args: it must be a list"),
        ({"mcpServers": {"x": {"command": "x", "args": [None]}}}, "mcpServers.x.args[0]: it must be a text"),
        ({"mcpServers": {"x": {"command": "x", "env": {"A": True}}}}, "mcpServers.x.env.A: it must be a text"),
        ({"mcpServers": {"x": {"command": "x", "type": "http"}}}, "mcpServers.x.type"),
        ({"mcpServers": {"x": {"url": "http://h", "type": "carrier pigeon"}}}, "write stdio, http or sse"),
        ({"mcpServers": {"x": {"url": "ftp://h"}}}, "not an http or https address"),
        ({"servers": {"x": {"url": "http://h", "headers": {"A": "${NO}"}}}}, "servers.x.headers.A: the variable NO"),
        ({"mcpServers": {"x": {"command": "x", "disabled": "yes"}}}, "mcpServers.x.disabled: it must be true or false"),
        ({"mcpServers": {"x": {"command": "x", "required": 1}}}, "mcpServers.x.required: it must be true or false"),
        ({"mcpServers": {"x": {"command": "x", "timeout": 60}}}, "for 60 seconds write 60000"),
        (
            {"mcpServers": {"x": {"command": "x", "timeout": {"a": "1s"}}}},
            "mcpServers.x.timeout.a: it must be a number",
        ),
        ({"mcpServers": {"x": {"command": "x", "initTimeout": -1}}}, "mcpServers.x.initTimeout: it must be a number"),
        ({"mcpServers": {"x": {"command": "x", "idempotencyArgument": ""}}}, "the name of an argument"),
        ({"mcpServers": {"x": {"command": "x", "includeTools": "a"}}}, "mcpServers.x.includeTools: it must be a list"),
        ({"mcpServers": {"x": {"command": "x", "excludeTools": [], "disabledTools": []}}}, "keep one of the two"),
    ],
)
def test_every_fault_names_its_key(value: Any, words: str) -> None:
    assert words in refusal(value)


def test_all_faults_are_told_at_once() -> None:
    assert len(refusal({"mcpServers": {"a b": {"command": "x"}, "c": {}, "d": {"url": "x"}}}).splitlines()) == 3


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"absent\.json cannot be read: No such file"):
        read_mcp_config(tmp_path / "absent.json")


def test_names_of_tools_fit_what_model_providers_accept() -> None:
    assert tool_name("s", "files.read/all") == "s__files_read_all"
    long, other = tool_name("server", "x" * 80), tool_name("server", "x" * 81)
    assert len(long) == len(other) == 64
    assert long != other
