"""`perdure plan`, `apply`, `destroy`, `status`, `logs`, `restart`: a project in containers."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.cli.interruption import ended_in_order
from perdure.cli.output import AsJson, Exit, clean, hint, local_time, print_json, print_table, say, tell
from perdure.clock import SystemClock
from perdure.deferred import deferred
from perdure.errors import ConfigurationError, PerdureError

CHANGES = 2
"""Exit code of `perdure plan --detailed-exitcode` when something differs."""

LINK_SECONDS = 15.0
"""How long the one-time link of a server that has just become well may take to be printed."""

_GOES_ON = "What was done stays, and another `perdure apply` goes on from there."

_LINK = re.compile(r"http://\S+(/login\?key=[A-Za-z0-9_-]+)")

ProjectFile = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="FILE",
        help="perdure.toml; the working folder is searched. [PERDURE_PROJECT]",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME", help="Containers, agents, services or roles; all of them without.", show_default=False
    ),
]


@asynccontextmanager
async def _deployment(project: str | None, *, changes: bool = False) -> AsyncIterator[tuple[Any, Any]]:
    """The project and its engine; alone with both who changes something."""
    runtime = deferred("perdure.runtime.deployment")
    found = runtime.load(project, os.environ, Path.cwd())
    async with runtime.open_engine(found.deploy) as engine:
        if not changes:
            yield found, engine
            return
        with deferred("perdure.deploy.turnstile").alone(found.deploy.name, await engine.identity()):
            yield found, engine


def _ask(question: str) -> None:
    """Returns for a yes. Raises Abort for a no, PerdureError where nobody can answer."""
    nobody = PerdureError("Nobody can be asked here, and nothing was done: to do it without a question, add --yes.")
    if sys.stdin is None or sys.stdin.closed:
        raise nobody
    try:
        agreed = typer.confirm(question)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        say("")
        raise nobody from None
    if not agreed:
        raise typer.Abort


# -- plan -------------------------------------------------------------------------------------------------------------


def plan(
    project: ProjectFile = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the plan; `perdure apply FILE` does just that or nothing.")
    ] = None,
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="0: nothing differs · 1: an error · 2: something differs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compares what the project file wants with what the engine really runs, and says what apply would do. Changes nothing."""
    try:
        empty = asyncio.run(_plan(project, out, as_json))
    except PerdureError as error:
        if not detailed_exitcode:
            raise
        for problem in error.problems if isinstance(error, ConfigurationError) else [error.message]:
            hint(problem, "red")
        raise typer.Exit(Exit.FAILED) from error
    if detailed_exitcode and not empty:
        raise typer.Exit(CHANGES)


async def _plan(project: str | None, out: Path | None, as_json: bool) -> bool:
    async with _deployment(project) as (found, engine):
        made = (await found.plan(engine)).plan
    rendering = deferred("perdure.deploy.rendering")
    if out is not None:
        _write(out, rendering.to_file(made))
    if as_json:
        print_json(rendering.as_json(made))
    else:
        _show(made)
        if out is not None:
            hint(f"The plan is kept in {out}. To do just that: perdure apply {out}")
    return bool(made.empty)


def _show(plan: Any) -> None:
    for line in deferred("perdure.deploy.rendering").lines(plan):
        say(line.text, line.style)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PerdureError(f"The plan cannot be written to {path}: {error.strerror}.") from error


def _read(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PerdureError(f"The plan {path} cannot be read: {error}.") from error
    return deferred("perdure.deploy.rendering").from_file(text)


# -- apply ------------------------------------------------------------------------------------------------------------


def apply(
    saved: Annotated[
        Path | None,
        typer.Argument(metavar="PLAN", help="A file of `perdure plan --out`: just that is done.", show_default=False),
    ] = None,
    project: ProjectFile = None,
    yes: Yes = False,
) -> None:
    """Makes the engine have what the project file wants. Shows the plan and asks; running turns go on in the new containers.

    Data stays: a container that is replaced leaves its volume, or its data is carried into one.
    """
    asyncio.run(_apply(None if saved is None else _read(saved), project, yes))


async def _apply(saved: Any, project: str | None, yes: bool) -> None:
    applying, rendering = deferred("perdure.deploy.applying"), deferred("perdure.deploy.rendering")
    async with _deployment(project, changes=True) as (found, engine):
        await _settle(found, engine, yes)
        shown = (await found.plan(engine)).plan
        if saved is not None:
            rendering.check_fresh(saved, shown)
        _show(shown)
        if shown.empty:
            await _tell_address(found, engine, shown)
            return
        if not yes:
            _ask("Do this?")
        token = await found.keep_token(engine)
        made = await found.plan(engine)
        rendering.check_fresh(shown, made.plan)
        with ended_in_order(), _unfinished():
            await applying.apply(
                made.plan,
                made.description.wanted,
                made.description.values,
                engine,
                secrets={deferred("perdure.deploy.model").TOKEN_NAME: token},
                tell=tell,
            )
        await _tell_address(found, engine, shown)
        _tell_what_a_gateway_keeps(found, made.plan)


@contextmanager
def _unfinished() -> Iterator[None]:
    """Says how to go on, also after a signal."""
    try:
        with _interrupted(_GOES_ON):
            yield
    except PerdureError:
        tell(f"It is not finished. {_GOES_ON}", "yellow")
        raise


@contextmanager
def _interrupted(how_to_go_on: str) -> Iterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        tell(f"It is not finished. {how_to_go_on}", "yellow")
        raise


async def _settle(found: Any, engine: Any, yes: bool) -> None:
    settling = deferred("perdure.deploy.settling")
    real = await engine.read(found.outline)
    if not settling.unsettled(real):
        return
    hint("An earlier apply was interrupted; what it left is settled before anything else.", "yellow")
    if not yes:
        _ask("Settle it?")
    with ended_in_order(), _interrupted(_GOES_ON):
        await settling.settle(engine, real, tell, SystemClock())


async def _tell_address(found: Any, engine: Any, plan: Any) -> None:
    """Where it is; and, where it was started now, the link that signs a browser in."""
    model = deferred("perdure.deploy.model")
    serving = next(each for each in found.outline.containers if each.ports)
    address = _address(found.deploy.gateway.bind, found.deploy.gateway.port)
    say(f"Perdure  {address}")
    started = {action.name for action in plan.actions if action.kind in {model.Kind.CREATE, model.Kind.REPLACE}}
    link = await _link(engine, serving.name) if serving.name in started else None
    if link is not None:
        say(f"open     {address}{link} (once, within 10 minutes)")
    if found.token_file.exists():
        say(f"token    {found.token_file}")
        return
    say(f"token    in the containers alone: {found.token_file} is not here.")
    hint(
        f"To read it: docker exec {serving.name} cat {model.TOKEN_FILE}; the next apply that changes something writes the file."
    )


def _tell_what_a_gateway_keeps(found: Any, plan: Any) -> None:
    """Of agents that were taken away."""
    model, naming = deferred("perdure.deploy.model"), deferred("perdure.deploy.naming")
    agents = f"{naming.container_name(found.deploy.name, model.Role.AGENT)}-"
    gateway = next((each.name for each in found.outline.containers if each.role == model.Role.GATEWAY), None)
    for action in plan.actions:
        gone = action.subject is model.Subject.CONTAINER and action.kind is model.Kind.REMOVE
        if gone and gateway is not None and action.name.startswith(agents):
            name = action.name.removeprefix(agents)
            hint(f"The gateway keeps its copy of {name} until: docker exec -it {gateway} perdure agents forget {name}")


def _address(bind: str, port: int) -> str:
    """For a browser on the engine's machine, when it is published at all of its addresses."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)  # noqa: S104 -- recognised, not chosen
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


async def _link(engine: Any, container: str) -> str | None:
    """The path of the link that a server prints when it has started; None when it does not."""
    lines = engine.logs(container, follow=True, tail=None)
    try:
        async with asyncio.timeout(LINK_SECONDS):
            async for line in lines:
                match = _LINK.search(line)
                if match:
                    return match[1]
    except TimeoutError:
        pass
    finally:
        await lines.aclose()
    return None


# -- destroy ----------------------------------------------------------------------------------------------------------


def destroy(
    project: ProjectFile = None,
    purge_data: Annotated[
        str | None,
        typer.Option("--purge-data", metavar="PROJECT", help="Remove the data volumes, too: say the project's name."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Removes containers and the network. Data volumes stay; another apply goes on with them."""
    asyncio.run(_destroy(project, purge_data, yes))


async def _destroy(project: str | None, purge: str | None, yes: bool) -> None:
    model = deferred("perdure.deploy.model")
    async with _deployment(project, changes=True) as (found, engine):
        real = await engine.read(model.Wanted(found.deploy.name))
        if not yes:
            _show_what_goes(real, purge)
            _ask("Remove all of it?" if purge else "Remove them?")
        with ended_in_order(), _interrupted("What is gone is gone; another `perdure destroy` goes on from there."):
            gone = await deferred("perdure.deploy.destroying").destroy(engine, real, purge=purge, tell=tell)
    if gone.nothing:
        say(f"There was nothing of the project {found.deploy.name} to remove.")
    for volume in gone.purged:
        say(f"The volume {volume} is removed, with everything in it.")
    for volume in gone.kept:
        say(f"The volume {volume} is kept. To remove it: docker volume rm {volume}")
    if gone.kept:
        say(f"To remove them all: perdure destroy --purge-data {found.deploy.name}")


def _show_what_goes(real: Any, purge: str | None) -> None:
    model = deferred("perdure.deploy.model")
    for container in real.containers:
        say(f"  - container {container.name}", "red")
    for volume in real.volumes:
        if volume.labels.get(model.LABEL_ROLE) == model.Role.DATA:
            say(
                f"  - volume {volume.name}, with everything in it" if purge else f"    volume {volume.name} is kept",
                "red" if purge else "",
            )


# -- status, logs, restart --------------------------------------------------------------------------------------------


def status(project: ProjectFile = None, as_json: AsJson = False) -> None:
    """How each container is. Exit code 1 when one of them is not well."""
    found = asyncio.run(_standings(project))
    if as_json:
        print_json([{**asdict(each), "well": each.well} for each in found])
    else:
        print_table(
            ("container", "state", "since", "restarts", "address", "data"),
            [_row(each) for each in found],
            empty="The project has no containers.",
        )
    if not all(each.well for each in found):
        raise typer.Exit(Exit.FAILED)


async def _standings(project: str | None) -> Sequence[Any]:
    async with _deployment(project) as (found, engine):
        wanted = found.outline
        standings: Sequence[Any] = await deferred("perdure.deploy.status").standings(
            engine, wanted, await engine.read(wanted)
        )
        return standings


def _row(standing: Any) -> tuple[Any, ...]:
    state = standing.state if standing.exit_code is None else f"{standing.state} (exit code {standing.exit_code})"
    return (
        standing.container if standing.wanted else f"{standing.container} ({_beside(standing.container)})",
        state,
        _since(standing.since),
        standing.restarts,
        ", ".join(standing.addresses),
        standing.data,
    )


def _beside(container: str) -> str:
    """What one is that the project file does not name."""
    naming = deferred("perdure.deploy.naming")
    if container.endswith(naming.UNDOING):
        return "undoes an upgrade"
    return "about to take over" if container.endswith(naming.NEXT) else "not in the project any more"


def _since(instant: str) -> str:
    """Engines tell nanoseconds; also before it was ever started."""
    shortened = re.sub(r"(\.\d{6})\d+", r"\1", instant)
    return "" if shortened.startswith("0001-") else local_time(shortened)


def logs(
    names: Words = None,
    project: ProjectFile = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    tail: Annotated[
        int | None, typer.Option(metavar="LINES", min=0, help="Of each container, the last lines alone.")
    ] = None,
) -> None:
    """What containers have written."""
    asyncio.run(_logs(names or (), project, follow, tail))


async def _logs(names: Sequence[str], project: str | None, follow: bool, tail: int | None) -> None:
    module = deferred("perdure.deploy.status")
    async with _deployment(project) as (found, engine):
        containers = module.chosen(await engine.read(found.outline), names, successors=True)
        prefix = f"perdure-{found.deploy.name}-"
        async for name, line in module.logs(engine, containers, follow=follow, tail=tail, tell=tell):
            say(line if len(containers) == 1 else f"{clean(name.removeprefix(prefix))} | {line}")


def restart(names: Words = None, project: ProjectFile = None) -> None:
    """Restarts containers one after the other, each with its drain. Running turns go on."""
    asyncio.run(_restart(names or (), project))


async def _restart(names: Sequence[str], project: str | None) -> None:
    module = deferred("perdure.deploy.status")
    async with _deployment(project, changes=True) as (found, engine):
        real = await engine.read(found.outline)
        if deferred("perdure.deploy.settling").unsettled(real):
            raise PerdureError(
                "An earlier apply was interrupted; nothing was restarted. `perdure apply` settles what it left first."
            )
        containers = module.chosen(real, names)
        with (
            ended_in_order(),
            _interrupted("`perdure status` tells how each is; another `perdure restart` begins anew."),
        ):
            await module.restart(engine, containers, tell=tell)
    say(f"{len(containers)} restarted, all of them well." if containers else "The project has no containers.")
