"""What Docker is asked for comes back from its inspect as what was wanted: no plan differs by the way things are spelled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from perdure.deploy.creation import container_body, errand_body, network_body, volume_body
from perdure.deploy.inspection import container_of, image_of, images_of, life_of, network_of, volume_of
from perdure.deploy.model import Attachment, Container, Image, Limits, Mount, Port, Real
from perdure.deploy.planner import plan
from perdure.deploy.project import Description
from tests.unit.deploy.conftest import Describe

IMAGE = {
    "Env": ["PATH=/opt/perdure/bin:/usr/bin", "PERDURE_DATABASE=/data/perdure.db", "PERDURE_PORT=8787"],
    "Labels": {"org.opencontainers.image.title": "Perdure", "perdure.source": "s"},
    "Entrypoint": ["perdure"],
    "Cmd": ["serve"],
    "WorkingDir": "/app",
    "User": "10001:10001",
    "Healthcheck": {"Test": ["CMD", "true"], "Interval": 5_000_000_000},
}

TABLE = """
[deploy]
transport = "nats"
secrets = ["KEY"]
[deploy.gateway]
memory = "512m"
cpus = 0.5
pids = 100
[deploy.services.cache]
image = "registry.example/redis:8"
[deploy.volumes.files]
at = { shop = "/files", cache = "/data" }
[deploy.volumes.host]
at = { shop = "/host" }
folder = "/srv/host"
read_only = true
"""


def shown_image(image: Image, number: int) -> dict[str, Any]:
    config = {**IMAGE, "Labels": {**IMAGE["Labels"], "perdure.source": image.source}}  # type: ignore[dict-item]
    return {
        "Id": f"sha256:{number:064x}",
        "RepoTags": [image.reference.removeprefix("registry.example/")],
        "Config": config,
    }


def shown_container(container: Container, values: Mapping[str, str], image: Mapping[str, Any]) -> dict[str, Any]:
    """As Docker shows a container that was made from this body: what its image says fills the gaps."""
    body = container_body(container, values)
    host, config = body["HostConfig"], image["Config"]
    given = {line.partition("=")[0] for line in body["Env"]}
    inherited = [line for line in config["Env"] if line.partition("=")[0] not in given]
    number = "f" * 64
    return {
        "Id": number,
        "Name": f"/{container.name}",
        "Image": image["Id"],
        "Config": {
            **{key: body.get(key) or config[key] for key in ("Entrypoint", "Cmd", "WorkingDir", "User", "Healthcheck")},
            "Image": body["Image"],
            "Env": [*body["Env"], *inherited],
            "Labels": {**config["Labels"], **body["Labels"]},
            "StopTimeout": body["StopTimeout"],
        },
        "HostConfig": {**host, "PidsLimit": host["PidsLimit"] or None},
        "Mounts": [
            {
                "Type": each["Type"],
                **({"Name": each["Source"]} if each["Type"] == "volume" else {}),
                "Source": f"/var/lib/docker/volumes/{each['Source']}/_data"
                if each["Type"] == "volume"
                else each["Source"],
                "Destination": each["Target"],
                "RW": not each["ReadOnly"],
            }
            for each in host["Mounts"]
        ],
        "NetworkSettings": {
            "Networks": {
                name: {"Aliases": [*endpoint["Aliases"], number[:12], container.name]}
                for name, endpoint in body["NetworkingConfig"]["EndpointsConfig"].items()
            }
        },
        "State": {"Running": True, "Restarting": False, "StartedAt": "2026-01-01T00:00:00.1Z"},
    }


@pytest.fixture
def project(described: Describe) -> Description:
    return described(TABLE, {"KEY": "secret"})


def shown(project: Description) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each container with its image."""
    wanted = project.wanted
    images = {image.reference: shown_image(image, number) for number, image in enumerate(wanted.images)}
    return [
        (shown_container(each, project.values.of[each.name], images[each.image]), images[each.image])
        for each in wanted.containers
    ]


def real_of(project: Description, pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> Real:
    wanted = project.wanted
    images = [shown_image(image, number) for number, image in enumerate(wanted.images)]
    named = [image_of(image.reference, each) for image, each in zip(wanted.images, images, strict=True)]
    return Real(
        wanted.project,
        images=(*named, *(found for each in images for found in images_of(each))),
        networks=tuple(network_of({**network_body(each), "Id": "n"}) for each in wanted.networks),
        volumes=tuple(volume_of({**volume_body(each), "Mountpoint": "/v"}) for each in wanted.volumes),
        containers=tuple(container_of(container, image) for container, image in pairs),
    )


def test_what_was_made_is_what_was_wanted(project: Description) -> None:
    found = plan(project.wanted, real_of(project, shown(project)))
    assert found.empty, [(action.name, action.changes) for action in found.actions]


def test_a_value_that_equals_the_images_own_is_no_difference(described: Describe) -> None:
    """The image sets the database and a port, too."""
    project = described("[deploy.gateway]\nport = 8787")
    assert plan(project.wanted, real_of(project, shown(project))).empty


@pytest.mark.parametrize(
    ("place", "value", "attribute"),
    [
        (("Config", "Cmd"), ["serve"], "command"),
        (("Config", "User"), "0", "user"),
        (("Config", "StopTimeout"), None, "stop_seconds"),
        (("Config", "Healthcheck"), None, "health"),
        (("HostConfig", "RestartPolicy"), {"Name": ""}, "restart"),
        (("HostConfig", "ReadonlyRootfs"), False, "read_only"),
        (("HostConfig", "CapDrop"), None, "capabilities_dropped"),
        (("HostConfig", "CapAdd"), ["CAP_SYS_ADMIN"], "capabilities_added"),
        (("HostConfig", "SecurityOpt"), None, "security"),
        (("HostConfig", "Init"), None, "init"),
        (("HostConfig", "Privileged"), True, "privileged"),
        (("HostConfig", "PidMode"), "host", "host_modes"),
        (("HostConfig", "Tmpfs"), None, "tmpfs./tmp"),
        (("HostConfig", "Memory"), 1 << 26, "limits.memory_bytes"),
        (("HostConfig", "PortBindings"), {"8700/tcp": [{"HostIp": "", "HostPort": "8700"}]}, "ports.8700/tcp"),
        (("NetworkSettings", "Networks"), {}, "networks.perdure-perdure-network"),
        (("HostConfig", "Devices"), [{"PathOnHost": "/dev/kvm"}], "unasked.Devices"),
        (("HostConfig", "AutoRemove"), True, "unasked.AutoRemove"),
        (("HostConfig", "MaskedPaths"), [], "unasked.MaskedPaths"),
        (("Config", "StopSignal"), "SIGKILL", "unasked.StopSignal"),
        (("State", "Running"), False, "running"),
        (("State", "Paused"), True, "running"),
    ],
)
def test_what_docker_says_otherwise_is_named(
    project: Description, place: tuple[str, str], value: object, attribute: str
) -> None:
    pairs = shown(project)
    (shop,) = [container for container, _ in pairs if container["Name"].endswith("agent-shop")]
    shop[place[0]][place[1]] = value
    (action,) = plan(project.wanted, real_of(project, pairs)).actions
    assert [change.attribute for change in action.changes] == [attribute]


def test_what_an_image_says_stays_its_own(project: Description) -> None:
    pairs = shown(project)
    cache = next(each for each in real_of(project, pairs).containers if each.role == "service")
    assert {"command", "entrypoint", "user", "working_folder", "health", "environment.PATH"} <= cache.inherited
    assert "org.opencontainers.image.title" not in cache.labels


def test_spellings_of_the_engine_become_ours(project: Description) -> None:
    container, image = shown(project)[-1]
    container["HostConfig"] |= {"SecurityOpt": ["no-new-privileges"], "CapDrop": ["all"], "PidsLimit": -1}
    found = container_of(container, image)
    assert (found.security, found.capabilities_dropped) == (("no-new-privileges:true",), ("ALL",))
    assert found.limits == Limits(512 << 20, 500_000_000, None)
    assert found.ports == (Port(8700, 8700, "127.0.0.1"),)
    assert found.networks == (Attachment("perdure-perdure-network"),)
    assert Mount("/data", "perdure-gateway-data") in found.mounts


def test_swap_that_evades_the_limit_of_memory_is_named(project: Description) -> None:
    container, image = shown(project)[-1]
    assert container_of(container, image).unasked == ()
    container["HostConfig"]["MemorySwap"] *= 2
    assert [name for name, _ in container_of(container, image).unasked] == ["MemorySwap"]
    container["HostConfig"]["MemorySwap"] = -1  # also what a kernel says that cannot limit it
    assert container_of(container, image).unasked == ()


def test_a_network_that_was_removed_under_a_container_is_none(project: Description) -> None:
    container, image = shown(project)[-1]
    (endpoint,) = container["NetworkSettings"]["Networks"].values()
    endpoint["NetworkID"] = "the-old-one"
    assert container_of(container, image, {"the-old-one"}).networks != ()
    assert container_of(container, image, {"a-new-one"}).networks == ()


def test_an_image_that_the_engine_has_lost_hides_nothing(project: Description) -> None:
    container, _ = shown(project)[-1]
    found = container_of(container, None)
    assert found.inherited == frozenset()
    assert "org.opencontainers.image.title" in found.labels


def test_a_container_that_is_restarted_by_its_policy_counts_as_running(project: Description) -> None:
    container, image = shown(project)[-1]
    container["State"] |= {"Running": False, "Restarting": True}
    assert container_of(container, image).running
    life = life_of(container)
    assert not life.running and life.restarting
    assert replace(life, restarting=False) != life


def test_an_errand_has_what_the_other_was_made_with_and_is_reached_by_nobody(described: Describe) -> None:
    project = described(
        '[deploy]\nsecrets = ["KEY"]\n[deploy.volumes.files]\nat = { shop = "/files" }', {"KEY": "secret"}
    )
    ((of, image),) = shown(project)
    body = errand_body(
        {**of, "Config": {**of["Config"], "Image": "a-name:that-may-have-moved"}}, ("restore", "--undo-upgrade")
    )
    assert body["Image"] == image["Id"]
    made = {
        **of,
        "Config": {**{key: body[key] for key in ("Env", "Entrypoint", "WorkingDir", "User", "Labels")}, **body},
        "HostConfig": body["HostConfig"],
        "NetworkSettings": {"Networks": {}},
    }
    had, has = container_of(of, None), container_of(made, None)
    assert has == replace(
        had,
        image=image["Id"],
        command=("restore", "--undo-upgrade"),
        networks=(),
        ports=(),
        health=None,
        restart="no",
    )
    assert "KEY" in {each.name for each in has.environment}
    assert had.ports and had.networks and had.health is not None and had.restart != "no"
    assert body["HostConfig"]["NetworkMode"] == "none"
