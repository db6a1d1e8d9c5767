"""Flags, configuration and help, as the program itself shows them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from perdure.cli.demo import ANSWER, CUT_STEP, Proof, _problems
from perdure.settings.catalogue import SETTINGS
from perdure.store.sqlite.lock import DatabaseLock, Holder
from tests.servers.preloaded import preloaded


def environment(folder: Path, **variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    return {**kept, "XDG_DATA_HOME": str(folder / "share"), "NO_COLOR": "1", "COLUMNS": "200", **variables}


def perdure(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return preloaded().run(arguments, environment(folder, **variables), folder, "", 60)


def from_scratch(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """With an interpreter of its own, which has nothing loaded yet."""
    return subprocess.run(
        [sys.executable, "-m", "perdure", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(folder, **variables),
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


def test_configuration_is_shown_with_the_source_of_each_value_and_secrets_masked(tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_text(
        'port = 1\n[agents.a]\nmodel_base_url = "http://user:canary@host/v1"\nmodel = "openai:x"\n'
    )
    done = perdure(tmp_path, "config", "show", "--json", "--log-level", "debug", PERDURE_TOKEN="canary")
    assert done.returncode == 0, done.stderr
    lines = {line["name"]: (line["value"], line["origin"]) for line in json.loads(done.stdout)}
    assert "canary" not in done.stdout
    assert lines["port"] == (1, str(tmp_path / "perdure.toml"))
    assert lines["token"] == ("***", "PERDURE_TOKEN")
    assert lines["log_level"] == ("debug", "--log-level")
    assert lines["host"] == ("127.0.0.1", "default")
    assert lines["agents.a.model_base_url"] == ("http://***@host/v1", str(tmp_path / "perdure.toml"))


def test_every_problem_of_the_configuration_is_told_at_once_with_exit_code_78(tmp_path: Path) -> None:
    done = perdure(tmp_path, "serve", "--port", "many", PERDURE_PROT="1", PERDURE_REDRIVE="never")
    assert done.returncode == 78
    assert "Did you mean PERDURE_PORT?" in done.stderr and "`port`" in done.stderr and "`redrive`" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("PERDURE_FAILPOINTS", "nowhere.before:kill", "unknown failpoint 'nowhere.before'"),
        ("PERDURE_FAILPOINTS", "claim.after:explode", "unknown failpoint action 'explode'"),
        ("PERDURE_FAILPOINTS", "claim.after:kill@x", "whole number from 1"),
        ("PERDURE_FAILPOINTS", "claim.after:kill@0", "whole number from 1"),
        ("PERDURE_FAILPOINTS", "garbage", "unknown failpoint"),
        ("PERDURE_FAILPOINTS_LOG", "/nowhere/at/all", "/nowhere/at/all cannot be written"),
    ],
)
def test_failpoints_that_make_no_sense_are_refused_in_a_sentence(
    tmp_path: Path, variable: str, value: str, said: str
) -> None:
    for command in ("serve", "doctor"):
        done = from_scratch(tmp_path, command, **{variable: value})
        assert done.returncode == 78
        assert said in done.stderr and variable in done.stderr
        assert "Traceback" not in done.stderr


def test_the_version_is_told_as_a_command_and_as_a_flag(tmp_path: Path) -> None:
    flag, command = from_scratch(tmp_path, "--version"), from_scratch(tmp_path, "version")
    assert (flag.returncode, flag.stdout) == (0, command.stdout)
    assert flag.stdout.startswith("perdure ") and "langgraph " in flag.stdout


def test_a_valid_setting_that_a_command_does_not_use_is_no_error(tmp_path: Path) -> None:
    done = perdure(tmp_path, "config", "show", "--drain-seconds", "3", PERDURE_RETENTION_DAYS="9")
    assert done.returncode == 0
    other = perdure(tmp_path, "turns", "list", "--model", "demo", "--port", "9")
    assert "There is no database" in other.stderr and other.returncode == 1


def test_an_unknown_flag_is_wrong_usage(tmp_path: Path) -> None:
    assert from_scratch(tmp_path, "serve", "--prot", "1").returncode == 2


def test_every_setting_is_a_flag_of_serve(tmp_path: Path) -> None:
    shown = perdure(tmp_path, "serve", "--help").stdout
    assert [setting.flag for setting in SETTINGS if setting.flag not in shown] == []


# -- what is loaded for what ------------------------------------------------------------------------------------------

AGENTS = ("langgraph", "langchain_core", "langchain", "mcp", "openai", "anthropic")
"""What graphs, tools and models stand on."""


def loaded(names: Sequence[str], code: str, *arguments: str, folder: Path | None = None) -> str:
    """Those of the modules that an interpreter of its own has loaded after the code."""
    code = f"import sys\n{code}\nprint([name for name in {names!r} if name in sys.modules])"
    variables = environment(folder) if folder else None
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=variables, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_help_configuration_and_version_load_nothing_heavy() -> None:
    assert loaded((*AGENTS, "fastapi", "apsw", "pydantic"), "import perdure.cli") == "[]"


def test_a_backup_loads_neither_langgraph_nor_the_engine() -> None:
    assert loaded((*AGENTS, "fastapi", "perdure.engine"), "import perdure.cli, perdure.runtime.files") == "[]"


def test_a_gateway_loads_nothing_that_agents_stand_on() -> None:
    names = (*AGENTS, "perdure.engine", "perdure.graph")
    assert loaded(names, "import perdure.cli, perdure.runtime.gateway") == "[]"


def test_a_command_that_asks_a_server_loads_nothing_heavy(tmp_path: Path) -> None:
    database = tmp_path / "perdure.db"
    commands = (
        "conversations list",
        "turns list",
        "approvals list",
        "tokens list",
        "tokens revoke ada",
        "agents",
        "agents forget shop --yes",
        "audit",
    )
    code = """
from perdure.cli import program
for command in sys.argv[2:]:
    words = command.split()
    program(words[0])([*words, "--database", sys.argv[1]], standalone_mode=False)
"""
    database.touch()
    lock = DatabaseLock(database, Holder(os.getpid(), "here", "boot", "1"))
    try:
        with answering() as (address, asked):
            (tmp_path / "token").write_text("secret")
            lock.announce(address, tmp_path / "token")
            names = (*AGENTS, "fastapi", "apsw", "perdure.runtime")
            assert loaded(names, code, str(database), *commands, folder=tmp_path) == "[]"
        assert asked == [
            *("conversations", "turns", "approvals", "tokens", "tokens/ada"),
            *("agents", "agents/shop", "audit"),
        ]
    finally:
        lock.release()


@contextmanager
def answering() -> Iterator[tuple[str, list[str]]]:
    """A server on which there is nothing. Yields its address and, for each request, what it was asked for."""
    asked: list[str] = []

    class Nothing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"items": [], "next": null}'
            asked.append(urlsplit(self.path).path.removeprefix("/api/"))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_DELETE = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Nothing) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


def test_without_a_database_a_read_and_a_write_say_which_command_to_run(tmp_path: Path) -> None:
    database = str(tmp_path / "none.db")
    for arguments in (("conversations", "list"), ("chat", "hi"), ("turns", "cancel", "x")):
        done = from_scratch(tmp_path, *arguments, "--database", database)
        assert done.returncode == 1
        assert f"perdure serve --database {database}" in done.stderr
    assert not Path(database).exists()


# -- the demo's judgement ---------------------------------------------------------------------------------------------


def proof(**changed: object) -> Proof:
    good = Proof(killed_pid=1, restarted_pid=2, status="completed", answer=ANSWER, attempts=2)
    good.effects = dict.fromkeys(("one", "two", "three", "four"), 1)
    for name, value in changed.items():
        setattr(good, name, value)
    return good


def test_the_demo_is_content_only_when_all_records_agree() -> None:
    assert _problems(proof(), [], []) == []
    assert _problems(proof(effects={"one": 1, "two": 1, CUT_STEP: 2, "four": 1}), [], []) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"status": "failed"},
        {"answer": "All done."},
        {"effects": {"one": 2, "two": 1, "three": 1, "four": 1}},
        {"effects": {"one": 1, "two": 1, "three": 0, "four": 1}},
        {"effects": {"one": 1, "two": 1, "three": 3, "four": 1}},
        {"effects": {"one": 1, "two": 1, "three": 1, "four": 1, "five": 1}},
        {"attempts": 1},
        {"restarted_pid": 1},
    ],
)
def test_the_demo_fails_when_any_record_is_wrong(changed: dict[str, object]) -> None:
    assert len(_problems(proof(**changed), [], [])) == 1


def test_the_demo_fails_when_the_watcher_saw_something_else_than_what_is_stored() -> None:
    assert _problems(proof(), [{"id": "a"}], []) == ["what the watcher saw differs from what is stored"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_lead_nowhere(tmp_path: Path, closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -m perdure version {closed}', sys.executable],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(tmp_path),
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (" >&-" not in f" {closed}")


def test_output_that_cannot_be_written_is_one_line_and_a_failure(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "perdure", "version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=environment(tmp_path),
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "What this prints cannot be written: No space left on device.\n"
