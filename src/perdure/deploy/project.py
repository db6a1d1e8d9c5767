"""From the settings of a project and its table `[deploy]` to what is wanted of an engine. Pure: files were read before.

Transport `embedded`: one container, role `server`. Its data volume is named after the project's first (or default) agent: moving on
to transport `nats` leaves that agent its conversations. Transport `nats`: services, NATS, one container for each agent, the gateway.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perdure.config import AgentSettings, DeploySettings, ServiceSettings, Settings, VolumeSettings
from perdure.deploy import naming
from perdure.deploy.checking import given_image, missing_files, missing_secrets, shared_data
from perdure.deploy.files import ProjectFiles
from perdure.deploy.model import (
    DATA_FOLDER,
    DATABASE,
    GATEWAY_DATABASE,
    NATS_CONFIGURATION,
    NATS_STORE,
    PROJECT_FOLDER,
    SECRETS_FOLDER,
    TOKEN_FILE,
    USER,
    Attachment,
    Build,
    Container,
    Image,
    Mount,
    Network,
    Port,
    Role,
    Tmpfs,
    Values,
    Variable,
    Volume,
    Wanted,
    with_spec,
)
from perdure.deploy.parts import host_of, limits_of, own_check, web_check
from perdure.deploy.token import password_of
from perdure.errors import ConfigurationError
from perdure.transport.nats.server_config import password_variable, server_config

HEALTH_PORT = 8700
"""Of an agent's own health check, inside its container."""

TOKEN_DIGEST = "TOKEN_DIGEST"
NATS_PORT = 4222
NATS_HEALTH_PORT = 8222
STOP_MARGIN_SECONDS = 10
"""What a container has after its drain, before it is killed."""

_TMP = Tmpfs("/tmp", "mode=1777,nodev,noexec,nosuid,rw,size=134217728")  # noqa: S108 -- a container's own
_NO_NEW_PRIVILEGES = "no-new-privileges:true"


@dataclass(frozen=True, slots=True)
class Description:
    """What is wanted, and the values that its containers are created with."""

    wanted: Wanted
    values: Values


@dataclass(frozen=True, slots=True)
class Known:
    """What was found out before. `recipe`: digest of what is ours in images (Dockerfile, packages, sources); `nats_recipe`: that of
    NATS' image, so that NATS goes on when Perdure is upgraded. `token`: None while there is none; then values that follow from it
    are left out of `Values`, and wanted by their presence."""

    environ: Mapping[str, str]
    files: ProjectFiles
    recipe: str
    token: str | None = None
    nats_recipe: str = ""


def describe(settings: Settings, deploy: DeploySettings, known: Known) -> Description:
    """Raises ConfigurationError with everything that keeps it from being made: secrets that are not set, files of agents that
    would not be in their image, data that two would write."""
    problems = [
        *missing_secrets(settings, deploy, known.environ),
        *missing_files(settings, deploy, known.files),
        *shared_data(outline(settings, deploy)),
    ]
    if problems:
        raise ConfigurationError(problems)
    return _Describing(settings, deploy, known).all()


def outline(settings: Settings, deploy: DeploySettings) -> Wanted:
    """What containers there are, by name, role and labels, for who only looks: no secret is needed and no file is read. Nothing
    can be made or compared by it."""
    known = Known(defaultdict(str), ProjectFiles(settings.import_paths[0]), "")
    return _Describing(settings, deploy, known).all().wanted


# -- containers -------------------------------------------------------------------------------------------------------


class _Describing:
    """Collects images, volumes and values while containers are described."""

    def __init__(self, settings: Settings, deploy: DeploySettings, known: Known) -> None:
        self._settings, self._deploy, self._known = settings, deploy, known
        self._project = deploy.name
        self._images: dict[str, Image] = {}
        self._volumes: dict[str, Volume] = {}
        self._values: dict[str, dict[str, str]] = {}
        self._stop = math.ceil(settings.drain_seconds) + STOP_MARGIN_SECONDS

    def all(self) -> Description:
        containers = tuple(with_spec(container) for container in self._containers())
        network = Network(
            naming.network_name(self._project), naming.labels(self._project, Role.NETWORK), internal=False
        )
        wanted = Wanted(
            self._project, tuple(self._images.values()), (network,), tuple(self._volumes.values()), containers
        )
        return Description(wanted, Values(self._values))

    def _containers(self) -> Iterator[Container]:
        yield from (self._service(name, service) for name, service in self._deploy.services.items())
        if self._deploy.transport == "embedded":
            yield self._server()
            return
        yield self._nats()
        yield from (self._agent(agent) for agent in self._settings.agents)
        yield self._gateway()

    def _server(self) -> Container:
        name = self._settings.default_agent
        given = {"PERDURE_DATABASE": DATABASE, **self._of_project(), **self._of_people(), **self._deploy.environment}
        return self._served(
            self._ours(Role.SERVER, None, "serve", self._project_image(Role.SERVER, None)),
            claims=[agent.name for agent in self._settings.agents] + ["gateway"],
            volume=naming.data_volume(self._project, "agent", name),
            plain=given,
            secret=self._secrets(self._deploy.secrets),
        )

    def _gateway(self) -> Container:
        given = {"PERDURE_DATABASE": GATEWAY_DATABASE, **self._deploy.of_gateway, **self._of_people()}
        image = self._deploy.image
        return self._served(
            self._ours(Role.GATEWAY, None, "gateway", self._taken(image) if image else self._bare_image(Role.GATEWAY)),
            claims=["gateway"],
            volume=naming.data_volume(self._project, "gateway"),
            plain=given,
            secret=self._nats_address("gateway"),
        )

    def _agent(self, agent: AgentSettings) -> Container:
        own = self._deploy.agents.get(agent.name)
        plain = {
            "PERDURE_DATABASE": DATABASE,
            "PERDURE_HOST": "127.0.0.1",
            "PERDURE_PORT": str(HEALTH_PORT),
            "PERDURE_AGENT_NAME": agent.name,
            **self._of_project(),
            **self._deploy.environment,
            **(own.environment if own else {}),
        }
        secret = {**self._secrets(self._deploy.secrets), **self._secrets(own.secrets if own else ())}
        container = self._ours(Role.AGENT, agent.name, "agent", self._project_image(Role.AGENT, agent.name))
        container = replace(container, health=web_check(HEALTH_PORT), limits=limits_of(own.limits if own else None))
        return self._with_data(
            self._with_environment(container, plain, {**secret, **self._nats_address(f"agent-{agent.name}")}),
            claims=[agent.name],
            volume=naming.data_volume(self._project, "agent", agent.name),
        )

    def _nats(self) -> Container:
        users = ["gateway", *(f"agent-{agent.name}" for agent in self._settings.agents)]
        image = self._built(
            Build("nats", self._deploy.base_image, texts=((NATS_CONFIGURATION, self._nats_configuration()),)), Role.NATS
        )
        container = replace(
            self._ours(Role.NATS, None, "", image, alias="nats"),
            entrypoint=("nats-server",),
            command=("-c", NATS_CONFIGURATION),
            working_folder="/",
            health=web_check(NATS_HEALTH_PORT, "/healthz?js-server-only=true"),
        )
        passwords = {password_variable(user): self._password(user) for user in users}
        return self._with_data(
            self._with_environment(container, {}, passwords),
            claims=["nats"],
            volume=naming.data_volume(self._project, "nats"),
        )

    def _nats_configuration(self) -> str:
        agents = [agent.name for agent in self._settings.agents]
        settings = self._settings
        text = server_config(settings.nats_prefix, settings.namespace, agents, store_folder=NATS_STORE)
        return f'{text}\nhttp: "127.0.0.1:{NATS_HEALTH_PORT}"     # for the health check alone\n'

    def _service(self, name: str, service: ServiceSettings) -> Container:
        container = Container(
            name=naming.container_name(self._project, Role.SERVICE, name),
            role=Role.SERVICE,
            image=self._taken(service.image),
            image_id=None,
            labels=naming.labels(self._project, Role.SERVICE, name),
            command=service.command,
            user=service.user or "",
            networks=(Attachment(naming.network_name(self._project), (name,)),),
            health=own_check(service.health) if service.health else None,
            limits=limits_of(service.limits),
            read_only=service.read_only,
            tmpfs=(_TMP,) if service.read_only else (),
            capabilities_dropped=("ALL",),
            capabilities_added=service.capabilities,
            security=(_NO_NEW_PRIVILEGES,),
            init=True,
        )
        container = self._with_environment(container, service.environment, self._secrets(service.secrets))
        return replace(container, mounts=tuple(sorted(self._claimed([name]))))

    # -- what our containers have in common ---------------------------------------------------------------------------

    def _ours(self, role: Role, name: str | None, command: str, image: str, alias: str | None = None) -> Container:
        return Container(
            name=naming.container_name(self._project, role, name),
            role=role,
            image=image,
            image_id=None,
            labels=naming.labels(self._project, role, name),
            entrypoint=("perdure",),
            command=(command,),
            working_folder=PROJECT_FOLDER,
            user=USER,
            tmpfs=(_TMP,),
            networks=(Attachment(naming.network_name(self._project), (alias,) if alias else ()),),
            stop_seconds=self._stop,
            read_only=True,
            capabilities_dropped=("ALL",),
            security=(_NO_NEW_PRIVILEGES,),
            init=True,
        )

    def _served(
        self,
        container: Container,
        *,
        claims: Sequence[str],
        volume: str,
        plain: Mapping[str, str],
        secret: Mapping[str, str | None],
    ) -> Container:
        """The one that people reach: its port is published, and it has the token. The token is in a file that no plan compares:
        what follows from it is a variable, so that another token is a difference."""
        gateway = self._deploy.gateway
        secrets = Volume(naming.secrets_volume(self._project), naming.labels(self._project, Role.SECRETS))
        self._volumes[secrets.name] = secrets
        secret = {**secret, TOKEN_DIGEST: self._following(TOKEN_DIGEST)}
        found = self._with_data(self._with_environment(container, plain, secret), claims=claims, volume=volume)
        return replace(
            found,
            mounts=tuple(sorted((*found.mounts, Mount(SECRETS_FOLDER, secrets.name, read_only=True)))),
            ports=(Port(gateway.port, gateway.port, gateway.bind),),
            health=web_check(gateway.port),
            limits=limits_of(gateway.limits),
        )

    def _of_people(self) -> dict[str, str]:
        """The port inside is the one outside: the Host that browsers say is then one that is served."""
        gateway = self._deploy.gateway
        hosts = dict.fromkeys((*self._settings.allowed_hosts, *gateway.allowed_hosts, *host_of(gateway.bind)))
        return {
            "PERDURE_HOST": "0.0.0.0",  # noqa: S104 -- in the container; `ports` says where it is published
            "PERDURE_PORT": str(gateway.port),
            "PERDURE_TOKEN_FILE": TOKEN_FILE,
            "PERDURE_LOG_FORMAT": "json",
            **({"PERDURE_ALLOWED_HOSTS": ",".join(hosts)} if hosts else {}),
        }

    def _of_project(self) -> dict[str, str]:
        assert self._settings.project is not None, "a deployment has a project file"
        return {"PERDURE_PROJECT": f"{PROJECT_FOLDER}/{self._settings.project.name}", "PERDURE_LOG_FORMAT": "json"}

    # -- variables ----------------------------------------------------------------------------------------------------

    def _with_environment(
        self, container: Container, plain: Mapping[str, str], secret: Mapping[str, str | None]
    ) -> Container:
        """A secret without a value is one that is made when it is needed."""
        known = {name: value for name, value in secret.items() if value is not None}
        self._values[container.name] = {**plain, **known}
        variables = [Variable.of(name, value) for name, value in plain.items() if name not in secret]
        variables += [Variable.of(name, value).veiled() for name, value in known.items()]
        variables += [Variable(name, "", secret=True) for name in secret if name not in known]
        return replace(container, environment=tuple(sorted(variables, key=lambda each: each.name)))

    def _secrets(self, names: Iterable[str]) -> dict[str, str | None]:
        return {name: self._known.environ[name] for name in names}

    def _password(self, user: str) -> str | None:
        return self._following(password_variable(user))

    def _following(self, variable: str) -> str | None:
        """The value that follows from the token; None while there is none."""
        token = self._known.token
        return None if token is None else password_of(token, self._project, variable)

    def _nats_address(self, user: str) -> dict[str, str | None]:
        password = self._password(user)
        return {"PERDURE_NATS_URL": None if password is None else f"nats://{user}:{password}@nats:{NATS_PORT}"}

    # -- volumes ------------------------------------------------------------------------------------------------------

    def _with_data(self, container: Container, *, claims: Sequence[str], volume: str) -> Container:
        """With what is declared for it; and with a data volume, unless something declared is at /data already."""
        mounts = [*self._claimed(claims)]
        if not any(mount.target == DATA_FOLDER for mount in mounts):
            self._volumes[volume] = Volume(volume, naming.labels(self._project, Role.DATA, volume))
            mounts.append(Mount(DATA_FOLDER, volume))
        return replace(container, mounts=tuple(sorted(mounts)))

    def _claimed(self, owners: Sequence[str]) -> Iterator[Mount]:
        for name, volume in self._deploy.volumes.items():
            for path in dict.fromkeys(volume.at[owner] for owner in owners if owner in volume.at):
                yield self._mount(name, volume, path)

    def _mount(self, name: str, volume: VolumeSettings, path: str) -> Mount:
        if volume.folder is not None:
            return Mount(path, volume.folder, "bind", volume.read_only)
        external = volume.volume is not None
        source = volume.volume or naming.declared_volume(self._project, name)
        labels = {} if external else naming.labels(self._project, Role.DATA, name)
        self._volumes[source] = Volume(source, labels, external=external)
        return Mount(path, source, read_only=volume.read_only)

    # -- images -------------------------------------------------------------------------------------------------------

    def _project_image(self, role: Role, agent: str | None) -> str:
        given = given_image(self._deploy, agent or self._settings.default_agent)
        if given is not None:
            return self._taken(given)
        project = self._known.files
        build = Build("perdure", self._deploy.base_image, project.folder, project.paths, project.project)
        return self._built(build, role, agent, project.files)

    def _bare_image(self, role: Role) -> str:
        """Perdure without the project."""
        return self._built(Build("perdure", self._deploy.base_image), role)

    def _built(self, build: Build, role: Role, name: str | None = None, files: Sequence[tuple[str, str]] = ()) -> str:
        words = [str(role), *([name] if name else [])]
        recipe = self._known.nats_recipe if build.target == "nats" else self._known.recipe
        made_from = [recipe, words, build.target, build.base, build.texts, files]
        source = hashlib.sha256(json.dumps(made_from).encode()).hexdigest()
        reference = naming.image_reference(self._project, source, *words)
        self._images[reference] = Image(reference, source, build=build)
        return reference

    def _taken(self, reference: str) -> str:
        """An image that somebody else made; without a tag or digest the engine means `latest`."""
        named = reference if ":" in reference.rpartition("/")[2] else f"{reference}:latest"
        self._images.setdefault(named, Image(named))
        return named
