"""File, environment, flags → one `Settings`, validated whole: every problem is found before the first is told."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from perdure.config import AgentSettings, Settings
from perdure.errors import ConfigurationError
from perdure.settings import project as projects
from perdure.settings import values
from perdure.settings.catalogue import (
    ALIASES,
    BY_NAME,
    BY_VARIABLE,
    ONLY_IN_AGENT_TABLES,
    OTHER_VARIABLES,
    SETTINGS,
)
from perdure.settings.places import default_database
from perdure.settings.project import Project
from perdure.settings.values import did_you_mean

_AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_PREFIX = "PERDURE_"


@dataclass(frozen=True, slots=True)
class _Given:
    """A raw value, where it was said, which source outranks which (0 file, 1 environment, 2 flag)."""

    raw: Any
    origin: str
    base: Path
    rank: int


@dataclass(frozen=True, slots=True)
class _Sources:
    """Where settings may come from, beside the project file."""

    flags: Mapping[str, Any]
    environ: Mapping[str, str]
    folder: Path


@dataclass(slots=True)
class _Loading:
    """What has been read so far; `values` and `origins` by setting name."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def read(self, name: str, given: _Given) -> None:
        self.origins[name] = given.origin
        self.ranks[name] = given.rank
        try:
            self.values[name] = BY_NAME[name].reader(given.raw, given.base)
        except ValueError as error:
            self.problems.append(f"`{name}` {error} (from {given.origin}).")


def load(flags: Mapping[str, Any], environ: Mapping[str, str], folder: Path) -> Settings:
    """Settings from the project file of `folder`, the environment and flags (setting name → text or texts), rising.

    Raises ConfigurationError with every problem found. `database` is always set in the result; nothing is created.
    """
    loading = _Loading()
    sources = _Sources(flags, environ, folder)
    project = projects.read(_project_file(sources))
    loading.problems += project.problems
    loading.notices += project.notices
    for name, given in _rising(loading, project, sources).items():
        loading.read(name, given)
    agents = _agents(loading, project)
    _resolve_token(loading)
    _resolve_database(loading, {**project.environment, **environ})
    settings = _assembled(loading, project, agents)
    if project.agents or settings.nats_url is None:  # the agents of a gateway are not in its own settings
        loading.problems += _default_agent(settings)
    loading.problems += _combinations(settings, loading.origins)
    if loading.problems:
        raise ConfigurationError(loading.problems)
    return settings


# -- sources ----------------------------------------------------------------------------------------------------------


def _project_file(sources: _Sources) -> Path | None:
    raw = sources.flags.get("project") or sources.environ.get("PERDURE_PROJECT")
    if not raw:
        return projects.find(sources.folder)
    try:
        return Path(values.existing_file(raw, sources.folder))
    except ValueError:
        return None  # told once, when the setting itself is read


def _rising(loading: _Loading, project: Project, sources: _Sources) -> dict[str, _Given]:
    found = _from_file(loading, project)
    found |= _from_environment(loading, project, sources)
    given = {name: raw for name, raw in sources.flags.items() if raw not in (None, (), [])}
    return found | {name: _Given(raw, BY_NAME[name].flag, sources.folder, 2) for name, raw in given.items()}


def _from_file(loading: _Loading, project: Project) -> dict[str, _Given]:
    found: dict[str, _Given] = {}
    for name, raw in project.settings.items():
        if name in BY_NAME and name != "project":
            found[name] = _Given(raw, str(project.file), project.folder, 0)
        else:
            hint = did_you_mean(name, (*BY_NAME, "agents", "deploy"))
            loading.problems.append(f"{project.file}: unknown setting `{name}`.{hint}")
    return found


def _from_environment(loading: _Loading, project: Project, sources: _Sources) -> dict[str, _Given]:
    found: dict[str, _Given] = {}
    environment = {**project.environment, **sources.environ}
    for variable, name in (*ALIASES.items(), *((known, setting.name) for known, setting in BY_VARIABLE.items())):
        raw = environment.get(variable, "")
        if not raw.strip():
            continue  # an empty variable is an unset one: compose files pass them so
        if variable in sources.environ:
            found[name] = _Given(raw, variable, sources.folder, 1)
        else:
            found[name] = _Given(raw, f"{variable} in env of {project.file}", project.folder, 0)
    for variable in sorted(environment):
        if variable.startswith(_PREFIX) and variable not in BY_VARIABLE and variable not in OTHER_VARIABLES:
            hint = did_you_mean(variable, (*BY_VARIABLE, *OTHER_VARIABLES))
            loading.problems.append(f"Unknown variable {variable}.{hint}")
    return found


# -- agents -----------------------------------------------------------------------------------------------------------


def _agents(loading: _Loading, project: Project) -> tuple[AgentSettings, ...]:
    defaults = {name: value for name, value in loading.values.items() if BY_NAME[name].of_agent}
    if not project.agents:
        return (AgentSettings(name="agent", base=project.folder, **defaults),)
    found = [_agent(loading, project, name, table, defaults) for name, table in project.agents.items()]
    return tuple(agent for agent in found if agent is not None)


def _agent(
    loading: _Loading, project: Project, name: str, table: Any, defaults: Mapping[str, Any]
) -> AgentSettings | None:
    where = f"{project.file}: agent `{name}`"
    if not _AGENT_NAME.fullmatch(name):
        loading.problems.append(f"{where}: a name has letters, digits, `_`, `-`, `.`, at most 64 of them.")
        return None
    if not isinstance(table, dict):
        loading.problems.append(f"{where} must be a table: [agents.{name}].")
        return None
    read = dict(defaults)
    for key, raw in table.items():
        reader = _agent_reader(key)
        if reader is None:
            known = (*ONLY_IN_AGENT_TABLES, *(setting.name for setting in SETTINGS if setting.of_agent))
            loading.problems.append(f"{where}: unknown key `{key}`.{did_you_mean(key, known)}")
            continue
        try:
            read[key] = reader(raw, project.folder)
        except ValueError as error:
            loading.problems.append(f"{where}: `{key}` {error}.")
        loading.origins[f"agents.{name}.{key}"] = str(project.file)
        _tell_overruled(loading, name, key)
    if "graph" in read:
        read["graph"] = next(iter(read["graph"]), None)
    return AgentSettings(name=name, base=project.folder, **read)


def _agent_reader(key: str) -> values.Reader | None:
    if key in ONLY_IN_AGENT_TABLES:
        return ONLY_IN_AGENT_TABLES[key]
    setting = BY_NAME.get(key)
    return setting.reader if setting is not None and setting.of_agent else None


def _tell_overruled(loading: _Loading, agent: str, key: str) -> None:
    """A default said by variable or flag does not touch an agent that has its own value; nobody should wonder why."""
    if key in BY_NAME and BY_NAME[key].of_agent and loading.ranks.get(key, 0) > 0:
        origin = loading.origins[key]
        loading.notices.append(f"{origin} is a default: agent `{agent}` has its own `{key}` in the project file.")


# -- what follows from several values ---------------------------------------------------------------------------------


def _resolve_token(loading: _Loading) -> None:
    """The token itself, or read from its file; the higher source wins, both from the same source is refused."""
    file = loading.values.get("token_file")
    if file is None:
        return
    token_rank, file_rank = loading.ranks.get("token", -1), loading.ranks["token_file"]
    if token_rank == file_rank:
        loading.problems.append("`token` and `token_file` are both given: keep one of them.")
    if token_rank >= file_rank:
        return
    try:
        loading.values["token"] = values.secret(file.read_text(encoding="utf-8").strip(), file.parent)
        loading.origins["token"] = f"the file of {loading.origins['token_file']}"
    except OSError as error:
        loading.problems.append(f"`token_file` names {file}, which cannot be read ({error.strerror}).")
    except ValueError:
        loading.problems.append(f"`token_file`: the content of {file} must be printable ASCII without spaces.")


def _resolve_database(loading: _Loading, environment: Mapping[str, str]) -> None:
    if "database" in loading.origins:
        return
    place = default_database(environment)
    loading.values["database"] = place.path
    loading.origins["database"] = place.origin
    if place.notice:
        loading.notices.append(place.notice)


def _assembled(loading: _Loading, project: Project, agents: tuple[AgentSettings, ...]) -> Settings:
    of_server = {name: value for name, value in loading.values.items() if not BY_NAME[name].of_agent}
    of_server["project"] = project.file
    if project.file is not None:
        loading.origins.setdefault("project", "found in the working folder")
    if "default_agent" not in of_server and agents:
        of_server["default_agent"] = agents[0].name
    return Settings(
        **of_server,
        agents=agents,
        import_paths=project.import_paths,
        environment=project.environment,
        notices=(*loading.notices, *(notice for agent in agents for notice in _without_effect(agent))),
        origins=dict(loading.origins),
    )


def _without_effect(agent: AgentSettings) -> Iterable[str]:
    """Nobody should believe that a setting guards something while it does nothing. The demo agent gates a tool by itself."""
    gates = agent.needs_approval or (agent.graph is None and agent.model == "demo")
    if agent.approval_expires_seconds is not None and not gates:
        yield f"Agent `{agent.name}`: `approval_expires_seconds` does nothing while `needs_approval` names no tool."
    if agent.poll and agent.max_identical_calls is None:
        yield f"Agent `{agent.name}`: `poll` does nothing while `max_identical_calls` is not set."


def _default_agent(settings: Settings) -> Iterable[str]:
    names = [agent.name for agent in settings.agents]
    if names and settings.default_agent not in names:
        hint = did_you_mean(settings.default_agent, names)
        yield f"`default_agent` names {settings.default_agent!r}, but the agents are: {', '.join(names)}.{hint}"


def _combinations(settings: Settings, origins: Mapping[str, str]) -> Iterable[str]:
    if settings.sweep_seconds * 2 > settings.lease_seconds:
        yield (
            f"`sweep_seconds` ({settings.sweep_seconds:g}) must be at most half of `lease_seconds` "
            f"({settings.lease_seconds:g}), so that a dead owner is found soon after its lease ends."
        )
    if settings.max_attempts > settings.total_attempts:
        yield (
            f"`max_attempts` ({settings.max_attempts}) must not exceed `total_attempts` ({settings.total_attempts})."
        )
    # A token that was given but refused is told already; only one that nobody gave is missing.
    if not loopback(settings.host) and settings.token is None and not {"token", "token_file"} & origins.keys():
        yield (
            f"`host` {settings.host} can be reached from other machines: set PERDURE_TOKEN or PERDURE_TOKEN_FILE, "
            "or listen on 127.0.0.1."
        )


def loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def defaults(kind: type[Settings] | type[AgentSettings]) -> dict[str, Any]:
    """Field → its default, for those that have a plain one."""
    return {entry.name: entry.default for entry in fields(kind) if entry.default is not MISSING}
