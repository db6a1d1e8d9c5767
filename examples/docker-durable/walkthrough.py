"""An agent, NATS and a gateway in containers; the agent's is restarted in the middle of a job, and the job finishes all the same.

python examples/docker-durable/walkthrough.py [--keep]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

HERE = Path(__file__).resolve().parent
PROJECT = str(tomllib.loads((HERE / "perdure.toml").read_text())["deploy"]["name"])
AGENT = f"perdure-{PROJECT}-agent-worker"
EFFECTS = "/data/effects.txt"
JOB = "four-step job"
STEPS = ("one", "two", "three", "four")
CUT_STEP = "three"
WAIT_SECONDS = 120.0
PAUSE_SECONDS = 0.2
INTERRUPTED = 130
BY_HAND = f"By hand, in {HERE}:\n  perdure destroy --purge-data {PROJECT}"
NO_DOCKER = """\
This example needs Docker: an engine that runs, and the command `docker`.
  Linux           apt-get install docker.io (or your system's package), or https://docs.docker.com/engine/install/
  macOS, Windows  Docker Desktop, https://docs.docker.com/desktop/
  Docker elsewhere: set DOCKER_HOST, or choose a context (docker context use NAME).
"""


class Failed(Exception):
    """What happened, and what to do."""


class CommandFailed(Failed):
    """It has said why."""


# -- commands ---------------------------------------------------------------------------------------------------------


def perdure(*arguments: str, fine: tuple[int, ...] = (0,)) -> str:
    """Runs `perdure …` in this folder for all to see; what it printed. It is not in this program's process group: a Ctrl-C
    reaches it once, from here, so that it can put in order what it was doing."""
    print(f"\n$ perdure {' '.join(arguments)}", flush=True)
    command = [sys.executable, "-m", "perdure", *arguments]
    with subprocess.Popen(  # noqa: S603 -- our own command
        command, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            printed = [_shown(line) for line in process.stdout]
            code = process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            for line in process.stdout:
                _shown(line)
            raise
    if code not in fine:
        why = printed[-1].strip() if printed else "It printed nothing."
        raise CommandFailed(f"perdure {' '.join(arguments)} ended with exit code {code}. {why}")
    return "".join(printed)


def _shown(line: str) -> str:
    print(line, end="", flush=True)
    return line


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)  # noqa: S603, S607
    if done.returncode != 0:
        raise Failed(f"`docker {' '.join(arguments)}`: {done.stderr.strip()}")
    return done.stdout


def refuse_without_docker() -> None:
    if shutil.which("docker") is None:
        sys.exit(f"{NO_DOCKER}There is no command `docker` here.")
    try:
        docker("version", "--format", "{{.Server.Version}}")
    except Failed as error:
        sys.exit(f"{NO_DOCKER}{error}")


def there(kind: str) -> list[str]:
    """Containers or volumes of this project, by name."""
    of = {"container": ("ps", "--all", "--format", "{{.Names}}"), "volume": ("volume", "ls", "--format", "{{.Name}}")}
    return docker(*of[kind], "--filter", f"label=perdure.project={PROJECT}").split()


# -- the job ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gateway:
    """As the last lines of `perdure apply` tell it."""

    address: str
    token: str

    @classmethod
    def told(cls, printed: str) -> Gateway:
        found = dict(re.findall(r"^(Perdure|token) +(\S.*)$", printed, re.MULTILINE))
        return cls(found["Perdure"], Path(found["token"]).read_text().strip())

    def connect(self) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx2.Client(base_url=self.address, headers=headers, timeout=WAIT_SECONDS, trust_env=False)


def send(http: httpx2.Client) -> dict[str, Any]:
    """Until it is accepted; the key makes every repeat the same turn."""
    key, until = uuid.uuid4().hex, time.monotonic() + WAIT_SECONDS
    while True:
        answer = http.post("/api/chat", json={"message": JOB}, headers={"Idempotency-Key": key})
        if answer.status_code == 202:
            accepted: dict[str, Any] = answer.json()
            return accepted
        if time.monotonic() > until:
            raise Failed(f"No agent took the message: {answer.text}")
        time.sleep(PAUSE_SECONDS)


def frames(http: httpx2.Client, conversation: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(event, data) of the gateway's stream until the end; the agent's restart does not end it."""
    with http.stream("GET", "/api/chat", params={"conversation": conversation}) as stream:
        stream.raise_for_status()
        event = ""
        for line in stream.iter_lines():
            field, _, value = line.partition(": ")
            if field == "event":
                event = value
            elif field == "data" and event != "ping":
                yield event, json.loads(value)
                if event in {"end", "chat-error"}:
                    return


def follow(http: httpx2.Client, conversation: str) -> str:
    """Prints the transcript as a page shows it, and restarts the agent's container once. How the turn ended."""
    restarted = False
    for event, data in frames(http, conversation):
        if event == "trace" and data["phase"] == "call" and not restarted and CUT_STEP in json.dumps(data):
            restarted = True
            print(f"\n$ docker restart {AGENT}          (in the middle of step {CUT_STEP})", flush=True)
            docker("restart", AGENT)
        elif event == "reset":
            print(
                f"<<< reset to event {data['to_seq']} ({data['reason']}): what was committed comes again; then it goes on"
            )
        elif event == "message":
            message = data["message"]
            called = ", ".join(call["args"]["label"] for call in message.get("tool_calls") or ())
            print(f"    {message['role']:<9} {message['content'] or f'(asks for step {called})'}", flush=True)
        elif event in {"end", "chat-error"}:
            return str(data["status"])
    raise Failed("The stream ended before the turn did.")


def effects() -> Counter[str]:
    """How often each step took effect, ever: a line for each in a file of the agent's volume."""
    taken = docker("exec", AGENT, "sh", "-c", f"cat {EFFECTS} 2>/dev/null || true")
    return Counter(json.loads(line)["args"]["label"] for line in taken.splitlines())


def play() -> None:
    perdure("plan")
    gateway = Gateway.told(perdure("apply", "--yes"))
    perdure("plan", "--detailed-exitcode")  # exit code 2, were there a difference
    earlier = effects()
    with gateway.connect() as http:
        accepted = send(http)
        print(f"\nThe job, as the page shows it at {gateway.address}/c/{accepted['conversation']}", flush=True)
        ended = follow(http, accepted["conversation"])
        attempts = http.get(f"/api/turns/{accepted['turn']}").raise_for_status().json()["attempts"]
    happened = effects() - earlier
    perdure("status")
    print(f"\nThe turn: {ended} in attempt {len(attempts)}.")
    print("Effects:", ", ".join(f"{step} × {times}" for step, times in happened.items()), flush=True)
    if ended != "completed" or len(attempts) != 2 or happened != Counter(STEPS):
        raise Failed("This is not what was promised: completed in attempt 2, each step once.")


# -- before and after -------------------------------------------------------------------------------------------------


def clean(*, purge: bool) -> None:
    """What was there before (a volume with conversations) stays."""
    perdure("destroy", "--yes")
    if purge:
        perdure("destroy", "--yes", "--purge-data", PROJECT)


def keep() -> None:
    print(f"\nIt stays. Look at it: perdure status, perdure logs -f. To remove it, in {HERE}:")
    print(f"  perdure destroy --purge-data {PROJECT}", flush=True)


def attempt() -> tuple[int, str]:
    """The exit code and the verdict."""
    try:
        play()
    except KeyboardInterrupt:
        return INTERRUPTED, "Interrupted."
    except (Failed, httpx2.HTTPError) as error:
        if not isinstance(error, CommandFailed):
            print(f"\n{error}", flush=True)
            with contextlib.suppress(Failed, KeyboardInterrupt):
                perdure("logs", "worker", "--tail", "20")
        return 1, f"FAILED. {error}\nTo look at what is left of it, run this again with --keep."
    return (
        0,
        "OK. The container was restarted in the middle of the job; the job was completed, and each step took effect once.",
    )


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="leave it running, for your browser")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    refuse_without_docker()
    if there("container"):
        sys.exit(f"It is deployed already: {', '.join(there('container'))}. Remove it before this begins.\n{BY_HAND}")
    purge = not there("volume")
    code, verdict = attempt()
    try:
        if options.keep:
            keep()
        else:
            clean(purge=purge)
    except (Failed, KeyboardInterrupt) as error:
        print(f"\nIt is not all removed{f': {error}' if str(error) else ''}. {BY_HAND}", flush=True)
        code = code or 1
    print(f"\n{verdict}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
