"""What Docker says about its things, read into the shape of `model`. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from perdure.deploy.engine import Life
from perdure.deploy.model import (
    LABEL_ROLE,
    LABEL_SOURCE,
    Attachment,
    Container,
    HealthCheck,
    Image,
    Limits,
    Mount,
    Network,
    Port,
    Tmpfs,
    Variable,
    Volume,
)

_OF_IMAGE = {
    "entrypoint": "Entrypoint",
    "command": "Cmd",
    "working_folder": "WorkingDir",
    "user": "User",
    "health": "Healthcheck",
}

Shown = Mapping[str, Any]
"""An object as the engine's inspect gives it."""

_NOBODY_ASKS = (
    "AutoRemove",
    "BlkioWeight",
    "CgroupParent",
    "CpuPeriod",
    "CpuQuota",
    "CpuShares",
    "CpusetCpus",
    "CpusetMems",
    "DeviceCgroupRules",
    "DeviceRequests",
    "Devices",
    "Dns",
    "DnsOptions",
    "DnsSearch",
    "ExtraHosts",
    "GroupAdd",
    "Links",
    "MemoryReservation",
    "OomKillDisable",
    "OomScoreAdj",
    "PublishAllPorts",
    "Sysctls",
    "VolumesFrom",
)
"""Settings of a container's host side that no project can ask for. Not here: what an engine fills in by its own configuration (logs,
shared memory, ulimits, runtime)."""

NANOSECONDS = 1_000_000_000
DEFAULT_STOP_SECONDS = 10
"""Docker's, for a container that says nothing."""


def images_of(shown: Shown) -> Iterator[Image]:
    """One for each of its names; one by its id when it has none."""
    yield from (image_of(reference, shown) for reference in shown.get("RepoTags") or [shown["Id"]])


def image_of(reference: str, shown: Shown) -> Image:
    """By a name under which the engine finds it."""
    return Image(reference, _labels(shown["Config"]).get(LABEL_SOURCE, ""), shown["Id"])


def network_of(shown: Shown) -> Network:
    return Network(shown["Name"], _labels(shown), shown["Driver"], bool(shown.get("Internal")))


def volume_of(shown: Shown) -> Volume:
    return Volume(shown["Name"], _labels(shown), shown["Driver"], dict(shown.get("Options") or {}))


def container_of(shown: Shown, image: Shown | None, networks: Collection[str] | None = None) -> Container:
    """`image`: what it was made from; None when the engine has lost it, then nothing is left out as inherited. `networks`: ids of
    those that there are: a container that is down keeps the name of one that was removed, also when there is a new one of that name.
    """
    config, host = shown["Config"], shown["HostConfig"]
    inherited = (image or {}).get("Config") or {}
    labels = {name: value for name, value in _labels(config).items() if _labels(inherited).get(name) != value}
    return Container(
        name=_name(shown),
        role=labels.get(LABEL_ROLE, ""),
        image=config["Image"],
        image_id=shown["Image"],
        labels=labels,
        entrypoint=_words(config.get("Entrypoint")),
        command=_words(config.get("Cmd")),
        working_folder=config.get("WorkingDir") or "",
        user=config.get("User") or "",
        environment=tuple(sorted(_variables(config))),
        mounts=tuple(sorted(_mounts(shown))),
        tmpfs=tuple(sorted(_tmpfs(shown))),
        networks=tuple(sorted(_attachments(shown, networks))),
        ports=tuple(sorted(_ports(host))),
        health=_health(config.get("Healthcheck")),
        restart=(host.get("RestartPolicy") or {}).get("Name") or "no",
        stop_seconds=DEFAULT_STOP_SECONDS if config.get("StopTimeout") is None else config["StopTimeout"],
        limits=_limits(host),
        read_only=bool(host.get("ReadonlyRootfs")),
        capabilities_dropped=_capabilities(host.get("CapDrop")),
        capabilities_added=_capabilities(host.get("CapAdd")),
        security=tuple(sorted(_security(host))),
        init=bool(host.get("Init")),
        privileged=bool(host.get("Privileged")),
        host_modes=tuple(sorted(_host_modes(host))),
        unasked=tuple(sorted(_unasked(config, host, inherited))),
        running=_runs(shown["State"]),
        inherited=frozenset(_inherited(config, inherited)),
    )


def life_of(shown: Shown) -> Life:
    state = shown["State"]
    health = state.get("Health") or {}
    said = (health.get("Log") or [{}])[-1].get("Output", "")
    return Life(
        id=shown["Id"],
        running=bool(state.get("Running")) and not state.get("Restarting") and not state.get("Paused"),
        restarting=bool(state.get("Restarting")),
        paused=bool(state.get("Paused")),
        health=health.get("Status") or "none",
        exit_code=int(state.get("ExitCode") or 0),
        restarts=int(shown.get("RestartCount") or 0),
        started=not str(state.get("StartedAt", "")).startswith("0001-"),
        since=str(state.get("StartedAt", "")),
        said=said.strip(),
        check=None if (check := _health(shown["Config"].get("Healthcheck"))) is None else _effective(check),
    )


# -- parts ------------------------------------------------------------------------------------------------------------


def _name(shown: Shown) -> str:
    return str(shown["Name"]).removeprefix("/")


def _labels(config: Shown) -> dict[str, str]:
    return dict(config.get("Labels") or {})


def _words(value: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(value or ())


def _variables(config: Shown) -> Iterator[Variable]:
    for line in config.get("Env") or ():
        name, _, value = line.partition("=")
        yield Variable.of(name, value)


def _inherited(config: Shown, image: Shown) -> Iterator[str]:
    """What nobody asked for: the image says the same."""
    for attribute, key in _OF_IMAGE.items():
        if (config.get(key) or None) == (image.get(key) or None):
            yield attribute
    known = set(image.get("Env") or ())
    yield from (f"environment.{line.partition('=')[0]}" for line in config.get("Env") or () if line in known)


def _mounts(shown: Shown) -> Iterator[Mount]:
    for mount in shown.get("Mounts") or ():
        if mount["Type"] != "tmpfs":
            source = mount["Name"] if mount["Type"] == "volume" else mount["Source"]
            yield Mount(mount["Destination"], source, mount["Type"], not mount.get("RW", True))


def _tmpfs(shown: Shown) -> Iterator[Tmpfs]:
    for target, options in (shown["HostConfig"].get("Tmpfs") or {}).items():
        yield Tmpfs(target, _sorted_parts(options))
    for mount in shown["HostConfig"].get("Mounts") or ():
        if mount.get("Type") == "tmpfs":
            size = (mount.get("TmpfsOptions") or {}).get("SizeBytes")
            yield Tmpfs(mount["Target"], f"size={size}" if size else "")


def _sorted_parts(options: str) -> str:
    return ",".join(sorted(part for part in options.split(",") if part))


def _attachments(shown: Shown, networks: Collection[str] | None) -> Iterator[Attachment]:
    own = {_name(shown), shown["Id"][:12], shown["Id"]}
    for name, endpoint in (shown["NetworkSettings"].get("Networks") or {}).items():
        number = endpoint.get("NetworkID")
        if networks is not None and number and number not in networks:
            continue
        yield Attachment(name, tuple(sorted(set(endpoint.get("Aliases") or ()) - own)))


def _ports(host: Shown) -> Iterator[Port]:
    for inside, bindings in (host.get("PortBindings") or {}).items():
        number, _, protocol = inside.partition("/")
        for binding in bindings or ():
            yield Port(int(number), int(binding.get("HostPort") or 0), binding.get("HostIp") or "", protocol or "tcp")


def _health(shown: Shown | None) -> HealthCheck | None:
    if not shown or not shown.get("Test") or shown["Test"] == ["NONE"]:
        return None
    return HealthCheck(
        test=tuple(shown["Test"]),
        interval_seconds=(shown.get("Interval") or 0) / NANOSECONDS,
        timeout_seconds=(shown.get("Timeout") or 0) / NANOSECONDS,
        start_period_seconds=(shown.get("StartPeriod") or 0) / NANOSECONDS,
        retries=shown.get("Retries") or 0,
    )


def _effective(check: HealthCheck) -> HealthCheck:
    """Zero means what Docker does when nothing is said."""
    return HealthCheck(
        check.test,
        check.interval_seconds or 30.0,
        check.timeout_seconds or 30.0,
        check.start_period_seconds,
        check.retries or 3,
    )


def _limits(host: Shown) -> Limits:
    pids = host.get("PidsLimit") or 0
    return Limits(host.get("Memory") or None, host.get("NanoCpus") or None, pids if pids > 0 else None)


def _capabilities(names: Iterable[str] | None) -> tuple[str, ...]:
    return tuple(sorted({name.upper().removeprefix("CAP_") for name in names or ()}))


def _security(host: Shown) -> Iterator[str]:
    by_itself = bool(host.get("Privileged")) or "host" in {host.get("PidMode"), host.get("IpcMode")}
    for option in host.get("SecurityOpt") or ():
        if option == "label=disable" and by_itself:  # nobody asked for it: it follows
            continue
        yield "no-new-privileges:true" if option in {"no-new-privileges", "no-new-privileges=true"} else option


def _runs(state: Shown) -> bool:
    return bool(state.get("Running") or state.get("Restarting")) and not state.get("Paused")


def _unasked(config: Shown, host: Shown, image: Shown) -> Iterator[tuple[str, str]]:
    told = {key: host.get(key) for key in _NOBODY_ASKS}
    told["StopSignal"] = signal if (signal := config.get("StopSignal")) != image.get("StopSignal") else None
    memory, with_swap = host.get("Memory") or 0, host.get("MemorySwap") or 0
    told["MemorySwap"] = with_swap if with_swap > 0 and with_swap != memory else None
    yield from ((key, json.dumps(value, sort_keys=True)) for key, value in told.items() if value)
    # Empty, not missing: what the kernel's files should be veiled by was taken away.
    yield from ((key, "[]") for key in ("MaskedPaths", "ReadonlyPaths") if host.get(key) == [])


def _host_modes(host: Shown) -> Iterator[str]:
    for word, key in (
        ("network", "NetworkMode"),
        ("pid", "PidMode"),
        ("ipc", "IpcMode"),
        ("uts", "UTSMode"),
        ("user", "UsernsMode"),
        ("cgroup", "CgroupnsMode"),
    ):
        mode = str(host.get(key) or "")
        # The control group of the host is the engine's default where the host still has version 1 of them.
        if mode.startswith("container:") or (mode == "host" and word != "cgroup"):
            yield f"{word}:{mode}"
