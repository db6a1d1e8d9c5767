"""An engine in memory with files in its containers and volumes, that can die with its user at any verb, or refuse to become well."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO

from perdure.deploy.engine import Life, NameTaken, Tell
from perdure.deploy.model import DATA_FOLDER, Attachment, Container, HealthCheck, Image, Network, Real, Volume, Wanted

Files = dict[str, str]


class Died(BaseException):
    """The program that uses the engine was killed: nothing it would still do happens."""


@dataclass
class Held:
    id: str
    container: Container
    running: bool
    started: bool
    layer: Files = field(default_factory=dict)
    """What it has at /data where no volume is."""


class MortalEngine:
    def __init__(self, real: Real) -> None:
        self.real = real
        self.held = {
            each.name: Held(f"id-{each.name}", each, running=each.running, started=True) for each in real.containers
        }
        self.volumes: dict[str, tuple[Volume, Files]] = {each.name: (each, {}) for each in real.volumes}
        self.verbs: list[str] = []
        self.dies_at: int | None = None
        self.unwell: set[str] = set()
        """Containers (names they are made under) whose health check fails."""

        self.corrupts = False
        """What is put in a volume is not what comes out."""

        self._made = 0

    def _verb(self, what: str) -> None:
        if self.dies_at is not None and len(self.verbs) >= self.dies_at:
            raise Died
        self.verbs.append(what)

    def data_of(self, name: str) -> Files:
        held = self.held[name]
        mount = held.container.data
        return held.layer if mount is None else self.volumes[mount.source][1]

    # -- the port -----------------------------------------------------------------------------------------------------

    async def read(self, wanted: Wanted) -> Real:
        return replace(
            self.real,
            volumes=tuple(volume for volume, _ in self.volumes.values()),
            containers=tuple(replace(each.container, running=each.running) for each in self.held.values()),
        )

    async def identity(self) -> str:
        return "mortal"

    async def make_image(self, image: Image, tell: Tell) -> str:
        self._verb(f"image {image.reference}")
        return str(image.id)

    async def create_network(self, network: Network) -> None:
        self._verb(f"network {network.name}")

    async def remove_network(self, name: str) -> None:
        self._verb(f"remove network {name}")

    async def connect(self, container: str, attachment: Attachment) -> None:
        self._verb(f"connect {container}")

    async def disconnect(self, container: str, network: str) -> None:
        self._verb(f"disconnect {container}")

    async def create_volume(self, volume: Volume) -> None:
        self._verb(f"volume {volume.name}")
        self.volumes.setdefault(volume.name, (volume, {}))

    async def remove_volume(self, name: str) -> None:
        self._verb(f"remove volume {name}")
        assert not self._holders(name), f"{name} is in use"
        self.volumes.pop(name, None)

    async def holders(self, volume: str) -> Sequence[str]:
        return self._holders(volume)

    async def empty_volume(self, name: str, path: str, *, image: str) -> None:
        self._verb(f"empty {name}")
        self.volumes[name][1].clear()

    async def create_container(self, container: Container, values: Mapping[str, str], *, name: str) -> None:
        self._verb(f"create {name}")
        if name in self.held:
            raise NameTaken(f"{name} is taken.")
        self._made += 1
        old = self.real.container(container.name)
        real = replace(
            container,
            name=name,
            image_id=old.image_id if old else "sha256:1",
            environment=old.environment if old else (),
            inherited=old.inherited if old else frozenset(),
        )
        self.held[name] = Held(f"id-{self._made}", real, running=False, started=False)

    async def create_errand(self, name: str, *, of: str, command: Sequence[str]) -> None:
        self._verb(f"create {name}")
        if name in self.held:
            raise NameTaken(f"{name} is taken.")
        like = self.held[of]
        assert not like.running, "one at a time has the file"
        errand = replace(
            like.container, name=name, command=tuple(command), networks=(), ports=(), health=None, restart="no"
        )
        self.held[name] = Held(f"id-{name}", errand, running=False, started=False)

    async def container(self, name: str) -> Container | None:
        self._verb(f"look at {name}")
        held = self.held.get(name)
        return None if held is None else held.container

    async def update_container(self, container: Container) -> None:
        self._verb(f"update {container.name}")
        held = self.held[container.name]
        held.container = replace(held.container, limits=container.limits, restart=container.restart)

    async def rename_container(self, name: str, to: str) -> None:
        self._verb(f"rename {name}")
        held = self.held.pop(name)
        held.container = replace(held.container, name=to)
        self.held[to] = held

    async def start(self, name: str) -> None:
        self._verb(f"start {name}")
        held = self.held[name]
        others = [each for each in self.held.values() if each.running and each is not held]
        taken = {port for each in others for port in each.container.ports}
        assert not taken & set(held.container.ports), "two containers would have one port"
        held.running = held.started = True

    async def stop(self, name: str, seconds: int | None = None) -> None:
        self._verb(f"stop {name}")
        self.held[name].running = False

    async def restart(self, name: str) -> None:
        await self.stop(name)
        await self.start(name)

    async def remove_container(self, name: str) -> None:
        self._verb(f"remove {name}")
        assert not self.held[name].running
        del self.held[name]

    async def life(self, name: str) -> Life | None:
        self._verb(f"look {name}")
        held = self.held.get(name)
        if held is None:
            return None
        health = "unhealthy" if name in self.unwell else "healthy"
        return Life(held.id, held.running, health, started=held.started)

    async def passes(self, name: str, check: HealthCheck) -> bool | None:
        return True

    async def logs(self, name: str, *, follow: bool, tail: int | None) -> AsyncIterator[str]:
        for line in ("first", f"last of {name}")[-(tail or 2) :]:
            yield line

    async def take_out(self, container: str, path: str, into: IO[bytes]) -> None:
        self._verb(f"take out {container}")
        assert path == DATA_FOLDER
        assert not self.held[container].running, "a database that is written to is not copied"
        _pack(self.data_of(container), into)

    async def put_in(self, volume: str, path: str, archive: IO[bytes], *, image: str) -> None:
        self._verb(f"begin to put into {volume}")
        with tarfile.open(fileobj=archive) as tar:
            for member in tar:
                content = tar.extractfile(member)
                if content is None:
                    continue
                self.volumes[volume][1][member.name] = "?" if self.corrupts else content.read().decode()
                self._verb(f"put {member.name} into {volume}")

    async def take_out_of_volume(self, volume: str, path: str, into: IO[bytes], *, image: str) -> None:
        self._verb(f"take out of {volume}")
        _pack(self.volumes[volume][1], into)

    def _holders(self, volume: str) -> Sequence[str]:
        return [
            name for name, each in self.held.items() if any(mount.source == volume for mount in each.container.mounts)
        ]


def _pack(files: Files, into: IO[bytes]) -> None:
    with tarfile.open(fileobj=into, mode="w") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
