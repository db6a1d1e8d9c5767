"""What a deployment consists of: one shape for what is wanted and for what an engine really has, so that they can be compared.

Pure values, in a fixed order. Seconds and bytes are plain numbers. Nothing here holds the value of a variable: `Values`
(what containers are created with) is kept apart, so that no rendering, label or file of a plan can contain a secret.

`Real` holds what a container has, with `inherited` for what is just what its image says. Labels that equal those of its image are left
out, as are aliases that the engine adds by itself (its id, its name).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

LABEL_PROJECT = "perdure.project"
LABEL_ROLE = "perdure.role"
LABEL_NAME = "perdure.name"
LABEL_SPEC = "perdure.spec"
"""Digest of what a container cannot change while it lives; see `spec_of`."""

LABEL_CARRIED = "perdure.carried-from"
"""On a data volume, and on the mark of role `carrying`: the id of the container whose data it was made for."""

LABEL_VOLUME = "perdure.volume"
"""On a mark of role `carrying`: the volume that the data goes into."""

LABEL_IMAGE = "perdure.image"
"""On a mark of role `carrying`: the image through which the volume is reached."""

LABEL_SOURCE = "perdure.source"
"""On images built here: the digest of what they were made from (`Image.source`)."""

USER_ID = 10001
"""The user (and group) of every container made from our images; /data and /run/secrets belong to it."""

USER = f"{USER_ID}:{USER_ID}"
DATA_FOLDER = "/data"
DATABASE = f"{DATA_FOLDER}/perdure.db"
GATEWAY_DATABASE = f"{DATA_FOLDER}/gateway.db"
PROJECT_FOLDER = "/app"
"""Where an image has the project's files."""

SECRETS_FOLDER = "/run/secrets"
"""Where the volume of role `secrets` is mounted, read-only, in the container that serves people."""

TOKEN_NAME = "token"
TOKEN_FILE = f"{SECRETS_FOLDER}/{TOKEN_NAME}"
NATS_CONFIGURATION = "/etc/nats/nats.conf"
NATS_STORE = f"{DATA_FOLDER}/jetstream"

_PROCESS_KEY = secrets.token_bytes(32)


class Role(StrEnum):
    """`perdure.role` of containers, volumes and networks."""

    SERVER = "server"
    """API, page and agents in one container (transport `embedded`)."""

    AGENT = "agent"
    NATS = "nats"
    GATEWAY = "gateway"
    SERVICE = "service"
    """Declared in `[deploy.services]`."""

    NETWORK = "network"
    DATA = "data"
    """A volume that is never removed without being told to."""

    SECRETS = "secrets"
    CARRYING = "carrying"
    """A volume without content: while it is there, the data volume that it names holds a copy that nobody has used."""


WITH_DATABASE = frozenset({Role.SERVER, Role.AGENT, Role.GATEWAY})
"""Roles whose /data must not be lost. NATS' store is filled again from the agents' files."""


# -- parts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class Variable:
    """An environment variable by the digest of its value. A secret's digest is keyed with this process and leaves it nowhere;
    an empty digest: only its presence is wanted (`Values` has it once it was made)."""

    name: str
    digest: str = field(repr=False)
    secret: bool = False

    @classmethod
    def of(cls, name: str, value: str) -> Variable:
        """How every variable of `Real` is made; the planner knows which are secret."""
        return cls(name, hashlib.sha256(value.encode()).hexdigest()[:16])

    def veiled(self) -> Variable:
        """The same as a secret."""
        if self.secret:
            return self
        return Variable(self.name, hmac.digest(_PROCESS_KEY, self.digest.encode(), "sha256").hex(), secret=True)


@dataclass(frozen=True, slots=True, order=True)
class Mount:
    target: str
    source: str
    """Name of a volume, or a path of the engine's host."""

    kind: str = "volume"
    """`volume` or `bind`."""

    read_only: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Tmpfs:
    target: str
    options: str = ""
    """As the engine takes them (`rw,noexec,nosuid,size=64m`), sorted by comma-separated part."""


@dataclass(frozen=True, slots=True, order=True)
class Attachment:
    """A network that a container is on. `aliases`: sorted, the declared ones alone."""

    network: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Port:
    container_port: int
    host_port: int
    address: str
    protocol: str = "tcp"


@dataclass(frozen=True, slots=True)
class HealthCheck:
    test: tuple[str, ...]
    """As the engine has it: `("CMD", program, argument…)`."""

    interval_seconds: float
    timeout_seconds: float
    start_period_seconds: float
    retries: int


@dataclass(frozen=True, slots=True)
class Limits:
    """None: without a limit."""

    memory_bytes: int | None = None
    nano_cpus: int | None = None
    """Billionths of a processor, as engines count."""

    pids: int | None = None


# -- things -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Build:
    """How an image is made here. `target`: the stage of our Dockerfile, `perdure` or `nats`."""

    target: str
    base: str
    """The base image, an argument of the Dockerfile."""

    folder: Path | None = None
    files: tuple[str, ...] = ()
    """Relative to `folder`, with `/`: copied into /app, owned by root, readable by everybody."""

    project: str = ""
    """The one of `files` that is copied without its table `[deploy]`."""

    texts: tuple[tuple[str, str], ...] = ()
    """Made files, (absolute path in the image, content). Never a secret."""


@dataclass(frozen=True, slots=True)
class Image:
    """`Real.images`: those with our project label or source label, those that containers of the project run, and those that
    `reference` names, whoever made them."""

    reference: str
    """`name:tag`. An image with several names is several of these."""

    source: str = ""
    """Digest of what it is made from: LABEL_SOURCE. Empty: it is not built here but taken as it is."""

    id: str | None = None
    """The content id, `sha256:…`. None in Wanted: the engine says it, see `State.image`."""

    build: Build | None = field(default=None, repr=False, compare=False)
    """Wanted alone."""


@dataclass(frozen=True, slots=True)
class Network:
    name: str
    labels: Mapping[str, str]
    driver: str = "bridge"
    internal: bool = False


@dataclass(frozen=True, slots=True)
class Volume:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    driver: str = "local"
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the driver: where the data really lies. None are wanted."""

    external: bool = False
    """Wanted alone: somebody else made it; it must be there, and is neither made, changed nor removed."""


@dataclass(frozen=True, slots=True)
class Container:
    name: str
    role: str
    image: str
    """The reference it is made from."""

    image_id: str | None
    """What it really runs, `sha256:…`. None in Wanted: see `Image.id`."""

    labels: Mapping[str, str]
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    working_folder: str = ""
    user: str = ""
    environment: tuple[Variable, ...] = ()
    mounts: tuple[Mount, ...] = ()
    tmpfs: tuple[Tmpfs, ...] = ()
    networks: tuple[Attachment, ...] = ()
    ports: tuple[Port, ...] = ()
    health: HealthCheck | None = None
    restart: str = "unless-stopped"
    stop_seconds: int = 10
    """How long it may take to end after SIGTERM. Longer than the drain."""

    limits: Limits = Limits()
    read_only: bool = False
    capabilities_dropped: tuple[str, ...] = ()
    """Sorted, without `CAP_`, `ALL` for all."""

    capabilities_added: tuple[str, ...] = ()
    security: tuple[str, ...] = ()
    """Security options, sorted: `no-new-privileges:true` (engines also say `no-new-privileges`: one spelling, this one)."""

    init: bool = False
    privileged: bool = False
    host_modes: tuple[str, ...] = ()
    """Namespaces shared with the host or with another container, sorted: `network:host`, `pid:host`, `ipc:host`. None is wanted."""

    unasked: tuple[tuple[str, str], ...] = ()
    """What the engine was told that no project can ask for (devices, sysctls, another stop signal …): its own name for it, the value
    as JSON. None is wanted."""

    running: bool = True
    """Whether it runs, or is being restarted by its policy. One that is paused does not."""

    inherited: frozenset[str] = field(default=frozenset(), compare=False)
    """Real alone: attributes whose value is that of the image: `entrypoint`, `command`, `working_folder`, `user`, `health`,
    `environment.NAME`. Who wants none of his own for them wants these."""

    @property
    def data(self) -> Mount | None:
        """What lies at /data; None: only the container's own layer."""
        return next((mount for mount in self.mounts if mount.target == DATA_FOLDER), None)


@dataclass(frozen=True, slots=True)
class State:
    """All of a deployment, by `project`. Real: everything that has its label, and everything that has a wanted name."""

    project: str
    images: tuple[Image, ...] = ()
    networks: tuple[Network, ...] = ()
    volumes: tuple[Volume, ...] = ()
    containers: tuple[Container, ...] = ()

    def container(self, name: str) -> Container | None:
        return next((each for each in self.containers if each.name == name), None)

    def network(self, name: str) -> Network | None:
        return next((each for each in self.networks if each.name == name), None)

    def volume(self, name: str) -> Volume | None:
        return next((each for each in self.volumes if each.name == name), None)

    def image(self, wanted: Image) -> Image | None:
        """The engine's image that is this one: of the same name, and of the same source where it is built here."""
        same = (each for each in self.images if each.reference == wanted.reference)
        return next((each for each in same if not wanted.source or each.source == wanted.source), None)


Wanted = State
"""What the project file says. Containers stand in the order in which they are started."""

Real = State
"""What an engine has."""


@dataclass(frozen=True, slots=True)
class Values:
    """Container → variable → value: what containers are created with. Holds secrets: never stored, printed or logged."""

    of: Mapping[str, Mapping[str, str]] = field(repr=False)


# -- plan -------------------------------------------------------------------------------------------------------------


class Kind(StrEnum):
    """What an action does to its subject; the value is how a plan shows it."""

    CREATE = "+"
    UPDATE = "~"
    """In place: limits, restart policy, networks, a start."""

    REMOVE = "-"
    REPLACE = "-/+"


class Subject(StrEnum):
    IMAGE = "image"
    """CREATE alone: built (`Image.build`) or fetched."""

    NETWORK = "network"
    VOLUME = "volume"
    """CREATE alone: no plan removes or changes one."""

    CONTAINER = "container"


@dataclass(frozen=True, slots=True)
class Change:
    """One attribute that differs, in words for people. `attribute`: a field of the model, `environment.NAME`, `labels.NAME`,
    `mounts./data`, `networks.NAME`, `limits.memory_bytes`, `running` …"""

    attribute: str
    had: str
    wants: str


@dataclass(frozen=True, slots=True)
class CarryData:
    """With REPLACE: what lies in a container at /data goes into a volume before the container goes: stop it, copy, verify, and
    only when its successor is well remove it; on any failure start it again."""

    container: str
    volume: str
    volume_exists: bool
    """It was there before this plan: it may hold data of its own, which must never be overwritten."""

    path: str = DATA_FOLDER


@dataclass(frozen=True, slots=True)
class Action:
    kind: Kind
    subject: Subject
    name: str
    reason: str
    """One sentence."""

    changes: tuple[Change, ...] = ()
    carry_data: CarryData | None = None
    detaches: tuple[str, ...] = ()
    """REPLACE of a network: the containers that leave the old one; each has an action that attaches it again, or removes it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in the order in which they are done. Empty: nothing differs."""

    project: str
    actions: tuple[Action, ...]
    real_digest: str
    """Of the real state that the plan was made from: see `digest_of`."""

    wanted_digest: str
    kept: tuple[str, ...] = ()
    """Data volumes of the project that nothing uses any more; they stay."""

    notes: tuple[str, ...] = ()
    """What differs and what no plan may put right: sentences."""

    warnings: tuple[str, ...] = ()
    """What whoever approves the plan must know first: what becomes of conversations, whose containers these are. Sentences."""

    @property
    def empty(self) -> bool:
        return not self.actions


# -- digests ----------------------------------------------------------------------------------------------------------

_OF_LIFE = frozenset({"limits", "restart", "networks", "running", "image", "image_id", "labels", "unasked"})
"""Attributes that a living container can change, that are compared by themselves, or that nobody can want."""


def spec_of(container: Container) -> str:
    """LABEL_SPEC: the digest of what a container has for its whole life, secrets by presence."""
    kept = {name: value for name, value in _plain(container).items() if name not in _OF_LIFE}
    return _digest(kept)


def with_spec(container: Container) -> Container:
    """The wanted container with its LABEL_SPEC."""
    return replace(container, labels={**container.labels, LABEL_SPEC: spec_of(container)})


def digest_of(state: State) -> str:
    """The same in every process for the same state; secrets count by presence. Veil what is not known to be plain before."""
    return _digest({name: _plain_all(getattr(state, name)) for name in ("images", "networks", "volumes", "containers")})


def _plain_all(things: Iterable[Any]) -> list[Any]:
    return sorted((_plain(thing) for thing in things), key=_line)


def _plain(thing: Any) -> dict[str, Any]:
    found = asdict(thing)
    found.pop("build", None)
    found.pop("inherited", None)
    if isinstance(thing, Container):
        found["environment"] = [
            {"name": each.name, "secret": True} if each.secret else asdict(each) for each in thing.environment
        ]
    return found


def _digest(value: Any) -> str:
    return hashlib.sha256(_line(value).encode()).hexdigest()


def _line(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
