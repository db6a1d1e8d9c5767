"""The command line. Help, configuration and talking to a server load nothing heavy; see `deferred`."""

from __future__ import annotations

import contextlib
import copy
import errno
import importlib.metadata
import platform
import sys
from functools import cache
from typing import Annotated, Any

import typer
from typer.main import get_command
from typer.models import CommandInfo

from perdure import failpoints
from perdure.cli import (
    agents,
    approvals,
    configuration,
    conversations,
    demo,
    deploy,
    doctor,
    files,
    nats,
    people,
    serve,
    turns,
)
from perdure.cli.chat import chat
from perdure.cli.output import AsJson, Exit, hint, print_json, say, tell
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
app.command()(nats.agent)
app.command()(nats.gateway)
app.command("nats-config")(nats.nats_config)
app.command()(deploy.plan)
app.command()(deploy.apply)
app.command()(deploy.destroy)
app.command()(deploy.status)
app.command()(deploy.logs)
app.command()(deploy.restart)
app.command()(demo.demo)
app.command()(chat)
app.add_typer(agents.app, name="agents")
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


@cache
def program(word: str = "") -> Any:
    """The parser for a command line that begins with this word. A name of a command or of a group gets that one alone: to
    build every command with a flag for every setting would take longer than most of them run."""
    narrow = copy.copy(app)
    narrow.registered_commands = [each for each in app.registered_commands if _named(each) == word]
    narrow.registered_groups = [each for each in app.registered_groups if each.name == word]
    return get_command(narrow if narrow.registered_commands or narrow.registered_groups else app)


def _named(command: CommandInfo) -> str:
    return command.name or str(getattr(command.callback, "__name__", ""))


_NO_MORE_OUTPUT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Of a full disk, and of a terminal that hung up."""


def main() -> None:
    """Runs a command; errors that people can mend are told in sentences, without a stack."""
    try:
        if failpoints.refusal:
            raise ConfigurationError(failpoints.refusal)
        program(*sys.argv[1:2])()
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
    except OSError as error:
        if error.errno not in _NO_MORE_OUTPUT or error.filename is not None:
            raise
        with contextlib.suppress(OSError):
            sys.stdout.close()  # else what it still holds would fail once more at the end
        tell(f"What this prints cannot be written: {error.strerror}.", "red")
        sys.exit(Exit.FAILED)
