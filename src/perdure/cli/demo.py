"""`perdure demo`: the proof that anybody can repeat. A real server is killed in the middle of a step; the effects are counted.

Nothing is simulated: the server is `python -m perdure serve` in a process of its own, the kill is SIGKILL, the effects are
the lines its tools wrote to a file that the server itself never reads back.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.cli.client import Client, Line, Server
from perdure.cli.flags import settings_flags
from perdure.cli.output import AsJson, Exit, hint, print_json, say
from perdure.config import Settings
from perdure.errors import PerdureError
from perdure.events import Event, EventKind, Fold, Frame, Reset, RewindReason
from perdure.store.sqlite.lock import read_lock

MESSAGE = "Please do the four-step job."
STEPS = ("one", "two", "three", "four")
CUT_STEP = "three"
ANSWER = "All four steps are done: one, two, three, four."
READY_SECONDS = 60.0


class DemoFailed(PerdureError):
    """The demonstration could not be carried out."""


@dataclass(slots=True)
class Proof:
    """What was measured. `problems` is empty when the promise held."""

    killed_pid: int = 0
    signal: str = "SIGKILL"
    restarted_pid: int = 0
    turn: str = ""
    conversation: str = ""
    status: str = ""
    answer: str = ""
    attempts: int = 0
    effects: dict[str, int] = field(default_factory=dict)
    starts_of_cut_step: int = 0
    recovery_seconds: float = 0.0
    folder: str = ""
    problems: list[str] = field(default_factory=list)


@settings_flags(())
async def demo(
    settings: Settings,
    step_seconds: Annotated[
        float, typer.Option("--step-seconds", min=0.2, max=60, help="How long each step takes.")
    ] = 2.0,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder with database, effects and log.")] = False,
    as_json: AsJson = False,
) -> None:
    """The 30-second proof: a job of four steps, kill -9 in the third, a restart, and the effects counted."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    show = _Silent() if as_json else _Aloud()
    try:
        proof = await Demonstration(folder, step_seconds, show).carry_out()
        keep = keep or bool(proof.problems)
        proof.folder = str(folder) if keep else ""
    except BaseException:
        hint(f"Database, effects and log are in {folder}")
        raise
    if not keep:
        shutil.rmtree(folder)
    if as_json:
        print_json({**_as_json(proof), "ok": not proof.problems})
    else:
        _print(proof)
    if proof.problems:
        raise typer.Exit(Exit.FAILED)


class Demonstration:
    """One server at a time, in `folder`; whatever happens, none is left running."""

    def __init__(self, folder: Path, step_seconds: float, show: _Aloud) -> None:
        self._database = folder / "perdure.db"
        self._effects = folder / "effects.jsonl"
        self._log = folder / "server.log"
        self._folder = folder
        self._step_seconds = step_seconds
        self._show = show
        self._server: asyncio.subprocess.Process | None = None
        self._proof = Proof()
        self._fold = Fold()
        self._starts: set[int] = set()
        self._told_reset = False

    async def carry_out(self) -> Proof:
        try:
            self._server = await self._start()
            async with Client(self._locate) as client:
                await self._watch(client)
                await self._compare(client)
        finally:
            if self._server is not None and self._server.returncode is None:
                self._server.terminate()
                await self._server.wait()
        return self._proof

    async def _start(self) -> asyncio.subprocess.Process:
        """A server of its own: no setting of the caller reaches it. Returns when it listens."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        environment.pop("AGENT_RECURSION_LIMIT", None)
        environment |= {
            "PERDURE_DEMO_EFFECTS": str(self._effects),
            "PERDURE_DEMO_STEP_SECONDS": str(self._step_seconds),
        }
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "perdure", "serve", "--host", "127.0.0.1", "--port", "0"),
                *("--database", str(self._database), "--model", "demo"),
                cwd=self._folder,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is ours to answer
            )
        self._server = process
        await self._until_listening(process)
        return process

    async def _until_listening(self, process: asyncio.subprocess.Process) -> None:
        until = time.monotonic() + READY_SECONDS
        while self._locate() is None:
            if process.returncode is not None or time.monotonic() > until:
                raise DemoFailed(
                    f"The server did not start:\n{self._log.read_text(encoding='utf-8', errors='replace')}"
                )
            await asyncio.sleep(0.05)

    def _locate(self) -> Server | None:
        holder = read_lock(self._database)
        if holder is None or not holder.held or not holder.address or not holder.token_file:
            return None
        return Server(holder.address, Path(holder.token_file).read_text(encoding="utf-8").strip())

    async def _watch(self, client: Client) -> None:
        """Follows one stream from the first event to the end, with the kill in between."""
        accepted = await client.start({"message": MESSAGE})
        self._proof.conversation, self._proof.turn = accepted["conversation"], accepted["turn"]
        self._show.line(f"sent       “{MESSAGE}” → turn {self._proof.turn}")
        killing: asyncio.Task[None] | None = None
        try:
            async with aclosing(client.follow(self._proof.conversation, 0)) as frames:
                async for frame in frames:
                    self._take(frame)
                    if killing is None and _started(frame) == CUT_STEP:
                        # Its intent is committed: the steps before it are finished, it has just begun.
                        killing = asyncio.create_task(self._kill_and_restart())
            if killing is None:
                raise DemoFailed("The turn ended before it could be cut.")
            await killing
        finally:
            if killing is not None and not killing.done():
                killing.cancel()
                await asyncio.gather(killing, return_exceptions=True)

    async def _kill_and_restart(self) -> None:
        assert self._server is not None
        await asyncio.sleep(self._step_seconds / 2)
        finished = _count(self._effects)
        self._proof.killed_pid = self._server.pid
        os.kill(self._server.pid, signal.SIGKILL)
        code = await self._server.wait()
        killed_at = time.monotonic()
        if code != -signal.SIGKILL:
            raise DemoFailed(f"The server ended by itself (exit code {code}) before it was killed.")
        if finished != Counter(STEPS[:2]):
            raise DemoFailed(
                f"The cut came at the wrong moment: effects so far {dict(finished)}. Try --step-seconds 3."
            )
        self._show.line(
            f"killed     pid {self._proof.killed_pid} with SIGKILL in the middle of step {CUT_STEP}", "bold red"
        )
        self._show.line(f"           effects so far: {', '.join(finished)}")
        self._server = await self._start()
        self._proof.restarted_pid = self._server.pid
        self._proof.recovery_seconds = round(time.monotonic() - killed_at, 2)
        self._show.line(
            f"restarted  pid {self._server.pid} listens after {self._proof.recovery_seconds} s", "bold green"
        )

    def _take(self, frame: Frame | Line) -> None:
        if isinstance(frame, Line):
            self._show.line(
                "stream     cut; reconnecting with the last event's id"
                if frame.state == "lost"
                else "stream     is back"
            )
            return
        self._fold.apply(frame)
        label = _started(frame)
        if label and isinstance(frame, Event):
            self._started(label, frame.seq)
        elif isinstance(frame, Reset) and frame.reason in set(RewindReason) and not self._told_reset:
            self._told_reset = True
            self._show.line(
                f"reset      attempt {frame.attempt} goes on from the last committed step ({frame.reason})", "yellow"
            )
        elif isinstance(frame, Event) and frame.terminal:
            self._proof.status = str(frame.payload["status"])
            self._show.line(f"end        {self._proof.status}")

    def _started(self, label: str, seq: int) -> None:
        """A replayed event is the same start."""
        if seq in self._starts:
            return
        self._starts.add(seq)
        self._proof.starts_of_cut_step += label == CUT_STEP
        self._show.line(f"step       {label} …")

    async def _compare(self, client: Client) -> None:
        """Three records must agree: the effects file, what the watcher folded, what the server has stored."""
        transcript = await client.get(f"/api/conversations/{self._proof.conversation}")
        turn = await client.get(f"/api/turns/{self._proof.turn}")
        watched = list(self._fold.turns[self._proof.turn].messages.values())
        effects = _count(self._effects)
        self._proof.effects = dict(effects)
        self._proof.attempts = len(turn["attempts"])
        self._proof.answer = str(watched[-1]["content"]) if watched else ""
        self._proof.problems = list(_problems(self._proof, watched, transcript["messages"]))


def _problems(proof: Proof, watched: list[Mapping[str, Any]], stored: list[Mapping[str, Any]]) -> list[str]:
    found = []
    if proof.status != "completed":
        found.append(f"the turn ended {proof.status!r}, not 'completed'")
    if proof.answer != ANSWER:
        found.append(f"the answer is {proof.answer!r}, not {ANSWER!r}")
    for step in STEPS:
        count = proof.effects.get(step, 0)
        if count != 1 and not (step == CUT_STEP and count == 2):
            found.append(f"step {step} took effect {count} times")
    if set(proof.effects) - set(STEPS):
        found.append(f"effects nobody asked for: {sorted(set(proof.effects) - set(STEPS))}")
    if watched != stored:
        found.append("what the watcher saw differs from what is stored")
    if proof.attempts < 2 or proof.killed_pid == proof.restarted_pid:
        found.append("no second attempt was needed: nothing was proved")
    return found


def _started(frame: Frame | Line) -> str | None:
    """The label of the step whose call a trace event announces."""
    if not isinstance(frame, Event) or frame.kind is not EventKind.TRACE or frame.payload.get("phase") != "call":
        return None
    data = frame.payload.get("data") or {}
    arguments = data.get("arguments") if isinstance(data, Mapping) else None
    return str(arguments.get("label")) if isinstance(arguments, Mapping) else None


def _count(effects: Path) -> Counter[str]:
    """Label → lines of the effects file. A line cut by the kill is no effect."""
    found: Counter[str] = Counter()
    content = effects.read_text(encoding="utf-8") if effects.exists() else ""
    for line in content.splitlines(keepends=True):
        if line.endswith("\n"):
            found[str(json.loads(line)["args"]["label"])] += 1
    return found


class _Aloud:
    def __init__(self) -> None:
        self._began = time.monotonic()

    def line(self, text: str, style: str = "") -> None:
        say(f"{time.monotonic() - self._began:6.1f} s  {text}", style)


class _Silent(_Aloud):
    def line(self, text: str, style: str = "") -> None:
        pass


def _as_json(proof: Proof) -> dict[str, Any]:
    return {name: getattr(proof, name) for name in Proof.__slots__}


def _print(proof: Proof) -> None:
    say("")
    say(f"killed     pid {proof.killed_pid}, signal {proof.signal}; the turn took {proof.attempts} attempts")
    for step in STEPS:
        say(f"effect     {step}: {proof.effects.get(step, 0)}")
    twice = proof.effects.get(CUT_STEP, 0) > 1
    say(
        f"note       step {CUT_STEP} was cut in the middle, so it was started again; a cut call may take effect twice. "
        f"This time it took effect {'twice' if twice else 'once'}."
    )
    say(f"answer     {proof.answer}")
    if proof.problems:
        for problem in proof.problems:
            say(f"FAILED     {problem}", "bold red")
    else:
        say("proved     every finished step took effect once, and the watcher saw exactly what is stored", "bold green")
    say(f"folder     {proof.folder}" if proof.folder else "folder     removed (keep it with --keep)", "dim")
