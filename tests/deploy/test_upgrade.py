"""An apply over a deployment of the previous version: what was said stays, what waits is answered, what runs goes on."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import tarfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.clock import SystemClock
from perdure.deploy.engine import EngineError
from perdure.deploy.health import NotWell, until_well
from perdure.deploy.model import DATA_FOLDER, Kind, Mount, Subject, Volume
from perdure.store.sqlite.migrations import known
from tests.deploy.deployment import WAIT_SECONDS, Deployment
from tests.releases import previous

AGENTS = """
[agents.orders]
graph = "./orders.py:graph"
"""
ORDERS = (Path(__file__).parents[2] / "examples" / "approval" / "graph.py").read_text()
OF_PREVIOUS = f"""\
drain_seconds = 3

[agents.worker]
model = "demo"
{AGENTS}"""

FOUR = ["one", "two", "three", "four"]

PREVIOUS = """\
FROM {image}
USER 0:0
COPY perdure*.whl /tmp/
RUN set -eu; site=$(echo /opt/perdure/lib/python3*/site-packages); rm -r $site/perdure $site/perdure-*.dist-info /app/*; \\
    python3 -m zipfile -e /tmp/perdure*.whl $site
COPY app /app
USER 10001:10001
"""
"""The previous version in the place of this one, over the packages of this one's lock."""


def write(deployment: Deployment, *, image: str | None = None, orders: str = ORDERS, more: str = "") -> None:
    (deployment.folder / "orders.py").write_text(orders)
    deployment.write(step="1", more=AGENTS + more)
    if image is not None:
        file = deployment.folder / "perdure.toml"
        file.write_text(file.read_text().replace("[deploy]\n", f'[deploy]\nimage = "{image}"\n'))


HOLDS_THE_PORT = """
import os, socket
held = socket.create_server(("0.0.0.0", int(os.environ["PERDURE_PORT"])))
"""
"""The server that imports it opens its database, and cannot listen."""


async def make_previous(deployment: Deployment) -> str:
    """The reference of an image of the previous version."""
    (now,) = deployment.describe().wanted.images
    await deployment.engine.make_image(now, deployment.said.append)
    reference = f"perdure-{deployment.name}-previous:{previous.VERSION}"
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for name, content in {
            "Dockerfile": PREVIOUS.format(image=now.reference).encode(),
            previous.WHEEL.name: previous.WHEEL.read_bytes(),
            "app/perdure.toml": OF_PREVIOUS.encode(),
            "app/orders.py": ORDERS.encode(),
        }.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    headers = {"Content-Type": "application/x-tar"}
    async with deployment.engine._docker._query(
        "build", "POST", params={"t": reference}, headers=headers, data=context.getvalue()
    ) as response:
        said = await response.text()
    assert '"error"' not in said, said
    return reference


async def until(ready: Callable[[], Awaitable[Any]]) -> Any:
    """What it gives, once that is something."""
    limit = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < limit:
        if found := await ready():
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"not within {WAIT_SECONDS} seconds")


async def labels_done(deployment: Deployment, container: str) -> list[str]:
    """Of the four-step jobs' steps, in the order in which they came to their end."""
    try:
        return [json.loads(line)["args"]["label"] for line in await deployment.effects(container)]
    except EngineError:
        return []  # there is no file yet


async def told(deployment: Deployment, conversation: str) -> list[tuple[str, str]]:
    body = (await deployment.request("GET", f"/api/conversations/{conversation}")).json()
    return [(message["role"], message["content"]) for message in body["messages"]]


async def schema_of(deployment: Deployment, container: str, file: str) -> tuple[int, set[str]]:
    """Of a database that nobody writes to: its schema, and the versions that opened it."""
    taken = io.BytesIO()
    await deployment.engine.take_out(container, f"/data/{file}", taken)
    taken.seek(0)
    with tarfile.open(fileobj=taken) as tar:
        tar.extractall(deployment.folder / "taken", filter="data")
    connection = apsw.Connection(str(deployment.folder / "taken" / file), flags=apsw.SQLITE_OPEN_READONLY)
    ((schema,),) = connection.execute("PRAGMA user_version")
    versions = {row[0] for row in connection.execute("SELECT version FROM boots")}
    connection.close()
    return schema, versions


async def talked_with_previous(deployment: Deployment) -> tuple[str, Any, Any]:
    """The previous version runs, and has answered: its image, what was accepted, and how its conversation reads."""
    write(deployment)
    before = await make_previous(deployment)
    write(deployment, image=before)
    await deployment.apply()
    said = await deployment.say("hello")
    await deployment.until(said["turn"], lambda turn: turn["status"] == "completed")
    return before, said, await told(deployment, said["conversation"])


async def test_what_the_previous_version_had_goes_on_in_this_one(deployment: Deployment) -> None:
    server = f"perdure-{deployment.name}-server"
    _, said, said_before = await talked_with_previous(deployment)
    asked = await deployment.request("POST", "/api/chat", json={"agent": "orders", "input": {"item": "lamp"}})
    parked = await deployment.until(asked.json()["turn"], lambda turn: turn["status"] == "parked")
    (card,) = parked["cards"]

    # A new version that upgrades the file and then dies: the old one runs again, on the file as it was, and its turn goes on.
    first = await deployment.say("do the four-step job")
    await until(lambda: labels_done(deployment, server))
    write(deployment, orders=ORDERS + HOLDS_THE_PORT)
    with pytest.raises(NotWell):
        await deployment.apply()
    assert deployment.said[-1].endswith("runs as before, and is well"), deployment.said[-12:]
    assert any("is as it was before the last upgrade" in line for line in deployment.said)
    await deployment.until(first["turn"], lambda turn: turn["status"] == "completed")
    assert await labels_done(deployment, server) == FOUR

    # The whole one, in the middle of another job.
    second = await deployment.say("do the four-step job")
    await until(lambda: _five(deployment, server))
    write(deployment)
    (replaced,) = [action for action in (await deployment.plan()).actions if action.subject is Subject.CONTAINER]
    assert (replaced.kind, replaced.carry_data) == (Kind.REPLACE, None)
    assert replaced.reason == "image cannot be changed while it lives."
    await deployment.apply()
    ended = await deployment.until(second["turn"], lambda turn: turn["status"] == "completed")
    assert len(ended["attempts"]) == 2
    assert await labels_done(deployment, server) == [*FOUR, *FOUR]
    assert (await deployment.plan()).actions == ()

    schema, versions = await schema_of(deployment, server, f"perdure.db.schema-{_schema_before()}.bak")
    assert (schema, versions) == (_schema_before(), {previous.VERSION}), "the copy of the file as it was"
    assert schema < len(known())
    assert await told(deployment, said["conversation"]) == said_before
    (waiting,) = (await deployment.request("GET", "/api/approvals")).json()["items"]
    assert waiting["id"] == card["id"]
    decided = await deployment.request(
        "POST", f"/api/approvals/{card['id']}", json={"decision": "answer", "value": "yes"}
    )
    assert decided.status_code == 202, decided.text
    await deployment.until(parked["id"], lambda turn: turn["status"] == "completed")


@pytest.mark.proof  # three starts of the previous version, and two deaths; each rule of it has a test without an engine
async def test_an_apply_that_is_killed_after_the_file_was_upgraded_is_settled_by_the_old_one_on_the_file_as_it_was(
    deployment: Deployment,
) -> None:
    """The new one will never be well. The next apply is killed, too, while it undoes the upgrade."""
    server = f"perdure-{deployment.name}-server"
    before, said, said_before = await talked_with_previous(deployment)
    write(deployment, orders=ORDERS + HOLDS_THE_PORT)
    (broken,) = deployment.describe().wanted.images
    await deployment.engine.make_image(broken, deployment.said.append)

    write(deployment, image=broken.reference)
    code, words = await deployment.command("apply", "--yes", failpoints="deploy.start.after:kill@1")
    assert code == -signal.SIGKILL, words
    await until(lambda: _ended(deployment, f"{server}.next"))
    assert (await schema_of(deployment, f"{server}.next", "perdure.db"))[0] == len(known())

    write(deployment, image=before)
    code, words = await deployment.command(
        "apply", "--yes", failpoints="deploy.start.after:kill@2"
    )  # the old one first
    assert code == -signal.SIGKILL, words
    assert len(await deployment.leftovers()) == 2
    code, words = await deployment.command("apply", "--yes")

    assert code == 0, words
    assert "is as it was before the last upgrade" in words, words
    assert "runs as before, and is well" in words, words
    assert await deployment.leftovers() == []
    assert (await deployment.plan()).actions == ()
    assert await told(deployment, said["conversation"]) == said_before
    again = await deployment.say("hello", said["conversation"])
    await deployment.until(again["turn"], lambda turn: turn["status"] == "completed")
    assert deployment.token not in words


@pytest.mark.proof  # one start more of the previous version, and of this one
async def test_the_volume_of_a_container_that_was_started_by_hand_is_used_as_it_is(deployment: Deployment) -> None:
    write(deployment)
    engine, described = deployment.engine, deployment.describe()
    (server,), (network,) = described.wanted.containers, described.wanted.networks
    volume = f"{deployment.name}-data"
    by_hand = replace(
        server,
        name=f"{deployment.name}-by-hand",
        image=await make_previous(deployment),
        labels={},
        mounts=(Mount(DATA_FOLDER, volume),),
    )
    values = {name: value for name, value in described.values.of[server.name].items() if "TOKEN" not in name}
    await engine.create_network(network)
    await engine.create_volume(Volume(volume))
    await engine.create_container(by_hand, {**values, "PERDURE_TOKEN": deployment.token}, name=by_hand.name)
    try:
        await engine.start(by_hand.name)
        await until_well(engine, by_hand.name, SystemClock())
        running = await deployment.say("do the four-step job")
        await until(lambda: labels_done(deployment, by_hand.name))
        await engine.stop(by_hand.name)

        write(deployment, more=f'[deploy.volumes.data]\nvolume = "{volume}"\nat = {{ worker = "{DATA_FOLDER}" }}\n')
        await deployment.apply()

        ended = await deployment.until(running["turn"], lambda turn: turn["status"] == "completed")
        assert len(ended["attempts"]) == 2
        assert await labels_done(deployment, server.name) == FOUR
        assert (await deployment.plan()).actions == ()
    finally:
        await deployment.destroy()
        await engine.stop(by_hand.name)
        await engine.remove_container(by_hand.name)
        await engine.remove_volume(volume)


@pytest.mark.proof  # nine starts and six images: the death of an agent on NATS is tested by less in test_nats.py
async def test_agents_nats_and_gateway_are_replaced_under_what_waits_and_what_runs(deployment: Deployment) -> None:
    nats, agent, gateway = (f"perdure-{deployment.name}-{word}" for word in ("nats", "agent-worker", "gateway"))
    deployment.write(transport="nats", step="2.5")  # long enough for NATS to be replaced under it, before its agent is
    recipes = deployment.recipe, deployment.nats_recipe
    deployment.recipe, deployment.nats_recipe = "of another version", "of another version"
    await deployment.apply()
    deployment.recipe, deployment.nats_recipe = recipes
    for image in deployment.describe().wanted.images:
        await deployment.engine.make_image(image, deployment.said.append)
    waiting = await deployment.say("restart the service")
    parked = await deployment.until(waiting["turn"], lambda turn: turn["status"] == "parked")
    (card,) = parked["cards"]
    running = await deployment.say("do the four-step job")
    await deployment.until(running["turn"], lambda turn: len(turn["calls"]) >= 1)

    made = await deployment.apply()

    replaced = [(action.kind, action.name) for action in made.actions if action.subject is Subject.CONTAINER]
    assert replaced == [(Kind.REPLACE, nats), (Kind.REPLACE, agent), (Kind.REPLACE, gateway)]
    ended = await deployment.until(running["turn"], lambda turn: turn["status"] == "completed")
    assert len(ended["attempts"]) == 2
    (still,) = (await deployment.request("GET", "/api/approvals")).json()["items"]
    assert still["id"] == card["id"]
    decided = await deployment.request("POST", f"/api/approvals/{card['id']}", json={"decision": "approve"})
    assert decided.status_code == 202, decided.text
    await deployment.until(waiting["turn"], lambda turn: turn["status"] == "completed")
    done = [json.loads(line) for line in await deployment.effects(agent)]
    assert [each["args"].get("label", each["tool"]) for each in done] == [*FOUR, "restart_service"]
    assert (await deployment.plan()).actions == ()


async def _ended(deployment: Deployment, container: str) -> bool:
    """Once at least, so that it has opened its file."""
    life = await deployment.engine.life(container)
    return life is not None and life.restarts >= 1


async def _five(deployment: Deployment, server: str) -> bool:
    return len(await labels_done(deployment, server)) >= 5


def _schema_before() -> int:
    connection = apsw.Connection(str(previous.DATABASE), flags=apsw.SQLITE_OPEN_READONLY)
    ((schema,),) = connection.execute("PRAGMA user_version")
    connection.close()
    return int(schema)
