"""The plan: a truth table of everything that can be changed behind its back, and what becomes of data."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from perdure.deploy.model import (
    LABEL_NAME,
    LABEL_PROJECT,
    LABEL_ROLE,
    LABEL_SPEC,
    Action,
    Attachment,
    CarryData,
    Container,
    HealthCheck,
    Image,
    Kind,
    Limits,
    Mount,
    Network,
    Port,
    Real,
    Subject,
    Tmpfs,
    Variable,
    Volume,
)
from perdure.deploy.planner import plan
from perdure.deploy.project import Description
from perdure.deploy.rendering import lines, to_file
from perdure.errors import ConfigurationError
from tests.unit.deploy.conftest import Describe, realized

NATS = """
[deploy]
transport = "nats"
secrets = ["SHOP_KEY"]
environment = { PERDURE_DEMO_STEP_SECONDS = 1 }

[deploy.gateway]
memory = "512m"

[deploy.agents.shop]
memory = "1g"
cpus = 1.5
pids = 200

[deploy.services.cache]
image = "redis:8"
"""
SECRET = "s3cret-value-of-the-shop"
SHOP = "perdure-perdure-agent-shop"
HELPER = "perdure-perdure-agent-helper"
GATEWAY = "perdure-perdure-gateway"
CACHE = "perdure-perdure-service-cache"
NETWORK = "perdure-perdure-network"
SHOP_DATA = "perdure-agent-shop-data"
TMP = "mode=1777,nodev,noexec,nosuid,rw,size=134217728"


@pytest.fixture
def project(described: Describe) -> Description:
    return described(NATS, {"SHOP_KEY": SECRET})


def changed(real: Real, name: str, **attributes: Any) -> Real:
    """The real state in which one container is another."""
    assert real.container(name) is not None
    return replace(
        real,
        containers=tuple(replace(each, **attributes) if each.name == name else each for each in real.containers),
    )


def without(real: Real, name: str) -> Real:
    return replace(
        real,
        containers=tuple(each for each in real.containers if each.name != name),
        networks=tuple(each for each in real.networks if each.name != name),
        volumes=tuple(each for each in real.volumes if each.name != name),
        images=tuple(each for each in real.images if each.reference != name),
    )


def shop_of(real: Real) -> Container:
    found = real.container(SHOP)
    assert found is not None
    return found


def only(actions: tuple[Action, ...]) -> Action:
    assert len(actions) == 1, actions
    return actions[0]


# -- nothing, and everything ------------------------------------------------------------------------------------------


def test_an_engine_that_has_what_is_wanted_needs_nothing(project: Description) -> None:
    found = plan(project.wanted, realized(project))
    assert found.empty
    assert [line.text for line in lines(found)] == ["No changes: everything is as the project file wants it."]


def test_the_same_states_give_the_same_plan(project: Description) -> None:
    bare = Real(project.wanted.project)
    assert plan(project.wanted, bare) == plan(project.wanted, bare)


def test_from_nothing_everything_is_made_in_the_order_in_which_it_is_needed(project: Description) -> None:
    found = plan(project.wanted, Real(project.wanted.project))
    assert {action.kind for action in found.actions} == {Kind.CREATE}
    subjects = list(dict.fromkeys(action.subject for action in found.actions))
    assert subjects == [Subject.IMAGE, Subject.NETWORK, Subject.VOLUME, Subject.CONTAINER]
    containers = [action.name for action in found.actions if action.subject is Subject.CONTAINER]
    assert containers == [CACHE, "perdure-perdure-nats", SHOP, HELPER, GATEWAY]
    volumes = {action.name for action in found.actions if action.subject is Subject.VOLUME}
    assert volumes == {
        SHOP_DATA,
        "perdure-agent-helper-data",
        "perdure-gateway-data",
        "perdure-nats-data",
        "perdure-perdure-secrets",
    }


# -- the truth table --------------------------------------------------------------------------------------------------

Change = Callable[[Container], dict[str, Any]]

BY_HAND: dict[str, tuple[Change, str, str, str, Kind]] = {
    # what was done: (how, attribute named, had, wants, action)
    "another image": (
        lambda c: {"image_id": f"sha256:{'f' * 64}"},
        "image",
        "ffffffffffff",
        "000000000002",
        Kind.REPLACE,
    ),
    "another entrypoint": (lambda c: {"entrypoint": ("sh",)}, "entrypoint", "sh", "perdure", Kind.REPLACE),
    "another command": (lambda c: {"command": ("serve", "-x")}, "command", "serve -x", "agent", Kind.REPLACE),
    "another folder": (lambda c: {"working_folder": "/tmp"}, "working_folder", "/tmp", "/app", Kind.REPLACE),
    "another user": (lambda c: {"user": "0:0"}, "user", "0:0", "10001:10001", Kind.REPLACE),
    "a variable of another value": (
        lambda c: {"environment": _variable(c, "PERDURE_AGENT_NAME", "other")},
        "environment.PERDURE_AGENT_NAME",
        "another value",
        "the project's value",
        Kind.REPLACE,
    ),
    "a secret of another value": (
        lambda c: {"environment": _variable(c, "SHOP_KEY", "older-secret")},
        "environment.SHOP_KEY",
        "another value",
        "the secret as it is here",
        Kind.REPLACE,
    ),
    "a password of NATS of another value": (
        lambda c: {"environment": _variable(c, "PERDURE_NATS_URL", "nats://nats:4222")},
        "environment.PERDURE_NATS_URL",
        "another value",
        "the secret as it is here",
        Kind.REPLACE,
    ),
    "a secret taken away": (
        lambda c: {"environment": _variable(c, "SHOP_KEY", None)},
        "environment.SHOP_KEY",
        "not set",
        "set (secret)",
        Kind.REPLACE,
    ),
    "a variable taken away": (
        lambda c: {"environment": _variable(c, "PERDURE_PROJECT", None)},
        "environment.PERDURE_PROJECT",
        "not set",
        "set",
        Kind.REPLACE,
    ),
    "a variable more": (
        lambda c: {"environment": _variable(c, "EXTRA", "1")},
        "environment.EXTRA",
        "set",
        "not set",
        Kind.REPLACE,
    ),
    "a folder of the host at /data": (
        lambda c: {"mounts": (Mount("/data", "/srv/old", "bind"),)},
        "mounts./data",
        "folder /srv/old",
        f"volume {SHOP_DATA}",
        Kind.REPLACE,
    ),
    "no data volume": (lambda c: {"mounts": ()}, "mounts./data", "none", f"volume {SHOP_DATA}", Kind.REPLACE),
    "a data volume that cannot be written": (
        lambda c: {"mounts": (replace(c.mounts[0], read_only=True),)},
        "mounts./data",
        f"volume {SHOP_DATA}, read-only",
        f"volume {SHOP_DATA}",
        Kind.REPLACE,
    ),
    "a mount more": (
        lambda c: {"mounts": (*c.mounts, Mount("/etc/x", "/etc", "bind", True))},
        "mounts./etc/x",
        "folder /etc, read-only",
        "none",
        Kind.REPLACE,
    ),
    "no tmpfs": (
        lambda c: {"tmpfs": ()},
        "tmpfs./tmp",
        "none",
        TMP,
        Kind.REPLACE,
    ),
    "a tmpfs with other options": (
        lambda c: {"tmpfs": (Tmpfs("/tmp", "rw"),)},
        "tmpfs./tmp",
        "rw",
        TMP,
        Kind.REPLACE,
    ),
    "another network": (
        lambda c: {"networks": (*c.networks, Attachment("bridge"))},
        "networks.bridge",
        "attached",
        "none",
        Kind.UPDATE,
    ),
    "no network": (lambda c: {"networks": ()}, f"networks.{NETWORK}", "none", "attached", Kind.UPDATE),
    "another alias": (
        lambda c: {"networks": (Attachment(NETWORK, ("nats",)),)},
        f"networks.{NETWORK}",
        "attached as nats",
        "attached",
        Kind.UPDATE,
    ),
    "a port more": (
        lambda c: {"ports": (Port(8700, 9000, "0.0.0.0"),)},
        "ports.8700/tcp",
        "0.0.0.0:9000",
        "none",
        Kind.REPLACE,
    ),
    "no label of the project": (
        lambda c: {"labels": {k: v for k, v in c.labels.items() if k != LABEL_PROJECT}},
        "labels.perdure.project",
        "none",
        "perdure",
        Kind.REPLACE,
    ),
    "another role": (
        lambda c: {"labels": {**c.labels, LABEL_ROLE: "service"}},
        "labels.perdure.role",
        "service",
        "agent",
        Kind.REPLACE,
    ),
    "another name": (
        lambda c: {"labels": {**c.labels, LABEL_NAME: "pohs"}},
        "labels.perdure.name",
        "pohs",
        "shop",
        Kind.REPLACE,
    ),
    "another digest": (
        lambda c: {"labels": {**c.labels, LABEL_SPEC: "0"}},
        "labels.perdure.spec",
        "0",
        "…",
        Kind.REPLACE,
    ),
    "a label of ours more": (
        lambda c: {"labels": {**c.labels, "perdure.more": "1"}},
        "labels.perdure.more",
        "1",
        "none",
        Kind.REPLACE,
    ),
    "no health check": (lambda c: {"health": None}, "health", "none", "/api/healthz", Kind.REPLACE),
    "another health check": (
        lambda c: {"health": HealthCheck(("CMD", "true"), 1, 1, 0, 1)},
        "health",
        "CMD true (every 1 s",
        "/api/healthz",
        Kind.REPLACE,
    ),
    "another restart policy": (lambda c: {"restart": "no"}, "restart", "no", "unless-stopped", Kind.UPDATE),
    "another stop timeout": (lambda c: {"stop_seconds": 10}, "stop_seconds", "10 s", "35 s", Kind.REPLACE),
    "another memory limit": (
        lambda c: {"limits": replace(c.limits, memory_bytes=1 << 29)},
        "limits.memory_bytes",
        "536870912 bytes",
        "1073741824 bytes",
        Kind.UPDATE,
    ),
    "no limit of processors": (
        lambda c: {"limits": replace(c.limits, nano_cpus=None)},
        "limits.nano_cpus",
        "none",
        "1.5 processors",
        Kind.UPDATE,
    ),
    "another limit of processes": (
        lambda c: {"limits": replace(c.limits, pids=100)},
        "limits.pids",
        "100 processes",
        "200 processes",
        Kind.UPDATE,
    ),
    "a root that can be written": (lambda c: {"read_only": False}, "read_only", "no", "yes", Kind.REPLACE),
    "capabilities kept": (lambda c: {"capabilities_dropped": ()}, "capabilities_dropped", "none", "ALL", Kind.REPLACE),
    "a capability more": (
        lambda c: {"capabilities_added": ("SYS_ADMIN",)},
        "capabilities_added",
        "SYS_ADMIN",
        "none",
        Kind.REPLACE,
    ),
    "new privileges allowed": (lambda c: {"security": ()}, "security", "none", "no-new-privileges:true", Kind.REPLACE),
    "no init": (lambda c: {"init": False}, "init", "no", "yes", Kind.REPLACE),
    "privileged": (lambda c: {"privileged": True}, "privileged", "yes", "no", Kind.REPLACE),
    "the host's network": (
        lambda c: {"host_modes": ("network:host",)},
        "host_modes",
        "network:host",
        "none",
        Kind.REPLACE,
    ),
    "a device of the host": (
        lambda c: {"unasked": (("Devices", '["/dev/kvm"]'),)},
        "unasked.Devices",
        "/dev/kvm",
        "none",
        Kind.REPLACE,
    ),
    "stopped": (lambda c: {"running": False}, "running", "no", "yes", Kind.UPDATE),
}


def _variable(container: Container, name: str, value: str | None) -> tuple[Variable, ...]:
    kept = [each for each in container.environment if each.name != name]
    return tuple(sorted([*kept, *([] if value is None else [Variable.of(name, value)])]))


@pytest.mark.parametrize("done", BY_HAND)
def test_what_was_changed_by_hand_is_named_and_put_right(project: Description, done: str) -> None:
    change, attribute, had, wants, kind = BY_HAND[done]
    real = realized(project)
    action = only(plan(project.wanted, changed(real, SHOP, **change(shop_of(real)))).actions)
    assert (action.kind, action.subject, action.name) == (kind, Subject.CONTAINER, SHOP)
    told = {each.attribute: each for each in action.changes}
    assert list(told) == [attribute]
    assert had in told[attribute].had
    assert wants in told[attribute].wants


def test_the_truth_table_has_every_attribute_of_a_container() -> None:
    named = {attribute.partition(".")[0] for _, attribute, *_ in BY_HAND.values()}
    identity = {"name", "role"}
    said_otherwise = {"image_id": "image"}
    not_compared = {"inherited"}
    attributes = {said_otherwise.get(each.name, each.name) for each in fields(Container)}
    assert named == attributes - identity - not_compared
    limits = {attribute for _, attribute, *_ in BY_HAND.values() if attribute.startswith("limits.")}
    assert limits == {f"limits.{each.name}" for each in fields(Limits)}


def test_several_changes_are_one_replacement_that_names_them_all(project: Description) -> None:
    real = changed(realized(project), SHOP, user="0", restart="no", init=False, running=False)
    action = only(plan(project.wanted, real).actions)
    assert action.kind is Kind.REPLACE
    assert {change.attribute for change in action.changes} == {"user", "restart", "init", "running"}
    assert action.reason == "user, init cannot be changed while it lives."


def test_a_limit_that_is_not_wanted_any_more_needs_another_container(project: Description) -> None:
    """Engines change limits of living containers; they do not take them away."""
    action = only(plan(project.wanted, changed(realized(project), HELPER, limits=Limits(pids=50))).actions)
    assert action.kind is Kind.REPLACE
    assert [(change.attribute, change.had, change.wants) for change in action.changes] == [
        ("limits.pids", "50 processes", "none")
    ]


def test_another_limit_in_the_project_file_is_a_change_in_place(described: Describe) -> None:
    before = realized(described(NATS, {"SHOP_KEY": SECRET}))
    after = described(NATS.replace('memory = "1g"', 'memory = "2g"'), {"SHOP_KEY": SECRET})
    action = only(plan(after.wanted, before).actions)
    assert (action.kind, action.name) == (Kind.UPDATE, SHOP)
    assert [change.attribute for change in action.changes] == ["limits.memory_bytes"]


def test_labels_and_variables_of_others_are_left_alone(project: Description) -> None:
    real = realized(project)
    shop = shop_of(real)
    real = changed(
        real,
        SHOP,
        labels={**shop.labels, "com.example.watch": "yes"},
        environment=(*shop.environment, Variable.of("LANG", "C")),
        inherited=shop.inherited | {"environment.LANG"},
    )
    assert plan(project.wanted, real).empty


def test_what_a_service_leaves_to_its_image_is_compared_with_its_image(project: Description) -> None:
    inherited = frozenset({"command", "entrypoint", "user", "working_folder", "health", "environment.PATH"})
    of_image = {"command": ("redis-server",), "user": "redis", "working_folder": "/data"}
    assert plan(project.wanted, changed(realized(project), CACHE, **of_image, inherited=inherited)).empty
    by_hand = changed(realized(project), CACHE, **of_image, inherited=inherited - {"command"})
    action = only(plan(project.wanted, by_hand).actions)
    assert [(change.attribute, change.had) for change in action.changes] == [("command", "redis-server")]


# -- images, networks, volumes ----------------------------------------------------------------------------------------


def test_an_image_that_is_not_there_is_built_and_its_container_replaced(project: Description) -> None:
    shop = project.wanted.container(SHOP)
    assert shop is not None
    found = plan(project.wanted, without(realized(project), shop.image))
    assert [(action.kind, action.subject) for action in found.actions] == [
        (Kind.CREATE, Subject.IMAGE),
        (Kind.REPLACE, Subject.CONTAINER),
    ]
    assert "built from the project's files" in found.actions[0].reason


def test_a_name_that_was_moved_to_another_image_is_not_believed(project: Description) -> None:
    real = realized(project)
    shop = project.wanted.container(SHOP)
    assert shop is not None
    moved = tuple(
        Image(each.reference, "", f"sha256:{'e' * 64}") if each.reference == shop.image else each
        for each in real.images
    )
    found = plan(project.wanted, changed(replace(real, images=moved), SHOP, image_id=f"sha256:{'e' * 64}"))
    assert [action.subject for action in found.actions] == [Subject.IMAGE, Subject.CONTAINER]


@pytest.mark.parametrize(
    ("attributes", "attribute"),
    [({"driver": "macvlan"}, "driver"), ({"internal": True}, "internal"), ({"labels": {}}, "labels.perdure.name")],
)
def test_a_network_that_differs_is_made_anew_and_everything_attached_again(
    project: Description, attributes: dict[str, Any], attribute: str
) -> None:
    real = realized(project)
    found = plan(project.wanted, replace(real, networks=tuple(replace(each, **attributes) for each in real.networks)))
    first, *others = found.actions
    assert (first.kind, first.subject) == (Kind.REPLACE, Subject.NETWORK)
    assert attribute in {change.attribute for change in first.changes}
    assert set(first.detaches) == {each.name for each in real.containers}
    assert {action.name for action in others} == set(first.detaches)
    assert all(action.changes[0].attribute == f"networks.{NETWORK}" for action in others)


def test_what_hangs_on_a_network_that_is_gone_is_attached_to_the_new_one(project: Description) -> None:
    found = plan(project.wanted, replace(realized(project), networks=()))
    first, *others = found.actions
    assert (first.kind, first.subject) == (Kind.CREATE, Subject.NETWORK)
    assert {action.name for action in others} == {each.name for each in project.wanted.containers}
    assert {action.kind for action in others} == {Kind.UPDATE}


@pytest.mark.parametrize(
    ("attributes", "note"),
    [
        ({"driver": "nfs"}, "has the driver nfs, not local"),
        ({"options": {"type": "tmpfs"}}, "was made with options (type=tmpfs)"),
        ({"options": {"o": "password=x"}}, "was made with options (o=…)"),
        ({"labels": {}}, "purge-data` leaves it alone"),
    ],
)
def test_a_volume_that_differs_is_used_and_said(project: Description, attributes: dict[str, Any], note: str) -> None:
    """To make it anew is to lose what is in it."""
    real = realized(project)
    volumes = tuple(replace(each, **attributes) if each.name == SHOP_DATA else each for each in real.volumes)
    found = plan(project.wanted, replace(real, volumes=volumes))
    assert found.empty
    assert [note in each and SHOP_DATA in each for each in found.notes] == [True]
    assert found.notes[0] in {line.text for line in lines(found)}


def test_a_network_and_containers_that_nobody_wants_are_removed_containers_first(project: Description) -> None:
    real = realized(project)
    labels = {LABEL_PROJECT: "perdure"}
    more = replace(
        real,
        networks=(*real.networks, Network("perdure-perdure-old", labels)),
        containers=(*real.containers, replace(shop_of(real), name="perdure-perdure-agent-gone")),
        volumes=(*real.volumes, Volume("perdure-agent-gone-data", {**labels, LABEL_ROLE: "data"})),
    )
    found = plan(project.wanted, more)
    assert [(action.kind, action.name) for action in found.actions] == [
        (Kind.REMOVE, "perdure-perdure-agent-gone"),
        (Kind.REMOVE, "perdure-perdure-old"),
    ]
    assert found.kept == ("perdure-agent-gone-data",)
    assert "The volume perdure-agent-gone-data holds data" in "\n".join(line.text for line in lines(found))


def test_a_container_that_goes_leaves_before_others_come(described: Describe) -> None:
    """From one container to several: the old one holds the port and the data volume that the new ones need."""
    before = realized(described(""))
    after = described('[deploy]\ntransport = "nats"')
    names = [action.name for action in plan(after.wanted, before).actions if action.subject is Subject.CONTAINER]
    assert names[0] == "perdure-perdure-server"
    assert names[1:] == ["perdure-perdure-nats", SHOP, HELPER, GATEWAY]


def test_the_first_agent_keeps_its_conversations_from_one_container_to_several(described: Describe) -> None:
    server = described("").wanted.container("perdure-perdure-server")
    shop = described('[deploy]\ntransport = "nats"').wanted.container(SHOP)
    assert server is not None and shop is not None
    assert server.data == shop.data == Mount("/data", SHOP_DATA)


# -- data -------------------------------------------------------------------------------------------------------------


def test_a_missing_data_volume_is_attached_by_a_replacement_that_carries_what_is_there(project: Description) -> None:
    """The trap: a container that runs without its volume must never look as if nothing differed."""
    real = without(changed(realized(project), SHOP, mounts=()), SHOP_DATA)
    volume, action = plan(project.wanted, real).actions
    assert (volume.kind, volume.subject, volume.name) == (Kind.CREATE, Subject.VOLUME, SHOP_DATA)
    assert action.kind is Kind.REPLACE
    assert action.carry_data == CarryData(SHOP, SHOP_DATA, volume_exists=False)
    assert "lies in the container itself" in action.reason
    assert [(change.attribute, change.had, change.wants) for change in action.changes] == [
        ("mounts./data", "none", f"volume {SHOP_DATA}")
    ]


def test_a_volume_that_holds_something_already_is_told_to_whoever_carries(project: Description) -> None:
    action = only(plan(project.wanted, changed(realized(project), SHOP, mounts=())).actions)
    assert action.carry_data == CarryData(SHOP, SHOP_DATA, volume_exists=True)


@pytest.mark.parametrize("mount", [Mount("/data", "a" * 64), Mount("/data", "/srv/shop", "bind")])
def test_data_elsewhere_is_carried_too(project: Description, mount: Mount) -> None:
    action = only(plan(project.wanted, changed(realized(project), SHOP, mounts=(mount,))).actions)
    assert action.carry_data is not None
    assert mount.source in action.reason


def test_the_right_volume_is_not_copied_onto_itself(project: Description) -> None:
    mounts = (Mount("/data", SHOP_DATA, read_only=True),)
    action = only(plan(project.wanted, changed(realized(project), SHOP, mounts=mounts, user="0")).actions)
    assert action.kind is Kind.REPLACE
    assert action.carry_data is None


def test_another_reason_to_replace_it_does_not_make_anything_be_carried(project: Description) -> None:
    action = only(plan(project.wanted, changed(realized(project), SHOP, user="0")).actions)
    assert action.carry_data is None


def test_the_gateways_tokens_are_carried_and_nats_store_is_not(project: Description) -> None:
    real = realized(project)
    gateway = real.container(GATEWAY)
    assert gateway is not None
    kept = tuple(mount for mount in gateway.mounts if mount.target != "/data")
    assert only(plan(project.wanted, changed(real, GATEWAY, mounts=kept)).actions).carry_data is not None
    assert only(plan(project.wanted, changed(real, "perdure-perdure-nats", mounts=())).actions).carry_data is None


DECLARED = {
    "made here": ("", Mount("/data", "perdure-volume-files")),
    "of somebody else": ('volume = "shop-files"', Mount("/data", "shop-files")),
    "a folder": ('folder = "/srv/shop"', Mount("/data", "/srv/shop", "bind")),
}


@pytest.mark.parametrize("kind", DECLARED)
def test_another_dependency_that_claims_data_is_used_and_no_second_volume_is_made(
    described: Describe, kind: str
) -> None:
    more, mount = DECLARED[kind]
    project = described(f'[deploy]\ntransport = "nats"\n[deploy.volumes.files]\nat = {{ shop = "/data" }}\n{more}')
    shop = project.wanted.container(SHOP)
    assert shop is not None
    assert shop.mounts == (mount,)
    there = tuple(Volume(each.name) for each in project.wanted.volumes if each.external)
    made = {each.name for each in plan(project.wanted, Real("perdure", volumes=there)).actions}
    assert SHOP_DATA not in made
    assert ("perdure-volume-files" in made) == (kind == "made here")
    assert "shop-files" not in made


def test_a_claimed_volume_gets_what_the_container_has_in_itself(described: Describe) -> None:
    project = described(
        '[deploy]\ntransport = "nats"\n[deploy.volumes.files]\nat = { shop = "/data" }\nvolume = "shop-files"'
    )
    action = only(plan(project.wanted, changed(realized(project), SHOP, mounts=())).actions)
    assert action.carry_data == CarryData(SHOP, "shop-files", volume_exists=True)


def test_what_lies_in_a_container_is_not_left_behind_for_a_folder_of_the_machine(described: Describe) -> None:
    project = described(
        '[deploy]\ntransport = "nats"\n[deploy.volumes.files]\nat = { shop = "/data" }\nfolder = "/srv/shop"'
    )
    with pytest.raises(
        ConfigurationError, match=rf"{SHOP} lies in the container itself.*docker cp {SHOP}:/data/\. /srv/shop"
    ):
        plan(project.wanted, changed(realized(project), SHOP, mounts=()))
    action = only(plan(project.wanted, changed(realized(project), SHOP, mounts=(Mount("/data", SHOP_DATA),))).actions)
    assert action.carry_data is None
    assert f"lies in the volume {SHOP_DATA} and stays there" in action.reason


def test_a_volume_of_somebody_else_that_is_not_there_cannot_be_planned(described: Describe) -> None:
    project = described('[deploy.volumes.files]\nat = { shop = "/files" }\nvolume = "shop-files"')
    with pytest.raises(ConfigurationError, match="docker volume create shop-files"):
        plan(project.wanted, Real("perdure"))


def test_a_container_that_goes_with_data_inside_of_it_cannot_be_planned(project: Description) -> None:
    real = realized(project)
    gone = replace(shop_of(real), name="perdure-perdure-agent-gone", mounts=())
    with pytest.raises(ConfigurationError, match=r"perdure-agent-gone.*would be lost"):
        plan(project.wanted, replace(real, containers=(*real.containers, gone)))


def test_what_another_project_owns_is_not_touched(project: Description) -> None:
    real = realized(project)
    theirs = {LABEL_PROJECT: "other"}
    real = changed(replace(real, networks=(Network(NETWORK, theirs),)), SHOP, labels=theirs)
    real = replace(
        real, volumes=tuple(replace(each, labels=theirs) if each.name == SHOP_DATA else each for each in real.volumes)
    )
    with pytest.raises(ConfigurationError) as caught:
        plan(project.wanted, real)
    assert len(caught.value.problems) == 3
    assert all("'other'" in problem for problem in caught.value.problems)


# -- secrets ----------------------------------------------------------------------------------------------------------


def test_no_secret_and_no_digest_of_one_is_in_a_plan_or_in_what_is_wanted(project: Description) -> None:
    real = realized(project)
    by_hand = "somebody-else-s-password"
    shop = shop_of(real)
    real = changed(
        real,
        SHOP,
        environment=(*_variable(shop, "SHOP_KEY", "the-old-one"), Variable.of("DB_PASSWORD", by_hand)),
        command=("agent", "--token", "typed-in", "--nats-url=nats://u:typed-too@nats"),
    )
    found = plan(project.wanted, real)
    passwords = {value for values in project.values.of.values() for name, value in values.items() if "NATS" in name}
    hidden = {SECRET, by_hand, "the-old-one", "typed-in", "typed-too", *passwords}
    hidden |= {Variable.of("X", value).digest for value in (SECRET, by_hand, "the-old-one")}
    told = to_file(found) + "\n".join(line.text for line in lines(found)) + repr(project.wanted) + repr(project.values)
    told += json.dumps([dict(each.labels) for each in project.wanted.containers])
    assert not [secret for secret in hidden if secret in told]
    assert "environment.DB_PASSWORD" in told


@pytest.mark.parametrize("transport", ["embedded", "nats"])
def test_another_token_is_a_difference(described: Describe, transport: str) -> None:
    table = f'[deploy]\ntransport = "{transport}"'
    found = plan(described(table, token="n" * 43).wanted, realized(described(table)))
    serving = {"embedded": "perdure-perdure-server", "nats": GATEWAY}[transport]
    changed_by_it = {action.name: [change.attribute for change in action.changes] for action in found.actions}
    assert "environment.TOKEN_DIGEST" in changed_by_it[serving]
    assert plan(described(table, token=None).wanted, realized(described(table))).empty, "no token is not another one"


def test_the_digest_of_what_runs_does_not_follow_from_secrets(project: Description) -> None:
    """It goes into a file: nobody may try values until one fits."""
    real = realized(project)
    other = changed(real, SHOP, environment=_variable(shop_of(real), "SHOP_KEY", "another"))
    assert plan(project.wanted, real).real_digest == plan(project.wanted, other).real_digest
    plainer = changed(real, SHOP, environment=_variable(shop_of(real), "PERDURE_PROJECT", "another"))
    assert plan(project.wanted, real).real_digest != plan(project.wanted, plainer).real_digest
