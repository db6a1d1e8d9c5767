from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool, tool

from perdure.effects import EffectClass
from perdure.errors import ConfigurationError
from perdure.graph import effect as effect_module
from perdure.graph.effect import NOT_HAPPENED, Declaration, declaration_of, effect, look_up


def find(key: str) -> str:
    return f"found {key}"


def below_sync() -> BaseTool:
    @tool
    @effect("checkable", lookup=find, poll=True)
    def act() -> None:
        """Acts."""

    return act


def below_async() -> BaseTool:
    @tool
    @effect("checkable", lookup=find, poll=True)
    async def act() -> None:
        """Acts."""

    return act


def above_sync() -> BaseTool:
    @effect("checkable", lookup=find, poll=True)
    @tool
    def act() -> None:
        """Acts."""

    return act


def above_async() -> BaseTool:
    @effect("checkable", lookup=find, poll=True)
    @tool
    async def act() -> None:
        """Acts."""

    return act


def on_a_plain_function() -> BaseTool:
    @effect("checkable", lookup=find, poll=True)
    async def act() -> None:
        """Acts."""

    return tool(act)


def on_a_tool_object() -> BaseTool:
    def act() -> None:
        """Acts."""

    return effect("checkable", lookup=find, poll=True)(StructuredTool.from_function(act))


class Own(BaseTool):
    name: str = "own"
    description: str = "Acts."

    def _run(self) -> str:
        return "did"


def on_an_object_of_ones_own_class() -> BaseTool:
    return effect("checkable", lookup=find, poll=True)(Own())


@pytest.mark.parametrize(
    "make",
    [
        below_sync,
        below_async,
        above_sync,
        above_async,
        on_a_plain_function,
        on_a_tool_object,
        on_an_object_of_ones_own_class,
    ],
)
def test_a_declaration_is_found_wherever_it_stands(make: Any) -> None:
    made = make()
    expected = Declaration(EffectClass.CHECKABLE, find, polls=True)
    assert declaration_of(made) == expected
    assert declaration_of(made.model_copy()) == expected
    assert isinstance(made, BaseTool)


def test_what_stands_at_the_tool_goes_over_what_stands_at_its_function() -> None:
    @effect("keyed")
    @tool
    @effect("read")
    def act() -> None:
        """Acts."""

    assert declaration_of(act).effect is EffectClass.KEYED


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (None, Declaration()),
        ({"effect": "read"}, Declaration(EffectClass.READ)),
        ({"effect": "keyed", "poll": True}, Declaration(EffectClass.KEYED, polls=True)),
        ({"readOnlyHint": True, "idempotentHint": True}, Declaration(EffectClass.READ)),
        ({"readOnlyHint": False, "idempotentHint": True}, Declaration(EffectClass.KEYED)),
        ({"readOnlyHint": False, "idempotentHint": None}, Declaration()),
    ],
)
def test_metadata_and_the_hints_of_mcp_count_where_nothing_is_declared(metadata: Any, expected: Declaration) -> None:
    made = Own(metadata=metadata)
    assert declaration_of(made) == expected
    assert declaration_of(effect("once")(made)).effect is EffectClass.ONCE


def test_a_tool_that_does_not_exist_declares_nothing() -> None:
    assert declaration_of(None) == Declaration()


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: effect("onse"), ["'onse'", "Did you mean 'once'", "read, keyed, checkable and once"]),
        (lambda: effect("checkable"), ["needs a `lookup`"]),
        (lambda: effect("keyed", lookup=find), ["no other class"]),
        (lambda: effect("read")(Own), ["stands at a function or a tool", "ModelMetaclass"]),
        (lambda: effect("read")(print), ["stands at a function or a tool"]),
        (lambda: declaration_of(Own(metadata={"effect": "reed"})), ["tool 'own'", "Did you mean 'read'"]),
    ],
)
def test_a_declaration_that_means_nothing_is_refused_with_the_cure(declare: Any, words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        declare()
    assert [word for word in words if word not in str(caught.value)] == []


async def test_what_lookups_answer() -> None:
    async def later(key: str) -> str:
        return f"later {key}"

    def returns_a_coroutine(key: str) -> Any:
        return later(key)

    def fails(key: str) -> Any:
        raise ConnectionError

    assert await look_up(find, "k") == "found k"
    assert await look_up(later, "k") == "later k"
    assert await look_up(returns_a_coroutine, "k") == "later k"
    assert await look_up(lambda _: NOT_HAPPENED, "k") is NOT_HAPPENED
    assert await look_up(fails, "k") is None
    assert await look_up(lambda _: None, "k") is None
    assert await look_up(None, "k") is None
    assert repr(NOT_HAPPENED) == "NOT_HAPPENED"


async def test_a_lookup_that_does_not_answer_cannot_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effect_module, "LOOKUP_SECONDS", 0.01)

    async def hangs(_: str) -> None:
        await asyncio.Event().wait()

    assert await look_up(hangs, "k") is None
