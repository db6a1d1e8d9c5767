from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.config import AgentSettings
from perdure.effects import EffectClass, OnUncertain
from perdure.errors import ConfigurationError
from perdure.graph.policy import check_covered, check_gates, tool_policy, unknown_gates


def agent(**more: Any) -> AgentSettings:
    return AgentSettings(**{"name": "mine", "model": "openai:x", "base": Path(), **more})


def test_settings_become_a_policy() -> None:
    policy = tool_policy(
        agent(
            needs_approval=("a", "fs__*"),
            effects=("fs__read_*=read", "fs__* = keyed"),
            poll=("tick",),
            on_uncertain="fail",
            approval_expires_seconds=5.0,
            approval_deciders=("ann",),
        )
    )
    assert policy.effects == (("fs__read_*", EffectClass.READ), ("fs__*", EffectClass.KEYED))
    assert policy.effect_of("fs__read_file", None) is EffectClass.READ
    assert policy.effect_of("other", None) is EffectClass.ONCE
    assert (policy.on_uncertain, policy.approval_expires_seconds) == (OnUncertain.FAIL, 5.0)
    assert (policy.gated("fs__write"), policy.gated("b"), policy.polls("tick", declared=False)) == (True, False, True)
    assert tuple(policy.approval_deciders) == ("ann",)


def test_the_demo_agent_gates_its_restart_beside_what_is_named() -> None:
    assert tuple(tool_policy(agent(model="demo")).needs_approval) == ("restart_service",)
    assert tuple(tool_policy(agent(model="demo", needs_approval=("tick",))).needs_approval) == (
        "tick",
        "restart_service",
    )
    assert tool_policy(agent(model="demo", graph="./a.py:graph")).needs_approval == ()
    assert tool_policy(agent()).needs_approval == ()


def test_every_fault_of_it_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        tool_policy(agent(effects=("fs__*", "a=reed", "=read"), on_uncertain="maybe"))
    words = ["'fs__*'", "'reed'", "Did you mean 'read'", "'=read'", "'maybe'", "ask, retry or fail"]
    assert [word for word in words if word not in str(caught.value)] == []
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize(
    ("gates", "words"),
    [
        (("serch",), ["names `serch`", "Did you mean `search`", "`pay`, `search`"]),
        (("fs__write",), ["no MCP server `fs` is configured", "`files`"]),
    ],
)
def test_a_gate_before_a_tool_that_is_not_there_is_refused(gates: tuple[str, ...], words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_gates(agent(needs_approval=gates), {"search", "pay"}, {"files"})
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize("gates", [("search",), ("serch*",), ("files__anything",), ("*",), ()])
def test_a_gate_that_may_have_its_tool_is_not(gates: tuple[str, ...]) -> None:
    check_gates(agent(needs_approval=gates), {"search", "pay"}, {"files"})


def test_a_name_with_two_underscores_is_a_python_tools_where_there_are_no_servers() -> None:
    check_gates(agent(needs_approval=("my__tool",)), {"my__tool"}, None)
    with pytest.raises(ConfigurationError, match="it has no such tool"):
        check_gates(agent(needs_approval=("my__tool",)), set(), None)


def test_a_gate_that_would_never_be_asked_is_refused() -> None:
    mine = agent(needs_approval=("pay*",))
    check_covered(mine, tool_policy(mine), {"search"})
    with pytest.raises(ConfigurationError, match=r"before `pay`.*perdure\.ToolNode.*DurableToolsMiddleware"):
        check_covered(mine, tool_policy(mine), {"search", "pay"})


def test_a_name_that_a_connected_server_does_not_have_is_a_problem() -> None:
    mine = agent(needs_approval=("fs__wrte", "fs__read", "other__x", "fs__*"))
    (problem,) = unknown_gates(mine, [("fs", ["fs__read", "fs__write"])])
    assert [word for word in ["`fs__wrte`", "nobody is asked", "Did you mean `fs__write`"] if word not in problem] == []
    assert list(unknown_gates(mine, [])) == []
