"""`perdure.effect`: what a tool says of itself. Declared at the tool, read by whatever calls it.

    @perdure.effect("checkable", lookup=find_charge)
    @tool
    async def charge(amount: int) -> str: ...

`lookup(key)` gets the call's idempotency key and tells what became of a call whose outcome was not recorded:

- `perdure.NOT_HAPPENED`: it did not take effect; it is run now, with the same key;
- None: it cannot tell (so does an error, and an answer that takes longer than `LOOKUP_SECONDS`); the call is treated as `once`;
- anything else: it took effect, and this is what the model is given as its result.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final, TypeVar

from langchain_core.tools import BaseTool

from perdure.effects import EffectClass
from perdure.errors import ConfigurationError

LOOKUP_SECONDS = 60.0

Lookup = Callable[[str], Any]
"""Takes the key; the answer, or an awaitable of it."""

_MARK = "__perdure_effect__"

T = TypeVar("T")


class _NotHappened(Enum):
    NOT_HAPPENED = "not happened"

    def __repr__(self) -> str:
        return "NOT_HAPPENED"


NOT_HAPPENED: Final = _NotHappened.NOT_HAPPENED
"""What a `lookup` answers of a call that did not take effect."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is known of a tool itself; the agent's configuration comes first."""

    effect: EffectClass | None = None
    lookup: Lookup | None = None
    polls: bool = False


def effect(effect_class: str, *, lookup: Lookup | None = None, poll: bool = False) -> Callable[[T], T]:
    """Declares what calls of a tool do to the world: `read`, `keyed`, `checkable` (with its `lookup`) or `once`.

    Stands above or below `@tool`, on a function that becomes a tool, or is called with a tool that exists:
    `effect("read")(search)`. `poll`: the tool may be called with the same arguments again and again.
    Raises ConfigurationError, also for what is neither a function nor a tool.
    """
    declaration = Declaration(effect_class_of(effect_class, "perdure.effect"), lookup, poll)
    if (declaration.effect is EffectClass.CHECKABLE) != (lookup is not None):
        raise ConfigurationError(
            f'perdure.effect("{effect_class}"): `checkable` needs a `lookup` function that takes the call\'s key, and no other class '
            "takes one."
        )

    def declare(target: T) -> T:
        if not isinstance(target, BaseTool) and not inspect.isfunction(target):
            raise ConfigurationError(
                f"perdure.effect stands at a function or a tool; this is a {type(target).__name__}. Make a tool of it first, or "
                "write a function that calls it."
            )
        # A tool is a pydantic model, which takes no new attributes in the ordinary way.
        object.__setattr__(target, _MARK, declaration)
        return target

    return declare


def effect_class_of(name: str, where: str) -> EffectClass:
    """Raises ConfigurationError that names the classes and the likeliest one."""
    try:
        return EffectClass(name)
    except ValueError:
        near = get_close_matches(str(name), [str(each) for each in EffectClass], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigurationError(
            f"{where}: {name!r} is no effect class.{hint} The classes are read, keyed, checkable and once."
        ) from None


def declaration_of(tool: BaseTool | None) -> Declaration:
    """What the tool declares: by `perdure.effect`, by its MCP server, or in its metadata (`{"effect": "read"}`, or the hints
    that `langchain-mcp-adapters` keeps there)."""
    if tool is None:
        return Declaration()
    for holder in (tool, getattr(tool, "func", None), getattr(tool, "coroutine", None)):
        declared = getattr(holder, _MARK, None)
        if isinstance(declared, Declaration):
            return declared
    told = getattr(tool, "effect", None)
    if isinstance(told, EffectClass):
        return Declaration(told, polls=bool(getattr(tool, "polls", False)))
    return _in_metadata(tool)


def _in_metadata(tool: BaseTool) -> Declaration:
    metadata = tool.metadata or {}
    if isinstance(metadata.get("effect"), str):
        where = f"The metadata of the tool {tool.name!r}"
        return Declaration(effect_class_of(metadata["effect"], where), polls=bool(metadata.get("poll", False)))
    if metadata.get("readOnlyHint") is True:
        return Declaration(EffectClass.READ)
    if metadata.get("idempotentHint") is True:
        return Declaration(EffectClass.KEYED)
    return Declaration()


async def look_up(lookup: Lookup | None, key: str) -> Any:
    """`NOT_HAPPENED`, the result of the call, or None when there is no telling. A synchronous function runs in a thread."""
    if lookup is None:
        return None
    try:
        async with asyncio.timeout(LOOKUP_SECONDS):
            return await _asked(lookup, key)
    except Exception:  # whatever a user's function raises
        return None


async def _asked(lookup: Lookup, key: str) -> Any:
    if inspect.iscoroutinefunction(lookup):
        return await lookup(key)
    found = await asyncio.to_thread(lookup, key)
    return await found if isinstance(found, Awaitable) else found
