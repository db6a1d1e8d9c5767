"""`python -m tests.crash.proof --kills N --seed S`: the full numbers, and their tables in docs/durability.md.

`--only PART` runs one part and renews its table alone, `--only SCENARIO-FAILPOINT-ACTION@N` runs one trial (behind `nats:`
on three processes) and leaves the page as it is. Ends with 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from perdure.deploy.docker import DockerEngine
from perdure.deploy.engine import EngineUnreachable
from perdure.failpoints import NAMES, NATS_NAMES
from tests.crash.apart import apart_crossed, apart_plans, try_apart
from tests.crash.apartstorm import Begin, apart_cycles
from tests.crash.races import served_races, store_races
from tests.crash.server import ForkServer, Launcher
from tests.crash.storm import StormReport, storm
from tests.crash.toolstorm import ToolStormReport, tool_storm
from tests.crash.trial import Plan, Verdict, crossed, decisive, once_each, parse_plan, try_out
from tests.servers.nats_server import binaries

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "durability.md"
AT_ONCE = 5
"""Trials that run side by side: most of a trial is waiting."""

SUITE = {
    "errors at every failpoint, pauses past the lease": ("test_failpoints.py", "error or pause or code"),
    "answers not taken for other questions, calls at work past the lease": (
        "test_decisions.py",
        "used_is_not or at_work_whose",
    ),
    "power cuts and failing disks": ("test_powerloss.py test_powerloss_model.py", ""),
    "writes of a stalled attempt": ("test_zombie.py", ""),
    "seeded defects, each caught": ("test_defects.py", ""),
    "the oracle's own tests": ("test_oracle.py", ""),
}

DEPLOYED = {
    "what a plan compares, each thing changed by hand, and each only spelled otherwise": ("test_plan.py", "", False),
    "`perdure apply` killed before and after each step of a replacement, a turn running": ("test_killed.py", "running", True),
    "the same where data is carried into a volume": ("test_killed.py", "carries", True),
    "applies, a destroy and a restart at the same time": ("test_killed.py", "mix", False),
    "agent, gateway and NATS restarted, crashed, killed, stopped, paused by hand, a turn running": ("test_nats.py", "whatever", False),
    "successors that cannot start, data that cannot be carried": ("test_failures.py", "", False),
    "an upgrade, also one killed before its successor was well, and one that is undone": ("test_upgrade.py", "", False),
}  # fmt: skip
"""What, tests, words that choose among them, whether each is a death."""

ON_NATS = "nats:"
"""Before the name of a trial: on three processes."""

RACES, SERVED = 1000, 100
"""Races for a card in the store, and over HTTP."""

EXAMPLES = 500
"""Random histories of the property test."""


@dataclass(slots=True)
class Line:
    """One row of the table."""

    what: str
    trials: str
    deaths: str = "–"
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0


async def failpoints(kills: int, seed: int) -> list[Line]:
    """Every failpoint × scenario × pass: killed there, started again, judged."""
    plans = [*dict.fromkeys([*once_each(), *decisive((1, 2, 3)), *crossed()])]
    begun, line, passed = time.monotonic(), Line("kill at every failpoint", f"{len(plans):,} trials"), set[str]()
    deaths = 0
    async for plan, verdict in _tried(plans):
        deaths += verdict.kills
        passed |= verdict.passed
        line.violations += [f"{violation} ({plan.replay})" for violation in verdict.violations]
    line.violations += [f"{name} was never passed" for name in sorted(set(NAMES) - passed)]
    line.deaths, line.seconds = f"{deaths:,}", time.monotonic() - begun
    line.trials = f"{len(plans):,} trials, {len(passed)} of {len(NAMES)} places"
    return [line]


async def apart(kills: int, seed: int) -> list[Line]:
    """Agent, gateway and NATS in processes of their own: killed at every place of the bridge and the gateway and behind every
    place of the engine, then at random, around each version of NATS that is here."""
    plans = [*dict.fromkeys([*apart_plans(), *apart_crossed()])]
    begun, passed, deaths = time.monotonic(), set[str](), 0
    line = Line("agent or gateway killed at every failpoint, apart", "")
    async for plan, verdict in _tried(plans, try_apart):
        deaths += verdict.kills
        passed |= verdict.passed
        line.violations += [f"{violation} (--only {ON_NATS}{plan})" for violation in verdict.violations]
    line.violations += [f"{name} was never passed" for name in sorted({*NAMES, *NATS_NAMES} - passed)]
    line.trials = f"{len(plans):,} trials, {len(passed)} of {len(NAMES) + len(NATS_NAMES)} places"
    line.deaths, line.seconds = f"{deaths:,}", time.monotonic() - begun
    here = {version: binary for version, binary in binaries().items() if binary is not None}
    blows = {"current": kills, "other": max(kills // 4, 1)}
    return [line, *[await _blows(binary, blows[version], seed) for version, binary in here.items()]]


async def _blows(binary: Path, kills: int, seed: int) -> Line:
    told = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    line, _ = await _stormed(kills, seed, begin=apart_cycles(binary))
    line.what = f"agent, gateway and NATS {told} killed, paused, restarted and wiped at random"
    return line


async def _tried(
    plans: list[Plan], try_one: Callable[[Plan, Path, Launcher], Awaitable[Verdict]] = try_out
) -> AsyncIterator[tuple[Plan, Verdict]]:
    forks = await ForkServer().open()
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(plan: Plan) -> tuple[Plan, Verdict]:
        async with gate:
            with tempfile.TemporaryDirectory(prefix="perdure-proof-") as folder:
                return plan, await try_one(plan, Path(folder), forks)

    try:
        for done in asyncio.as_completed([one(plan) for plan in plans]):
            yield await done
    finally:
        await forks.close()


async def storms(kills: int, seed: int) -> list[Line]:
    """Random kills, planned stops and lost connections."""
    line, report = await _stormed(kills, seed)
    line.what = f"kill -9 at random moments, {report.stops:,} planned stops between"
    line.violations = [f"{violation} ({report.replay})" for violation in line.violations]
    return [line]


async def _stormed(kills: int, seed: int, begin: Begin | None = None) -> tuple[Line, StormReport]:
    forks = await ForkServer().open()
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="perdure-storm-"))
    try:
        report = await storm(folder, forks, kills, seed, begin=begin)
    finally:
        await forks.close()
    if report.violations:
        report.violations.append(f"!: the servers' folders are kept in {folder}")
    else:
        shutil.rmtree(folder)
    trials = f"{report.messages:,} messages, {report.frames:,} frames, {report.drops:,} lost connections"
    return Line("", trials, f"{report.kills:,}", report.violations, time.monotonic() - begun), report


async def tools(kills: int, seed: int) -> list[Line]:
    """Kills while calls of every class are between their effect and their record; two storms side by side."""
    forks = await ForkServer().open()
    begun = time.monotonic()
    folders = [Path(tempfile.mkdtemp(prefix="perdure-tools-")) for _ in range(2)]
    try:
        halves = [(folders[0], kills - kills // 2, seed), (folders[1], kills // 2, seed + 1000)]
        reports = await asyncio.gather(*(tool_storm(folder, forks, half, own) for folder, half, own in halves if half))
    finally:
        await forks.close()
    found = [f"{violation} ({report.replay})" for report in reports for violation in report.violations]
    if found:
        found.append(f"!: the servers' folders are kept in {folders}")
    else:
        for folder in folders:
            shutil.rmtree(folder)
    return _lines_of(reports, found, time.monotonic() - begun)


def _lines_of(reports: list[ToolStormReport], found: list[str], seconds: float) -> list[Line]:
    def total(name: str) -> int:
        return sum(getattr(report, name) for report in reports)

    slowest = max(report.slowest for report in reports)
    return [
        Line(
            "kill -9 with parallel calls of each class at work (built-in graph, `ToolNode`, middleware)",
            f"{total('messages'):,} messages, {total('starts'):,} calls started, {total('effects'):,} effects, "
            f"{total('repeats'):,} repeated requests recognised by their key",
            f"{total('kills'):,}",
            found,
            seconds,
        ),
        Line(
            "of these with a `once` call at work: every one became a card",
            f"{total('uncertain'):,} uncertain cards of {total('cards'):,}; {total('measured'):,} restarts measured, the last card "
            f"at most {slowest:.1f} s after readiness",
            f"{total('in_flight'):,}",
        ),
    ]


async def races(kills: int, seed: int) -> list[Line]:
    """People who decide the same card at the same time."""
    forks = await ForkServer().open()
    lines = []
    try:
        for what, race, count in (
            ("2–8 deciders of one card, in the store", store_races, RACES),
            ("2–8 deciders of one card, over HTTP", partial(served_races, launcher=forks), SERVED),
        ):
            begun = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="perdure-races-") as folder:
                report = await race(Path(folder), races=count, seed=seed)
            how = f"{report.races:,} races, {report.deciders:,} deciders, one winner each"
            lines.append(Line(what, how, violations=report.violations, seconds=time.monotonic() - begun))
    finally:
        await forks.close()
    return lines


async def histories(kills: int, seed: int) -> list[Line]:
    """Random histories that a strict model must accept."""
    line = await asyncio.to_thread(
        _pytest, "threads valid for a strict model", "../property/test_valid_thread.py", "", kills, seed
    )
    line.trials = f"{EXAMPLES:,} random histories"
    return [line]


async def suite(kills: int, seed: int) -> list[Line]:
    """The tests that CI runs as well, here with their full numbers."""
    return [await asyncio.to_thread(_pytest, what, files, words, kills, seed) for what, (files, words) in SUITE.items()]


async def deployments(kills: int, seed: int) -> list[Line]:
    """`perdure plan` and `apply` on the Docker engine of this machine. Nothing where none answers."""
    try:
        async with DockerEngine():
            pass
    except EngineUnreachable as error:
        print(f"NOTHING OF DEPLOYMENTS IS PROVED HERE: {error.message}")
        return []
    lines = []
    for what, (file, words, deadly) in DEPLOYED.items():
        line = await asyncio.to_thread(_pytest, what, f"../deploy/{file}", words, kills, seed, marks="")
        if deadly:
            line.deaths = line.trials.partition(" ")[0]
        lines.append(line)
    return lines


def _pytest(what: str, files: str, words: str, kills: int, seed: int, *, marks: str = "not proof") -> Line:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="perdure-proof-") as folder:
        report = Path(folder) / "report.xml"
        paths = [str(ROOT / "tests" / "crash" / name) for name in files.split()]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *paths]
        environment = {
            **os.environ,
            "PERDURE_PROOF_KILLS": str(kills),
            "PERDURE_PROOF_SEED": str(seed),
            "PERDURE_PROOF_EXAMPLES": str(EXAMPLES),
        }
        chosen = ["-m", marks, *(["-k", words] if words else []), "--timeout", "3600"]
        done = subprocess.run(
            [*command, *chosen], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        found = xml.parse(report).getroot().find("testsuite") if report.exists() else None
    if found is None:
        return Line(what, "–", violations=[f"pytest did not run: {done.stdout[-500:]}"])
    failed = [
        f"{case.get('name')} failed (python -m pytest {' '.join(files.split())})"
        for case in found.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    count = int(found.get("tests", "0"))
    return Line(what, f"{count} test{'' if count == 1 else 's'}", violations=failed, seconds=time.monotonic() - begun)


PARTS: Mapping[str, Callable[[int, int], Awaitable[list[Line]]]] = {
    "failpoints": failpoints,
    "storm": storms,
    "tools": tools,
    "races": races,
    "histories": histories,
    "nats": apart,
    "suite": suite,
    "deploy": deployments,
}


def table(lines: list[Line], part: str, kills: int, seed: int) -> str:
    """Markdown: what was run on which commit, and what came of it."""
    head = (
        f"{datetime.now(UTC):%Y-%m-%d}, commit `{_commit()}`, repeat with `make proof ONLY={part} KILLS={kills} SEED={seed}`:\n\n"
        "| what | how much | process deaths | violations | seconds |\n|---|---|---|---|---|"
    )
    rows = [
        f"| {line.what} | {line.trials} | {line.deaths} | {len(line.violations)} | {line.seconds:.0f} |"
        for line in lines
    ]
    foot = "\nA trial whose scenario does not pass its place so often kills nothing: hence fewer deaths than trials."
    return "\n".join([head, *rows, *([foot] if any("trials" in line.trials for line in lines) else [])])


def _commit() -> str:
    """The commit, marked when the working tree differs from it in what was tested."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "tests")
    return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")


def write(part: str, text: str) -> None:
    """Puts the part's table between its markers."""
    begin, end = f"<!-- proof:{part}:begin -->", f"<!-- proof:{part}:end -->"
    before, found, rest = PAGE.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"{PAGE} has no place for the table of {part!r}: {begin} … {end}")
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{after}")


async def prove(names: list[str], kills: int, seed: int) -> list[Line]:
    """Runs the parts and writes the table of each as it ends."""
    proved: list[Line] = []
    for name in names:
        lines = await PARTS[name](kills, seed)
        if not lines:
            continue
        print(text := table(lines, name, kills, seed), flush=True)
        write(name, text)
        proved += lines
    return proved


async def again(plan: Plan, *, on_nats: bool) -> list[Line]:
    """One trial alone, with its log."""
    async for _, verdict in _tried([plan], try_apart if on_nats else try_out):
        print(verdict.server_log)
        return [Line(str(plan), "1 trial", str(verdict.kills), verdict.violations)]
    return []


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.proof", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="kills of each storm")
    parser.add_argument("--seed", type=int, default=1, help="decides every random choice")
    parser.add_argument("--only", help=f"one of {', '.join(PARTS)}, or one trial")
    options = parser.parse_args()
    if options.only and options.only not in PARTS:
        lines = asyncio.run(again(parse_plan(options.only.removeprefix(ON_NATS)), on_nats=ON_NATS in options.only))
    else:
        lines = asyncio.run(prove([options.only] if options.only else list(PARTS), options.kills, options.seed))
    broken = [violation for line in lines for violation in line.violations]
    print("\n".join(broken))
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
