"""An engine that keeps everything in memory: containers are well as soon as they start, images are what was asked for."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import IO, Self

from perdure.deploy.engine import EngineUnreachable, Life, NameTaken, Tell
from perdure.deploy.model import (
    LABEL_PROJECT,
    TOKEN_FILE,
    Attachment,
    Container,
    HealthCheck,
    Image,
    Network,
    Real,
    Variable,
    Volume,
    Wanted,
)

SAID = ["Perdure  http://127.0.0.1:8700", "open     http://127.0.0.1:8700/login?key=one-time (once, within 10 minutes)"]


class MemoryEngine:
    def __init__(self) -> None:
        self.away = False
        self.done: list[str] = []
        self.images: dict[str, Image] = {}
        self.networks: dict[str, Network] = {}
        self.volumes: dict[str, Volume] = {}
        self.containers: dict[str, Container] = {}
        self.put: dict[str, bytes] = {}
        """Volume → the tar that was put into it."""

    async def __aenter__(self) -> Self:
        if self.away:
            raise EngineUnreachable("The Docker engine does not answer (no socket).")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def read(self, wanted: Wanted) -> Real:
        named = {each.name for each in wanted.containers} | {each.name for each in wanted.volumes}
        named |= {each.name for each in wanted.networks}

        def here(name: str, labels: Mapping[str, str]) -> bool:
            return name in named or labels.get(LABEL_PROJECT) == wanted.project

        return Real(
            wanted.project,
            tuple(self.images.values()),
            tuple(each for each in self.networks.values() if here(each.name, each.labels)),
            tuple(each for each in self.volumes.values() if here(each.name, each.labels)),
            tuple(each for each in self.containers.values() if here(each.name, each.labels)),
        )

    async def identity(self) -> str:
        return "memory"

    async def make_image(self, image: Image, tell: Tell) -> str:
        self.done.append(f"image {image.reference}")
        made = Image(image.reference, image.source, f"sha256:{len(self.images):064x}")
        self.images[image.reference] = made
        return str(made.id)

    async def create_network(self, network: Network) -> None:
        self.networks[network.name] = network

    async def remove_network(self, name: str) -> None:
        self.networks.pop(name, None)

    async def connect(self, container: str, attachment: Attachment) -> None:
        found = self.containers[container]
        self.containers[container] = replace(found, networks=tuple(sorted((*found.networks, attachment))))

    async def disconnect(self, container: str, network: str) -> None:
        found = self.containers[container]
        kept = tuple(each for each in found.networks if each.network != network)
        self.containers[container] = replace(found, networks=kept)

    async def create_volume(self, volume: Volume) -> None:
        self.volumes.setdefault(volume.name, volume)

    async def remove_volume(self, name: str) -> None:
        self.volumes.pop(name, None)

    async def empty_volume(self, name: str, path: str, *, image: str) -> None:
        raise AssertionError("the tests of this engine carry no data")

    async def create_container(self, container: Container, values: Mapping[str, str], *, name: str) -> None:
        if name in self.containers:
            raise NameTaken(f"The name {name} is taken.")
        told = tuple(sorted(Variable.of(variable, value) for variable, value in values.items()))
        image = self.images[container.image].id
        self.containers[name] = replace(container, name=name, environment=told, image_id=image, running=False)

    async def create_errand(self, name: str, *, of: str, command: Sequence[str]) -> None:
        raise AssertionError("the tests of this engine undo no upgrade")

    async def container(self, name: str) -> Container | None:
        return self.containers.get(name)

    async def update_container(self, container: Container) -> None:
        found = self.containers[container.name]
        self.containers[container.name] = replace(found, limits=container.limits, restart=container.restart)

    async def rename_container(self, name: str, to: str) -> None:
        self.containers[to] = replace(self.containers.pop(name), name=to)

    async def start(self, name: str) -> None:
        self.done.append(f"start {name}")
        self.containers[name] = replace(self.containers[name], running=True)

    async def stop(self, name: str, seconds: int | None = None) -> None:
        self.done.append(f"stop {name}")
        self.containers[name] = replace(self.containers[name], running=False)

    async def restart(self, name: str) -> None:
        await self.stop(name)
        await self.start(name)

    async def remove_container(self, name: str) -> None:
        assert not self.containers[name].running
        del self.containers[name]

    async def life(self, name: str) -> Life | None:
        found = self.containers.get(name)
        if found is None:
            return None
        since = "2026-01-01T00:00:00.123456789Z"
        health = "healthy" if found.health else "none"
        return Life(id=name, running=found.running, health=health, since=since)

    async def passes(self, name: str, check: HealthCheck) -> bool | None:
        return True

    async def logs(self, name: str, *, follow: bool, tail: int | None) -> AsyncIterator[str]:
        for line in SAID if tail is None else SAID[-tail:]:
            yield line

    async def take_out(self, container: str, path: str, into: IO[bytes]) -> None:
        assert path == TOKEN_FILE, "the tests of this engine carry no data"
        (mount,) = [each for each in self.containers[container].mounts if each.target == "/run/secrets"]
        with (
            tarfile.open(fileobj=io.BytesIO(self.put[mount.source])) as tar,
            tarfile.open(fileobj=into, mode="w") as out,
        ):
            member = tar.getmember("secrets/token")
            content = tar.extractfile(member)
            member.name = "token"
            out.addfile(member, content)

    async def put_in(self, volume: str, path: str, archive: IO[bytes], *, image: str) -> None:
        self.put[volume] = archive.read()

    async def take_out_of_volume(self, volume: str, path: str, into: IO[bytes], *, image: str) -> None:
        raise AssertionError("the tests of this engine carry no data")

    async def volume(self, name: str) -> Volume | None:
        return self.volumes.get(name)

    async def holders(self, volume: str) -> Sequence[str]:
        return [each.name for each in self.containers.values() if volume in {mount.source for mount in each.mounts}]

    async def images_of(self, project: str) -> Sequence[Image]:
        return list(self.images.values())
