"""The port to what runs containers. One verb is one thing done to the engine; order and safety belong to `applying`.

Names are those of `model`. Every verb raises `EngineError`; one that cannot reach the engine raises `EngineUnreachable`, so that
an engine that is away is never taken for one that has nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from perdure.deploy.model import Attachment, Container, HealthCheck, Image, Network, Real, Volume, Wanted
from perdure.errors import PerdureError

Tell = Callable[[str], None]
"""Takes a line about what is being done, for a person. Never a secret."""


class EngineError(PerdureError):
    """The engine refused; its words say why."""

    code = "ENGINE"


class EngineUnreachable(EngineError):
    """No engine answers."""

    code = "ENGINE_UNREACHABLE"


class NameTaken(EngineError):
    """There is a container of that name already: nothing was made."""

    code = "NAME_TAKEN"


@dataclass(frozen=True, slots=True)
class Life:
    """How a container is at a moment. `health`: `healthy`, `unhealthy`, `starting`, or `none` without a health check."""

    id: str
    running: bool
    health: str
    restarting: bool = False
    """Its restart policy will start it again."""

    paused: bool = False
    """Somebody has frozen it; it does not run."""

    exit_code: int = 0
    restarts: int = 0
    started: bool = True
    """Whether it was ever started."""

    since: str = ""
    """RFC 3339: when it was started last."""

    said: str = ""
    """What its last health check printed."""

    check: HealthCheck | None = None
    """What it has been given, or its image says; None: none."""

    @property
    def well(self) -> bool:
        return self.running and self.health in {"healthy", "none"}


class Engine(Protocol):
    """Use as `async with`."""

    async def identity(self) -> str:
        """The same for whoever speaks to the same engine."""
        ...

    async def read(self, wanted: Wanted) -> Real:
        """Everything with the project's label, and whatever has a wanted name."""
        ...

    async def make_image(self, image: Image, tell: Tell) -> str:
        """Builds it (`Image.build`), or fetches it; its content id."""
        ...

    async def create_network(self, network: Network) -> None: ...

    async def remove_network(self, name: str) -> None:
        """Nothing happens when it is not there."""
        ...

    async def connect(self, container: str, attachment: Attachment) -> None: ...

    async def disconnect(self, container: str, network: str) -> None:
        """Nothing happens when it is not attached."""
        ...

    async def create_volume(self, volume: Volume) -> None:
        """Nothing happens when it is there."""
        ...

    async def remove_volume(self, name: str) -> None:
        """Takes what is in it. Nothing happens when it is not there."""
        ...

    async def holders(self, volume: str) -> Sequence[str]:
        """Names of the containers that have it, whether they run or not; without those of the engine's own errands."""
        ...

    async def empty_volume(self, name: str, path: str, *, image: str) -> None:
        """Takes what is in it; the volume itself stays. It is reached at `path` of a container of that image, which has Python."""
        ...

    async def create_container(self, container: Container, values: Mapping[str, str], *, name: str) -> None:
        """Made under `name`, not started. Raises NameTaken."""
        ...

    async def create_errand(self, name: str, *, of: str, command: Sequence[str]) -> None:
        """Made under `name`, not started, to run a command once: with the image, values, user, mounts, limits and labels that `of` was
        made with, and without its networks, ports, health check and restart policy. Raises NameTaken."""
        ...

    async def update_container(self, container: Container) -> None:
        """Limits and restart policy of the living one."""
        ...

    async def rename_container(self, name: str, to: str) -> None: ...

    async def start(self, name: str) -> None:
        """Nothing happens when it runs. One that is paused goes on."""
        ...

    async def stop(self, name: str, seconds: int | None = None) -> None:
        """SIGTERM, then SIGKILL after so long (None: what the container says). Returns when it is down; at once when it was."""
        ...

    async def restart(self, name: str) -> None: ...

    async def remove_container(self, name: str) -> None:
        """Its volumes stay. Nothing happens when it is not there. It must be down."""
        ...

    async def life(self, name: str) -> Life | None:
        """None: there is no such container."""
        ...

    async def container(self, name: str) -> Container | None:
        """What it was made with. None: there is no such container."""
        ...

    async def passes(self, name: str, check: HealthCheck) -> bool | None:
        """Runs the check once, now, as the engine itself would. None: it has not ended within its time, or cannot be run."""
        ...

    def logs(self, name: str, *, follow: bool, tail: int | None) -> AsyncIterator[str]:
        """Lines, both streams in one."""
        ...

    async def take_out(self, container: str, path: str, into: IO[bytes]) -> None:
        """A tar of the folder, its own name first in every name, from a container that runs or does not."""
        ...

    async def put_in(self, volume: str, path: str, archive: IO[bytes], *, image: str) -> None:
        """Unpacks such a tar into the volume, mounted at `path` of a container of that image that never starts. Owners and
        modes are those of the tar; an empty volume gets those that the image has there."""
        ...

    async def take_out_of_volume(self, volume: str, path: str, into: IO[bytes], *, image: str) -> None:
        """The tar of a volume as it would lie at `path`."""
        ...
