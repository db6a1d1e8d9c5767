"""What there is at a Docker engine, over its HTTP interface. Found as its own client finds it: the context, DOCKER_HOST, the local
socket."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import aiodocker
import aiohttp

from perdure.deploy import inspection
from perdure.deploy.creation import LABEL_CARRIER
from perdure.deploy.engine import EngineError, EngineUnreachable, Life
from perdure.deploy.inspection import Shown
from perdure.deploy.model import LABEL_PROJECT, LABEL_SOURCE, Container, Network, Real, Volume, Wanted
from perdure.deploy.refusals import refusal, unreachable

GONE = 404
FOR_EVER = aiohttp.ClientTimeout(total=None, sock_read=None)
_NO_CONNECTION = 900
_NO_NAME = "<none>:<none>"


@contextlib.contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except aiodocker.DockerError as error:
        if error.status == _NO_CONNECTION:
            raise EngineUnreachable(unreachable(error.message)) from error
        raise EngineError(refusal(error.message), details={"status": error.status}) from error
    except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
        raise EngineUnreachable(unreachable(str(error) or type(error).__name__)) from error


class DockerReader:
    """Use as `async with`."""

    def __init__(self, host: str | None = None) -> None:
        self._host = host

    async def __aenter__(self) -> Self:
        try:
            self._docker = aiodocker.Docker(self._host)
        except (AssertionError, ValueError, aiodocker.DockerError) as error:
            raise EngineUnreachable(unreachable(str(error) or "there is no socket of it")) from error
        try:
            with translated():
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
        with translated():
            return str((await self._get("info"))["ID"])

    # -- reading ------------------------------------------------------------------------------------------------------

    async def read(self, wanted: Wanted) -> Real:
        with translated():
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
        with translated():
            shown = await self._look(f"containers/{name}/json")
        return None if shown is None else inspection.life_of(shown)

    async def container(self, name: str) -> Container | None:
        with translated():
            shown = await self._look(f"containers/{name}/json")
        return None if shown is None else inspection.container_of(shown, None)

    async def holders(self, volume: str) -> Sequence[str]:
        with translated():
            found = await self._get("containers/json", all=1, filters={"volume": [volume]})
        return sorted(each["Names"][0].removeprefix("/") for each in found if LABEL_CARRIER not in each["Labels"])

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
            if error.status == GONE:
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
