"""The plan's truth table on the real engine: whatever somebody changes behind the tool's back is named, and nothing else is."""

from __future__ import annotations

import asyncio
import copy
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from perdure.deploy import applying, creation
from perdure.deploy.docker import DockerEngine
from perdure.deploy.engine import EngineError
from perdure.deploy.files import ProjectFiles
from perdure.deploy.model import (
    LABEL_PROJECT,
    LABEL_SOURCE,
    TOKEN_NAME,
    Attachment,
    Container,
    HealthCheck,
    Kind,
    Limits,
    Mount,
    Plan,
    Port,
    Subject,
    Tmpfs,
    Variable,
    with_spec,
)
from perdure.deploy.planner import plan
from perdure.deploy.project import Description, Known, describe
from perdure.errors import ConfigurationError
from perdure.settings.deployment import load_deployment
from tests.deploy.by_hand import ROWS, SPELLINGS, Body, Names
from tests.servers.process import free_port

PROJECT = """\
drain_seconds = 3
[agents.worker]
model = "demo"
[deploy]
name = "{name}"
image = "{image}"
secrets = ["SHOP_KEY"]
environment = {{ PERDURE_DEMO_STEP_SECONDS = "1" }}
[deploy.gateway]
port = {port}
memory = "512m"
cpus = 0.5
pids = 100
"""
OF_IMAGE = ["ENV OF_IMAGE=1", "USER 4", "LABEL org.example=1", 'HEALTHCHECK CMD ["false"]']


@dataclass(frozen=True, slots=True)
class Table:
    """One container that is made again for each row; it sleeps, if it is ever started."""

    names: Names
    described: Description
    body: Body

    @property
    def wanted(self) -> Container:
        (container,) = self.described.wanted.containers
        return container

    async def plan(self, engine: DockerEngine) -> Plan:
        return plan(self.described.wanted, await engine.read(self.described.wanted))

    async def make(self, engine: DockerEngine, body: Body | None = None, *, name: str | None = None) -> None:
        await self.away(engine)
        params = {"name": name or self.names.container}
        await ask(engine, "containers/create", "POST", self.body if body is None else body, params)

    async def away(self, engine: DockerEngine, name: str | None = None) -> None:
        await ask(
            engine, f"containers/{name or self.names.container}", "DELETE", params={"force": "1", "v": "1"}, fine=404
        )

    async def apply(self, engine: DockerEngine) -> None:
        made, told = await self.plan(engine), list[str]()
        given = {TOKEN_NAME: "token"}
        await applying.apply(
            made, self.described.wanted, self.described.values, engine, secrets=given, tell=told.append
        )


async def ask(
    engine: DockerEngine, path: str, method: str, body: Any = None, params: Any = None, *, fine: int = 0
) -> Any:
    """The engine itself, not the tool's way to it."""
    try:
        data = None if body is None else json.dumps(body).encode()
        async with engine._docker._query(path, method, data=data, params=params) as response:
            text = await response.read()
    except Exception as error:
        if getattr(error, "status", None) == fine:
            return None
        raise
    return json.loads(text) if text.strip().startswith((b"{", b"[")) else None


@pytest.fixture(scope="module")
def table(base_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    made = _table(f"t{secrets.token_hex(4)}", tmp_path_factory.mktemp("table"))
    try:
        asyncio.run(_begin(made, base_image))
        yield made
    finally:
        asyncio.run(_end(made))


def _table(name: str, folder: Path) -> Table:
    image, port = f"perdure-{name}-tiny:1", free_port()
    (folder / "perdure.toml").write_text(PROJECT.format(name=name, image=image, port=port))
    settings, deploy = load_deployment(None, {}, folder)
    described = describe(settings, deploy, Known({"SHOP_KEY": "key"}, ProjectFiles(folder), "", "t" * 43))
    (server,) = described.wanted.containers
    (network,) = described.wanted.networks
    container = with_spec(
        replace(
            server,
            entrypoint=("sleep",),
            command=("1000",),
            networks=(Attachment(network.name, ("worker",)),),
            capabilities_added=("CHOWN",),
            health=HealthCheck(("CMD", "true"), 15.0, 5.0, 60.0, 3),
        )
    )
    (data,) = [each.source for each in container.mounts if each.target == "/data"]
    other = f"perdure-{name}-other"
    names = Names(container.name, network.name, other, data, other, image, f"perdure-{name}-tiny:2", port, free_port())
    described = replace(described, wanted=replace(described.wanted, containers=(container,)))
    return Table(names, described, creation.container_body(container, described.values.of[container.name]))


async def _begin(table: Table, base: str) -> None:
    async with DockerEngine() as engine:
        for image in (table.names.image, table.names.other_image):
            await _image(engine, table, base, image, [*OF_IMAGE, f"ENV TAG={image}"])
        for volume in (*table.described.wanted.volumes,):
            await engine.create_volume(volume)
        await ask(engine, "volumes/create", "POST", {"Name": table.names.other_volume})
        for network in table.described.wanted.networks:
            await engine.create_network(network)
        await ask(engine, "networks/create", "POST", {"Name": table.names.other_network})


async def _image(engine: DockerEngine, table: Table, base: str, reference: str, changes: list[str]) -> None:
    """Of the base's files, without building."""
    maker = f"{table.names.container}-maker"
    await ask(
        engine, "containers/create", "POST", {"Image": base, "Cmd": ["true"], "StopSignal": "SIGTERM"}, {"name": maker}
    )
    repository, _, tag = reference.partition(":")
    await ask(engine, "commit", "POST", {}, {"container": maker, "repo": repository, "tag": tag, "changes": "\n".join(changes)})  # fmt: skip
    await table.away(engine, maker)


async def _end(table: Table) -> None:
    async with DockerEngine() as engine:
        for container in (table.names.container, f"{table.names.container}-maker"):
            await table.away(engine, container)
        for network in (table.names.network, table.names.other_network):
            await engine.remove_network(network)
        for volume in (*(each.name for each in table.described.wanted.volumes), table.names.other_volume):
            await engine.remove_volume(volume)
        for image in (table.names.image, table.names.other_image):
            await ask(engine, f"images/{image}", "DELETE", params={"force": "1"}, fine=404)


@pytest.fixture
async def engine() -> AsyncIterator[DockerEngine]:
    async with DockerEngine() as docker:
        yield docker


@pytest.fixture
async def made(table: Table, engine: DockerEngine) -> AsyncIterator[Table]:
    """With the container, as the tool makes it; it was never started."""
    await table.make(engine)
    yield table
    await table.away(engine)


def named(found: Plan) -> dict[str, list[str]]:
    """What it says of whom: its kind and the attributes that differ."""
    return {
        action.name: [str(action.kind), *(change.attribute for change in action.changes)] for action in found.actions
    }


# -- containers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("done", ROWS)
async def test_what_was_changed_by_hand_is_named_and_nothing_else(
    table: Table, engine: DockerEngine, done: str
) -> None:
    row, body = ROWS[done], copy.deepcopy(table.body)
    row.change(body, table.names)
    await table.make(engine, body)
    if row.connect:
        told = {"Container": table.names.container}
        await ask(engine, f"networks/{table.names.other_network}/connect", "POST", told)

    (action,) = (await table.plan(engine)).actions

    assert (action.kind, action.subject, action.name) == (row.kind, Subject.CONTAINER, table.names.container)
    told_of = {change.attribute: change for change in action.changes}
    assert told_of.pop("running").had == "no", "it was never started"
    if row.attribute == "running":
        assert told_of == {}
        return
    if done == "no network":  # then it has one of the engine's own instead
        assert told_of.pop("networks.none").wants == "none"
    ((attribute, change),) = told_of.items()
    assert attribute.startswith(row.attribute)
    assert attribute == row.attribute or row.attribute.endswith(".")
    assert row.had in change.had
    assert row.wants in change.wants
    assert change.had != change.wants
    assert attribute in action.reason or row.kind is Kind.UPDATE


def test_the_table_has_every_field_that_describes_a_container() -> None:
    """Whoever adds one to the model adds a row here, and to the table of the planner's own tests."""
    kinds = (Container, Variable, Mount, Tmpfs, Attachment, Port, HealthCheck, Limits)
    described = {f"{kind.__name__}.{each.name}" for kind in kinds for each in fields(kind)}
    identity = {"Container.name", "Container.image", "Container.inherited", "Container.limits"}
    another_key = {"Port.container_port", "Port.protocol"}
    assert {row.field for row in ROWS.values()} == described - identity - another_key


@pytest.mark.parametrize("spelled", SPELLINGS)
async def test_what_is_only_spelled_otherwise_is_no_difference(
    table: Table, engine: DockerEngine, spelled: str
) -> None:
    body = copy.deepcopy(table.body)
    SPELLINGS[spelled](body, table.names)
    await table.make(engine, body)
    assert named(await table.plan(engine)) == {table.names.container: ["~", "running"]}


async def test_one_that_runs_is_as_it_is_wanted_until_it_is_paused_or_stopped(
    made: Table, engine: DockerEngine
) -> None:
    """Also after its network was removed, and made again by somebody else: what has only the name of it cannot be started."""
    name, network = made.names.container, made.names.network
    await made.apply(engine)
    assert (await made.plan(engine)).actions == ()

    await ask(engine, f"containers/{name}/pause", "POST")
    assert named(await made.plan(engine)) == {name: ["~", "running"]}
    await made.apply(engine)
    assert (await made.plan(engine)).actions == ()

    await ask(engine, f"containers/{name}/stop", "POST", params={"t": "0"})
    await ask(engine, f"networks/{network}", "DELETE")
    assert named(await made.plan(engine)) == {network: ["+"], name: ["~", "running", f"networks.{network}"]}
    await made.apply(engine)
    assert (await made.plan(engine)).actions == ()

    await ask(engine, f"containers/{name}/stop", "POST", params={"t": "0"})
    await ask(engine, f"networks/{network}", "DELETE")
    await engine.create_network(made.described.wanted.networks[0])
    assert named(await made.plan(engine)) == {name: ["~", "running", f"networks.{network}"]}
    await made.apply(engine)
    assert (await made.plan(engine)).actions == ()


async def test_an_update_by_hand_is_named(made: Table, engine: DockerEngine) -> None:
    limits = {"Memory": 1 << 28, "MemorySwap": 1 << 28, "NanoCpus": 1_000_000_000, "PidsLimit": 50}
    policy = {"RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 2}}
    await ask(engine, f"containers/{made.names.container}/update", "POST", {**limits, **policy})
    kind, *attributes = named(await made.plan(engine))[made.names.container]
    assert kind == "~"
    assert set(attributes) == {"running", "restart", "limits.memory_bytes", "limits.nano_cpus", "limits.pids"}


async def test_one_that_was_detached_is_attached_again(made: Table, engine: DockerEngine) -> None:
    told = {"Container": made.names.container, "Force": True}
    await ask(engine, f"networks/{made.names.network}/disconnect", "POST", told)
    assert named(await made.plan(engine)) == {made.names.container: ["~", "running", f"networks.{made.names.network}"]}


async def test_one_that_was_renamed_is_known_by_its_labels(made: Table, engine: DockerEngine) -> None:
    other = f"{made.names.container}-renamed"
    await ask(engine, f"containers/{made.names.container}/rename", "POST", params={"name": other})
    try:
        assert named(await made.plan(engine)) == {other: ["-"], made.names.container: ["+"]}
    finally:
        await made.away(engine, other)


async def test_what_was_removed_is_made_again(table: Table, engine: DockerEngine) -> None:
    await table.away(engine)
    await ask(engine, f"volumes/{table.names.data}", "DELETE")
    assert named(await table.plan(engine)) == {table.names.data: ["+"], table.names.container: ["+"]}
    (volume,) = [each for each in table.described.wanted.volumes if each.name == table.names.data]
    await engine.create_volume(volume)


async def test_a_container_of_others_under_our_name_is_replaced_or_refused(table: Table, engine: DockerEngine) -> None:
    body = {**copy.deepcopy(table.body), "Labels": {}}
    await table.make(engine, body)
    kind, *attributes = named(await table.plan(engine))[table.names.container]
    assert kind == "-/+"
    assert set(attributes) == {"running", *(f"labels.{each}" for each in table.wanted.labels)}

    await table.make(engine, {**body, "Labels": {LABEL_PROJECT: "other"}})
    with pytest.raises(ConfigurationError, match="belongs to the project 'other'"):
        await table.plan(engine)
    await table.away(engine)


# -- images -----------------------------------------------------------------------------------------------------------


async def test_an_image_that_was_moved_or_removed_is_named(made: Table, engine: DockerEngine) -> None:
    repository, _, tag = made.names.image.partition(":")
    before = (await ask(engine, f"images/{made.names.image}/json", "GET"))["Id"]
    try:
        await ask(engine, f"images/{made.names.other_image}/tag", "POST", params={"repo": repository, "tag": tag})
        assert named(await made.plan(engine)) == {made.names.container: ["-/+", "image", "running"]}

        await ask(engine, f"images/{made.names.image}", "DELETE")
        found = named(await made.plan(engine))
        assert found[made.names.image] == ["+"]
        assert found[made.names.container][:2] == ["-/+", "image"]
    finally:
        await ask(engine, f"images/{before}/tag", "POST", params={"repo": repository, "tag": tag})


async def test_another_image_under_the_name_of_one_that_is_built_here_is_not_believed(
    made: Table, engine: DockerEngine, base_image: str
) -> None:
    """Its label says what it was made from."""
    (image,) = made.described.wanted.images
    built = replace(made.described.wanted, images=(replace(image, source="s" * 64),))
    assert [action.subject for action in plan(built, await engine.read(built)).actions] == [Subject.IMAGE, Subject.CONTAINER]  # fmt: skip
    await _image(engine, made, base_image, made.names.other_image, [*OF_IMAGE, f"LABEL {LABEL_SOURCE}={'s' * 64}"])
    named_so = replace(built, images=(replace(image, source="s" * 64, reference=made.names.other_image),))
    named_so = replace(named_so, containers=(replace(made.wanted, image=made.names.other_image),))
    found = plan(named_so, await engine.read(named_so))
    assert [(action.subject, action.kind) for action in found.actions] == [(Subject.CONTAINER, Kind.REPLACE)]


# -- networks and volumes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "attribute", "had"),
    [
        ({"Internal": True}, "internal", "True"),
        ({"Labels": {}}, "labels.perdure.project", "none"),
    ],
)
async def test_a_network_that_is_another_is_made_anew(
    table: Table, engine: DockerEngine, changes: Body, attribute: str, had: str
) -> None:
    (network,) = table.described.wanted.networks
    await table.away(engine)
    await engine.remove_network(network.name)
    try:
        await ask(engine, "networks/create", "POST", {**creation.network_body(network), **changes})
        await table.make(engine)
        first, second = (await table.plan(engine)).actions
        assert (first.kind, first.subject, first.detaches) == (Kind.REPLACE, Subject.NETWORK, (table.names.container,))
        told = {change.attribute: change.had for change in first.changes}
        assert told[attribute] == had
        assert len(told) == (1 if attribute == "internal" else 3)
        assert (second.kind, second.name) == (Kind.UPDATE, table.names.container)
        assert f"networks.{network.name}" in {change.attribute for change in second.changes}
        await table.away(engine)
    finally:
        await engine.remove_network(network.name)
        await engine.create_network(network)


async def test_a_network_of_another_project_is_refused(table: Table, engine: DockerEngine) -> None:
    (network,) = table.described.wanted.networks
    await table.away(engine)
    await engine.remove_network(network.name)
    await ask(engine, "networks/create", "POST", {"Name": network.name, "Labels": {LABEL_PROJECT: "other"}})
    try:
        with pytest.raises(ConfigurationError, match=f"network {network.name} belongs to the project 'other'"):
            await table.plan(engine)
    finally:
        await engine.remove_network(network.name)
        await engine.create_network(network)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"Labels": {}}, "purge-data` leaves it alone"),
        ({"DriverOpts": {"type": "tmpfs", "device": "tmpfs", "o": "size=1m"}}, "was made with options (device=tmpfs, o=…, type=tmpfs)"),
    ],
)  # fmt: skip
async def test_a_volume_that_is_another_is_used_and_said(
    table: Table, engine: DockerEngine, changes: Body, note: str
) -> None:
    (volume,) = [each for each in table.described.wanted.volumes if each.name == table.names.data]
    await table.away(engine)
    await engine.remove_volume(volume.name)
    await ask(engine, "volumes/create", "POST", {**creation.volume_body(volume), **changes})
    await table.make(engine)
    try:
        found = await table.plan(engine)
        assert named(found) == {table.names.container: ["~", "running"]}
        assert [note in each for each in found.notes] == [True], found.notes
    finally:
        await table.away(engine)
        await engine.remove_volume(volume.name)
        await engine.create_volume(volume)


async def test_a_volume_that_is_in_use_is_not_removed(made: Table, engine: DockerEngine) -> None:
    with pytest.raises(EngineError, match="in use"):
        await engine.remove_volume(made.names.data)
