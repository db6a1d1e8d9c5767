"""Settings: one frozen record of all that can be set, validated whole, once, with helpful refusals.

The order is file, environment, flag (rising). Every setting is `PERDURE_<NAME>` and a flag `--name-with-dashes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """One agent: a user's graph, or a model with a prompt and tools."""

    name: str
    graph: str | None = None
    """`./file.py:graph` (relative to the file that names it), or None for the built-in agent ⇄ tools graph."""

    base: Path = field(default_factory=Path)
    """The folder relative paths start from."""

    model: str = "demo"
    """An `init_chat_model` name, `provider:model`, or `demo`."""

    model_base_url: str | None = None
    """For OpenAI-compatible and Ollama servers."""

    system_prompt_file: Path | None = None
    mcp_config: Path | None = None
    tools: tuple[str, ...] = ()
    """`module:attribute` or `./file.py:attribute`, each a LangChain tool, a function or a list of them."""

    state_types: tuple[str, ...] = ()
    """`module:Class`: extra types that the graph's state may hold."""

    context_tokens: int | None = None
    recursion_limit: int = 25
    redrive: str = "auto"
    """`auto` or `manual`."""

    max_running: int | None = None
    """Turns of this agent driven at once; None for no limit of its own."""

    needs_approval: tuple[str, ...] = ()
    """Tool names or globs (`fs__write_*`): a person is asked before each call."""

    effects: tuple[str, ...] = ()
    """`glob=class`, the first that matches decides: what a tool does to the world, over its own declaration."""

    on_uncertain: str = "ask"
    """`ask`, `retry` or `fail`: what becomes of a `once` call whose outcome is not known."""

    approval_expires_seconds: float | None = None
    """An approval that nobody decides in this time is denied; None: it waits."""

    approval_deciders: tuple[str, ...] = ()
    """Names of the tokens that may decide; empty: the conversation's owner and every operator."""

    poll: tuple[str, ...] = ()
    """Tool names or globs that may be called with the same arguments in a row without end."""

    max_model_calls: int | None = None
    max_tool_calls: int | None = None
    max_tokens: int | None = None
    max_turn_seconds: float | None = None
    """Limits of one turn since its accept or a person's resume; None for none. Parked time does not count."""

    max_identical_calls: int | None = None
    """The same tool with the same arguments so often in a row ends the turn."""


@dataclass(frozen=True, slots=True)
class Settings:
    host: str = "127.0.0.1"
    port: int = 8700
    allowed_hosts: tuple[str, ...] = ()
    """Host header values served beside the loopback names (`name` or `name:port`)."""

    database: Path | None = None
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    project: Path | None = None
    """`perdure.toml` or `langgraph.json`; None when there is none."""

    agents: tuple[AgentSettings, ...] = (AgentSettings(name="agent"),)
    default_agent: str = "agent"

    max_running: int = 64
    """Turns driven at once by this process."""

    lease_seconds: float = 30.0
    sweep_seconds: float = 5.0
    drain_seconds: float = 25.0
    model_retry_seconds: float = 120.0
    model_idle_timeout_seconds: float = 120.0
    tool_timeout_seconds: float = 300.0
    max_attempts: int = 3
    total_attempts: int = 50
    heartbeat_seconds: float = 10.0
    retention_days: float | None = None
    max_message_bytes: int = 1_000_000
    log_level: str = "info"
    log_format: str = "auto"
    """`auto` (console on a terminal, else JSON), `console` or `json`."""

    nats_url: str | None = None
    """`nats://host:port`, several with commas; of `perdure agent` and `perdure gateway`."""

    nats_prefix: str = "perdure"
    """The first word of every subject."""

    namespace: str = "default"
    """Agents and gateways of one namespace find each other."""

    agent_name: str | None = None
    """Which agent `perdure agent` serves; None: the only one of the project."""

    nats_credentials_file: Path | None = None
    nats_nkey_file: Path | None = None
    nats_ca_file: Path | None = None
    nats_certificate_file: Path | None = None
    nats_key_file: Path | None = None
    turn_deadline_seconds: float = 900.0
    """How long a gateway follows a turn without an end, parked time not counted; 0: for ever."""

    agent_wait_seconds: float = 5.0
    """How long a gateway waits for an agent before it says that it is unavailable."""

    import_paths: tuple[Path, ...] = ()
    """Folders of the project that its graphs and tools import from."""

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables that a project's `env` sets where the process has none of that name; only the command line reads them."""

    notices: tuple[str, ...] = ()
    """What was found odd but usable while loading, one sentence each."""

    origins: Mapping[str, str] = field(default_factory=dict)
    """Setting name → where its value came from (`default`, a file, a variable, a flag); `agents.NAME.model` for agents."""


# -- a deployment: the table `[deploy]`, which only `perdure plan`, `apply` and their like read -------------------------


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What a container may use; None: without a limit."""

    memory: int | None = None
    """Bytes."""

    cpus: float | None = None
    pids: int | None = None


@dataclass(frozen=True, slots=True)
class AgentDeploySettings:
    """`[deploy.agents.NAME]`: of one agent's container, beside what holds for all of them."""

    image: str | None = None
    secrets: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: LimitSettings = LimitSettings()


@dataclass(frozen=True, slots=True)
class GatewayDeploySettings:
    """`[deploy.gateway]`: of the container that serves people (with transport `embedded`: of the only one)."""

    port: int = 8700
    bind: str = "127.0.0.1"
    """Address of the engine's host at which the port is published."""

    token_file: Path | None = None
    """On this machine; None: made once, beside the project file."""

    allowed_hosts: tuple[str, ...] = ()
    limits: LimitSettings = LimitSettings()


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """`[deploy.services.NAME]`: another program that agents reach at `NAME`."""

    image: str
    command: tuple[str, ...] = ()
    """Empty: what the image says."""

    secrets: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    capabilities: tuple[str, ...] = ()
    """Given back after all were taken."""

    read_only: bool = False
    health: tuple[str, ...] = ()
    """A command that succeeds when the service is usable; empty: what the image says."""

    limits: LimitSettings = LimitSettings()


@dataclass(frozen=True, slots=True)
class VolumeSettings:
    """`[deploy.volumes.NAME]`. A volume of the engine (`volume`, made by somebody else), a folder of its host, or one made here."""

    at: Mapping[str, str]
    """Agent, service, `gateway` or `nats` → absolute path in its container."""

    volume: str | None = None
    folder: str | None = None
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class DeploySettings:
    name: str = "perdure"
    """The project: the word by which everything of it is named and found."""

    transport: str = "embedded"
    """`embedded`: one container; `nats`: NATS, one container for each agent, a gateway."""

    platform: str = "docker"
    base_image: str = "python:3.12-slim-bookworm"
    """What images are built on."""

    wheelhouse: Path | None = None
    """A folder of wheels from which images are built without a network. It is no part of what an image is: other wheels make no
    difference, since the lock says by digest which of them are taken."""

    image: str | None = None
    """An image with Perdure and the project in /app, used as it is; None: built here."""

    exclude: tuple[str, ...] = ()
    """Globs of project files that do not go into images, beside hidden files, databases and secrets."""

    secrets: tuple[str, ...] = ()
    """Names of variables of whoever applies; agents get them with their values."""

    environment: Mapping[str, str] = field(default_factory=dict)
    gateway: GatewayDeploySettings = GatewayDeploySettings()
    agents: Mapping[str, AgentDeploySettings] = field(default_factory=dict)
    services: Mapping[str, ServiceSettings] = field(default_factory=dict)
    volumes: Mapping[str, VolumeSettings] = field(default_factory=dict)
    of_gateway: Mapping[str, str] = field(default_factory=dict)
    """Variables for a gateway's container: the project file's settings that concern it."""
