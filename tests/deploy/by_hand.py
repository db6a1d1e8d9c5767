"""What a person can do to a container behind the tool's back: each thing that a plan compares, changed alone.

Changes are made to what the engine is asked for (the body of its create request), in the engine's own words: nothing here goes through
what the tool believes about them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perdure.deploy.model import Kind

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Names:
    """Of what a change may use beside the deployment's own things; `port`: the published one."""

    container: str
    network: str
    other_network: str
    data: str
    other_volume: str
    image: str
    other_image: str
    port: int
    other_port: int


@dataclass(frozen=True, slots=True)
class ByHand:
    """`field`: what of the model it is about. The plan names `attribute`, with these words in what it had and what is wanted."""

    field: str
    change: Callable[[Body, Names], object]
    attribute: str
    had: str
    wants: str
    kind: Kind = Kind.REPLACE
    connect: bool = False
    """Also attached to the other network."""


def put(*path: Any, value: Any) -> Callable[[Body, Names], object]:
    def change(body: Body, names: Names) -> object:
        inner: Any = body
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value(names) if callable(value) else value
        return None

    return change


def host(key: str, value: Any) -> Callable[[Body, Names], object]:
    return put("HostConfig", key, value=value)


def variable(name: str, value: str | None) -> Callable[[Body, Names], object]:
    def change(body: Body, names: Names) -> object:
        kept = [each for each in body["Env"] if each.partition("=")[0] != name]
        body["Env"] = kept if value is None else [*kept, f"{name}={value}"]
        return None

    return change


def mount(target: str, **changes: Any) -> Callable[[Body, Names], object]:
    def change(body: Body, names: Names) -> object:
        (found,) = [each for each in body["HostConfig"]["Mounts"] if each["Target"] == target]
        found |= {key: value(names) if callable(value) else value for key, value in changes.items()}
        return None

    return change


def without_mount(target: str) -> Callable[[Body, Names], object]:
    def change(body: Body, names: Names) -> object:
        mounts = body["HostConfig"]["Mounts"]
        body["HostConfig"]["Mounts"] = [each for each in mounts if each["Target"] != target]
        return None

    return change


def more_mount(body: Body, names: Names) -> object:
    more = {"Type": "volume", "Source": names.other_volume, "Target": "/more"}
    return body["HostConfig"]["Mounts"].append(more)


def published(*bindings: tuple[str, Callable[[Names], int]], inside: str = "") -> Callable[[Body, Names], object]:
    def change(body: Body, names: Names) -> object:
        key = inside or f"{names.port}/tcp"
        body["ExposedPorts"] = {key: {}}
        told = [{"HostIp": address, "HostPort": str(number(names))} for address, number in bindings]
        body["HostConfig"]["PortBindings"] = {key: told} if told else {}
        return None

    return change


def aliases(*words: str) -> Callable[[Body, Names], object]:
    def change(body: Body, names: Names) -> object:
        body["NetworkingConfig"]["EndpointsConfig"][names.network]["Aliases"] = list(words)
        return None

    return change


def no_network(body: Body, names: Names) -> object:
    body["HostConfig"]["NetworkMode"] = "none"
    body["NetworkingConfig"] = {}
    return None


def nothing(body: Body, names: Names) -> object:
    return None


def _same(names: Names) -> int:
    return names.port


def _next(names: Names) -> int:
    return names.other_port


IN_PLACE = Kind.UPDATE
TMP = "mode=1777,nodev,noexec,nosuid,rw,size=134217728"
CHECK = "every 15 s, within 5 s, 3 times"
NANO = 1_000_000_000

ROWS: dict[str, ByHand] = {
    "another image": ByHand(
        "Container.image_id", put("Image", value=lambda names: names.other_image), "image", ":2 (", ":1 ("
    ),
    "another entrypoint": ByHand("Container.entrypoint", put("Entrypoint", value=["env"]), "entrypoint", "env", "sleep"),
    "another command": ByHand("Container.command", put("Cmd", value=["2000"]), "command", "2000", "1000"),
    "no command": ByHand("Container.command", put("Cmd", value=None), "command", "none", "1000"),
    "another folder": ByHand("Container.working_folder", put("WorkingDir", value="/tmp"), "working_folder", "/tmp", "/app"),
    "another user": ByHand("Container.user", put("User", value="0"), "user", "0", "10001:10001"),
    "the image's user": ByHand("Container.user", put("User", value=""), "user", "4", "10001:10001"),
    "a variable more": ByHand("Variable.name", variable("EXTRA", "1"), "environment.EXTRA", "set", "not set"),
    "an empty variable more": ByHand("Variable.name", variable("EXTRA", ""), "environment.EXTRA", "set", "not set"),
    "a variable less": ByHand(
        "Container.environment", variable("PERDURE_DEMO_STEP_SECONDS", None), "environment.PERDURE_DEMO_STEP_SECONDS",
        "not set", "set",
    ),
    "a variable of another value": ByHand(
        "Variable.digest", variable("PERDURE_DEMO_STEP_SECONDS", "9"), "environment.PERDURE_DEMO_STEP_SECONDS",
        "another value", "the project's value",
    ),
    "a variable of the image of another value": ByHand(
        "Variable.digest", variable("OF_IMAGE", "other"), "environment.OF_IMAGE", "set", "not set"
    ),
    "a secret less": ByHand("Variable.secret", variable("SHOP_KEY", None), "environment.SHOP_KEY", "not set", "set (secret)"),
    "a secret of another value": ByHand(
        "Variable.secret", variable("SHOP_KEY", "older"), "environment.SHOP_KEY", "another value", "the secret as it is here"
    ),
    "no data volume": ByHand("Container.mounts", without_mount("/data"), "mounts./data", "none", "volume perdure-"),
    "another data volume": ByHand(
        "Mount.source", mount("/data", Source=lambda names: names.other_volume), "mounts./data", "-other", "-data"
    ),
    "a folder of the host at /data": ByHand(
        "Mount.kind", mount("/data", Type="bind", Source="/tmp"), "mounts./data", "folder /tmp", "volume perdure-"
    ),
    "a data volume that cannot be written": ByHand(
        "Mount.read_only", mount("/data", ReadOnly=True), "mounts./data", ", read-only", "volume perdure-"
    ),
    "a mount more": ByHand("Mount.target", more_mount, "mounts./more", "-other", "none"),
    "a volume without a name": ByHand("Mount.target", put("Volumes", value={"/anonymous": {}}), "mounts./anonymous", "volume ", "none"),
    "no tmpfs": ByHand("Container.tmpfs", host("Tmpfs", {}), "tmpfs./tmp", "none", TMP),
    "a tmpfs of other options": ByHand("Tmpfs.options", host("Tmpfs", {"/tmp": "rw,size=1m"}), "tmpfs./tmp", "rw,size=1m", TMP),
    "a tmpfs more": ByHand("Tmpfs.target", host("Tmpfs", {"/tmp": TMP, "/var/tmp": ""}), "tmpfs./var/tmp", "without options", "none"),
    "no network": ByHand("Container.networks", no_network, "networks.", "", "", IN_PLACE),
    "a network more": ByHand("Attachment.network", nothing, "networks.", "attached", "none", IN_PLACE, connect=True),
    "an alias more": ByHand("Attachment.aliases", aliases("worker", "nats"), "networks.", "nats, worker", "as worker", IN_PLACE),
    "an alias less": ByHand("Attachment.aliases", aliases(), "networks.", "attached", "as worker", IN_PLACE),
    "no port": ByHand("Container.ports", published(), "ports.", "none", "127.0.0.1:"),
    "a port at every address": ByHand("Port.address", published(("", _same)), "ports.", "every address:", "127.0.0.1:"),
    "a port at another address": ByHand("Port.address", published(("0.0.0.0", _same)), "ports.", "0.0.0.0:", "127.0.0.1:"),
    "a port of another number": ByHand("Port.host_port", published(("127.0.0.1", _next)), "ports.", "127.0.0.1:", "127.0.0.1:"),
    "a port at one more address": ByHand("Port.address", published(("127.0.0.1", _same), ("127.0.0.2", _same)), "ports.", "127.0.0.2:", "none"),
    "a label of ours more": ByHand("Container.labels", put("Labels", "perdure.more", value="1"), "labels.perdure.more", "1", "none"),
    "another role": ByHand("Container.role", put("Labels", "perdure.role", value="agent"), "labels.perdure.role", "agent", "server"),
    "another spec": ByHand("Container.labels", put("Labels", "perdure.spec", value="0"), "labels.perdure.spec", "0", "…"),
    "no health check": ByHand("Container.health", put("Healthcheck", value={"Test": ["NONE"]}), "health", "none", CHECK),
    "another health check": ByHand("HealthCheck.test", put("Healthcheck", "Test", value=["CMD", "false"]), "health", "CMD false", "CMD true"),
    "a check in a shell": ByHand("HealthCheck.test", put("Healthcheck", "Test", value=["CMD-SHELL", "true"]), "health", "CMD-SHELL true", "CMD true"),
    "a check more often": ByHand("HealthCheck.interval_seconds", put("Healthcheck", "Interval", value=NANO), "health", "every 1 s", "every 15 s"),
    "a check that may take longer": ByHand("HealthCheck.timeout_seconds", put("Healthcheck", "Timeout", value=9 * NANO), "health", "within 9 s", "within 5 s"),
    "a check that begins at once": ByHand("HealthCheck.start_period_seconds", put("Healthcheck", "StartPeriod", value=0), "health", "0 s to start", "60 s to start"),
    "a check that is more patient": ByHand("HealthCheck.retries", put("Healthcheck", "Retries", value=9), "health", "9 times", "3 times"),
    "never restarted": ByHand("Container.restart", host("RestartPolicy", {}), "restart", "no", "unless-stopped", IN_PLACE),
    "restarted otherwise": ByHand("Container.restart", host("RestartPolicy", {"Name": "always"}), "restart", "always", "unless-stopped", IN_PLACE),
    "another stop timeout": ByHand("Container.stop_seconds", put("StopTimeout", value=1), "stop_seconds", "1 s", "13 s"),
    "no stop timeout": ByHand("Container.stop_seconds", put("StopTimeout", value=None), "stop_seconds", "10 s", "13 s"),
    "less memory": ByHand("Limits.memory_bytes", lambda body, names: body["HostConfig"].update(Memory=1 << 28, MemorySwap=1 << 28), "limits.memory_bytes", "268435456 bytes", "536870912 bytes", IN_PLACE),
    "no limit of memory": ByHand("Limits.memory_bytes", lambda body, names: body["HostConfig"].update(Memory=0, MemorySwap=0), "limits.memory_bytes", "none", "536870912 bytes", IN_PLACE),
    "more processors": ByHand("Limits.nano_cpus", host("NanoCpus", NANO), "limits.nano_cpus", "1 processors", "0.5 processors", IN_PLACE),
    "no limit of processes": ByHand("Limits.pids", host("PidsLimit", -1), "limits.pids", "none", "100 processes", IN_PLACE),
    "a root that can be written": ByHand("Container.read_only", host("ReadonlyRootfs", False), "read_only", "no", "yes"),
    "capabilities kept": ByHand("Container.capabilities_dropped", host("CapDrop", None), "capabilities_dropped", "none", "ALL"),
    "fewer capabilities dropped": ByHand("Container.capabilities_dropped", host("CapDrop", ["NET_RAW", "cap_mknod"]), "capabilities_dropped", "MKNOD, NET_RAW", "ALL"),
    "a capability more": ByHand("Container.capabilities_added", host("CapAdd", ["CAP_SYS_ADMIN", "CHOWN"]), "capabilities_added", "CHOWN, SYS_ADMIN", "CHOWN"),
    "new privileges allowed": ByHand("Container.security", host("SecurityOpt", None), "security", "none", "no-new-privileges:true"),
    "without seccomp": ByHand("Container.security", host("SecurityOpt", ["no-new-privileges", "seccomp=unconfined"]), "security", "seccomp=unconfined", "no-new-privileges:true"),
    "no init": ByHand("Container.init", host("Init", None), "init", "no", "yes"),
    "privileged": ByHand("Container.privileged", host("Privileged", True), "privileged", "yes", "no"),
    "the host's processes": ByHand("Container.host_modes", host("PidMode", "host"), "host_modes", "pid:host", "none"),
    "the host's memory": ByHand("Container.host_modes", host("IpcMode", "host"), "host_modes", "ipc:host", "none"),
    "the host's name": ByHand("Container.host_modes", host("UTSMode", "host"), "host_modes", "uts:host", "none"),
    "a device": ByHand("Container.unasked", host("Devices", [{"PathOnHost": "/dev/null", "PathInContainer": "/dev/x", "CgroupPermissions": "rwm"}]), "unasked.Devices", "[{", "none"),
    "a group more": ByHand("Container.unasked", host("GroupAdd", ["0"]), "unasked.GroupAdd", '["0"]', "none"),
    "a name of a host": ByHand("Container.unasked", host("ExtraHosts", ["nats:192.0.2.1"]), "unasked.ExtraHosts", "nats:192.0.2.1", "none"),
    "all ports published": ByHand("Container.unasked", host("PublishAllPorts", True), "unasked.PublishAllPorts", "true", "none"),
    "another signal to stop": ByHand("Container.unasked", put("StopSignal", value="SIGKILL"), "unasked.StopSignal", "SIGKILL", "none"),
    "a kernel without its veil": ByHand("Container.unasked", host("MaskedPaths", []), "unasked.MaskedPaths", "[]", "none"),
    "shares of processors": ByHand("Container.unasked", host("CpuShares", 2), "unasked.CpuShares", "2", "none"),
    "down": ByHand("Container.running", nothing, "running", "no", "yes", IN_PLACE),
}  # fmt: skip


# -- what is only spelled otherwise ------------------------------------------------------------------------------------


def _of_the_command_line(body: Body, names: Names) -> object:
    """`docker create` says all of it, the defaults too."""
    body |= {"Domainname": "", "AttachStdin": False, "AttachStdout": True, "AttachStderr": True, "Tty": False}
    body |= {"OpenStdin": False, "StdinOnce": False, "Volumes": {}, "OnBuild": None}
    nulls = dict.fromkeys(
        ("Binds", "VolumesFrom", "DnsOptions", "ExtraHosts", "GroupAdd", "Links", "DeviceCgroupRules")
    )
    empty: dict[str, Any] = {
        key: [] for key in ("Dns", "DnsSearch", "Devices", "BlkioWeightDevice", "BlkioDeviceReadBps")
    }
    zeros: dict[str, Any] = dict.fromkeys(
        ("CpuShares", "CpuPeriod", "CpuQuota", "BlkioWeight", "OomScoreAdj", "ShmSize"), 0
    )
    texts: dict[str, Any] = dict.fromkeys(
        ("Cgroup", "CgroupParent", "PidMode", "UTSMode", "UsernsMode", "CpusetCpus"), ""
    )
    more = {"LogConfig": {"Type": "", "Config": {}}, "MemorySwappiness": -1, "OomKillDisable": False, "Ulimits": None}
    more |= {
        "RestartPolicy": {"Name": "unless-stopped", "MaximumRetryCount": 0},
        "AutoRemove": False,
        "ConsoleSize": [0, 0],
    }
    return body["HostConfig"].update({**nulls, **empty, **zeros, **texts, **more})


def _by_binds(body: Body, names: Names) -> object:
    body["HostConfig"]["Binds"] = [
        f"{each['Source']}:{each['Target']}{':ro' if each['ReadOnly'] else ''}" for each in body["HostConfig"]["Mounts"]
    ]
    return body["HostConfig"].pop("Mounts")


SPELLINGS: dict[str, Callable[[Body, Names], object]] = {
    "as the command line asks": _of_the_command_line,
    "volumes as binds": _by_binds,
    "mounts in another order": lambda body, names: body["HostConfig"]["Mounts"].reverse(),
    "variables in another order": lambda body, names: body["Env"].reverse(),
    "the image's own variable": variable("OF_IMAGE", "1"),
    "capabilities in small letters": lambda body, names: body["HostConfig"].update(CapDrop=["all"], CapAdd=["cap_chown"]),
    "a capability twice": host("CapAdd", ["CHOWN", "CAP_CHOWN"]),
    "privileges said shorter": host("SecurityOpt", ["no-new-privileges"]),
    "privileges said otherwise": host("SecurityOpt", ["no-new-privileges=true"]),
    "options in another order": host("Tmpfs", {"/tmp": "size=134217728,rw,nosuid,noexec,nodev,mode=1777"}),
    "an alias twice": aliases("worker", "worker"),
    "a port more that is not published": put("ExposedPorts", "9/tcp", value={}),
    "a label of others": put("Labels", "com.example.watch", value="yes"),
    "a name of its own": put("Hostname", value="shop"),
    "the image's own signal to stop": put("StopSignal", value="SIGTERM"),
    "logs elsewhere, other ulimits": lambda body, names: body["HostConfig"].update(
        LogConfig={"Type": "json-file", "Config": {"max-size": "1m"}}, Ulimits=[{"Name": "nofile", "Soft": 64, "Hard": 64}]
    ),
}  # fmt: skip
