"""The table `[deploy]` of perdure.toml: read and validated whole, together with the settings of the project it deploys.

What the person who applies has in the environment is not what containers get, so none of its `PERDURE_…` variables counts here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from perdure.config import (
    AgentDeploySettings,
    DeploySettings,
    GatewayDeploySettings,
    LimitSettings,
    ServiceSettings,
    Settings,
    VolumeSettings,
)
from perdure.errors import ConfigurationError
from perdure.settings import project as projects
from perdure.settings import values
from perdure.settings.catalogue import BY_VARIABLE, OTHER_VARIABLES
from perdure.settings.loading import load
from perdure.settings.tables import Schema, Table
from perdure.settings.values import SUBJECT_WORD, did_you_mean

RESERVED = ("agent", "gateway", "nats", "server", "service", "volume")
"""Words of the names that are made here: a project or a service of that name could be taken for another's."""

DATA_FOLDER = "/data"
_OWN = ("/app", "/run/secrets", "/tmp", "/opt/perdure", "/opt/nats", "/etc/nats")  # noqa: S108 -- of containers
"""What the image or the deployment puts into our containers, beside /data."""

_MADE_HERE = frozenset(
    f"PERDURE_{name}"
    for name in (
        *("HOST", "PORT", "DATABASE", "TOKEN", "TOKEN_FILE", "PROJECT", "ALLOWED_HOSTS", "AGENT_NAME"),
        *("NATS_URL", "NATS_PREFIX", "NAMESPACE", "LOG_FORMAT"),
        *("NATS_CREDENTIALS_FILE", "NATS_NKEY_FILE", "NATS_CA_FILE", "NATS_CERTIFICATE_FILE", "NATS_KEY_FILE"),
    )
)
_NOT_IN_THE_FILE = {
    "token": "it would become part of an image; remove it (the deployment makes a token, or set `token_file` in [deploy.gateway])",
    "token_file": "its file would not be in an image; name it as `token_file` in [deploy.gateway]",
    **dict.fromkeys(
        ("nats_credentials_file", "nats_nkey_file", "nats_ca_file", "nats_certificate_file", "nats_key_file"),
        "a deployment has its own NATS, with users of its own; remove it",
    ),
}
_OF_GATEWAY = (
    "nats_prefix",
    "namespace",
    "default_agent",
    "heartbeat_seconds",
    "retention_days",
    "max_message_bytes",
    "turn_deadline_seconds",
    "agent_wait_seconds",
    "log_level",
)

_PROJECT_WORD = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_SERVICE_WORD = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._:/@-]{0,254}")
_VOLUME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{1,127}")
_PATH = re.compile(r"(/[A-Za-z0-9._@+-]+)+")
_CAPABILITY = re.compile(r"(CAP_)?[A-Z_]+")
_USER = re.compile(r"[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+)?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_SMALLEST_MEMORY = 6 * 1024 * 1024
_LARGEST_MEMORY = 1024 * 1024**4
"""More than any machine has; an engine takes no number beyond 64 bits, and would say so in the middle of an apply."""

_FEWEST_CPUS = 0.01
"""Docker's least. What rounds to nothing would be no limit at all."""


# -- readers ----------------------------------------------------------------------------------------------------------


def _matching(pattern: re.Pattern[str], what: str) -> values.Reader:
    def read(raw: Any, base: Path) -> str:
        if not isinstance(raw, str) or not pattern.fullmatch(raw):
            raise ValueError(f"must be {what}, not {raw!r}")
        return raw

    return read


_word = _matching(_PROJECT_WORD, "1 to 32 small letters, digits and `-`, the first a letter or a digit")


def _project(raw: Any, base: Path) -> str:
    name = str(_word(raw, base))
    if name in RESERVED:
        raise ValueError(f"must not be one of {', '.join(RESERVED)}: other things are named so")
    return name


def _address(raw: Any, base: Path) -> str:
    try:
        return str(ipaddress.ip_address(raw if isinstance(raw, str) else ""))
    except ValueError:
        raise ValueError(f"must be an IP address such as 127.0.0.1, not {raw!r}") from None


def _flag(raw: Any, base: Path) -> bool:
    if not isinstance(raw, bool):
        raise ValueError(f"must be true or false, not {raw!r}")
    return raw


def _size(raw: Any, base: Path) -> int:
    found = _SIZE.fullmatch(raw.strip()) if isinstance(raw, str) else None
    size = float(found[1]) * 1024 ** " kmgt".index(found[2].lower() or " ") if found else 0.0
    if size < _SMALLEST_MEMORY:
        raise ValueError(f'must be a size of 6m or more, such as "512m" or "2g", not {raw!r}')
    if size > _LARGEST_MEMORY:
        raise ValueError(f'must be a size of 1024t or less, such as "512m" or "2g", not {raw!r}')
    return int(size)


def _wheelhouse(raw: Any, base: Path) -> Path:
    found = values.path(raw, base)
    if not found.is_dir():
        raise ValueError(f"names {found}, which is not a folder")
    if next(found.glob("*.whl"), None) is None:
        raise ValueError(f"names {found}, which has no wheels (*.whl): docs/deploy.md says how to fill it")
    return found


def _texts(raw: Any, base: Path) -> tuple[str, ...]:
    """A list as it is: commas are part of a text."""
    if not isinstance(raw, list) or not raw or not all(isinstance(each, str) for each in raw):
        raise ValueError(f"must be a list of texts, not {raw!r}")
    return tuple(raw)


def _capabilities(raw: Any, base: Path) -> tuple[str, ...]:
    found = _texts(raw, base)
    for each in found:
        if not _CAPABILITY.fullmatch(each) or each == "ALL":
            raise ValueError(f'needs names of capabilities such as "CHOWN", not {each!r}')
    return tuple(sorted(each.removeprefix("CAP_") for each in found))


def _variable_names(raw: Any, base: Path) -> tuple[str, ...]:
    found = values.names(raw, base)
    for name in found:
        if not _VARIABLE.fullmatch(name):
            # What stands here by mistake may be the secret itself: it is not repeated.
            raise ValueError("needs names of variables, never their values (letters, digits and `_`)")
        _check_variable(name)
    return found


def _environment(raw: Any, base: Path) -> dict[str, str]:
    if not isinstance(raw, Mapping):
        raise ValueError('must be a table of variables: { NAME = "value" }')
    for name, value in raw.items():
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"needs names of variables (letters, digits and `_`), not {name!r}")
        if isinstance(value, bool) or not isinstance(value, str | int | float) or "\0" in str(value):
            raise ValueError(f"needs a text or a number for {name}")
        _check_variable(name)
    return {name: str(value) for name, value in raw.items()}


def _check_variable(name: str) -> None:
    if name in _MADE_HERE:
        raise ValueError(f"must not name {name}: the deployment sets it")
    if name.startswith("PERDURE_") and name not in BY_VARIABLE and name not in OTHER_VARIABLES:
        raise ValueError(f"names {name}, which is no setting{_meant(name, (*BY_VARIABLE, *OTHER_VARIABLES))}")


def _places(raw: Any, base: Path) -> dict[str, str]:
    if not isinstance(raw, Mapping) or not raw:
        raise ValueError('must be a table of places: { AGENT = "/path/in/its/container" }')
    for name, place in raw.items():
        if not isinstance(place, str) or not _PATH.fullmatch(place) or {".", ".."} & set(place.split("/")):
            raise ValueError(f"needs an absolute path in the container for {name!r}, not {place!r}")
    return dict(raw)


def _folder(raw: Any, base: Path) -> str:
    """Of the engine's host, which need not be this machine: it is not looked for here."""
    if not isinstance(raw, str) or not _PATH.fullmatch(raw) or ".." in raw.split("/"):
        raise ValueError(f"must be an absolute path of the engine's host, not {raw!r}")
    return raw


def _meant(name: str, known: Sequence[str]) -> str:
    hint = did_you_mean(name, known).strip().removesuffix("?").removeprefix("Did you mean ")
    return f" (did you mean {hint}?)" if hint else ""


_image = _matching(_IMAGE, 'the name of an image, such as "shop:1"')

_LIMITS: Schema = {
    "memory": _size,
    "cpus": values.number_from(_FEWEST_CPUS, 1_024),
    "pids": values.whole(16, 1_000_000),
}
_OF_CONTAINER: Schema = {"secrets": _variable_names, "environment": _environment}
_DEPLOY: Schema = {
    "name": _project,
    "transport": values.choice("embedded", "nats"),
    "platform": values.choice("docker"),
    "base_image": _image,
    "wheelhouse": _wheelhouse,
    "image": _image,
    "exclude": _texts,
    **_OF_CONTAINER,
}
_GATEWAY: Schema = {
    "port": values.whole(1, 65_535),
    "bind": _address,
    "token_file": values.existing_file,
    "allowed_hosts": values.host_names,
}
_AGENT: Schema = {"image": _image, **_OF_CONTAINER}
_SERVICE: Schema = {
    "image": _image,
    "command": _texts,
    "user": _matching(_USER, 'a user such as "1000:1000"'),
    "capabilities": _capabilities,
    "read_only": _flag,
    "health": _texts,
    **_OF_CONTAINER,
}
_VOLUMES: Schema = {
    "at": _places,
    "volume": _matching(_VOLUME, "the name of a volume"),
    "folder": _folder,
    "read_only": _flag,
}


# -- loading ----------------------------------------------------------------------------------------------------------


def load_deployment(project: str | None, environ: Mapping[str, str], folder: Path) -> tuple[Settings, DeploySettings]:
    """The settings that the project file gives its containers, and its table `[deploy]`. `project`: a file, else the one that
    PERDURE_PROJECT names, else that of `folder`. Raises ConfigurationError with every problem of both."""
    kept = {name: value for name, value in environ.items() if not name.startswith("PERDURE_")}
    chosen = project or environ.get("PERDURE_PROJECT")
    problems: list[str] = []
    settings: Settings | None = None
    try:
        # Containers listen where the deployment says, with its token: what the file says of that does not count.
        settings = load({"project": chosen, "host": "127.0.0.1"}, kept, folder)
        file = settings.project
    except ConfigurationError as error:
        problems += error.problems
        file = projects.find(folder) if not chosen else (folder / Path(chosen).expanduser()).absolute()
    if file is None or file.suffix != ".toml":
        raise ConfigurationError([*problems, _no_project(file)])
    read = projects.read(file)
    found = _deploy(Table(f"{file}: [deploy]", read.deploy, read.folder, problems), read)
    problems += _in_the_file(file, read.settings)
    if settings is not None:
        problems += [f"{file}: {problem}" for problem in _combinations(settings, found)]
    if problems or settings is None:
        raise ConfigurationError(problems)
    return settings, found


def _no_project(file: Path | None) -> str:
    if file is None:
        return "There is no perdure.toml here: name one with --project, or write one with [agents.NAME]."
    return f'{file}: a deployment is described by a perdure.toml: name each graph there, [agents.NAME] graph = "./file.py:graph".'


def _in_the_file(file: Path, content: Mapping[str, Any]) -> Iterator[str]:
    for name, why in _NOT_IN_THE_FILE.items():
        if name in content:
            yield f"{file}: `{name}` cannot be deployed: {why}."


def _deploy(table: Table, project: projects.Project) -> DeploySettings:
    found = table.read(_DEPLOY, ("gateway", "agents", "services", "volumes"))
    gateway = table.inner("gateway")
    of_gateway = gateway.read({**_GATEWAY, **_LIMITS})
    return DeploySettings(
        **found,
        gateway=GatewayDeploySettings(**_with_limits(of_gateway)),
        agents={
            name: AgentDeploySettings(**_with_limits(each.read({**_AGENT, **_LIMITS})))
            for name, each in table.each("agents")
        },
        services=dict(_services(table)),
        volumes=dict(_volumes(table)),
        of_gateway={
            f"PERDURE_{name.upper()}": str(project.settings[name]) for name in _OF_GATEWAY if name in project.settings
        },
    )


def _with_limits(found: Mapping[str, Any]) -> dict[str, Any]:
    limits = LimitSettings(**{name: value for name, value in found.items() if name in _LIMITS})
    return {name: value for name, value in found.items() if name not in _LIMITS} | {"limits": limits}


def _services(table: Table) -> Iterator[tuple[str, ServiceSettings]]:
    for name, each in table.each("services"):
        if not _SERVICE_WORD.fullmatch(name) or name in RESERVED:
            each.problem(f"cannot be named so: small letters, digits and `-`, and none of {', '.join(RESERVED)}")
        found = each.read({**_SERVICE, **_LIMITS})
        if not each.has("image"):
            each.problem('needs an `image`, such as "redis:8"')
        elif "image" in found:
            yield name, ServiceSettings(**_with_limits(found))


def _volumes(table: Table) -> Iterator[tuple[str, VolumeSettings]]:
    for name, each in table.each("volumes"):
        if not _SERVICE_WORD.fullmatch(name):
            each.problem("cannot be named so: small letters, digits and `-`")
        found = each.read(_VOLUMES)
        if not each.has("at"):
            each.problem('needs `at`: which container has it where, such as at = { AGENT = "/files" }')
        if "volume" in found and "folder" in found:
            each.problem("has `volume` and `folder`: keep one of them")
        if "at" in found:
            yield name, VolumeSettings(**found)


# -- what follows from several values ---------------------------------------------------------------------------------


def _combinations(settings: Settings, deploy: DeploySettings) -> Iterator[str]:
    agents = [agent.name for agent in settings.agents]
    yield from _about_gateway(settings, deploy)
    yield from _about_agents(agents, deploy)
    yield from _about_volumes(agents, deploy)
    for where, owner in _with_environment(deploy):
        both = sorted(set(owner.secrets) & owner.environment.keys())
        if both:
            yield f"[{where}]: {', '.join(both)} in `secrets` and in `environment`: keep one of them."


def _with_environment(
    deploy: DeploySettings,
) -> Iterator[tuple[str, DeploySettings | AgentDeploySettings | ServiceSettings]]:
    yield "deploy", deploy
    yield from ((f"deploy.agents.{name}", agent) for name, agent in deploy.agents.items())
    yield from ((f"deploy.services.{name}", service) for name, service in deploy.services.items())


def _about_gateway(settings: Settings, deploy: DeploySettings) -> Iterator[str]:
    bind = deploy.gateway.bind
    if ipaddress.ip_address(bind).is_unspecified and not (deploy.gateway.allowed_hosts or settings.allowed_hosts):
        yield (
            f'[deploy.gateway]: bind = "{bind}" publishes the port at every address, but who comes by one is refused: only the names of '
            'the loopback are served. Say by which names and addresses it is reached, such as allowed_hosts = ["shop.example", '
            '"192.0.2.10"], or let `bind` be the one address.'
        )


def _about_agents(agents: Sequence[str], deploy: DeploySettings) -> Iterator[str]:
    for name in deploy.agents:
        if name not in agents:
            yield f"[deploy.agents.{name}]: the agents of the project are: {', '.join(agents)}.{did_you_mean(name, agents)}"
    if deploy.transport == "embedded" and deploy.agents:
        yield (
            "[deploy.agents]: with transport `embedded` all agents share one container: put limits into [deploy.gateway], "
            "secrets and variables into [deploy]."
        )
    for name in agents:
        if deploy.transport == "nats" and not re.fullmatch(SUBJECT_WORD, name):
            yield f"[agents.{name}]: with transport `nats` a name has letters, digits, `_` and `-` alone, at most 64."
        if name in ("gateway", "nats"):
            yield f"[agents.{name}]: a deployment has a container of that name already; give the agent another name."
        if name in deploy.services:
            yield f"[deploy.services.{name}]: an agent is named so too; give the service another name."
    folded = {re.sub(r"[_.]", "-", name.lower()) for name in agents}
    if len(folded) < len(agents):
        yield (
            "[agents]: for images and passwords names must differ by more than capital letters, `-`, `_` and `.`: "
            f"{', '.join(agents)}."
        )


def _about_volumes(agents: Sequence[str], deploy: DeploySettings) -> Iterator[str]:
    known = [*agents, *deploy.services, "gateway", *(["nats"] if deploy.transport == "nats" else [])]
    taken: dict[tuple[str, str], str] = {}
    for name, volume in deploy.volumes.items():
        for owner, path in volume.at.items():
            if owner not in known:
                hint = did_you_mean(owner, known)
                yield f"[deploy.volumes.{name}]: there is no {owner!r}; there are: {', '.join(known)}.{hint}"
            container = "gateway" if deploy.transport == "embedded" and owner in agents else owner
            other = taken.setdefault((container, path), name)
            if other != name:
                yield f"[deploy.volumes.{name}]: {path} of {owner} is taken by [deploy.volumes.{other}]."
            if path == DATA_FOLDER and volume.read_only and owner not in deploy.services:
                yield f"[deploy.volumes.{name}]: {path} of {owner} must be writable: remove `read_only`."
            covered = None if owner in deploy.services else _covered(PurePosixPath(path))
            if covered is not None:
                yield (
                    f"[deploy.volumes.{name}]: {path} of {owner} would cover what the image or the deployment puts there (at {covered}): "
                    "choose another path."
                )


def _covered(path: PurePosixPath) -> str | None:
    """Whichever of the places of our own lies at this path, in it or around it."""
    return next((own for own in _OWN if path.is_relative_to(own) or PurePosixPath(own).is_relative_to(path)), None)
