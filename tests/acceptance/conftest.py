"""A real server process as a person starts it, and the command line as a person uses it."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest

from tests.servers.preloaded import Forked, preloaded
from tests.servers.process import paused

LIMIT_SECONDS = 90.0

HTTP = httpx2.Client(
    trust_env=False,
    timeout=60,
    limits=httpx2.Limits(max_keepalive_connections=0),  # the server of the last request may be dead
    verify=ssl.SSLContext(
        ssl.PROTOCOL_TLS_CLIENT
    ),  # to load the authorities for each server would take longer than to ask
)


def environment(**variables: str) -> dict[str, str]:
    """This process' environment without settings, with the given ones."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "LANGCHAIN_"))}
    return {**kept, "NO_COLOR": "1", "COLUMNS": "200", **variables}


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of the condition; fails after a generous time."""
    until = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < until:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"never happened: {what}")


class ServerProcess:
    """`perdure serve` in a folder of its own."""

    command = "serve"

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        self.database = folder / "perdure.db"
        self.effects_file = folder / "effects.jsonl"
        self.log_file = folder / "server.log"
        self.variables = {
            "PERDURE_DATABASE": str(self.database),
            "PERDURE_PORT": "0",
            "PERDURE_DEMO_STEP_SECONDS": "0.2",
            "PERDURE_DEMO_TOKEN_SECONDS": "0.002",
            "PERDURE_DEMO_EFFECTS": str(self.effects_file),
            **variables,
        }
        self.process: Forked | None = None

    def start(self, **more: str) -> Self:
        self.launch(**more)
        return self.ready()

    def launch(self, **more: str) -> None:
        """Without waiting for it."""
        variables = environment(**{**self.variables, **more})
        self.process = preloaded().serve(variables, self.folder, self.log_file, self.command)

    def ready(self) -> Self:
        eventually(self._ready, f"`perdure {self.command}` is ready")
        return self

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        try:
            return self.get("/api/readyz").status_code == 200
        except (OSError, ValueError, KeyError, httpx2.HTTPError):
            return False

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        assert self.process.wait(LIMIT_SECONDS) == -signal.SIGKILL

    def until_paused(self) -> None:
        """By a failpoint that it was started with: it waits there until it is killed, or told to go on."""
        eventually(lambda: self.runs() and paused(self.pid), f"`perdure {self.command}` pauses")

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(LIMIT_SECONDS)

    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def close(self) -> None:
        if self.process is not None and self.runs():
            self.process.kill()
            self.process.wait(LIMIT_SECONDS)

    @property
    def door(self) -> ServerProcess:
        """Who serves the page."""
        return self

    # -- talking to it ------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        holder = json.loads(self.database.with_name("perdure.db.lock").read_text())
        if holder["pid"] != self.pid or not holder["address"]:
            raise ValueError("the server does not listen yet")
        return str(holder["address"])

    @property
    def token_file(self) -> Path:
        return self.database.with_name("perdure.token")

    @property
    def token(self) -> str:
        return self.token_file.read_text().strip()

    def request(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """`secret`: a named token's, instead of the server's own."""
        secret = more.pop("secret", None) or self.token
        headers = {"Authorization": f"Bearer {secret}", **more.pop("headers", {})}
        return HTTP.request(method, f"{self.address}{path}", headers=headers, **more)

    def get(self, path: str, **more: Any) -> httpx2.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> httpx2.Response:
        return self.request("POST", path, json=body, **more)

    def say(self, message: str, **more: Any) -> dict[str, str]:
        answer = self.post("/api/chat", {"message": message, **more})
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    def turn(self, turn: str) -> dict[str, Any]:
        return dict(self.get(f"/api/turns/{turn}").json())

    def until(self, turn: str, *statuses: str) -> dict[str, Any]:
        """The turn once it is in one of the states."""
        return dict(
            eventually(
                lambda: (found := self.turn(turn)) and found["status"] in statuses and found, f"{turn} is {statuses}"
            )
        )

    def answer_of(self, conversation: str) -> str:
        return str(self.get(f"/api/conversations/{conversation}").json()["messages"][-1]["content"])

    def effects(self) -> Counter[str]:
        lines = self.effects_file.read_text().splitlines() if self.effects_file.exists() else []
        return Counter(str(json.loads(line)["args"].get("label")) for line in lines)

    def effect_lines(self) -> list[tuple[str, dict[str, Any]]]:
        """Tool and arguments of each execution that took effect, in order."""
        lines = self.effects_file.read_text().splitlines() if self.effects_file.exists() else []
        return [(each["tool"], each["args"]) for each in map(json.loads, lines)]

    def waiting(self, turn: str) -> list[dict[str, Any]]:
        """The open cards of a turn once it is parked."""
        self.until(turn, "parked")
        items = self.get("/api/approvals", params={"limit": 200}).json()["items"]
        return [card for card in items if card["turn"] == turn]

    def messages(self, conversation: str) -> list[dict[str, Any]]:
        return list(self.get(f"/api/conversations/{conversation}").json()["messages"])

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")


class CommandLine:
    """`perdure …` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str, stdin: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        variables = {"PERDURE_DATABASE": str(self.folder / "perdure.db"), **variables}
        return preloaded().run(arguments, environment(**variables), self.folder, stdin or "", LIMIT_SECONDS * 2)

    def json(self, *arguments: str, **variables: str) -> Any:
        done = self(*arguments, "--json", **variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that is not started yet."""
    process = ServerProcess(tmp_path)
    try:
        yield process
    finally:
        process.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server shared by the tests of a module: each uses conversations of its own."""
    process = ServerProcess(tmp_path_factory.mktemp("running"))
    try:
        yield process.start()
    finally:
        process.close()


@pytest.fixture
def perdure(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)
