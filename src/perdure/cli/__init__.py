"""The command line. Help, configuration and talking to a server load nothing heavy; see `deferred`."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from typing import Annotated

import typer

from perdure import failpoints
from perdure.cli import approvals, configuration, conversations, demo, doctor, files, people, serve, turns
from perdure.cli.chat import chat
from perdure.cli.output import AsJson, Exit, hint, print_json, say
from perdure.errors import ConfigurationError, PerdureError

app = typer.Typer(
    name="perdure",
    help="LLM agents that outlive their process.\n\nExit codes: 0 done · 1 failed · 2 wrong usage · 78 the configuration or the "
    "database cannot be used.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve.serve)
app.command()(demo.demo)
app.command()(chat)
app.add_typer(conversations.app, name="conversations")
app.add_typer(turns.app, name="turns")
app.add_typer(approvals.app, name="approvals")
app.add_typer(people.app, name="tokens")
app.command()(people.audit)
app.command()(conversations.export)
app.command()(files.backup)
app.command()(files.restore)
app.command()(files.prune)
app.command()(doctor.doctor)
app.add_typer(configuration.app, name="config")


def _tell_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="The same as `perdure version`.")
    ] = False,
) -> None:
    pass


@app.command()
def version(as_json: AsJson = False) -> None:
    """The version of Perdure and of what it stands on."""
    found = {name: importlib.metadata.version(name) for name in ("perdure", "langgraph", "apsw", "mcp")}
    found["python"] = platform.python_version()
    if as_json:
        print_json(found)
        return
    for name, number in found.items():
        say(f"{name} {number}")


def main() -> None:
    """Runs a command; errors that people can mend are told in sentences, without a stack."""
    try:
        if failpoints.refusal:
            raise ConfigurationError(failpoints.refusal)
        app()
    except ConfigurationError as error:
        for problem in error.problems:
            hint(problem, "red")
        sys.exit(Exit.CONFIGURATION)
    except PerdureError as error:
        hint(error.message, "red")
        sys.exit(Exit.FAILED)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away: nobody is left to tell
        sys.exit(Exit.FAILED)
