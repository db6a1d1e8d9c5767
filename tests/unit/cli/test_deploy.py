"""`perdure plan`, `apply` and their like against an engine in memory: what they show, ask, write and return."""

from __future__ import annotations

import asyncio
import errno
import json
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner, Result

from perdure.cli import deploy, output
from perdure.deploy.engine import EngineError, EngineUnreachable
from perdure.deploy.rendering import PlanStale
from perdure.errors import BadRequest, ConfigurationError, NotFound, PerdureError
from perdure.runtime import deployment
from tests.unit.deploy.memory_engine import MemoryEngine

PROJECT = """
[deploy]
transport = "nats"
secrets = ["SHOP_KEY"]

[agents.shop]
"""
SECRET = "s3cret-value-of-the-shop"
SHOP = "perdure-perdure-agent-shop"
GATEWAY = "perdure-perdure-gateway"
DATA = "perdure-agent-shop-data"

Perdure = Callable[..., Result]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> MemoryEngine:
    made = MemoryEngine()
    monkeypatch.setattr(deployment, "open_engine", lambda settings: made)
    monkeypatch.setattr(deployment, "recipe", lambda target="perdure": target)
    return made


@pytest.fixture
def perdure(
    engine: MemoryEngine, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Perdure:
    (tmp_path / "perdure.toml").write_text(PROJECT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERDURE_PROJECT", raising=False)
    monkeypatch.setenv("SHOP_KEY", SECRET)
    monkeypatch.setattr(
        tempfile, "tempdir", str(tmp_path_factory.mktemp("locks"))
    )  # others of this machine may test, too
    app = typer.Typer(pretty_exceptions_enable=False)
    for command in (deploy.plan, deploy.apply, deploy.destroy, deploy.status, deploy.logs, deploy.restart):
        app.command()(command)

    def invoke(*arguments: str, answers: str = "") -> Result:
        return CliRunner().invoke(app, arguments, input=answers)

    return invoke


def ok(result: Result) -> str:
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


# -- plan -------------------------------------------------------------------------------------------------------------


def test_a_plan_shows_what_would_be_done_and_does_nothing(
    perdure: Perdure, engine: MemoryEngine, tmp_path: Path
) -> None:
    told = ok(perdure("plan"))
    assert f"+ container {SHOP}" in told and f"+ volume    {DATA}" in told
    assert "Plan: 11 to make." in told
    assert engine.done == [] and engine.volumes == {}
    assert not (tmp_path / ".perdure").exists()


def test_the_exit_code_tells_whether_something_differs_when_that_is_asked(
    perdure: Perdure, engine: MemoryEngine
) -> None:
    assert perdure("plan", "--detailed-exitcode").exit_code == 2
    ok(perdure("apply", "--yes"))
    assert perdure("plan", "--detailed-exitcode").exit_code == 0
    engine.away = True
    failed = perdure("plan", "--detailed-exitcode")
    assert failed.exit_code == 1 and "does not answer" in failed.output


def test_an_engine_that_is_away_is_an_error_and_no_empty_plan(perdure: Perdure, engine: MemoryEngine) -> None:
    engine.away = True
    for command in ("plan", "apply", "destroy", "status", "logs", "restart"):
        failed = perdure(command)
        assert failed.exit_code == 1
        assert isinstance(failed.exception, EngineUnreachable), command


def test_a_project_that_is_wrong_is_an_error_of_code_one_too(perdure: Perdure, tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_text('[deploy]\ntransprot = "nats"\nnmae = "x"\n')
    failed = perdure("plan", "--detailed-exitcode")
    assert failed.exit_code == 1
    assert "Did you mean transport?" in failed.output and "Did you mean name?" in failed.output
    assert isinstance(perdure("plan").exception, ConfigurationError)


def test_programs_get_json_alone_on_standard_output(perdure: Perdure) -> None:
    content = json.loads(perdure("plan", "--json").stdout)
    assert content["changes"] is True
    assert content["summary"]["create"] == len(content["actions"]) == 11


def test_a_missing_secret_is_named_before_anything_is_done(
    perdure: Perdure, engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOP_KEY")
    failed = perdure("apply", "--yes")
    assert isinstance(failed.exception, ConfigurationError) and "SHOP_KEY" in str(failed.exception)
    assert engine.done == []


# -- apply ------------------------------------------------------------------------------------------------------------


def test_apply_makes_everything_tells_where_it_is_and_has_nothing_left_to_do(
    perdure: Perdure, engine: MemoryEngine, tmp_path: Path
) -> None:
    told = ok(perdure("apply", "--yes"))
    assert [each for each in engine.done if each.startswith("start")] == [
        f"start {name}" for name in ("perdure-perdure-nats", SHOP, GATEWAY)
    ]
    assert "Perdure  http://127.0.0.1:8700" in told
    assert "open     http://127.0.0.1:8700/login?key=one-time" in told
    token_file = tmp_path / ".perdure" / "perdure.token"
    assert f"token    {token_file}" in told
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    again = ok(perdure("apply", "--yes"))
    assert "No changes" in again and "login" not in again
    assert "Perdure  http://127.0.0.1:8700" in again and f"token    {token_file}" in again


def test_an_apply_that_fails_in_the_middle_says_how_to_go_on(
    perdure: Perdure, engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(name: str) -> None:
        raise EngineError("127.0.0.1:8700 is in use.")

    with monkeypatch.context() as patched:
        patched.setattr(engine, "start", refused)
        failed = perdure("apply", "--yes")
        assert isinstance(failed.exception, EngineError)
        assert "another `perdure apply` goes on from there" in failed.output
        assert "Perdure  http" not in failed.output
    ok(perdure("apply", "--yes"))


def test_apply_says_how_the_gateway_forgets_an_agent_that_was_taken_away(perdure: Perdure, tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_text(f"{PROJECT}\n[agents.helper]\n")
    assert "forget" not in ok(perdure("apply", "--yes"))
    (tmp_path / "perdure.toml").write_text(PROJECT)
    told = ok(perdure("apply", "--yes"))
    assert f"docker exec -it {GATEWAY} perdure agents forget helper" in told
    assert "forget shop" not in told


def test_apply_asks_and_a_no_leaves_no_trace(perdure: Perdure, engine: MemoryEngine, tmp_path: Path) -> None:
    assert perdure("apply", answers="n\n").exit_code == 1
    assert engine.done == [] and engine.volumes == {}
    assert not (tmp_path / ".perdure").exists()
    ok(perdure("apply", answers="y\n"))
    assert SHOP in engine.containers


def test_no_secret_is_shown_or_kept(perdure: Perdure, engine: MemoryEngine, tmp_path: Path) -> None:
    told = ok(perdure("plan", "--out", "first.json")) + ok(perdure("apply", "--yes"))
    engine.containers[SHOP] = replace(engine.containers[SHOP], user="0")
    told += (
        ok(perdure("plan", "--json")) + ok(perdure("plan", "--out", "second.json")) + ok(perdure("status", "--json"))
    )
    told += "".join(str(dict(each.labels)) for each in engine.containers.values())
    told += "".join(str(dict(each.labels)) for each in engine.volumes.values())
    told += (tmp_path / "first.json").read_text() + (tmp_path / "second.json").read_text()
    token = (tmp_path / ".perdure" / "perdure.token").read_text().strip()
    assert SECRET not in told and token not in told


def test_a_kept_plan_is_applied_as_it_is_or_not_at_all(perdure: Perdure, engine: MemoryEngine) -> None:
    """Also where it is kept in the project's folder: it is no part of the project."""
    ok(perdure("plan", "--out", "plan.json"))
    ok(perdure("apply", "plan.json", "--yes"))
    assert "No changes" in ok(perdure("plan"))
    engine.containers[SHOP] = replace(engine.containers[SHOP], running=False)
    ok(perdure("plan", "--out", "plan.json"))
    engine.containers[SHOP] = replace(engine.containers[SHOP], restart="no")
    before = list(engine.done)
    failed = perdure("apply", "plan.json", "--yes")
    assert isinstance(failed.exception, PlanStale)
    assert engine.done == before


def test_what_changes_while_a_person_thinks_is_not_applied(
    perdure: Perdure, engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok(perdure("apply", "--yes"))
    engine.containers[SHOP] = replace(engine.containers[SHOP], user="0")

    def thinking(*_: object, **__: object) -> bool:
        engine.containers[SHOP] = replace(engine.containers[SHOP], restart="no")
        return True

    monkeypatch.setattr(typer, "confirm", thinking)
    assert isinstance(perdure("apply").exception, PlanStale)
    assert engine.containers[SHOP].user == "0"


def test_where_the_token_file_is_not_here_the_one_that_runs_is_used(
    perdure: Perdure, engine: MemoryEngine, tmp_path: Path
) -> None:
    """Another machine: it must not make another token, which would change every password of NATS."""
    ok(perdure("apply", "--yes"))
    file = tmp_path / ".perdure" / "perdure.token"
    token = file.read_text()
    file.unlink()
    assert "No changes" in ok(perdure("plan"))
    assert not file.exists(), "a plan writes nothing"
    told = ok(perdure("apply"))
    assert f"token    in the containers alone: {file} is not here" in told
    assert f"docker exec {GATEWAY} cat /run/secrets/token" in told
    assert not file.exists()
    engine.containers[SHOP] = replace(engine.containers[SHOP], user="0")
    ok(perdure("apply", "--yes"))
    assert file.read_text() == token


def test_what_an_interrupted_apply_left_is_settled_first(perdure: Perdure, engine: MemoryEngine) -> None:
    ok(perdure("apply", "--yes"))
    engine.containers[f"{SHOP}.next"] = replace(engine.containers[SHOP], name=f"{SHOP}.next", running=False)
    assert "An apply that was interrupted left it" in ok(perdure("plan"))
    assert "No changes" in ok(perdure("apply", "--yes"))
    assert f"{SHOP}.next" not in engine.containers


# -- destroy ----------------------------------------------------------------------------------------------------------


def test_destroy_keeps_data_and_says_where_it_is(perdure: Perdure, engine: MemoryEngine) -> None:
    ok(perdure("apply", "--yes"))
    told = ok(perdure("destroy", answers="y\n"))
    assert f"- container {SHOP}" in told and f"volume {DATA} is kept" in told
    assert f"docker volume rm {DATA}" in told and "perdure destroy --purge-data perdure" in told
    assert engine.containers == {} and engine.networks == {}
    assert DATA in engine.volumes
    assert "There was nothing" in ok(perdure("destroy", "--yes"))


def test_destroy_asks(perdure: Perdure, engine: MemoryEngine) -> None:
    ok(perdure("apply", "--yes"))
    assert perdure("destroy", answers="n\n").exit_code == 1
    assert SHOP in engine.containers


def test_data_is_removed_for_the_projects_name_alone(perdure: Perdure, engine: MemoryEngine) -> None:
    ok(perdure("apply", "--yes"))
    assert isinstance(perdure("destroy", "--yes", "--purge-data", "yes").exception, BadRequest)
    assert SHOP in engine.containers
    told = ok(perdure("destroy", "--purge-data", "perdure", answers="y\n"))
    assert f"volume {DATA}, with everything in it" in told
    assert engine.volumes == {}


# -- status, logs, restart --------------------------------------------------------------------------------------------


def test_status_tells_how_each_container_is_and_fails_when_one_is_not_well(
    perdure: Perdure, engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok(perdure("apply", "--yes"))
    monkeypatch.delenv("SHOP_KEY")  # who only looks needs no secret
    told = ok(perdure("status"))
    assert "healthy" in told and DATA in told and "http://127.0.0.1:8700" in told
    del engine.containers[SHOP]
    failed = perdure("status", "--json")
    assert failed.exit_code == 1
    assert {each["container"]: each["state"] for each in json.loads(failed.stdout)}[SHOP] == "missing"


def test_status_tells_a_successor_and_an_undoing_from_what_nobody_wants(perdure: Perdure, engine: MemoryEngine) -> None:
    ok(perdure("apply", "--yes"))
    for name in (f"{SHOP}.next", f"{SHOP}.undo", f"{SHOP}-old"):
        engine.containers[name] = replace(engine.containers[SHOP], name=name, running=False)
    told = perdure("status").output
    assert f"{SHOP}.undo (undoes an upgrade)" in told
    assert f"{SHOP}.next (about to take over)" in told and f"{SHOP}-old (not in the project any more)" in told


def test_logs_are_of_whom_one_names(perdure: Perdure) -> None:
    ok(perdure("apply", "--yes"))
    assert ok(perdure("logs", "shop", "--tail", "1")).splitlines()[0].startswith("open ")
    assert "agent-shop | Perdure " in ok(perdure("logs", "-f"))
    assert isinstance(perdure("logs", "shpo").exception, NotFound)


def test_restart_goes_one_by_one(perdure: Perdure, engine: MemoryEngine) -> None:
    ok(perdure("apply", "--yes"))
    engine.done.clear()
    assert "1 restarted" in ok(perdure("restart", "shop"))
    assert engine.done == [f"stop {SHOP}", f"start {SHOP}"]


def test_nothing_is_restarted_while_an_interrupted_apply_is_not_settled(perdure: Perdure, engine: MemoryEngine) -> None:
    """Its successor may have a volume that the data has not come to."""
    ok(perdure("apply", "--yes"))
    engine.containers[f"{SHOP}.next"] = replace(engine.containers[SHOP], name=f"{SHOP}.next", running=False)
    engine.done.clear()
    refused = perdure("restart")
    assert isinstance(refused.exception, PerdureError) and "`perdure apply` settles" in str(refused.exception)
    assert engine.done == []


@pytest.fixture
def heard() -> Iterator[None]:
    """Whoever started the tests may have them ignore signals: a shell in the background, `nohup`."""
    before = {each: signal.signal(each, signal.SIG_DFL) for each in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.usefixtures("heard")
def test_a_signal_that_is_ignored_changes_nothing(
    perdure: Perdure, engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    ok(perdure("apply", "--yes"))
    stop = engine.stop

    async def stopping(name: str, seconds: int | None = None) -> None:
        signal.raise_signal(signal.SIGHUP)
        await stop(name)

    monkeypatch.setattr(engine, "stop", stopping)
    ok(perdure("restart"))
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", ["apply", "destroy", "restart"])
def test_a_signal_ends_it_in_order_and_another_one_changes_nothing(
    perdure: Perdure, engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch, command: str, which: signal.Signals
) -> None:
    """What would be put back is: the stop of one that is taken away again."""
    ok(perdure("apply", "--yes"))
    engine.containers[SHOP] = replace(engine.containers[SHOP], user="0")
    stop, asked = engine.stop, list[str]()

    async def stopping(name: str, seconds: int | None = None) -> None:
        asked.append(name)
        signal.raise_signal(which)
        for _ in range(20):
            await asyncio.sleep(0.001)  # the loop hears of a signal only when it is waited
        await stop(name)

    monkeypatch.setattr(engine, "stop", stopping)
    ended = perdure(command, *(() if command == "restart" else ("--yes",)))
    assert ended.exit_code == 128 + which, (ended.output, ended.exception)
    assert f"{which.name}: what is being done is ended in order" in ended.output and "not finished" in ended.output
    if command == "apply":
        assert asked == [SHOP, f"{SHOP}.next", SHOP], (
            "the successor goes, whoever may still drain ends, and the old one starts"
        )
        assert engine.containers[SHOP].running and f"{SHOP}.next" not in engine.containers
    else:
        assert len(asked) == 1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.usefixtures("heard")
def test_a_terminal_that_hangs_up_keeps_nothing_from_being_put_back(
    perdure: Perdure, engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok(perdure("apply", "--yes"))
    engine.containers[SHOP] = replace(engine.containers[SHOP], user="0")
    start = engine.start

    async def hanging_up(name: str) -> None:
        def gone(*_: object, **__: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        if name == f"{SHOP}.next":
            monkeypatch.setattr(output.err, "print", gone)
            signal.raise_signal(signal.SIGHUP)
            await asyncio.sleep(10)
        await start(name)

    monkeypatch.setattr(engine, "start", hanging_up)
    assert perdure("apply", "--yes").exit_code == 128 + signal.SIGHUP
    assert engine.containers[SHOP].running and f"{SHOP}.next" not in engine.containers


@pytest.mark.parametrize("closed", [True, False], ids=["no standard input", "an empty one"])
def test_where_nobody_can_be_asked_the_option_is_said(
    perdure: Perdure, engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    def refused(command: str) -> str:
        with monkeypatch.context() as patched:
            if closed:
                patched.setattr("perdure.cli.deploy.sys", SimpleNamespace(stdin=None))
            before = list(engine.done)
            failed = perdure(command)
            assert isinstance(failed.exception, PerdureError) and engine.done == before
            return str(failed.exception)

    assert "add --yes" in refused("apply")
    ok(perdure("apply", "--yes"))
    assert "add --yes" in refused("destroy")
    engine.containers[f"{SHOP}.next"] = replace(engine.containers[SHOP], name=f"{SHOP}.next", running=False)
    assert "add --yes" in refused("apply")
