"""The small database every release leaves behind: a running, a parked and a failed turn, as `kill -9` left them.

`python -m tests.releases.scene` writes `<version>.db` for the version of this tree. Do it once, when a version is released.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import apsw

from perdure import __version__
from tests.crash.people import Person
from tests.crash.records import Expected, History
from tests.crash.scenarios import FOUR_STEPS, PARKED
from tests.crash.server import CommandLine, Server

HERE = Path(__file__).parent
PROJECT = {"PERDURE_PROJECT": str(HERE / "graphs" / "perdure.toml")}
MENDED = Expected("mended", assistant_messages=1)


async def play(folder: Path) -> Path:
    """Leaves the three turns and returns the database, after the server was killed."""
    launcher = CommandLine()
    server = Server(folder, launcher, {**PROJECT, "PERDURE_DEMO_STEP_SECONDS": "0.3", "BROKEN_ON_PURPOSE": "1"})
    history = History()
    assert await server.start(), server.said()
    running, parked, failed = (Person(server, history) for _ in range(3))
    try:
        await failed.ended(await failed.send("break", MENDED, agent="flaky"))
        waiting = await parked.send("ask me", PARKED, agent="parked")
        watcher = parked.watcher
        assert watcher is not None and waiting.turn is not None
        turn = waiting.turn
        await watcher.until(lambda view: len(view.turn(turn).cards) == 2)
        await running.seen(await running.send("the four-step job, please", FOUR_STEPS), results=2)
        await server.kill()
    finally:
        for person in (running, parked, failed):
            await person.leave()
        await launcher.close()
    return server.database


def pack(database: Path, target: Path) -> None:
    """One file without a write-ahead log, as small as it gets."""
    connection = apsw.Connection(str(database))
    connection.execute("VACUUM INTO ?", (str(target),))
    connection.close()


def main() -> None:
    target = HERE / f"{__version__}.db"
    if target.exists():
        raise SystemExit(f"{target.name} is there already: a released database is never made again")
    folder = Path(tempfile.mkdtemp())
    try:
        pack(asyncio.run(play(folder)), target)
    finally:
        shutil.rmtree(folder)
    print(f"{target.name}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
