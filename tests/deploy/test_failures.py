"""What keeps a new container from taking over: the old one runs again, the error says why, nothing is lost, and once it is mended it goes on."""

from __future__ import annotations

import io
import socket
import tarfile
from collections import Counter
from pathlib import Path

import apsw
import pytest

from perdure.deploy.carrying import CarryFailed
from perdure.deploy.engine import EngineError
from perdure.deploy.health import NotWell
from perdure.deploy.model import Kind, Subject
from perdure.store.sqlite.database import APPLICATION_ID
from tests.deploy.deployment import Deployment

FOUR = ("one", "two", "three", "four")


async def begin_job(deployment: Deployment) -> str:
    """A turn that outlives all that fails."""
    job = await deployment.say("do the four-step job")
    await deployment.until(job["turn"], lambda turn: len(turn["calls"]) >= 1)
    return str(job["turn"])


async def the_old_one_runs(deployment: Deployment, attribute: str) -> None:
    """And the plan still says what differs."""
    life = await deployment.engine.life(f"perdure-{deployment.name}-server")
    assert life is not None
    assert life.running
    (action,) = [each for each in (await deployment.plan()).actions if each.subject is Subject.CONTAINER]
    assert action.kind is Kind.REPLACE
    assert attribute in {change.attribute for change in action.changes}
    assert await deployment.leftovers() == []


async def ends_once(deployment: Deployment, turn: str) -> None:
    await deployment.apply()
    await deployment.until(turn, lambda found: found["status"] == "completed")
    steps = await deployment.steps_done(f"perdure-{deployment.name}-server")
    assert Counter(label for label, _ in steps) == dict.fromkeys(FOUR, 1), steps
    assert (await deployment.plan()).actions == ()
    assert await deployment.leftovers() == []


@pytest.mark.proof  # of those that CI knows, the broken version of test_upgrade.py is the hardest
async def test_a_successor_that_cannot_start_leaves_the_old_one_as_it_was(deployment: Deployment) -> None:
    await deployment.keep_image()
    deployment.write(step="1")
    await deployment.apply()
    turn = await begin_job(deployment)

    deployment.write(step="1", variables='PERDURE_LOG_LEVEL = "loud"')
    with pytest.raises(NotWell, match=r"(?s)Its last lines:.*loud"):
        await deployment.apply()
    await the_old_one_runs(deployment, "environment.PERDURE_LOG_LEVEL")

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        deployment.write(step="1", port=port)
        with pytest.raises(EngineError, match=f"127.0.0.1:{port} is in use"):
            await deployment.apply()
    await the_old_one_runs(deployment, f"ports.{port}/tcp")

    missing = '[deploy.volumes.files]\nat = { worker = "/files" }\nfolder = "/nonexistent/folder"'
    deployment.write(step="1", more=missing)
    with pytest.raises(EngineError, match="/nonexistent/folder"):
        await deployment.apply()
    await the_old_one_runs(deployment, "mounts./files")

    deployment.write(step="0.2")
    await ends_once(deployment, turn)


@pytest.mark.proof
async def test_data_that_cannot_be_carried_stays_where_it_is(deployment: Deployment) -> None:
    await deployment.keep_image()
    deployment.write(step="1")
    container = await deployment.apply_bare()
    turn = await begin_job(deployment)

    await put_beside(deployment, container.name, "old.db", damaged(deployment.folder))
    with pytest.raises(CarryFailed, match=r"old\.db (is damaged|cannot be read)"):
        await deployment.apply()
    await the_old_one_runs(deployment, "mounts./data")
    await put_beside(deployment, container.name, "old.db", b"nothing any more")

    # A volume that is too small; it is somebody else's, so it stays, as empty as it was.
    small = f"perdure-{deployment.name}-small"
    options = {"type": "tmpfs", "device": "tmpfs", "o": "size=64k"}
    await deployment.engine._ask("volumes/create", "POST", {"Name": small, "DriverOpts": options})
    try:
        deployment.write(step="1", more=f'[deploy.volumes.files]\nat = {{ worker = "/data" }}\nvolume = "{small}"')
        for _ in range(2):  # the second is not refused for what the first left there
            with pytest.raises(EngineError, match="no space left"):
                await deployment.apply()
            await the_old_one_runs(deployment, "mounts./data")
    finally:
        await deployment.engine.remove_volume(small)

    deployment.write(step="0.2")
    await ends_once(deployment, turn)


def damaged(folder: Path) -> bytes:
    """A database of ours whose pages are not."""
    path = folder / "damaged.db"
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("CREATE TABLE turns (id TEXT)")
    with connection:
        connection.executemany("INSERT INTO turns VALUES (?)", ((str(number) * 50,) for number in range(500)))
    connection.close()
    content = bytearray(path.read_bytes())
    content[4096 : 4 * 4096] = b"\xff" * (3 * 4096)
    path.unlink()
    return bytes(content)


async def put_beside(deployment: Deployment, container: str, name: str, content: bytes) -> None:
    """Into its /data, while it runs."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    async with deployment.engine._docker._query(
        f"containers/{container}/archive", "PUT", params={"path": "/data"}, data=archive.getvalue()
    ) as response:
        await response.read()
