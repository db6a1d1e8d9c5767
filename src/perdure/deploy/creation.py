"""What Docker is asked for, from the shape of `model`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.deploy.inspection import NANOSECONDS, Shown
from perdure.deploy.model import Attachment, Container, HealthCheck, Limits, Network, Volume

Asked = dict[str, Any]


def container_body(container: Container, values: Mapping[str, str]) -> Asked:
    """Attached to its first network; the others are connected before it starts (old engines take one)."""
    body: Asked = {
        "Image": container.image,
        "Labels": dict(container.labels),
        "Env": [f"{name}={value}" for name, value in sorted(values.items())],
        "ExposedPorts": {f"{port.container_port}/{port.protocol}": {} for port in container.ports},
        "StopTimeout": container.stop_seconds,
        "HostConfig": _host(container),
        "NetworkingConfig": {
            "EndpointsConfig": {each.network: endpoint(each) for each in container.networks[:1]},
        },
    }
    if container.entrypoint:
        body["Entrypoint"] = list(container.entrypoint)
    if container.command:
        body["Cmd"] = list(container.command)
    if container.working_folder:
        body["WorkingDir"] = container.working_folder
    if container.user:
        body["User"] = container.user
    if container.health is not None:
        body["Healthcheck"] = _health(container.health)
    return body


_OF_ITS_OWN = ("Env", "Entrypoint", "WorkingDir", "User", "Labels", "StopTimeout")


def errand_body(shown: Shown, command: Sequence[str]) -> Asked:
    """From what the engine says of another container, whose values are nowhere else any more. Nobody reaches it: it serves nothing."""
    config = shown["Config"]
    return {
        **{key: config[key] for key in _OF_ITS_OWN if config.get(key) is not None},
        "Image": shown["Image"],
        "Cmd": list(command),
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            **shown["HostConfig"],
            "NetworkMode": "none",
            "PortBindings": {},
            "RestartPolicy": {"Name": "no"},
        },
    }


def endpoint(attachment: Attachment) -> Asked:
    return {"Aliases": list(attachment.aliases)}


def network_body(network: Network) -> Asked:
    return {
        "Name": network.name,
        "Driver": network.driver,
        "Internal": network.internal,
        "Labels": dict(network.labels),
        "CheckDuplicate": True,
    }


def volume_body(volume: Volume) -> Asked:
    return {"Name": volume.name, "Driver": volume.driver, "Labels": dict(volume.labels)}


def update_body(container: Container) -> Asked:
    return {**_limits(container.limits), "RestartPolicy": {"Name": container.restart}}


LABEL_CARRIER = "perdure.carrier"
"""On a carrier: the volume that it is beside."""


def emptying(path: str) -> tuple[str, ...]:
    """A command that removes everything in a folder. Python is in every image that runs Perdure."""
    program = "import os, shutil, sys; [shutil.rmtree(e) if e.is_dir(follow_symlinks=False) else os.unlink(e) for e in os.scandir(sys.argv[1])]"
    return ("python3", "-I", "-c", program, path)


def carrier_body(image: str, volume: str, path: str, command: Sequence[str]) -> Asked:
    """A container through which files go into a volume and come out, mostly without being started."""
    return {
        "Image": image,
        "Entrypoint": list(command),
        "Cmd": [],
        "User": "0",
        "NetworkDisabled": True,
        "Labels": {LABEL_CARRIER: volume},
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {"Mounts": [{"Type": "volume", "Source": volume, "Target": path}]},
    }


def _host(container: Container) -> Asked:
    first = container.networks[0].network if container.networks else "none"
    bindings: dict[str, list[Asked]] = {}
    for port in container.ports:
        binding = {"HostIp": port.address, "HostPort": str(port.host_port)}
        bindings.setdefault(f"{port.container_port}/{port.protocol}", []).append(binding)
    return {
        **_limits(container.limits),
        "NetworkMode": first,
        "Mounts": [
            {"Type": mount.kind, "Source": mount.source, "Target": mount.target, "ReadOnly": mount.read_only}
            for mount in container.mounts
        ],
        "Tmpfs": {each.target: each.options for each in container.tmpfs},
        "PortBindings": bindings,
        "RestartPolicy": {"Name": container.restart},
        "ReadonlyRootfs": container.read_only,
        "CapDrop": list(container.capabilities_dropped),
        "CapAdd": list(container.capabilities_added),
        "SecurityOpt": list(container.security),
        "Init": container.init,
        "Privileged": container.privileged,
    }


def _limits(limits: Limits) -> Asked:
    """Zero takes a limit away. Swap goes with memory: a limit that swap evades is none."""
    memory = limits.memory_bytes or 0
    return {
        "Memory": memory,
        "MemorySwap": memory,
        "NanoCpus": limits.nano_cpus or 0,
        "PidsLimit": limits.pids or 0,
    }


def _health(check: HealthCheck) -> Asked:
    return {
        "Test": list(check.test),
        "Interval": int(check.interval_seconds * NANOSECONDS),
        "Timeout": int(check.timeout_seconds * NANOSECONDS),
        "StartPeriod": int(check.start_period_seconds * NANOSECONDS),
        "Retries": check.retries,
    }
