"""Every setting is a flag of every command: generated from the catalogue, validated by the loader, never by hand.

A command says with `settings_flags` that its first argument is the loaded `Settings`. Commands that use a setting show its
flag in their help; the others take it silently, so that one set of flags works everywhere.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.cli.output import Exit, doubts
from perdure.settings import load
from perdure.settings.catalogue import SETTINGS, Setting

PLACE = ("project", "database", "token", "token_file")
"""What a command needs to find the running server."""

Command = Callable[..., Coroutine[Any, Any, None]]


def settings_flags(shown: Iterable[str] = PLACE) -> Callable[[Command], Callable[..., None]]:
    """Turns `async (settings, …)` into a Typer command that also takes a flag for every setting."""
    visible = frozenset(shown)

    def decorate(function: Command) -> Callable[..., None]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        extra = [_parameter(setting, setting.name in visible) for setting in SETTINGS]

        @functools.wraps(function)
        def command(**arguments: Any) -> None:
            flags = {setting.name: arguments.pop(setting.name) for setting in SETTINGS}
            settings = load(flags, os.environ, Path.cwd())
            asyncio.run(function(settings, **arguments))
            if doubts():
                raise typer.Exit(Exit.FAILED)

        parameters = [*own, *extra]
        described: Any = command  # Typer reads the signature; the wrapped one would hide the flags
        described.__signature__ = inspect.Signature(parameters)
        described.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        del described.__wrapped__
        return command

    return decorate


@functools.cache
def _parameter(setting: Setting, visible: bool) -> inspect.Parameter:
    """The same for every command."""
    kind: Any = list[str] | None if setting.many else str | None
    option = typer.Option(
        setting.flag,
        help=f"{setting.help} [{setting.variable}]",
        rich_help_panel="Settings",
        hidden=not visible,
        show_default=False,
        metavar=setting.name.rsplit("_", 1)[-1].upper(),
    )
    return inspect.Parameter(
        setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )
