"""A project and the engine that it is deployed to, put together: what is wanted, by which token, and what is there."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from perdure.config import DeploySettings, Settings
from perdure.deferred import deferred
from perdure.deploy.engine import Engine
from perdure.deploy.files import read_files
from perdure.deploy.model import LABEL_PROJECT, SECRETS_FOLDER, TOKEN_FILE, TOKEN_NAME, Container, Plan, Real, Wanted
from perdure.deploy.planner import plan
from perdure.deploy.project import Description, Known, describe, outline
from perdure.deploy.sources import recipe
from perdure.deploy.token import keep_token, new_token, others_can_read, read_token, token_file
from perdure.errors import ConfigurationError
from perdure.settings.deployment import load_deployment

SMALL = 65_536


def open_engine(deploy: DeploySettings) -> AbstractAsyncContextManager[Engine]:
    """The settings know one platform. Raises ConfigurationError when what speaks to it is not installed."""
    assert deploy.platform == "docker", "settings refuse others"
    try:
        engine: AbstractAsyncContextManager[Engine] = deferred("perdure.deploy.docker").DockerEngine(
            wheelhouse=deploy.wheelhouse
        )
    except ModuleNotFoundError as error:
        if error.name != "aiodocker":
            raise
        raise ConfigurationError("What speaks to Docker is not installed: pip install 'perdure[docker]'") from error
    return engine


@dataclass(frozen=True, slots=True)
class Made:
    """A plan, and what it was made from."""

    plan: Plan
    description: Description
    real: Real


@dataclass(frozen=True, slots=True)
class Deployment:
    """One project as its file says it now."""

    settings: Settings
    deploy: DeploySettings
    environ: Mapping[str, str]

    @property
    def folder(self) -> Path:
        assert self.settings.project is not None, "a deployment has a project file"
        return self.settings.project.parent

    @property
    def token_file(self) -> Path:
        return token_file(self.deploy, self.folder)

    @property
    def outline(self) -> Wanted:
        return outline(self.settings, self.deploy)

    async def plan(self, engine: Engine) -> Made:
        """Makes nothing. Raises ConfigurationError, EngineError."""
        token = await self.token(engine)
        description = await self.describe(token)
        real = await engine.read(description.wanted)
        made = plan(description.wanted, real)
        warnings = (*self._of_another(real, token), *self._of_token_file(), *made.warnings)
        return Made(replace(made, warnings=warnings), description, real)

    def _of_another(self, real: Real, token: str | None) -> Iterator[str]:
        """Every project is called `perdure` until it is given a name: what is there may be that of another folder."""
        ours = [each.name for each in real.containers if each.labels.get(LABEL_PROJECT) == self.deploy.name]
        if not ours or self.token_file.exists():
            return
        does = (
            "makes a new token, so that everybody signs in anew,"
            if token is None
            else "goes on with its token, which it also keeps here,"
        )
        yield (
            f"A project {self.deploy.name!r} is deployed there already ({', '.join(sorted(ours))}), but not from here: there is no "
            f"{self.token_file}. An apply takes it over: it puts this folder's project into its place, {does} and uses its data. If it is "
            "this very project, deployed from another folder or machine: copy the token file from there first. If it is another one: "
            "give this one a `name` of its own in [deploy]."
        )

    def _of_token_file(self) -> Iterator[str]:
        if others_can_read(self.token_file):
            yield f"The token file {self.token_file} can be read by other users of this machine: chmod 600 {self.token_file}"

    async def describe(self, token: str | None) -> Description:
        return describe(self.settings, self.deploy, await asyncio.to_thread(self._known, token))

    def _known(self, token: str | None) -> Known:
        """Who builds nothing needs no sources."""
        not_in_images = [self.token_file, *([self.deploy.wheelhouse] if self.deploy.wheelhouse else [])]
        files = read_files(self.folder, self.deploy.exclude, without=not_in_images, project=self.settings.project)
        on_nats = self.deploy.transport == "nats"
        return Known(
            self.environ,
            files,
            recipe() if self.deploy.image is None else "",
            token,
            recipe("nats") if on_nats else "",
        )

    # -- the token ----------------------------------------------------------------------------------------------------

    async def token(self, engine: Engine) -> str | None:
        """That of the file; else, where the file is not on this machine, that which the deployment runs with; None: there is
        none yet."""
        here = await asyncio.to_thread(read_token, self.token_file)
        return here if here is not None else await _token_in(engine, self.outline)

    async def keep_token(self, engine: Engine) -> str:
        """Makes one when there is none; it is in its file afterwards."""
        token = await self.token(engine) or new_token()
        return await asyncio.to_thread(keep_token, self.token_file, token)


def load(project: str | None, environ: Mapping[str, str], folder: Path) -> Deployment:
    """Raises ConfigurationError with all that is wrong with the project file."""
    return Deployment(*load_deployment(project, environ, folder), environ)


async def _token_in(engine: Engine, wanted: Wanted) -> str | None:
    real = await engine.read(wanted)
    holder = next((each for each in real.containers if _has_secrets(each)), None)
    if holder is None:
        return None
    with io.BytesIO() as taken:
        await engine.take_out(holder.name, TOKEN_FILE, taken)
        taken.seek(0)
        with tarfile.open(fileobj=taken) as tar:
            member = next((each for each in tar if each.isfile() and Path(each.name).name == TOKEN_NAME), None)
            content = None if member is None else tar.extractfile(member)
            return None if content is None else content.read(SMALL).decode("ascii", "replace").strip() or None


def _has_secrets(container: Container) -> bool:
    return any(mount.target == SECRETS_FOLDER and mount.kind == "volume" for mount in container.mounts)
