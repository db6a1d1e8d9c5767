"""Docker as an `Engine`, over its HTTP interface. Found as its own client finds it: the context, DOCKER_HOST, the local socket."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, ParamSpec, Self, TypeVar
from uuid import uuid4

import aiodocker
import aiohttp

from perdure.deploy import creation, inspection
from perdure.deploy.engine import EngineError, EngineUnreachable, Life, NameTaken, Tell
from perdure.deploy.inspection import Shown
from perdure.deploy.model import (
    LABEL_PROJECT,
    LABEL_SOURCE,
    Attachment,
    Container,
    HealthCheck,
    Image,
    Network,
    Real,
    Volume,
    Wanted,
)
from perdure.deploy.progress import follow_build
from perdure.deploy.refusals import refusal, unreachable
from perdure.deploy.sources import arguments, write_context
from perdure.failpoints import failpoint

P = ParamSpec("P")
R = TypeVar("R")

_GONE, _ALREADY, _TAKEN = 404, 304, 409
_NO_CONNECTION = 900
_PIECE = 1 << 20
_NO_NAME = "<none>:<none>"
_FOR_EVER = aiohttp.ClientTimeout(total=None, sock_read=None)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except aiodocker.DockerError as error:
        if error.status == _NO_CONNECTION:
            raise EngineUnreachable(unreachable(error.message)) from error
        raise EngineError(refusal(error.message), details={"status": error.status}) from error
    except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
        raise EngineUnreachable(unreachable(str(error) or type(error).__name__)) from error


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


class DockerEngine:
    """Use as `async with`. `wheelhouse`: a folder of wheels for images built without a network."""

    def __init__(self, host: str | None = None, *, wheelhouse: Path | None = None) -> None:
        self._host = host
        self._wheelhouse = wheelhouse

    async def __aenter__(self) -> Self:
        try:
            self._docker = aiodocker.Docker(self._host)
        except (AssertionError, ValueError, aiodocker.DockerError) as error:
            raise EngineUnreachable(unreachable(str(error) or "there is no socket of it")) from error
        try:
            with _translated():
                await self._docker.version()
        except BaseException:
            await self._docker.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._docker.close()

    async def identity(self) -> str:
        with _translated():
            return str((await self._get("info"))["ID"])

    # -- reading ------------------------------------------------------------------------------------------------------

    async def read(self, wanted: Wanted) -> Real:
        with _translated():
            shown = await self._containers(wanted)
            images = await self._images(wanted, {each["Image"] for each in shown})
            by_id = {image["Id"]: image for image in images.values()}
            networks = {each["Id"] for each in await self._get("networks")}
            named = {each for image in by_id.values() for each in inspection.images_of(image)}
            named |= {each for listed in await self._labelled_images(wanted) for each in inspection.images_of(listed)}
            # As the project writes it: with a registry or a digest the engine lists it by another name.
            named |= {
                inspection.image_of(each.reference, images[each.reference])
                for each in wanted.images
                if each.reference in images
            }
            return Real(
                project=wanted.project,
                images=tuple(sorted(named, key=lambda each: (each.reference, each.id or ""))),
                networks=await self._networks(wanted),
                volumes=await self._volumes(wanted),
                containers=tuple(
                    sorted(
                        (inspection.container_of(each, by_id.get(each["Image"]), networks) for each in shown),
                        key=lambda each: each.name,
                    )
                ),
            )

    async def _containers(self, wanted: Wanted) -> list[Shown]:
        listed = await self._get("containers/json", all=1, filters=_labelled(wanted.project))
        found = [await self._look(f"containers/{each['Id']}/json") for each in listed]
        known = {each["Name"].removeprefix("/") for each in found if each is not None}
        found += [
            await self._look(f"containers/{each.name}/json") for each in wanted.containers if each.name not in known
        ]
        return [each for each in found if each is not None]

    async def _images(self, wanted: Wanted, running: set[str]) -> Mapping[str, Shown]:
        """By the names and ids that they were asked for."""
        asked = running | {each.reference for each in wanted.images}
        found = {each: await self._look(f"images/{each}/json") for each in sorted(asked)}
        return {name: shown for name, shown in found.items() if shown is not None}

    async def _labelled_images(self, wanted: Wanted) -> list[Shown]:
        """As a list has them: without looking at each."""
        labelled = [
            *await self._get("images/json", filters={"label": [LABEL_SOURCE]}),
            *await self._get("images/json", filters=_labelled(wanted.project)),
        ]
        return [
            {
                "Id": each["Id"],
                "RepoTags": [tag for tag in each["RepoTags"] or () if tag != _NO_NAME],
                "Config": {"Labels": each["Labels"]},
            }
            for each in labelled
        ]

    async def _networks(self, wanted: Wanted) -> tuple[Network, ...]:
        listed = await self._get("networks", filters=_labelled(wanted.project))
        found = {each["Name"]: each for each in listed}
        for each in wanted.networks:
            found.setdefault(each.name, await self._look(f"networks/{each.name}"))
        return tuple(inspection.network_of(found[name]) for name in sorted(found) if found[name] is not None)

    async def _volumes(self, wanted: Wanted) -> tuple[Volume, ...]:
        listed = (await self._get("volumes", filters=_labelled(wanted.project)))["Volumes"] or ()
        found = {each["Name"]: each for each in listed}
        for each in wanted.volumes:
            found.setdefault(each.name, await self._look(f"volumes/{each.name}"))
        return tuple(inspection.volume_of(found[name]) for name in sorted(found) if found[name] is not None)

    async def life(self, name: str) -> Life | None:
        with _translated():
            shown = await self._look(f"containers/{name}/json")
        return None if shown is None else inspection.life_of(shown)

    async def passes(self, name: str, check: HealthCheck) -> bool | None:
        kind, *words = check.test
        command = ["/bin/sh", "-c", *words] if kind == "CMD-SHELL" else words
        try:
            async with asyncio.timeout(check.timeout_seconds):
                with _translated():
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
        with _translated():
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
        with _translated():
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
                timeout=_FOR_EVER,
            ) as response:
                await follow_build(response.content.iter_any(), image.reference, arguments(image.build), tell)

    # -- networks and volumes -----------------------------------------------------------------------------------------

    @_place
    async def create_network(self, network: Network) -> None:
        with _translated():
            await self._docker.networks.create(creation.network_body(network))

    @_place
    async def remove_network(self, name: str) -> None:
        with _translated():
            await self._ask(f"networks/{name}", "DELETE", fine=(_GONE,))

    @_place
    async def connect(self, container: str, attachment: Attachment) -> None:
        body = {"Container": container, "EndpointConfig": creation.endpoint(attachment)}
        with _translated():
            await self._ask(f"networks/{attachment.network}/connect", "POST", body)

    @_place
    async def disconnect(self, container: str, network: str) -> None:
        with _translated():
            shown = await self._look(f"containers/{container}/json")
            if shown is not None and network in shown["NetworkSettings"]["Networks"]:
                await self._ask(f"networks/{network}/disconnect", "POST", {"Container": container, "Force": True})

    @_place
    async def create_volume(self, volume: Volume) -> None:
        with _translated():
            await self._ask("volumes/create", "POST", creation.volume_body(volume))

    @_place
    async def remove_volume(self, name: str) -> None:
        with _translated():
            await self._remove_carriers(name)
            await self._ask(f"volumes/{name}", "DELETE", fine=(_GONE,))

    @_place
    async def empty_volume(self, name: str, path: str, *, image: str) -> None:
        async with self._carrier(image, name, path, creation.emptying(path)) as carrier:
            with _translated():
                await self._ask(f"containers/{carrier}/start", "POST")
                async with self._docker._query(f"containers/{carrier}/wait", "POST", timeout=_FOR_EVER) as response:
                    code = (await response.json())["StatusCode"]
        if code != 0:
            raise EngineError(f"The volume {name} could not be emptied. Remove it: docker volume rm {name}")

    # -- containers ---------------------------------------------------------------------------------------------------

    @_place
    async def create_container(self, container: Container, values: Mapping[str, str], *, name: str) -> None:
        try:
            with _translated():
                await self._docker.containers.create(creation.container_body(container, values), name=name)
        except EngineError as error:
            if error.details.get("status") != _TAKEN:
                raise
            raise NameTaken(
                f"There is a container {name} already: another apply is at work, or somebody made it. Wait, and make another plan."
            ) from error
        for attachment in container.networks[1:]:
            await self.connect(name, attachment)

    @_place
    async def update_container(self, container: Container) -> None:
        with _translated():
            await self._ask(f"containers/{container.name}/update", "POST", creation.update_body(container))

    @_place
    async def rename_container(self, name: str, to: str) -> None:
        with _translated():
            await self._docker.containers.container(name).rename(to)

    @_place
    async def start(self, name: str) -> None:
        with _translated():
            shown = await self._look(f"containers/{name}/json")
            verb = "unpause" if shown is not None and shown["State"].get("Paused") else "start"
            await self._ask(f"containers/{name}/{verb}", "POST", fine=(_ALREADY,))

    @_place
    async def stop(self, name: str, seconds: int | None = None) -> None:
        with _translated():
            await self._docker.containers.container(name).stop(t=seconds)

    async def restart(self, name: str) -> None:
        with _translated():
            await self._docker.containers.container(name).restart()

    @_place
    async def remove_container(self, name: str) -> None:
        with _translated():
            await self._ask(f"containers/{name}", "DELETE", fine=(_GONE,))

    # -- files --------------------------------------------------------------------------------------------------------

    async def take_out(self, container: str, path: str, into: IO[bytes]) -> None:
        with _translated():
            async with self._docker._query(
                f"containers/{container}/archive", "GET", params={"path": path}, timeout=_FOR_EVER
            ) as response:
                async for piece in response.content.iter_chunked(_PIECE):
                    await asyncio.to_thread(into.write, piece)

    @_place
    async def put_in(self, volume: str, path: str, archive: IO[bytes], *, image: str) -> None:
        parent = path.rpartition("/")[0] or "/"
        async with self._carrier(image, volume, path) as carrier:
            with _translated():
                async with self._docker._query(
                    f"containers/{carrier}/archive",
                    "PUT",
                    params={"path": parent},
                    headers={"Content-Type": "application/x-tar"},
                    data=archive,
                    timeout=_FOR_EVER,
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
        with _translated():
            await self._remove_carriers(volume)
            await self._docker.containers.create(creation.carrier_body(image, volume, path, command), name=name)
        try:
            yield name
        finally:
            with _translated():
                await self._ask(f"containers/{name}?force=1", "DELETE", fine=(_GONE,))

    async def _remove_carriers(self, volume: str) -> None:
        left = await self._get("containers/json", all=1, filters={"label": [f"{creation.LABEL_CARRIER}={volume}"]})
        for each in left:
            await self._ask(f"containers/{each['Id']}?force=1", "DELETE", fine=(_GONE,))

    # -- asking -------------------------------------------------------------------------------------------------------

    async def _get(self, path: str, *, filters: Mapping[str, Any] | None = None, **params: Any) -> Any:
        if filters is not None:
            params["filters"] = json.dumps(filters)
        return await self._docker._query_json(path, "GET", params=params)

    async def _look(self, path: str) -> Any:
        """None: there is no such thing."""
        try:
            return await self._get(path)
        except aiodocker.DockerError as error:
            if error.status == _GONE:
                return None
            raise

    async def _ask(self, path: str, method: str, body: Any = None, *, fine: Sequence[int] = ()) -> None:
        """`fine`: statuses that mean it was so already."""
        data = None if body is None else json.dumps(body).encode()
        try:
            async with self._docker._query(path, method, data=data) as response:
                await response.read()
        except aiodocker.DockerError as error:
            if error.status not in fine:
                raise


def _labelled(project: str) -> Mapping[str, Sequence[str]]:
    return {"label": [f"{LABEL_PROJECT}={project}"]}
