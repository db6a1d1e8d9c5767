"""Docker as an `Engine`, over its HTTP interface: what changes something there, what containers say, and their files."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar
from uuid import uuid4

from perdure.deploy import creation
from perdure.deploy.engine import EngineError, EngineUnreachable, NameTaken, Tell
from perdure.deploy.model import (
    LABEL_SOURCE,
    Attachment,
    Container,
    HealthCheck,
    Image,
    Network,
    Volume,
)
from perdure.deploy.progress import follow_build
from perdure.deploy.reading import FOR_EVER, GONE, DockerReader, translated
from perdure.deploy.sources import arguments, write_context
from perdure.failpoints import failpoint

P = ParamSpec("P")
R = TypeVar("R")

_ALREADY, _TAKEN = 304, 409
_PIECE = 1 << 20


def _place(verb: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """A verb that changes something: a test may kill whoever uses it before and after."""
    name = f"deploy.{verb.__name__}"

    @functools.wraps(verb)
    async def passed(*args: P.args, **kwargs: P.kwargs) -> R:
        failpoint(f"{name}.before")
        done = await verb(*args, **kwargs)
        failpoint(f"{name}.after")
        return done

    return passed


class DockerEngine(DockerReader):
    """Use as `async with`. `wheelhouse`: a folder of wheels for images built without a network."""

    def __init__(self, host: str | None = None, *, wheelhouse: Path | None = None) -> None:
        super().__init__(host)
        self._wheelhouse = wheelhouse

    async def passes(self, name: str, check: HealthCheck) -> bool | None:
        kind, *words = check.test
        command = ["/bin/sh", "-c", *words] if kind == "CMD-SHELL" else words
        try:
            async with asyncio.timeout(check.timeout_seconds):
                with translated():
                    return await self._run(name, command)
        except EngineUnreachable:
            raise
        except (EngineError, TimeoutError):  # it is down in between, or has no such program
            return None

    async def _run(self, name: str, command: Sequence[str]) -> bool | None:
        asked = json.dumps({"Cmd": command, "AttachStdout": True}).encode()
        async with self._docker._query(f"containers/{name}/exec", "POST", data=asked) as response:
            run = (await response.json())["Id"]
        async with self._docker._query(f"exec/{run}/start", "POST", data=b'{"Detach": false}') as response:
            await response.read()  # ends when the command does
        code = (await self._get(f"exec/{run}/json"))["ExitCode"]
        return None if code is None else bool(code == 0)

    async def logs(self, name: str, *, follow: bool, tail: int | None) -> AsyncIterator[str]:
        container = self._docker.containers.container(name)
        last = "all" if tail is None else tail
        with translated():
            if not follow:
                pieces = await container.log(stdout=True, stderr=True, tail=last)
                for line in "".join(pieces).splitlines():
                    yield line
                return
            rest = ""
            async for piece in container.log(stdout=True, stderr=True, follow=True, tail=last):
                *lines, rest = (rest + piece).split("\n")
                for line in lines:
                    yield line
            if rest:
                yield rest

    # -- images -------------------------------------------------------------------------------------------------------

    @_place
    async def make_image(self, image: Image, tell: Tell) -> str:
        with translated():
            if image.build is None:
                await self._fetch(image.reference, tell)
            else:
                await self._build(image, tell)
            shown = await self._look(f"images/{image.reference}/json")
        if shown is None:
            raise EngineError(f"The image {image.reference} was made, but Docker does not have it. Try again.")
        return str(shown["Id"])

    async def _fetch(self, reference: str, tell: Tell) -> None:
        if await self._look(f"images/{reference}/json") is None:
            tell(f"  fetches {reference}")
            await self._docker.images.pull(reference, timeout=None)

    async def _build(self, image: Image, tell: Tell) -> None:
        assert image.build is not None
        labels = {LABEL_SOURCE: image.source} if image.source else {}
        params = {
            "t": image.reference,
            "target": image.build.target,
            "buildargs": json.dumps(arguments(image.build)),
            "labels": json.dumps(labels),
            "rm": "1",
            "forcerm": "1",
        }
        with tempfile.TemporaryFile() as context:
            await asyncio.to_thread(write_context, image.build, context, wheelhouse=self._wheelhouse)
            context.seek(0)
            async with self._docker._query(
                "build",
                "POST",
                params=params,
                headers={"Content-Type": "application/x-tar"},
                data=context,
                timeout=FOR_EVER,
            ) as response:
                await follow_build(response.content.iter_any(), image.reference, arguments(image.build), tell)

    # -- networks and volumes -----------------------------------------------------------------------------------------

    @_place
    async def create_network(self, network: Network) -> None:
        with translated():
            await self._docker.networks.create(creation.network_body(network))

    @_place
    async def remove_network(self, name: str) -> None:
        with translated():
            await self._ask(f"networks/{name}", "DELETE", fine=(GONE,))

    @_place
    async def connect(self, container: str, attachment: Attachment) -> None:
        body = {"Container": container, "EndpointConfig": creation.endpoint(attachment)}
        with translated():
            await self._ask(f"networks/{attachment.network}/connect", "POST", body)

    @_place
    async def disconnect(self, container: str, network: str) -> None:
        with translated():
            shown = await self._look(f"containers/{container}/json")
            if shown is not None and network in shown["NetworkSettings"]["Networks"]:
                await self._ask(f"networks/{network}/disconnect", "POST", {"Container": container, "Force": True})

    @_place
    async def create_volume(self, volume: Volume) -> None:
        with translated():
            await self._ask("volumes/create", "POST", creation.volume_body(volume))

    @_place
    async def remove_volume(self, name: str) -> None:
        with translated():
            await self._remove_carriers(name)
            await self._ask(f"volumes/{name}", "DELETE", fine=(GONE,))

    @_place
    async def empty_volume(self, name: str, path: str, *, image: str) -> None:
        async with self._carrier(image, name, path, creation.emptying(path)) as carrier:
            with translated():
                await self._ask(f"containers/{carrier}/start", "POST")
                async with self._docker._query(f"containers/{carrier}/wait", "POST", timeout=FOR_EVER) as response:
                    code = (await response.json())["StatusCode"]
        if code != 0:
            raise EngineError(f"The volume {name} could not be emptied. Remove it: docker volume rm {name}")

    # -- containers ---------------------------------------------------------------------------------------------------

    @_place
    async def create_container(self, container: Container, values: Mapping[str, str], *, name: str) -> None:
        await self._create(creation.container_body(container, values), name)
        for attachment in container.networks[1:]:
            await self.connect(name, attachment)

    @_place
    async def create_errand(self, name: str, *, of: str, command: Sequence[str]) -> None:
        with translated():
            shown = await self._get(f"containers/{of}/json")
        await self._create(creation.errand_body(shown, command), name)

    async def _create(self, body: creation.Asked, name: str) -> None:
        try:
            with translated():
                await self._docker.containers.create(body, name=name)
        except EngineError as error:
            if error.details.get("status") != _TAKEN:
                raise
            raise NameTaken(
                f"There is a container {name} already: another apply is at work, or somebody made it. Wait, and make another plan."
            ) from error

    @_place
    async def update_container(self, container: Container) -> None:
        with translated():
            await self._ask(f"containers/{container.name}/update", "POST", creation.update_body(container))

    @_place
    async def rename_container(self, name: str, to: str) -> None:
        with translated():
            await self._docker.containers.container(name).rename(to)

    @_place
    async def start(self, name: str) -> None:
        with translated():
            shown = await self._look(f"containers/{name}/json")
            verb = "unpause" if shown is not None and shown["State"].get("Paused") else "start"
            await self._ask(f"containers/{name}/{verb}", "POST", fine=(_ALREADY,))

    @_place
    async def stop(self, name: str, seconds: int | None = None) -> None:
        with translated():
            await self._docker.containers.container(name).stop(t=seconds)

    async def restart(self, name: str) -> None:
        with translated():
            await self._docker.containers.container(name).restart()

    @_place
    async def remove_container(self, name: str) -> None:
        with translated():
            await self._ask(f"containers/{name}", "DELETE", fine=(GONE,))

    # -- files --------------------------------------------------------------------------------------------------------

    async def take_out(self, container: str, path: str, into: IO[bytes]) -> None:
        with translated():
            async with self._docker._query(
                f"containers/{container}/archive", "GET", params={"path": path}, timeout=FOR_EVER
            ) as response:
                async for piece in response.content.iter_chunked(_PIECE):
                    await asyncio.to_thread(into.write, piece)

    @_place
    async def put_in(self, volume: str, path: str, archive: IO[bytes], *, image: str) -> None:
        parent = path.rpartition("/")[0] or "/"
        async with self._carrier(image, volume, path) as carrier:
            with translated():
                async with self._docker._query(
                    f"containers/{carrier}/archive",
                    "PUT",
                    params={"path": parent},
                    headers={"Content-Type": "application/x-tar"},
                    data=archive,
                    timeout=FOR_EVER,
                ) as response:
                    await response.read()

    async def take_out_of_volume(self, volume: str, path: str, into: IO[bytes], *, image: str) -> None:
        async with self._carrier(image, volume, path) as carrier:
            await self.take_out(carrier, path, into)

    @contextlib.asynccontextmanager
    async def _carrier(
        self, image: str, volume: str, path: str, command: Sequence[str] = ("true",)
    ) -> AsyncIterator[str]:
        """A container beside the volume, gone afterwards; as is one that somebody left who died."""
        name = f"perdure-carrier-{uuid4().hex[:12]}"
        with translated():
            await self._remove_carriers(volume)
            await self._docker.containers.create(creation.carrier_body(image, volume, path, command), name=name)
        try:
            yield name
        finally:
            with translated():
                await self._ask(f"containers/{name}?force=1", "DELETE", fine=(GONE,))

    async def _remove_carriers(self, volume: str) -> None:
        left = await self._get("containers/json", all=1, filters={"label": [f"{creation.LABEL_CARRIER}={volume}"]})
        for each in left:
            await self._ask(f"containers/{each['Id']}?force=1", "DELETE", fine=(GONE,))
