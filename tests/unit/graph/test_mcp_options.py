from __future__ import annotations

from typing import Any

import pytest

from perdure.graph.mcp_options import PerTool, ServerOptions, read_options


def options(**entry: Any) -> ServerOptions:
    faults: list[tuple[str, str]] = []
    found = read_options("mcpServers.x", entry, lambda key, cure: faults.append((key, cure)))
    assert faults == []
    return found


def test_nothing_said_is_every_tool_without_a_limit_or_a_key() -> None:
    plain = options()
    assert plain == ServerOptions()
    assert plain.offers("anything")
    assert (plain.call_seconds.of("anything"), plain.key_argument.of("anything")) == (None, None)


def test_a_value_is_of_all_tools_and_a_map_is_of_the_first_glob_that_matches() -> None:
    assert options(timeout=60000).call_seconds.of("anything") == 60
    several = options(timeout={"slow_*": 600000, "slow_one": 1000, "*": 1500})
    assert [several.call_seconds.of(each) for each in ("slow_one", "other")] == [600, 1.5]
    assert options(idempotencyArgument={"save": "key"}).key_argument == PerTool((("save", "key"),))


@pytest.mark.parametrize("allow", ["includeTools", "allowedTools", "enabledTools", "tools"])
@pytest.mark.parametrize("deny", ["excludeTools", "disabledTools"])
def test_a_tool_that_is_let_in_and_shut_out_is_out_whatever_the_program_calls_its_lists(allow: str, deny: str) -> None:
    both = options(**{allow: ["read_*", "write"], deny: ["read_secret"]})
    assert [both.offers(each) for each in ("read_file", "read_secret", "write", "other")] == [True, False, True, False]


def test_an_empty_list_of_what_is_let_in_lets_nothing_in() -> None:
    assert not options(includeTools=[]).offers("anything")


def test_what_fits_no_tool_is_told_and_globs_that_fit_are_not() -> None:
    said = options(
        includeTools=["a*"], excludeTools=["z"], timeout={"b": 1000}, idempotencyArgument={"a1": "key", "*": "other"}
    ).misfits({"a1": ["key"], "a2": []})
    assert said == [
        "`excludeTools` names 'z', and the server has no such tool",
        "`timeout` names 'b', and the server has no such tool",
        "`idempotencyArgument` names 'other', which no tool for '*' takes",
    ]
